"""Packed networks laid out for products that move their kernels (`cta.fast.adam`).

First layers are padded as their inputs are, and their copies for products lie as these want them: rounded values and
remainders one after the other, groups of a fan side by side.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from cta.agents import Networks
from cta.fast.adam import Slot, fits
from cta.fast.packing import Part, Spread, Weights


class Form(NamedTuple):
    """How a kernel that products move lies; a first one's inputs are one part."""

    first: bool = False
    exact: bool = False
    fan: bool = False


Forms = Callable[[str, tuple[Any, ...]], Form | None]
"""The form of a kernel by its network and the names on the way to it; None for one that is moved as all else is."""


def _form(forms: Forms, path: Any, leaf: Any) -> Form | None:
    """That of a leaf, unless it cannot be cut into tiles."""
    name, *way = (getattr(key, "name", getattr(key, "key", getattr(key, "idx", None))) for key in path)
    form = forms(str(name), tuple(way)) if way[-1] == "kernel" else None
    inputs = leaf.shape[1]
    return form if form and fits(Part(inputs).padded if form.first else inputs, leaf.shape[2]) else None


def lay(forms: Forms, packed: Networks) -> Networks:
    """Padded; whatever is shaped like networks."""

    def one(path: Any, leaf: Array) -> Array:
        form = _form(forms, path, leaf)
        more = Part(leaf.shape[1]).padded - leaf.shape[1] if form and form.first else 0
        return jnp.pad(leaf, ((0, 0), (0, more), (0, 0))) if more else leaf

    return jax.tree_util.tree_map_with_path(one, packed)


def unlay(laid: Networks, like: Networks) -> Networks:
    """The inverse of `lay`; `like` is what was laid, or its shapes."""
    return jax.tree.map(lambda x, y: x[:, : y.shape[1]] if x.shape != y.shape else x, laid, like)


def copied(forms: Forms, laid: Networks, dtype: Any) -> Weights:
    """`Weights.of`."""

    def one(path: Any, leaf: Array) -> Any:
        if path[-1].name != "kernel":
            return None
        copy, form = lax.stop_gradient(leaf).astype(dtype), _form(forms, path, leaf)
        if not form or not form.first:
            return copy
        copy = jnp.concatenate([copy] * (1 + form.exact), axis=1)
        return Spread(copy.swapaxes(0, 1) if form.fan else copy)

    return Weights(laid, jax.tree_util.tree_map_with_path(one, laid))


def is_slot(x: Any) -> bool:
    return isinstance(x, Slot)


class Laid(NamedTuple):
    """All that a step changes, as lists of one length: what is missing is None."""

    weights: list
    low: list
    moments: tuple[list, list]
    targets: list
    target_low: list


def flat(structure: Any, weights: Weights, targets: Weights, moments: tuple[Networks, Networks]) -> Laid:
    """In the order of a tree structure."""

    def whole(part: Networks) -> list:
        blank = {name: jax.tree.map(lambda _: None, weights.networks[name]) for name in weights.networks.keys() - part}
        return structure.flatten_up_to({**part, **blank})

    mean, square = map(whole, moments)
    full, low, target, target_low = map(whole, (*weights, *targets))
    return Laid(full, low, (mean, square), target, target_low)


def joined(found: list, others: Iterator[tuple[Any, ...]], old: Laid) -> Laid:
    """What products have moved, and the `others` (weight, moments, target) in turn where they have not."""

    def copy(full: Array | None, low: Any) -> Any:
        return None if full is None or low is None else full.astype(low.dtype)

    new = Laid([], [], ([], []), [], [])
    for one, low in zip(found, old.low, strict=True):
        if is_slot(one):
            weight, mean, square, copies, target, target_copies, _ = one
            if isinstance(low, Spread):
                copies = Spread(copies)
                target_copies = target_copies if target is None else Spread(target_copies)
        else:
            weight, mean, square, target = next(others)
            copies, target_copies = copy(weight, low), copy(target, low)
        row = (weight, copies, mean, square, target, target_copies)
        for column, value in zip((new.weights, new.low, *new.moments, new.targets, new.target_low), row, strict=True):
            column.append(value)
    return new


def trees(structure: Any, laid: Laid, targets: Networks) -> tuple[Weights, Weights, tuple[Networks, Networks]]:
    """The inverse of `flat`, with targets of these names."""

    def of_targets(values: list) -> Networks:
        return {name: tree for name, tree in structure.unflatten(values).items() if name in targets}

    mean, square = map(structure.unflatten, laid.moments)
    weights = Weights(structure.unflatten(laid.weights), structure.unflatten(laid.low))
    return weights, Weights(of_targets(laid.targets), of_targets(laid.target_low)), (mean, square)


def slotted(
    forms: Forms, weights: Weights, targets: Weights, moments: tuple[Networks, Networks], rates: Array
) -> Networks:
    """The networks, with slots in place of the kernels that products move."""
    paths, structure = jax.tree_util.tree_flatten_with_path(weights.networks)
    found = []
    old = flat(structure, weights, targets, moments)
    rows = zip(paths, old.low, *old.moments, old.targets, old.target_low, strict=True)
    for (path, leaf), low, mean, square, target, target_low in rows:
        if _form(forms, path, leaf):
            low, target_low = (x.kernel if isinstance(x, Spread) else x for x in (low, target_low))
            leaf = Slot(leaf, mean, square, low, target, target_low, rates)
        found.append(leaf)
    return jax.tree.unflatten(structure, found)
