"""Row kernels: everything in a hidden layer that is not a matrix product, one pass over memory each way.

Arrays have a leading axis of groups: layers of equal shape with weights of their own. A program handles a few rows of
one group, whole rows at a time, in float32. Without a GPU the kernels run interpreted.

A layer's `vectors` are (groups, 3, out): bias, and scale and offset of the norm; (groups, 1, out) without norm.
"""

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


class Tile(NamedTuple):
    """What one program handles: about so many numbers, with so many warps."""

    numbers: int
    warps: int


TILES = {
    "activate": Tile(2048, 4), "activate_back": Tile(8192, 4), "pair": Tile(4096, 4), "pair_back": Tile(4096, 4),
}  # fmt: skip
"""The fastest of about seven each on an H200, at the shapes of CTA with 8 seeds."""


def interpreted() -> bool:
    """Whether kernels run interpreted, for want of a GPU."""
    return jax.default_backend() == "cpu"


def gelu(u: Array) -> Array:
    """tanh-form GELU."""
    return u * _gate(u)


def gelu_slope(u: Array) -> Array:
    """Derivative of `gelu`."""
    gate = _gate(u)
    return gate + u * gate * (1.0 - gate) * (2 * INNER) * (1.0 + 3 * CUBIC * u * u)


def _gate(u: Array) -> Array:
    """`(1 + tanh t)/2`, t = √(2/π)(u + 0.044715u³). The GPU's own tanh: one instruction, 2⁻¹¹ off at most."""
    t = INNER * u * (1.0 + CUBIC * u * u)
    return 0.5 + 0.5 * (jnp.tanh(t) if interpreted() else triton.approx_tanh(t))


def _row_sum(a: Array) -> Array:
    """Sum over all axes but the first, which is kept."""
    for axis in range(a.ndim - 1, 0, -1):
        a = jnp.sum(a, axis=axis, keepdims=True)
    return a


def _unit_rows(a: Array) -> tuple[Array, Array]:
    """Rows of zero mean and unit variance, and 1/σ."""
    width = a.size // a.shape[0]
    centred = a - _row_sum(a) / width
    inverse = lax.rsqrt(_row_sum(centred * centred) / width + EPSILON)
    return centred * inverse, inverse


class _Layer:
    """A layer's vectors inside a kernel."""

    def __init__(self, ref: Any):
        self.bias = ref[0, 0][None]
        self.norm = ref.shape[1] == 3
        if self.norm:
            self.scale, self.offset = ref[0, 1][None], ref[0, 2][None]

    def product(self, ref: Any) -> Array:
        """The product with its bias."""
        return ref[0].astype(jnp.float32) + self.bias

    def forward(self, u: Array) -> Array:
        a = gelu(u)
        return _unit_rows(a)[0] * self.scale + self.offset if self.norm else a

    def backward(self, u: Array, dy: Array, sums: Any) -> Array:
        """The gradient at u; those at the vectors, summed over this program's rows, go to `sums`."""
        back = dy
        if self.norm:
            unit, inverse = _unit_rows(gelu(u))
            sums[0, 0, 1] = jnp.sum(dy * unit, axis=0)
            sums[0, 0, 2] = jnp.sum(dy, axis=0)
            back = dy * self.scale
            width = u.size // u.shape[0]
            back = inverse * (back - _row_sum(back) / width - unit * (_row_sum(back * unit) / width))
        du = back * gelu_slope(u)
        sums[0, 0, 0] = jnp.sum(du, axis=0)
        return du


def _activate(u: Any, vectors: Any, y: Any) -> None:
    layer = _Layer(vectors)
    y[0] = layer.forward(layer.product(u)).astype(y.dtype)


def _activate_back(u: Any, vectors: Any, dy: Any, du: Any, sums: Any) -> None:
    layer = _Layer(vectors)
    du[0] = layer.backward(layer.product(u), dy[0].astype(jnp.float32), sums).astype(du.dtype)


def _pair(f: Any, f_vectors: Any, g: Any, g_vectors: Any, h: Any) -> None:
    left, right = _Layer(f_vectors), _Layer(g_vectors)
    found = left.forward(left.product(f)) * right.forward(right.product(g))
    h[0] = jnp.sum(found, axis=-1).astype(h.dtype)


def _pair_back(f: Any, f_vectors: Any, g: Any, g_vectors: Any, dh: Any, df: Any, dg: Any, f_sums: Any, g_sums: Any):
    left, right = _Layer(f_vectors), _Layer(g_vectors)
    u, w, back = left.product(f), right.product(g), dh[0].astype(jnp.float32)[:, :, None]
    df[0] = left.backward(u, back * right.forward(w), f_sums).astype(df.dtype)
    dg[0] = right.backward(w, back * left.forward(u), g_sums).astype(dg.dtype)


def _call(kernel: Any, name: str, grid: tuple[int, int], inputs: list, outputs: list) -> list:
    """`inputs` and `outputs`: (array or shape, block spec)."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=TILES[name].warps, num_stages=1),
        interpret=interpreted(),
        name=name,
    )(*[array for array, _ in inputs])


def _rows(width: tuple[int, ...], count: int, block: Any = None) -> pl.BlockSpec:
    """`count` rows of one group; program i handles rows of block `block(i)`, by default its own."""
    return pl.BlockSpec((1, count, *width), lambda g, i: (g, i if block is None else block(i), *[0] * len(width)))


def _of_group(vectors: Array) -> tuple[Array, pl.BlockSpec]:
    zeros = [0] * (vectors.ndim - 1)
    return vectors, pl.BlockSpec((1, *vectors.shape[1:]), lambda g, i: (g, *zeros))


def _sums(vectors: Array, blocks: int) -> tuple[jax.ShapeDtypeStruct, pl.BlockSpec]:
    """Sums of every program: (groups, programs, …)."""
    zeros = [0] * (vectors.ndim - 1)
    shape = jax.ShapeDtypeStruct((vectors.shape[0], blocks, *vectors.shape[1:]), jnp.float32)
    return shape, pl.BlockSpec((1, 1, *vectors.shape[1:]), lambda g, i: (g, i, *zeros))


def _rows_a_program(name: str, rows: int, width: int) -> int:
    """The largest power of two that divides `rows` and fits the kernel's tile."""
    count = 1
    while rows % (2 * count) == 0 and 2 * count * width <= TILES[name].numbers:
        count *= 2
    return count


def activate(u: Float[Array, "groups rows out"], vectors: Array, dtype: Any) -> Float[Array, "groups rows out"]:
    """Bias, GELU and norm of a product, in `dtype`."""
    groups, rows, width = u.shape
    count = _rows_a_program("activate", rows, width)
    spec = _rows((width,), count)
    out = jax.ShapeDtypeStruct(u.shape, dtype)
    return _call(_activate, "activate", (groups, rows // count), [(u, spec), _of_group(vectors)], [(out, spec)])[0]


def activate_back(u: Array, vectors: Array, dy: Array) -> tuple[Array, Array]:
    """Gradients at the first rows of u, as many as `dy` has (in u's type), and at the vectors."""
    groups, rows, width = dy.shape
    count = _rows_a_program("activate_back", rows, width)
    spec, blocks = _rows((width,), count), rows // count
    inputs = [(u, spec), _of_group(vectors), (dy, spec)]
    outputs = [(jax.ShapeDtypeStruct(dy.shape, u.dtype), spec), _sums(vectors, blocks)]
    du, sums = _call(_activate_back, "activate_back", (groups, blocks), inputs, outputs)
    return du, jnp.sum(sums, axis=1)


def pair(
    f: Float[Array, "groups rows p b"], f_vectors: Array, g: Float[Array, "groups anchors p b"], g_vectors: Array,
    *, part: int, shared: int, dtype: Any,
) -> Float[Array, "groups rows p"]:  # fmt: skip
    """`h_i = Σ_j f_ij g_ij` of two activated products.

    Rows come in parts of `part`; the first `shared` parts meet the anchors' first part, each later one the next.
    """
    groups, rows, *width = f.shape
    count = _rows_a_program("pair", part, width[0] * width[1])
    per_part = part // count

    def block(i: Any) -> Any:
        return jnp.maximum(i // per_part - (shared - 1), 0) * per_part + i % per_part

    met = _rows(tuple(width), count, block)
    inputs = [(f, _rows(tuple(width), count)), _of_group(f_vectors), (g, met), _of_group(g_vectors)]
    outputs = [(jax.ShapeDtypeStruct((groups, rows, width[0]), dtype), _rows((width[0],), count))]
    return _call(_pair, "pair", (groups, rows // count), inputs, outputs)[0]


def pair_back(f: Array, f_vectors: Array, g: Array, g_vectors: Array, dh: Array) -> tuple[Array, Array, Array, Array]:
    """Gradients of `pair` at the first rows of f and g (row n with anchor n), as many as `dh` has, and at the vectors.

    In the order f, g, f's vectors, g's vectors.
    """
    groups, rows, *width = *dh.shape[:2], *f.shape[2:]
    count = _rows_a_program("pair_back", rows, width[0] * width[1])
    spec, blocks = _rows(tuple(width), count), rows // count
    inputs = [(f, spec), _of_group(f_vectors), (g, spec), _of_group(g_vectors), (dh, _rows((width[0],), count))]
    like = (jax.ShapeDtypeStruct((groups, rows, *width), f.dtype), spec)
    outputs = [like, like, _sums(f_vectors, blocks), _sums(g_vectors, blocks)]
    df, dg, *sums = _call(_pair_back, "pair_back", (groups, blocks), inputs, outputs)
    return df, dg, *[jnp.sum(s, axis=1) for s in sums]  # pyright: ignore[reportReturnType]
