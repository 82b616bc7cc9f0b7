"""Row kernels: everything in a hidden layer that is not a matrix product, one pass over memory each way.

Arrays have a leading axis of groups: layers of equal shape with weights of their own. A program handles a few rows of
one group, whole rows at a time, in float32. Without a GPU the kernels run interpreted.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

EPSILON = 1e-6
INNER = 0.7978845608028654  # √(2/π)
CUBIC = 0.044715


class Vectors(NamedTuple):
    """What a hidden layer has beside its kernel: `y = norm(gelu(u + bias))·scale + offset`; no scale, no norm."""

    bias: Float[Array, "groups out"]
    scale: Float[Array, "groups out"] | None
    offset: Float[Array, "groups out"] | None


def gelu(u: Array) -> Array:
    """tanh-form GELU, as `u·σ(2t)`, t = √(2/π)(u + 0.044715u³)."""
    return u * _gate(u)


def gelu_slope(u: Array) -> Array:
    """Derivative of `gelu`."""
    gate = _gate(u)
    return gate + u * gate * (1.0 - gate) * (2 * INNER) * (1.0 + 3 * CUBIC * u * u)


def _gate(u: Array) -> Array:
    return 1.0 / (1.0 + jnp.exp(-2 * INNER * u * (1.0 + CUBIC * u * u)))


def _row_sum(a: Array) -> Array:
    """Sum over all axes but the first, which is kept."""
    for axis in range(a.ndim - 1, 0, -1):
        a = jnp.sum(a, axis=axis, keepdims=True)
    return a


def unit_rows(a: Array) -> tuple[Array, Array]:
    """Rows of zero mean and unit variance, and 1/σ."""
    width = a.size // a.shape[0]
    centred = a - _row_sum(a) / width
    inverse = lax.rsqrt(_row_sum(centred * centred) / width + EPSILON)
    return centred * inverse, inverse


def _activated(u: Array, scale: Array | None, offset: Array | None) -> Array:
    a = gelu(u)
    return a if scale is None or offset is None else unit_rows(a)[0] * scale + offset


def _pull_back(u: Array, dy: Array, scale: Array | None) -> tuple[Array, Array | None]:
    """Gradient at u, and the normalised rows."""
    if scale is None:
        return dy * gelu_slope(u), None
    unit, inverse = unit_rows(gelu(u))
    back = dy * scale
    width = u.size // u.shape[0]
    da = inverse * (back - _row_sum(back) / width - unit * (_row_sum(back * unit) / width))
    return da * gelu_slope(u), unit


class _Refs:
    """The vectors of a group as a kernel sees them, with a leading axis of length one."""

    def __init__(self, refs: list, norm: bool):
        self.bias = refs.pop(0)[...]
        self.scale = refs.pop(0)[...] if norm else None
        self.offset = refs.pop(0)[...] if norm else None


def _float(ref) -> Array:
    return ref[0].astype(jnp.float32)


def _activate_kernel(*refs, norm: bool):
    refs = list(refs)
    u, v, y = refs.pop(0), _Refs(refs, norm), refs.pop(0)
    y[0] = _activated(_float(u) + v.bias, v.scale, v.offset).astype(y.dtype)


def _store_sums(refs: list, du: Array, dy: Array, unit: Array | None) -> None:
    """Sums over this program's rows: gradients of bias, scale, offset."""
    refs.pop(0)[0] = jnp.sum(du, axis=0, keepdims=True)
    if unit is not None:
        refs.pop(0)[0] = jnp.sum(dy * unit, axis=0, keepdims=True)
        refs.pop(0)[0] = jnp.sum(dy, axis=0, keepdims=True)


def _activate_back_kernel(*refs, norm: bool):
    refs = list(refs)
    u, v, dy = refs.pop(0), _Refs(refs, norm), _float(refs.pop(0))
    du, unit = _pull_back(_float(u) + v.bias, dy, v.scale)
    out = refs.pop(0)
    out[0] = du.astype(out.dtype)
    _store_sums(refs, du, dy, unit)


def _pair_kernel(*refs, norm: bool):
    refs = list(refs)
    f, fv, g, gv, h = refs.pop(0), _Refs(refs, norm), refs.pop(0), _Refs(refs, norm), refs.pop(0)
    left = _activated(_float(f) + fv.bias, fv.scale, fv.offset)
    right = _activated(_float(g) + gv.bias, gv.scale, gv.offset)
    h[0] = jnp.sum(left * right, axis=-1).astype(h.dtype)


def _pair_back_kernel(*refs, norm: bool):
    refs = list(refs)
    f, fv, g, gv, dh = refs.pop(0), _Refs(refs, norm), refs.pop(0), _Refs(refs, norm), _float(refs.pop(0))
    df_out, dg_out = refs.pop(0), refs.pop(0)
    u, w = _float(f) + fv.bias, _float(g) + gv.bias
    dh = dh[:, :, None]
    df = dh * _activated(w, gv.scale, gv.offset)
    du, unit = _pull_back(u, df, fv.scale)
    df_out[0] = du.astype(df_out.dtype)
    _store_sums(refs, du, df, unit)
    dg = dh * _activated(u, fv.scale, fv.offset)
    dw, unit = _pull_back(w, dg, gv.scale)
    dg_out[0] = dw.astype(dg_out.dtype)
    _store_sums(refs, dw, dg, unit)


def _call(kernel: Any, name: str, grid: tuple[int, int], inputs: list, outputs: list, warps: int) -> list:
    """`inputs` and `outputs`: (array or shape, block spec)."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name=name,
    )(*[array for array, _ in inputs])


def _rows(width: tuple[int, ...], count: int, block: Any = None) -> pl.BlockSpec:
    """`count` rows of one group; program i reads rows of block `block(i)`."""
    return pl.BlockSpec((1, count, *width), lambda g, i: (g, i if block is None else block(i), *[0] * len(width)))


def _vectors(vectors: Vectors) -> list:
    return [(v, pl.BlockSpec((1, *v.shape[1:]), lambda g, i, n=v.ndim: (g, *[0] * (n - 1)))) for v in vectors if v is not None]


def _sums(vectors: Vectors, blocks: int) -> list:
    """Partial sums of every program: (groups, programs, …)."""
    found = []
    for v in vectors:
        if v is not None:
            shape = jax.ShapeDtypeStruct((v.shape[0], blocks, *v.shape[1:]), jnp.float32)
            found.append((shape, pl.BlockSpec((1, 1, *v.shape[1:]), lambda g, i, n=v.ndim: (g, i, *[0] * (n - 1)))))
    return found


def _gathered(vectors: Vectors, sums: list) -> Vectors:
    """Add up the partial sums, taking them off the list."""
    return Vectors(*[None if v is None else jnp.sum(sums.pop(0), axis=1) for v in vectors])


def _per_program(rows: int, width: int, elements: int) -> int:
    """The largest power of two that divides `rows` and keeps a program at about `elements` numbers."""
    count = 1
    while rows % (2 * count) == 0 and 2 * count * width <= elements:
        count *= 2
    return count


def activate(u: Float[Array, "groups rows out"], vectors: Vectors, dtype: Any) -> Float[Array, "groups rows out"]:
    """Bias, GELU and norm of a product, in `dtype`."""
    groups, rows, width = u.shape
    count = _per_program(rows, width, 4096)
    spec = _rows((width,), count)
    out = jax.ShapeDtypeStruct(u.shape, dtype)
    kernel = partial(_activate_kernel, norm=vectors.scale is not None)
    return _call(kernel, "activate", (groups, rows // count), [(u, spec), *_vectors(vectors)], [(out, spec)], 4)[0]


def activate_back(u: Array, vectors: Vectors, dy: Array) -> tuple[Array, Vectors]:
    """Gradients at the first rows of u, as many as `dy` has (in u's type), and at the vectors."""
    groups, rows, width = dy.shape
    count = _per_program(rows, width, 8192)
    spec = _rows((width,), count)
    inputs = [(u, spec), *_vectors(vectors), (dy, spec)]
    outputs = [(jax.ShapeDtypeStruct(dy.shape, u.dtype), spec), *_sums(vectors, rows // count)]
    kernel = partial(_activate_back_kernel, norm=vectors.scale is not None)
    du, *sums = _call(kernel, "activate_back", (groups, rows // count), inputs, outputs, 8)
    return du, _gathered(vectors, sums)


def pair(
    f: Float[Array, "groups rows p b"], fv: Vectors, g: Float[Array, "groups anchors p b"], gv: Vectors, part: int,
    anchor_of: tuple[int, ...], dtype: Any,
) -> Float[Array, "groups rows p"]:  # fmt: skip
    """`h_i = Σ_j f_ij g_ij` of two activated products. Rows come in parts of `part`; part n meets anchors' part `anchor_of[n]`."""
    groups, rows, *width = f.shape
    count = _per_program(part, width[0] * width[1], 8192)
    per_part = part // count

    def block(i: Any) -> Any:
        first = sum(jnp.where(i // per_part == n, anchor_of[n], 0) for n in range(len(anchor_of)))
        return first * per_part + i % per_part

    inputs = [(f, _rows(tuple(width), count)), *_vectors(fv), (g, _rows(tuple(width), count, block)), *_vectors(gv)]
    outputs = [(jax.ShapeDtypeStruct((groups, rows, width[0]), dtype), _rows((width[0],), count))]
    kernel = partial(_pair_kernel, norm=fv.scale is not None)
    return _call(kernel, "pair", (groups, rows // count), inputs, outputs, 8)[0]


def pair_back(f: Array, fv: Vectors, g: Array, gv: Vectors, dh: Array) -> tuple[Array, Vectors, Array, Vectors]:
    """Gradients of `pair` at the first rows of f and g (row n with anchor n), as many as `dh` has, and at the vectors."""
    groups, rows, *width = *dh.shape[:2], *f.shape[2:]
    count = _per_program(rows, width[0] * width[1], 8192)
    spec, blocks = _rows(tuple(width), count), rows // count
    inputs = [(f, spec), *_vectors(fv), (g, spec), *_vectors(gv), (dh, _rows((width[0],), count))]
    like = (jax.ShapeDtypeStruct((groups, rows, *width), f.dtype), spec)
    outputs = [like, like, *_sums(fv, blocks), *_sums(gv, blocks)]
    kernel = partial(_pair_back_kernel, norm=fv.scale is not None)
    df, dg, *sums = _call(kernel, "pair_back", (groups, blocks), inputs, outputs, 8)
    return df, _gathered(fv, sums), dg, _gathered(gv, sums)
