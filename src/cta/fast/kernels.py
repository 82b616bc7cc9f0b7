"""Row kernels: everything in a hidden layer that is not a matrix product, one pass over memory each way.

Arrays have an axis of groups: layers of equal shape with weights of their own. It comes first, or after the rows where
one product made all groups of the same inputs (a fan). A program handles a few rows of one group, whole rows at a time,
in float32. Without a GPU the kernels run interpreted.

A layer's `vectors` are (groups, 3, out): bias, and scale and offset of the norm; (groups, 1, out) without norm.
"""

import math
import re
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

try:
    from jax.experimental.pallas import triton
except ImportError:  # JAX 0.11 calls it deprecated: without it everything runs but these kernels
    triton: Any = None

EPSILON = 1e-6
INNER = 0.7978845608028654  # √(2/π)
CUBIC = 0.044715


class Work(NamedTuple):
    """What a program handles at a time, so many numbers and rows at most, how often, and with how many warps.

    One that does it several times reads its layer's vectors once, and writes their gradients' sums once.
    """

    numbers: int = 4096
    rows: int = 16
    times: int = 1
    warps: int = 4


WORK = {
    "activate": Work(1024, 16, 1, 1),
    "activate_back": Work(2048, 16, 4, 4),
    "pair": Work(2048, 16, 4, 4),
    "pair_back": Work(1024, 16, 4, 4),
}
"""Of six or seven choices for each kernel the fastest, or nearly so, on an H200 at the shapes of CTA with 8 seeds and
with 1 (benchmarks/kernels-trial-h200.json)."""


OLDEST = 8
"""Compute capability (its first number) of NVIDIA GPUs that multiply bfloat16."""


def interpreted() -> bool:
    """Whether kernels run interpreted, for want of a GPU."""
    return jax.default_backend() == "cpu"


def missing() -> str | None:
    """What the kernels lack here, if anything: Pallas for Triton, or a GPU that multiplies bfloat16."""
    if triton is None:
        return f"JAX {jax.__version__} has no Pallas for Triton"
    # Like "9.0"; other makers' GPUs have names there, a CPU has nothing.
    capability = getattr(jax.devices()[0], "compute_capability", None)
    if capability is None or ((number := re.match(r"\d+", capability)) and int(number[0]) >= OLDEST):
        return None
    return f"they need an NVIDIA GPU of compute capability {OLDEST}.0 or more, and this one's is {capability}"


def gelu(u: Array) -> Array:
    """tanh-form GELU."""
    return u * _gate(u)


def gelu_slope(u: Array) -> Array:
    """Derivative of `gelu`."""
    gate = _gate(u)
    return gate + u * gate * (1.0 - gate) * (2 * INNER) * (1.0 + 3 * CUBIC * u * u)


def _gate(u: Array) -> Array:
    """`(1 + tanh t)/2`, t = √(2/π)(u + 0.044715u³)."""
    return 0.5 + 0.5 * _tanh(INNER * u * (1.0 + CUBIC * u * u))


def _tanh(t: Array) -> Array:
    """The GPU's own: one instruction, off by 2⁻¹¹ of its value at most."""
    return jnp.tanh(t) if interpreted() else triton.approx_tanh(t)


def _row_sum(a: Array) -> Array:
    """Sum over all axes but the first, which is kept."""
    for axis in range(a.ndim - 1, 0, -1):
        a = jnp.sum(a, axis=axis, keepdims=True)
    return a


def _unit_rows(a: Array) -> tuple[Array, Array]:
    """Rows of zero mean and unit variance, and 1/σ, by sums of one pass."""
    width = a.size // a.shape[0]
    mean, square = _row_sum(a) / width, _row_sum(a * a) / width
    inverse = lax.rsqrt(jnp.maximum(square - mean * mean, 0.0) + EPSILON)
    return (a - mean) * inverse, inverse


class _Layer:
    """A layer's vectors inside a kernel."""

    def __init__(self, ref: Any):
        self.bias = ref[0][None]
        self.norm = ref.shape[0] == 3
        if self.norm:
            self.scale, self.offset = ref[1][None], ref[2][None]

    def product(self, u: Array) -> Array:
        """The product with its bias."""
        return u.astype(jnp.float32) + self.bias

    def forward(self, u: Array) -> Array:
        a = gelu(u)
        return _unit_rows(a)[0] * self.scale + self.offset if self.norm else a

    def backward(self, u: Array, dy: Array) -> tuple[Array, list[Array]]:
        """Gradients at u, and at the vectors, the latter row by row."""
        back, others = dy, []
        if self.norm:
            unit, inverse = _unit_rows(gelu(u))
            others = [dy * unit, dy]
            back = dy * self.scale
            width = u.size // u.shape[0]
            back = inverse * (back - _row_sum(back) / width - unit * (_row_sum(back * unit) / width))
        du = back * gelu_slope(u)
        return du, [du, *others]


def _in_turn(rows: int, count: int, do: Any, sums: tuple[Any, ...] = ()) -> None:
    """`do` for `count` rows after `count` rows; what it gives is added up over all rows and goes to `sums`."""
    if rows == count:
        found = do(slice(None))
    else:
        start = [[jnp.zeros((count, *ref.shape[1:]), jnp.float32)] * ref.shape[0] for ref in sums]

        def add(k: Any, total: Any) -> Any:
            return jax.tree.map(jnp.add, total, do(pl.ds(k * count, count)))

        found = lax.fori_loop(0, rows // count, add, start)
    for ref, values in zip(sums, found, strict=True):
        for i, value in enumerate(values):
            ref[i] = jnp.sum(value, axis=0)


def _write(found: Array, y: Any, part: Any, live: tuple[Any, ...], is_live: Any) -> None:
    """To `y`, and live rows once more to an array of their own, if there is one."""
    found = found.astype(y.dtype)
    y[part] = found
    if live:

        @pl.when(is_live)
        def _() -> None:
            live[0][part] = found


def _activate(live_blocks: int, count: int, u: Any, vectors: Any, y: Any, *live: Any) -> None:
    layer, is_live = _Layer(vectors), pl.program_id(1) < live_blocks

    def do(part: Any) -> list:
        _write(layer.forward(layer.product(u[part])), y, part, live, is_live)
        return []

    _in_turn(u.shape[0], count, do)


def _activate_back(count: int, u: Any, vectors: Any, dy: Any, du: Any, sums: Any) -> None:
    layer = _Layer(vectors)

    def do(part: Any) -> list:
        found, own = layer.backward(layer.product(u[part]), dy[part].astype(jnp.float32))
        du[part] = found.astype(du.dtype)
        return [own]

    _in_turn(u.shape[0], count, do, (sums,))


def _pair(live_blocks: int, count: int, f: Any, f_vectors: Any, g: Any, g_vectors: Any, h: Any, *live: Any) -> None:
    left, right, is_live = _Layer(f_vectors), _Layer(g_vectors), pl.program_id(1) < live_blocks

    def do(part: Any) -> list:
        found = left.forward(left.product(f[part])) * right.forward(right.product(g[part]))
        _write(jnp.sum(found, axis=-1), h, part, live, is_live)
        return []

    _in_turn(f.shape[0], count, do)


def _pair_back(
    count: int, f: Any, f_vectors: Any, g: Any, g_vectors: Any, dh: Any, df: Any, dg: Any, f_sums: Any, g_sums: Any
) -> None:
    left, right = _Layer(f_vectors), _Layer(g_vectors)

    def do(part: Any) -> list:
        u, w, back = left.product(f[part]), right.product(g[part]), dh[part].astype(jnp.float32)[:, :, None]
        found, f_own = left.backward(u, back * right.forward(w))
        df[part] = found.astype(df.dtype)
        found, g_own = right.backward(w, back * left.forward(u))
        dg[part] = found.astype(dg.dtype)
        return [f_own, g_own]

    _in_turn(f.shape[0], count, do, (f_sums, g_sums))


def _call(kernel: Any, name: str, grid: tuple[int, int], inputs: list, outputs: list) -> list:
    """`inputs` and `outputs`: (array or shape, block spec)."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=WORK[name].warps, num_stages=1),
        interpret=interpreted(),
        name=name,
    )(*[array for array, _ in inputs])


def _rows(width: tuple[int, ...], count: int, block: Any = None, fan: bool = False) -> pl.BlockSpec:
    """`count` rows of one group; program i handles rows of block `block(i)`, by default its own."""
    zeros = [0] * len(width)

    def index(g: Any, i: Any) -> tuple:
        i = i if block is None else block(i)
        return (i, g, *zeros) if fan else (g, i, *zeros)

    return pl.BlockSpec((count, None, *width) if fan else (None, count, *width), index)


def _of_group(vectors: Array) -> tuple[Array, pl.BlockSpec]:
    zeros = [0] * (vectors.ndim - 1)
    return vectors, pl.BlockSpec((None, *vectors.shape[1:]), lambda g, i: (g, *zeros))


def _sums(vectors: Array, blocks: int) -> tuple[jax.ShapeDtypeStruct, pl.BlockSpec]:
    """Sums of every program: (groups, programs, …)."""
    zeros = [0] * (vectors.ndim - 1)
    shape = jax.ShapeDtypeStruct((vectors.shape[0], blocks, *vectors.shape[1:]), jnp.float32)
    return shape, pl.BlockSpec((None, None, *vectors.shape[1:]), lambda g, i: (g, i, *zeros))


def _rows_a_program(rows: int, width: int, name: str) -> tuple[int, int]:
    """Rows at a time, the largest power of two that divides `rows` and is not too much; and those of a program."""

    def largest(most: int) -> int:
        return max(1, min(rows & -rows, 1 << (max(1, most).bit_length() - 1)))

    work = WORK[name]
    count = largest(min(work.rows, work.numbers // width))
    return count, largest(count * work.times)


def _split(groups: int, rows: int, live: int, width: int, count: int, dtype: Any) -> list[tuple[Any, pl.BlockSpec]]:
    """Outputs of `_write`: all rows and, where not all are live, the live ones."""
    outputs = [(jax.ShapeDtypeStruct((groups, rows, width), dtype), _rows((width,), count))]
    if live < rows:
        own = _rows((width,), count, lambda i: jnp.minimum(i, live // count - 1))
        outputs.append((jax.ShapeDtypeStruct((groups, live, width), dtype), own))
    return outputs


# Compiled for themselves, the next four are traced and lowered once a shape: a run starts in fewer seconds.


@partial(jax.jit, static_argnames=("dtype", "live", "fan"))
def activate(u: Array, vectors: Array, dtype: Any, *, live: int, fan: bool) -> tuple[Array, Array]:
    """Bias, GELU and norm of a product, (groups, rows, out) in `dtype`: all rows, and the `live` first ones.

    `u` is (groups, rows, out), a fan's (rows, groups, out).
    """
    rows, groups, width = u.shape if fan else (u.shape[1], u.shape[0], u.shape[2])
    count, span = _rows_a_program(math.gcd(rows, live), width, "activate")
    inputs = [(u, _rows((width,), span, fan=fan)), _of_group(vectors)]
    outputs = _split(groups, rows, live, width, span, dtype)
    found = _call(partial(_activate, live // span, count), "activate", (groups, rows // span), inputs, outputs)
    return found[0], found[-1]


@partial(jax.jit, static_argnames="fan")
def activate_back(u: Array, vectors: Array, dy: Float[Array, "groups rows out"], *, fan: bool) -> tuple[Array, Array]:
    """Gradients at the first rows of u, as many as `dy` has (in u's type and layout), and at the vectors."""
    groups, rows, width = dy.shape
    count, span = _rows_a_program(rows, width, "activate_back")
    spec, own, blocks = _rows((width,), span), _rows((width,), span, fan=fan), rows // span
    shape = (rows, groups, width) if fan else dy.shape
    outputs = [(jax.ShapeDtypeStruct(shape, u.dtype), own), _sums(vectors, blocks)]
    inputs = [(u, own), _of_group(vectors), (dy, spec)]
    du, sums = _call(partial(_activate_back, count), "activate_back", (groups, blocks), inputs, outputs)
    return du, jnp.sum(sums, axis=1)


@partial(jax.jit, static_argnames=("part", "shared", "dtype"))
def pair(
    f: Float[Array, "groups rows p b"], f_vectors: Array, g: Float[Array, "groups anchors p b"], g_vectors: Array,
    *, part: int, shared: int, dtype: Any,
) -> tuple[Float[Array, "groups rows p"], Float[Array, "groups part p"]]:  # fmt: skip
    """`h_i = Σ_j f_ij g_ij` of two activated products: all rows, and those of the first part.

    Rows come in parts of `part`; the first `shared` parts meet the anchors' first part, each later one the next.
    """
    groups, rows, *width = f.shape
    count, span = _rows_a_program(part, width[0] * width[1], "pair")
    per_part = part // span

    def block(i: Any) -> Any:
        return jnp.maximum(i // per_part - (shared - 1), 0) * per_part + i % per_part

    met = _rows(tuple(width), span, block)
    inputs = [(f, _rows(tuple(width), span)), _of_group(f_vectors), (g, met), _of_group(g_vectors)]
    outputs = _split(groups, rows, part, width[0], span, dtype)
    found = _call(partial(_pair, per_part, count), "pair", (groups, rows // span), inputs, outputs)
    return found[0], found[-1]


@jax.jit
def pair_back(f: Array, f_vectors: Array, g: Array, g_vectors: Array, dh: Array) -> tuple[Array, Array, Array, Array]:
    """Gradients of `pair` at the first rows of f and g (row n with anchor n), as many as `dh` has, and at the vectors.

    In the order f, g, f's vectors, g's vectors.
    """
    groups, rows, *width = *dh.shape[:2], *f.shape[2:]
    count, span = _rows_a_program(rows, width[0] * width[1], "pair_back")
    spec, blocks = _rows(tuple(width), span), rows // span
    inputs = [(f, spec), _of_group(f_vectors), (g, spec), _of_group(g_vectors), (dh, _rows((width[0],), span))]
    like = (jax.ShapeDtypeStruct((groups, rows, *width), f.dtype), spec)
    outputs = [like, like, _sums(f_vectors, blocks), _sums(g_vectors, blocks)]
    df, dg, *sums = _call(partial(_pair_back, count), "pair_back", (groups, blocks), inputs, outputs)
    return df, dg, *[jnp.sum(s, axis=1) for s in sums]  # pyright: ignore[reportReturnType]
