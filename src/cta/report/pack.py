"""Arrays of numbers as compact text: base64 of little-endian integers, which the page reads as typed arrays."""

import base64
from typing import Any

import numpy as np


def pack_integers(values: Any) -> dict[str, Any]:
    """Non-negative integers, exactly, in the smallest unsigned type."""
    array = np.asarray(values, np.int64)
    top = int(array.max(initial=0))
    kind = "u8" if top < 2**8 else "u16" if top < 2**16 else "u32"
    return _packed(array, kind)


def pack_numbers(values: Any) -> dict[str, Any]:
    """Real numbers (rows, columns) with 16 bits each: column j is offset[j] + scale[j]·integer."""
    array = np.asarray(values, np.float64)
    array = array[:, None] if array.ndim == 1 else array
    low, high = (array.min(0), array.max(0)) if len(array) else (np.zeros(array.shape[1]),) * 2
    scale = np.where(high > low, (high - low) / (2**16 - 1), 1.0)
    packed = _packed(np.rint((array - low) / scale).astype(np.int64), "u16")
    return packed | {"offset": _short(low), "scale": _short(scale)}


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.8g}") for value in values]


def _packed(array: np.ndarray, kind: str) -> dict[str, Any]:
    raw = array.astype(f"<{kind[0]}{int(kind[1:]) // 8}").tobytes()
    return {"kind": kind, "shape": list(array.shape), "data": base64.b64encode(raw).decode()}
