"""What is wrong with a dataset, and where, in one line."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cta.data.npz import row_blocks
from cta.errors import CtaError
from cta.units import Bounds


def as_numbers(values: Any, *, label: str, key: str, images: bool = False) -> np.ndarray:
    """float32, converted from other floating types; `images` may also be uint8."""
    array = _plain_array(values, label=label, key=key)
    if images and array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        wanted = "float32 (states) or uint8 (images)" if images else "float32"
        raise CtaError(f"{label}: {key} have dtype {array.dtype}; use {wanted}")
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is reported by `check_finite`
        return np.ascontiguousarray(array, dtype=np.float32)


def as_terminals(values: Any, *, label: str, key: str = "terminals") -> np.ndarray:
    array = _plain_array(values, label=label, key=key)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iuf":
        raise CtaError(f"{label}: {key} have dtype {array.dtype}; use booleans, True on the last row of an episode")
    odd = np.flatnonzero((array != 0) & (array != 1))
    if odd.size:
        raise CtaError(f"{label}: {key} must be 0 or 1, found {array.flat[odd[0]]} at row {odd[0]}")
    return array.astype(bool)


def _plain_array(values: Any, *, label: str, key: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise CtaError(f"{label}: {key} is not a rectangular array") from None
    if array.dtype.hasobject:
        raise CtaError(f"{label}: {key} holds Python objects; use a plain numeric array")
    if array.ndim == 0:
        raise CtaError(f"{label}: {key} is a single value; expected an array with one row per time step")
    return array


def check_shapes(observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray, *, label: str) -> None:
    """The three arrays have the right number of axes, no empty axis and one length."""
    if observations.ndim not in (2, 4) or 0 in observations.shape[1:]:
        shapes = "(N, d) for vectors or (N, H, W, C) for images"
        raise CtaError(f"{label}: observations have shape {observations.shape}; use {shapes}")
    if actions.ndim != 2 or actions.shape[1] == 0:
        raise CtaError(f"{label}: actions have shape {actions.shape}; expected (rows, action size)")
    if terminals.ndim != 1:
        raise CtaError(f"{label}: terminals have shape {terminals.shape}; expected (rows,)")
    arrays = {"observations": observations, "actions": actions, "terminals": terminals}
    check_lengths({key: len(array) for key, array in arrays.items()}, label=label)


def check_lengths(lengths: Mapping[str, int], *, label: str) -> None:
    """The arrays have one length, neither none nor too many rows; known before any of their values is read."""
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {key}" for key, count in lengths.items())
        raise CtaError(f"{label}: the arrays disagree in length: {counts}")
    rows = max(lengths.values(), default=0)
    if rows == 0:
        raise CtaError(f"{label}: the dataset is empty")
    if rows > np.iinfo(np.int32).max:
        raise CtaError(f"{label}: {rows} rows are more than 32-bit indices can address; split the dataset")


def check_episodes(terminals: np.ndarray, *, label: str, least: int = 2) -> None:
    """Every episode ends inside the data and has at least so many rows, one or two."""
    ends = np.flatnonzero(terminals)
    if ends.size == 0:
        raise CtaError(f"{label}: no terminals: mark the last row of every episode with True")
    if not terminals[-1]:
        raise CtaError(f"{label}: the last row ({len(terminals) - 1}) is not terminal: the last episode has no end")
    short = np.flatnonzero(np.diff(ends, prepend=-1) < least)
    if short.size:
        raise CtaError(f"{label}: episode {short[0]} has one row (row {ends[short[0]]}); an episode needs at least two")


def check_finite(array: np.ndarray, *, key: str, label: str) -> None:
    if array.dtype.kind == "f" and (bad := _first(array, lambda block: ~np.isfinite(block))):
        raise CtaError(f"{label}: {key} has {bad[0]} at {bad[1]}")


def check_action_range(actions: np.ndarray, bounds: Bounds | None, *, label: str) -> None:
    """All actions lie between their bounds, or in [-1, 1]; says where the first one outside is."""
    bad = _first(actions, (lambda block: np.abs(block) > 1) if bounds is None else bounds.outside)
    if bad is None:
        return
    value, place, column = bad
    if bounds is None:
        stated = "(action_low and action_high in the data, or --action-bounds LOW HIGH)"
        found = f"actions must lie in [-1, 1], found {value:.6g} at {place}"
        raise CtaError(f"{label}: {found}: state their bounds {stated}, or rescale them")
    stated = f"[{bounds.low[column]:.6g}, {bounds.high[column]:.6g}]"
    raise CtaError(f"{label}: an action is {value:.6g} at {place}, outside its stated bounds {stated}")


def _first(array: np.ndarray, bad: Callable[[np.ndarray], np.ndarray]) -> tuple[Any, str, Any] | None:
    """(value, place in words, column) of the first number of a (rows, …) array that is bad."""
    for start, block in row_blocks(array):
        found = bad(block)
        if found.any():
            row, *column = np.argwhere(found)[0].tolist()
            where = column[0] if len(column) == 1 else tuple(column)
            return block[row, *column], f"row {start + row}, column {where}", where
    return None
