"""Groups of equal networks, forwards and backwards: products of low precision with float32 sums, row kernels between.

Of the rows a network sees, the first ones (`live`) learn and the rest are frozen: they pass forwards together, and only
the live ones come back. Inputs are (groups, rows, in), or (rows, in) where all groups read the same.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cta.fast.kernels import activate, activate_back, pair, pair_back
from cta.fast.packing import Affine, Part, Stack, spread_kernel


class Layer(NamedTuple):
    """A hidden layer: its kernel, the kernel's copy for products, and its vectors.

    Kernels are (groups, in, out); those of a fan, a first layer whose groups all read the same rows, (in, groups, out).
    """

    kernel: Float[Array, "_ _ out"]
    low: Float[Array, "_ _ out"] | None
    vectors: Float[Array, "groups vectors out"]


class Output(NamedTuple):
    """An output layer."""

    kernel: Float[Array, "groups in out"]
    low: Float[Array, "groups in out"] | None
    bias: Float[Array, "groups out"]


def hidden_layers(stack: Stack, low: Stack, parts: tuple[Part, ...] = (), *, fan: bool = False) -> tuple[Layer, ...]:
    """The activated layers; `parts` say how the first one's inputs are spread, `fan` that its groups share them."""
    layers = [Layer(own.kernel, copy.kernel, own.vectors) for own, copy in zip(stack.layers, low.layers, strict=True)]
    if fan or any(part.exact or part.padded > part.size for part in parts):
        kernel = spread_kernel(layers[0].kernel, parts)
        kernel = kernel.swapaxes(0, 1) if fan else kernel
        copy = jax.lax.stop_gradient(kernel).astype(low.layers[0].kernel.dtype)
        layers[0] = Layer(kernel, copy, layers[0].vectors)
    return tuple(layers)


def output_layer(stack: Stack, low: Stack) -> Output:
    """The output layer, of networks that have one in common."""
    assert stack.out is not None and low.out is not None
    return Output(stack.out.kernel, low.out.kernel, stack.out.bias)


def product(x: Array, low: Any, dtype: Any = None) -> Array:
    """`x·low` in every group, by default in the type of `low`: (groups, rows, out), of a fan (rows, groups, out)."""
    form = "rk,kgn->rgn" if x.ndim == 2 else "grk,gkn->grn"
    return jnp.einsum(form, x.astype(low.dtype), low, preferred_element_type=dtype or low.dtype)


def _kernel_gradient(x: Array, du: Array) -> Array:
    """`xᵀ·du`, added up in float32 and passed to Adam in the type of the products."""
    form = "rk,rgn->kgn" if x.ndim == 2 else "grk,grn->gkn"
    return jnp.einsum(form, x, du.astype(x.dtype), preferred_element_type=x.dtype).astype(jnp.float32)


def _input_gradient(du: Array, low: Any, fan: bool = False) -> Array:
    """`du·lowᵀ`; rows that all groups of a fan share get the sum of their gradients."""
    form = "rgn,kgn->rk" if fan else "grn,gkn->grk"
    return jnp.einsum(form, du.astype(low.dtype), low, preferred_element_type=low.dtype)


class Saved(NamedTuple):
    """What a layer's way back needs."""

    x: Array
    """The live inputs."""
    u: Array
    """The products."""

    @property
    def fan(self) -> bool:
        return self.x.ndim == 2


def _forward(x: Array, live: Array, layers: tuple[Layer, ...], last: Any = None) -> tuple[Array, Array, list[Saved]]:
    """Of inputs `x`, of which `live` are the first ones: the last layer's outputs, all of them and the live ones.

    They have the type `last`, by default that of products.
    """
    rows, saved = live.shape[-2], []
    for i, layer in enumerate(layers):
        u = product(x, layer.low)
        saved.append(Saved(live, u))
        dtype = last if last and i + 1 == len(layers) else u.dtype
        x, live = activate(u, layer.vectors, dtype, live=rows, fan=live.ndim == 2)
    return x, live, saved


def _backward(dy: Any, layers: tuple[Layer, ...], saved: list[Saved]) -> tuple[Any, tuple[Layer, ...]]:
    """Gradients at the inputs and the layers. Those that nobody reads, as at data, the compiler leaves out."""
    found = []
    for i in reversed(range(len(layers))):
        x, u = saved[i]
        fan = saved[i].fan
        du, vectors = activate_back(u, layers[i].vectors, dy, fan=fan)
        found.append(Layer(_kernel_gradient(x, du), None, vectors))
        dy = _input_gradient(du, layers[i].low, fan)
    return dy, tuple(reversed(found))


def _joined(live: Array, frozen: Array | None) -> Array:
    return live if frozen is None else jnp.concatenate([live, frozen], axis=-2)


def _with_bias(u: Array, bias: Array) -> Array:
    """The barrier keeps the bias out of the product, which would have it written out for every row first."""
    return jax.lax.optimization_barrier(u) + bias[:, None]


def _bias_gradient(dy: Array) -> tuple[Array, Array]:
    """`dy` and its sum over rows. The barrier has it written once, in parallel, before few programs add it up."""
    dy = jax.lax.optimization_barrier(dy)
    return dy, jnp.sum(dy, axis=1)


def _frozen_part(y: Array, live: int) -> Array | None:
    return None if y.shape[1] == live else y[:, live:]


@jax.custom_vjp
def mlp(live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Output | None) -> Any:
    """Outputs (features without `out`) in float32 of the live rows and of the frozen ones."""
    return _mlp_forward(live, frozen, layers, out)[0]


def _mlp_forward(live: Array, frozen: Array | None, layers: tuple[Layer, ...], out: Output | None) -> Any:
    y, y_live, saved = _forward(_joined(live, frozen), live, layers, jnp.float32 if out is None else None)
    rows = y_live.shape[1]
    if out is None:
        return (y_live, _frozen_part(y, rows)), (layers, out, saved, y_live)
    outputs = _with_bias(product(y, out.low, jnp.float32), out.bias)
    return (outputs[:, :rows], _frozen_part(outputs, rows)), (layers, out, saved, y_live)


def _mlp_backward(kept: Any, cotangents: Any) -> Any:
    layers, out, saved, y = kept
    dy, d_out = cotangents[0], None
    if out is not None:
        dy, bias = _bias_gradient(dy)
        d_out = Output(_kernel_gradient(y, dy), None, bias)
        dy = _input_gradient(dy, out.low)
    dx, d_layers = _backward(dy, layers, saved)
    return dx, None, d_layers, d_out


mlp.defvjp(_mlp_forward, _mlp_backward)


@jax.custom_vjp
def head(features: Float[Array, "groups rows in"], affine: Affine) -> Float[Array, "groups rows out"]:
    """An output layer in float32."""
    return _with_bias(jnp.einsum("grk,gkn->grn", features, affine.kernel), affine.bias)


def _head_forward(features: Array, affine: Affine) -> Any:
    return head(features, affine), (features, affine.kernel)


def _head_backward(kept: Any, dy: Array) -> Any:
    """Written out because the derived form makes the kernel's gradient transposed, and copies follow."""
    features, kernel = kept
    dy, bias = _bias_gradient(dy)
    gradient = Affine(jnp.einsum("grk,grn->gkn", features, dy), bias)
    return jnp.einsum("grn,gkn->grk", dy, kernel), gradient


head.defvjp(_head_forward, _head_backward)


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


def _folded(u: Array, rank: int) -> Array:
    return u.reshape(*u.shape[:-1], -1, rank)


def _unfolded(u: Array) -> Array:
    return u.reshape(*u.shape[:-2], -1)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def trunk(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    """Features in float32 of the live displacements, which are the first part, and of the frozen ones."""
    return _trunk_forward(live, frozen, anchors, net, layout)[0]


def _pairs(net: Trunk, uf: Array, ug: Array, rank: int) -> tuple[Array, Array, Array, Array]:
    sides = ((uf, net.displacement[-1].vectors), (ug, net.anchor[-1].vectors))
    (f, fv), (g, gv) = ((_folded(u, rank), _folded(v, rank)) for u, v in sides)
    return f, fv, g, gv


def _trunk_forward(live: Array, frozen: Array | None, anchors: Array, net: Trunk, layout: Layout) -> Any:
    part = live.shape[-2]
    f, f_live, f_saved = _forward(_joined(live, frozen), live, net.displacement[:-1])
    g, g_live, g_saved = _forward(anchors, anchors[:part], net.anchor[:-1])
    uf, ug = product(f, net.displacement[-1].low), product(g, net.anchor[-1].low)
    h, h_live = pair(*_pairs(net, uf, ug, layout.rank), part=part, shared=layout.shared, dtype=uf.dtype)
    y, y_live, b_saved = _forward(h, h_live, net.backbone, jnp.float32)
    saved = ([*f_saved, Saved(f_live, uf)], [*g_saved, Saved(g_live, ug)], b_saved)
    return (y_live, _frozen_part(y, part)), (net, saved)


def _trunk_backward(layout: Layout, kept: Any, cotangents: Any) -> Any:
    net, (f_saved, g_saved, b_saved) = kept
    dh, backbone = _backward(cotangents[0], net.backbone, b_saved)
    (f, uf), (g, ug) = f_saved[-1], g_saved[-1]
    df, dg, dfv, dgv = pair_back(*_pairs(net, uf, ug, layout.rank), dh)
    sides = []
    for x, du, dv, layers, saved in ((f, df, dfv, net.displacement, f_saved), (g, dg, dgv, net.anchor, g_saved)):
        du = _unfolded(du)
        last = Layer(_kernel_gradient(x, du), None, _unfolded(dv))
        dx, rest = _backward(_input_gradient(du, layers[-1].low), layers[:-1], saved[:-1])
        sides.append((dx, (*rest, last)))
    (dx, displacement), (d_anchors, anchor) = sides
    frozen = ug.shape[1] - dh.shape[1]
    return dx, None, jnp.pad(d_anchors, ((0, frozen), (0, 0))), Trunk(displacement, anchor, backbone)


trunk.defvjp(_trunk_forward, _trunk_backward)
