"""What is wrong with a dataset, and where, in one line."""

from typing import Any

import numpy as np

from cta.data.npz import row_blocks
from cta.errors import CtaError


def as_observations(values: Any, *, label: str, key: str = "observations") -> np.ndarray:
    """float32 states or uint8 images; other floating types are converted."""
    array = _plain_array(values, label=label, key=key)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    return _as_float32(array, label=label, key=key, hint="float32 (states) or uint8 (images)")


def as_actions(values: Any, *, label: str) -> np.ndarray:
    """float32 actions of shape (N, A)."""
    array = _plain_array(values, label=label, key="actions")
    return _as_float32(array, label=label, key="actions", hint="float32 in [-1, 1]")


def as_terminals(values: Any, *, label: str, key: str = "terminals") -> np.ndarray:
    """Booleans, from booleans or from zeros and ones."""
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
        raise CtaError(f"{label}: {key} is a single value; expected an array with one row a time step")
    return array


def _as_float32(array: np.ndarray, *, label: str, key: str, hint: str) -> np.ndarray:
    if array.dtype.kind != "f":
        raise CtaError(f"{label}: {key} have dtype {array.dtype}; use {hint}")
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is reported by `check_finite`
        return np.ascontiguousarray(array, dtype=np.float32)


def check_shapes(observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray, *, label: str) -> None:
    """The three arrays have the right number of axes, no empty axis and one length."""
    if observations.ndim not in (2, 4) or 0 in observations.shape[1:]:
        raise CtaError(
            f"{label}: observations have shape {observations.shape}; use (N, d) for vectors or (N, H, W, C) for images"
        )
    if actions.ndim != 2 or actions.shape[1] == 0:
        raise CtaError(f"{label}: actions have shape {actions.shape}; expected (rows, action size)")
    if terminals.ndim != 1:
        raise CtaError(f"{label}: terminals have shape {terminals.shape}; expected (rows,)")
    lengths = {"observations": len(observations), "actions": len(actions), "terminals": len(terminals)}
    if len(set(lengths.values())) != 1:
        counts = ", ".join(f"{count} {key}" for key, count in lengths.items())
        raise CtaError(f"{label}: the arrays disagree in length: {counts}")
    if len(terminals) == 0:
        raise CtaError(f"{label}: the dataset is empty")
    if len(terminals) > np.iinfo(np.int32).max:
        raise CtaError(f"{label}: {len(terminals)} rows are more than 32-bit indices can address; split the dataset")


def check_episodes(terminals: np.ndarray, *, label: str) -> None:
    """Every episode ends inside the data and has at least one transition."""
    ends = np.flatnonzero(terminals)
    if ends.size == 0:
        raise CtaError(f"{label}: no terminals: mark the last row of every episode with True")
    if ends[-1] != len(terminals) - 1:
        raise CtaError(f"{label}: the last row ({len(terminals) - 1}) is not terminal: the last episode has no end")
    lengths = np.diff(ends, prepend=-1)
    short = np.flatnonzero(lengths == 1)
    if short.size:
        raise CtaError(f"{label}: episode {short[0]} has one row (row {ends[short[0]]}); an episode needs at least two")


def check_finite(array: np.ndarray, *, key: str, label: str) -> None:
    """No NaN and no infinity; says where the first one is."""
    if array.dtype.kind != "f":
        return
    for start, block in row_blocks(array):
        good = np.isfinite(block)
        if not good.all():
            row, *column = np.argwhere(~good)[0].tolist()
            raise CtaError(f"{label}: {key} has {block[row, *column]} at {_place(start + row, column)}")


def check_action_range(actions: np.ndarray, *, label: str) -> None:
    """All actions lie in [-1, 1]; says where the first one outside is."""
    for start, block in row_blocks(actions):
        bad = np.abs(block) > 1
        if bad.any():
            row, *column = np.argwhere(bad)[0].tolist()
            place = _place(start + row, column)
            raise CtaError(
                f"{label}: actions must lie in [-1, 1], found {block[row, *column]:.6g} at {place}: rescale them"
            )


def _place(row: int, column: list[int]) -> str:
    return f"row {row}" if not column else f"row {row}, column {column[0] if len(column) == 1 else tuple(column)}"
