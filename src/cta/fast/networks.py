"""Groups of equal networks, forwards and backwards in bfloat16 products with float32 sums.

Of the rows a network sees, the first ones (`live`) learn and the rest are frozen: they pass forwards together, and only
the live ones come back. A network's members are a leading axis of its arrays.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cta.fast.kernels import Vectors, activate, activate_back, pair, pair_back
from cta.fast.packing import Part, spread_kernel
from cta.nn.layers import Mlp


class Layer(NamedTuple):
    """A hidden layer: its kernel, the kernel's copy for products, and its vectors."""

    kernel: Float[Array, "groups in out"]
    low: Float[Array, "groups in out"]
    vectors: Vectors


class Affine(NamedTuple):
    """An output layer."""

    kernel: Float[Array, "groups in out"]
    low: Float[Array, "groups in out"]
    bias: Float[Array, "groups out"]


def product(x: Float[Array, "sources rows in"], low: Float[Array, "groups in out"], dtype: Any = None) -> Array:
    """`x·low` in every group; one source feeds all."""
    x = jnp.broadcast_to(x, (low.shape[0], *x.shape[1:])).astype(low.dtype)
    return jnp.einsum("grk,gkn->grn", x, low, preferred_element_type=dtype or low.dtype)


def _kernel_gradient(x: Array, du: Array) -> Array:
    x = jnp.broadcast_to(x[:, : du.shape[1]], (du.shape[0], du.shape[1], x.shape[2]))
    return jnp.einsum("grk,grn->gkn", x, du.astype(x.dtype), preferred_element_type=jnp.float32)


def _input_gradient(du: Array, low: Array) -> Array:
    return jnp.einsum("grn,gkn->grk", du.astype(low.dtype), low, preferred_element_type=low.dtype)


Saved = list[tuple[Array, Array]]
"""Inputs and products of every layer."""


def _forward(x: Array, layers: tuple[Layer, ...], last: Any = None) -> tuple[Array, Saved]:
    """The last layer's outputs, in the type `last` (by default the products'), and what the way back needs."""
    saved = []
    for i, layer in enumerate(layers):
        u = product(x, layer.low)
        saved.append((x, u))
        x = activate(u, layer.vectors, last if last and i + 1 == len(layers) else u.dtype)
    return x, saved


def _backward(dy: Array, layers: tuple[Layer, ...], saved: Saved, input_grad: bool) -> tuple[Any, tuple[Layer, ...]]:
    found = []
    dx: Any = dy
    for i in reversed(range(len(layers))):
        x, u = saved[i]
        du, vectors = activate_back(u, layers[i].vectors, dx)
        found.append(Layer(_kernel_gradient(x, du), None, vectors))  # pyright: ignore[reportArgumentType]
        dx = _input_gradient(du, layers[i].low) if i or input_grad else None
    return dx, tuple(reversed(found))


def _joined(live: Array, frozen: Array | None) -> Array:
    return live if frozen is None else jnp.concatenate([live, frozen], axis=1)


def _parted(y: Array, live: int) -> tuple[Array, Array | None]:
    return (y, None) if y.shape[1] == live else (y[:, :live], y[:, live:])


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def mlp(live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Affine | None, input_grad: bool) -> Any:
    """Outputs (features without `out`) in float32 of the live rows (sources, rows, in) and of the frozen ones."""
    return _mlp_forward(live, frozen, layers, out, input_grad)[0]


def _mlp_forward(
    live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Affine | None, input_grad: bool
) -> Any:
    y, saved = _forward(_joined(live, frozen), layers, jnp.float32 if out is None else None)
    outputs = y if out is None else product(y, out.low, jnp.float32) + out.bias[:, None]
    return _parted(outputs, live.shape[1]), (layers, out, saved, y, live.shape[0])


def _mlp_backward(input_grad: bool, kept: Any, cotangents: Any) -> Any:
    layers, out, saved, y, sources = kept
    dy, d_out = cotangents[0], None
    if out is not None:
        d_out = Affine(_kernel_gradient(y, dy), None, jnp.sum(dy, axis=1))  # pyright: ignore[reportArgumentType]
        dy = _input_gradient(dy, out.low)
    dx, d_layers = _backward(dy, layers, saved, input_grad)
    return _to_sources(dx, sources), None, d_layers, d_out


def _to_sources(dx: Array | None, sources: int) -> Array | None:
    """A source shared by all groups gets the sum of their gradients."""
    if dx is None or dx.shape[0] == sources:
        return dx
    return jnp.sum(dx.astype(jnp.float32), axis=0, keepdims=True).astype(dx.dtype)


mlp.defvjp(_mlp_forward, _mlp_backward)


class Trunk(NamedTuple):
    """The layers of a bilinear network; `rank` units of displacement and anchor make one feature."""

    displacement: tuple[Layer, ...]
    anchor: tuple[Layer, ...]
    backbone: tuple[Layer, ...]


class Layout(NamedTuple):
    """Rows of displacements come in parts of equal size; part n meets the anchors' part `anchor_of[n]`."""

    rank: int
    anchor_of: tuple[int, ...]
    input_grad: bool


def _folded(u: Array, rank: int) -> Array:
    return u.reshape(*u.shape[:-1], -1, rank)


def _unfolded(u: Array) -> Array:
    return u.reshape(*u.shape[:-2], -1)


def _folded_vectors(vectors: Vectors, rank: int) -> Vectors:
    return Vectors(*[None if v is None else _folded(v, rank) for v in vectors])


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def trunk(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    """Features in float32 of the live displacements (sources, rows, z), the first part, and of the frozen ones.

    `anchors` (sources, rows, in) are data: they get no gradient.
    """
    return _trunk_forward(live, frozen, anchors, net, layout)[0]


def _trunk_forward(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    part, rank = live.shape[1], layout.rank
    f, f_saved = _forward(_joined(live, frozen), net.displacement[:-1])
    g, g_saved = _forward(anchors, net.anchor[:-1])
    uf, ug = product(f, net.displacement[-1].low), product(g, net.anchor[-1].low)
    vectors = [_folded_vectors(side[-1].vectors, rank) for side in (net.displacement, net.anchor)]
    h = pair(_folded(uf, rank), vectors[0], _folded(ug, rank), vectors[1], part, layout.anchor_of, uf.dtype)
    y, b_saved = _forward(h, net.backbone, jnp.float32)
    saved = ([*f_saved, (f, uf)], [*g_saved, (g, ug)], b_saved)
    return _parted(y, part), (net, saved, live.shape[0])


def _trunk_backward(layout: Layout, kept: Any, cotangents: Any) -> Any:
    net, (f_saved, g_saved, b_saved), sources = kept
    rank = layout.rank
    dh, backbone = _backward(cotangents[0], net.backbone, b_saved, True)
    (f, uf), (g, ug) = f_saved[-1], g_saved[-1]
    vectors = [_folded_vectors(side[-1].vectors, rank) for side in (net.displacement, net.anchor)]
    df, dfv, dg, dgv = pair_back(_folded(uf, rank), vectors[0], _folded(ug, rank), vectors[1], dh)
    sides = []
    for x, du, dv, layers, saved, wanted in (
        (f, _unfolded(df), dfv, net.displacement, f_saved, layout.input_grad),
        (g, _unfolded(dg), dgv, net.anchor, g_saved, False),
    ):
        flat = Vectors(*[None if v is None else _unfolded(v) for v in dv])
        last = Layer(_kernel_gradient(x, du), None, flat)  # pyright: ignore[reportArgumentType]
        dx, rest = _backward(_input_gradient(du, layers[-1].low), layers[:-1], saved[:-1], wanted)
        sides.append((dx, (*rest, last)))
    (dx, displacement), (_, anchor) = sides
    return _to_sources(dx, sources), None, None, Trunk(displacement, anchor, backbone)


trunk.defvjp(_trunk_forward, _trunk_backward)


def hidden_layers(module: Mlp, low: Any, parts: tuple[Part, ...] = ()) -> tuple[Layer, ...]:
    """The activated layers of stacked MLPs; `parts` say how the first one's inputs are spread."""
    layers = []
    for i, linear in enumerate(module.layers):
        if linear is None or (i + 1 == len(module.layers) and not module.activate_final):
            break
        kernel, copy = linear.kernel, low.layers[i].kernel
        if i == 0 and any(part.exact or part.padded > part.size for part in parts):
            kernel = spread_kernel(kernel, parts)
            copy = jax.lax.stop_gradient(kernel).astype(copy.dtype)
        norm = module.norms[i] if module.norms else None
        vectors = Vectors(linear.bias, None, None) if norm is None else Vectors(linear.bias, norm.scale, norm.offset)
        layers.append(Layer(kernel, copy, vectors))
    return tuple(layers)


def output_layer(module: Mlp, low: Any) -> Affine:
    """The last layer of stacked MLPs."""
    return Affine(module.layers[-1].kernel, low.layers[-1].kernel, module.layers[-1].bias)
