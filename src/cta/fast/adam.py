"""Adam and the moving averages inside the products that make the gradients, which are never stored.

A program makes a tile of `xᵀ·dy` and moves what lies there: weight, moments, target, and the copies for products.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from cta.fast.kernels import interpreted, triton

DECAYS = (0.9, 0.999)
EPSILON = 1e-8


class Tile(NamedTuple):
    """What one program handles: a tile of `inputs` × `outputs`, so many rows at a time."""

    inputs: int = 64
    outputs: int = 64
    rows: int = 64
    warps: int = 4
    stages: int = 3
    early: bool = False
    """Whether weights and moments are read before the product, not after it."""


TILE = Tile()
ROWS = (((0,), (0,)), ((), ()))
"""The product of two arrays over their rows."""
LEAST = 16
"""Sides of a tile at least, for the matrix units."""


class Slot(NamedTuple):
    """All that a step changes at a kernel.

    To differentiation it is what a layer learns by, and its cotangent is no gradient but the slot after the step. So a
    differentiated loss has to use it exactly once: cotangents of two uses are added, that of none is zero.
    """

    weight: Float[Array, "groups in out"]
    mean: Float[Array, "groups in out"]
    square: Float[Array, "groups in out"]
    low: Array
    """The copy for products: like the weight or, of a fan, (copies·in, groups, out)."""
    target: Float[Array, "groups in out"] | None
    target_low: Array | None
    rates: Float[Array, "5"]


def corrections(step: Array) -> Float[Array, "2"]:
    """What Adam divides its moments by at a step."""
    return 1 - jnp.array(DECAYS) ** step


def rates(step: Array, lr: float, tau: float) -> Float[Array, "5"]:
    """All numbers of a step that are the same for every weight."""
    return jnp.concatenate([corrections(step), jnp.array([lr, tau, 1 - tau])])


def fits(inputs: int, outputs: int) -> bool:
    """Whether a kernel of such sides can be cut into tiles."""
    return inputs % LEAST == 0 and outputs % LEAST == 0


def _side(length: int, most: int) -> int:
    """The largest power of two that divides `length`, `most` at most."""
    return min(length & -length, most)


def _move(copies: int, rows: int, tile: Tile, fan: bool, *refs: Any) -> None:
    x, dy, numbers, *state = refs
    count = 3 if len(state) == 7 else 4  # weight, moments, perhaps the target; out of it come copies, too
    old, new = state[:count], state[count:]
    before = [ref[...] for ref in old] if tile.early else None
    dtype = x.dtype
    precision = lax.Precision.HIGHEST if dtype == jnp.float32 else None

    def add(k: Any, total: Array) -> Array:
        part = pl.ds(k * rows, rows)
        right = dy[part, :].astype(dtype)
        for copy in range(copies):
            left = x[part, copy, :] if fan else x[part, :]
            total += lax.dot_general(left, right, ROWS, precision=precision, preferred_element_type=jnp.float32)
        return total

    total = jnp.zeros(old[0].shape, jnp.float32)
    g = lax.fori_loop(0, dy.shape[0] // rows, add, total)
    weight, mean, square, *target = before or [ref[...] for ref in old]
    (b1, b2), (first, second, lr, tau, rest) = DECAYS, (numbers[i] for i in range(5))
    mean = (1 - b1) * g + b1 * mean
    square = (1 - b2) * g * g + b2 * square
    moved = weight - lr * (mean / first) / (jnp.sqrt(square / second) + EPSILON)
    found = [(moved, new[0], new[3])]
    new[1][...], new[2][...] = mean, square
    if target:
        found.append((tau * weight + rest * target[0], new[4], new[5]))
    for value, full, low in found:
        full[...] = value
        value = value.astype(low.dtype)
        if fan:
            for copy in range(copies):
                low[copy] = value
        else:
            low[...] = value


@partial(jax.jit, static_argnames="tile")
def move(slot: Slot, x: Array, dy: Array, tile: Tile | None = None) -> Slot:
    """The slot after Adam's step along `xᵀ·dy`; the target moves towards the weight from before it.

    `x` is (groups, rows, in) and `dy` (groups, rows, out); of a fan (rows, copies·in) and (rows, groups, out).
    """
    tile = tile or TILE
    groups, inputs, outputs = slot.weight.shape
    m, n = _side(inputs, tile.inputs), _side(outputs, tile.outputs)
    fan, count = x.ndim == 2, dy.shape[0 if x.ndim == 2 else 1]
    copies = x.shape[-1] // inputs
    x = x.reshape(count, copies, inputs) if fan else x
    own = pl.BlockSpec((None, m, n), lambda g, i, j: (g, i, j))
    if fan:
        left = pl.BlockSpec((count, copies, m), lambda g, i, j: (0, 0, i))
        right = pl.BlockSpec((count, None, n), lambda g, i, j: (0, g, j))
        low = pl.BlockSpec((copies, m, None, n), lambda g, i, j: (0, i, g, j))
        low_shape = (copies, inputs, groups, outputs)
    else:
        left = pl.BlockSpec((None, count, m), lambda g, i, j: (g, 0, i))
        right = pl.BlockSpec((None, count, n), lambda g, i, j: (g, 0, j))
        low, low_shape = own, slot.low.shape
    kept = [slot.weight, slot.mean, slot.square, *([] if slot.target is None else [slot.target])]
    full = jax.ShapeDtypeStruct(slot.weight.shape, jnp.float32)
    copy = jax.ShapeDtypeStruct(low_shape, slot.low.dtype)
    shapes, specs = [full] * 3 + [copy], [own] * 3 + [low]
    aliases = {3: 0, 4: 1, 5: 2}
    if slot.target is not None:
        shapes, specs, aliases = [*shapes, full, copy], [*specs, own, low], {**aliases, 6: 4}
    found = pl.pallas_call(
        partial(_move, copies, _side(count, tile.rows), tile, fan),
        grid=(groups, inputs // m, outputs // n),
        in_specs=[left, right, pl.BlockSpec((5,), lambda g, i, j: (0,)), *[own] * len(kept)],
        out_specs=specs,
        out_shape=shapes,
        input_output_aliases=aliases,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=interpreted(),
        name="adam_move",
    )(x, dy, slot.rates, *kept)
    weight, mean, square, lower, *target = found
    target, target_low = target or (None, None)
    return Slot(
        weight, mean, square, lower.reshape(slot.low.shape),
        target, None if target_low is None else target_low.reshape(slot.low.shape), slot.rates,
    )  # fmt: skip
