"""Groups of equal networks, forwards and backwards: products of low precision with float32 sums, row kernels between.

Of the rows a network sees, the first ones (`live`) learn and the rest are frozen: they pass forwards together, and only
the live ones come back. Inputs are (sources, rows, in); a single source feeds all groups.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cta.fast.kernels import activate, activate_back, pair, pair_back
from cta.fast.packing import Part, Stack, spread_kernel


class Layer(NamedTuple):
    """A hidden layer: its kernel, the kernel's copy for products, and its vectors."""

    kernel: Float[Array, "groups in out"]
    low: Float[Array, "groups in out"] | None
    vectors: Float[Array, "groups vectors out"]


class Output(NamedTuple):
    """An output layer."""

    kernel: Float[Array, "groups in out"]
    low: Float[Array, "groups in out"] | None
    bias: Float[Array, "groups out"]


def hidden_layers(stack: Stack, low: Stack, parts: tuple[Part, ...] = ()) -> tuple[Layer, ...]:
    """The activated layers; `parts` say how the first one's inputs are spread."""
    layers = [Layer(own.kernel, copy.kernel, own.vectors) for own, copy in zip(stack.layers, low.layers, strict=True)]
    if any(part.exact or part.padded > part.size for part in parts):
        kernel = spread_kernel(layers[0].kernel, parts)
        copy = jax.lax.stop_gradient(kernel).astype(low.layers[0].kernel.dtype)
        layers[0] = Layer(kernel, copy, layers[0].vectors)
    return tuple(layers)


def output_layer(stack: Stack, low: Stack) -> Output:
    """The output layer, of networks that have one in common."""
    assert stack.out is not None and low.out is not None
    return Output(stack.out.kernel, low.out.kernel, stack.out.bias)


def product(x: Float[Array, "sources rows in"], low: Any, dtype: Any = None) -> Float[Array, "groups rows out"]:
    """`x·low` in every group, by default in the type of `low`."""
    x = jnp.broadcast_to(x, (low.shape[0], *x.shape[1:])).astype(low.dtype)
    return jnp.einsum("grk,gkn->grn", x, low, preferred_element_type=dtype or low.dtype)


def _kernel_gradient(x: Array, du: Array) -> Array:
    """`xᵀ·du`, added up in float32 and passed to Adam in the type of the products."""
    x = jnp.broadcast_to(x[:, : du.shape[1]], (du.shape[0], du.shape[1], x.shape[2]))
    found = jnp.einsum("grk,grn->gkn", x, du.astype(x.dtype), preferred_element_type=x.dtype)
    return found.astype(jnp.float32)


def _input_gradient(du: Array, low: Any) -> Array:
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


def _backward(dy: Any, layers: tuple[Layer, ...], saved: Saved, input_grad: bool) -> tuple[Any, tuple[Layer, ...]]:
    found = []
    for i in reversed(range(len(layers))):
        x, u = saved[i]
        du, vectors = activate_back(u, layers[i].vectors, dy)
        found.append(Layer(_kernel_gradient(x, du), None, vectors))
        dy = _input_gradient(du, layers[i].low) if i or input_grad else None
    return dy, tuple(reversed(found))


def _joined(live: Array, frozen: Array | None) -> Array:
    return live if frozen is None else jnp.concatenate([live, frozen], axis=1)


def _parted(y: Array, live: int) -> tuple[Array, Array | None]:
    return (y, None) if y.shape[1] == live else (y[:, :live], y[:, live:])


def _to_sources(dx: Array | None, sources: int) -> Array | None:
    """A source shared by all groups gets the sum of their gradients."""
    if dx is None or dx.shape[0] == sources:
        return dx
    return jnp.sum(dx.astype(jnp.float32), axis=0, keepdims=True).astype(dx.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def mlp(live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Output | None, input_grad: bool) -> Any:
    """Outputs (features without `out`) in float32 of the live rows and of the frozen ones."""
    return _mlp_forward(live, frozen, layers, out, input_grad)[0]


def _mlp_forward(
    live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Output | None, input_grad: bool
) -> Any:
    y, saved = _forward(_joined(live, frozen), layers, jnp.float32 if out is None else None)
    outputs = y if out is None else product(y, out.low, jnp.float32) + out.bias[:, None]
    return _parted(outputs, live.shape[1]), (layers, out, saved, y, live.shape[0])


def _mlp_backward(input_grad: bool, kept: Any, cotangents: Any) -> Any:
    layers, out, saved, y, sources = kept
    dy, d_out = cotangents[0], None
    if out is not None:
        d_out = Output(_kernel_gradient(y, dy), None, jnp.sum(dy, axis=1))
        dy = _input_gradient(dy, out.low)
    dx, d_layers = _backward(dy, layers, saved, input_grad)
    return _to_sources(dx, sources), None, d_layers, d_out


mlp.defvjp(_mlp_forward, _mlp_backward)


class Trunk(NamedTuple):
    """The layers of a bilinear network."""

    displacement: tuple[Layer, ...]
    anchor: tuple[Layer, ...]
    backbone: tuple[Layer, ...]


class Layout(NamedTuple):
    """Rows of displacements come in parts; the first `shared` meet the first part of the anchors, the others one each.

    `rank` units of displacement and anchor make one feature.
    """

    rank: int
    shared: int
    input_grad: bool


def _folded(u: Array, rank: int) -> Array:
    return u.reshape(*u.shape[:-1], -1, rank)


def _unfolded(u: Array) -> Array:
    return u.reshape(*u.shape[:-2], -1)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def trunk(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    """Features in float32 of the live displacements, which are the first part, and of the frozen ones.

    `anchors` are data: they get no gradient.
    """
    return _trunk_forward(live, frozen, anchors, net, layout)[0]


def _pairs(net: Trunk, uf: Array, ug: Array, rank: int) -> tuple[Array, Array, Array, Array]:
    sides = ((uf, net.displacement[-1].vectors), (ug, net.anchor[-1].vectors))
    (f, fv), (g, gv) = ((_folded(u, rank), _folded(v, rank)) for u, v in sides)
    return f, fv, g, gv


def _trunk_forward(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    part = live.shape[1]
    f, f_saved = _forward(_joined(live, frozen), net.displacement[:-1])
    g, g_saved = _forward(anchors, net.anchor[:-1])
    uf, ug = product(f, net.displacement[-1].low), product(g, net.anchor[-1].low)
    h = pair(*_pairs(net, uf, ug, layout.rank), part=part, shared=layout.shared, dtype=uf.dtype)
    y, b_saved = _forward(h, net.backbone, jnp.float32)
    saved = ([*f_saved, (f, uf)], [*g_saved, (g, ug)], b_saved)
    return _parted(y, part), (net, saved, live.shape[0])


def _trunk_backward(layout: Layout, kept: Any, cotangents: Any) -> Any:
    net, (f_saved, g_saved, b_saved), sources = kept
    dh, backbone = _backward(cotangents[0], net.backbone, b_saved, True)
    (f, uf), (g, ug) = f_saved[-1], g_saved[-1]
    df, dg, dfv, dgv = pair_back(*_pairs(net, uf, ug, layout.rank), dh)
    sides = []
    for x, du, dv, layers, saved, wanted in (
        (f, df, dfv, net.displacement, f_saved, layout.input_grad),
        (g, dg, dgv, net.anchor, g_saved, False),
    ):
        du = _unfolded(du)
        last = Layer(_kernel_gradient(x, du), None, _unfolded(dv))
        dx, rest = _backward(_input_gradient(du, layers[-1].low), layers[:-1], saved[:-1], wanted)
        sides.append((dx, (*rest, last)))
    (dx, displacement), (_, anchor) = sides
    return _to_sources(dx, sources), None, None, Trunk(displacement, anchor, backbone)


trunk.defvjp(_trunk_forward, _trunk_backward)
