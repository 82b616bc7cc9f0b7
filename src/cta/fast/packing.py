"""Networks of equal shape as one network with a leading axis, and inputs padded for the matrix units.

Packing changes where numbers lie, never the numbers: Adam and the moving averages act on each alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cta.agents import Networks
from cta.nn import BilinearTrunk, Ensemble, Mlp, Projection

LOW = jnp.bfloat16
LANES = 32
"""Inner lengths of products are multiples of this."""
LEAST = 8
"""Layers are at least so wide. Kernels handle blocks whose sides are powers of two."""
SIDES = ("displacement", "anchor", "backbone")


class Hidden(NamedTuple):
    """An activated layer: kernel, and bias with the norm's scale and offset."""

    kernel: Float[Array, "groups in out"]
    vectors: Float[Array, "groups vectors out"]


class Affine(NamedTuple):
    """An output layer."""

    kernel: Float[Array, "groups in out"]
    bias: Float[Array, "groups out"]


class Stack(NamedTuple):
    """Equal MLPs, or one side of equal bilinear networks."""

    layers: tuple[Hidden, ...]
    out: Affine | None


class Bilinear(NamedTuple):
    """Equal bilinear networks."""

    displacement: Stack
    anchor: Stack
    backbone: Stack
    out: Affine


def _affine(layers: Sequence[Any]) -> Affine:
    """Output layers of one width: narrower ones are padded with weights of zero, which without gradient stay so."""
    width = max(x.bias.shape[0] for x in layers)

    def stack(arrays: Sequence[Array]) -> Array:
        return jnp.stack([jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, width - a.shape[-1])]) for a in arrays])

    return Affine(stack([x.kernel for x in layers]), stack([x.bias for x in layers]))


def _pack_mlps(mlps: Sequence[Mlp], out: bool) -> Stack:
    first, hidden = mlps[0], []
    for i in range(len(first.layers) - (not first.activate_final)):
        norms = [(m.norms[i].scale, m.norms[i].offset) if m.norms else () for m in mlps]
        vectors = jnp.stack([jnp.stack([m.layers[i].bias, *n]) for m, n in zip(mlps, norms, strict=True)])
        hidden.append(Hidden(jnp.stack([m.layers[i].kernel for m in mlps]), vectors))
    return Stack(tuple(hidden), _affine([m.layers[-1] for m in mlps]) if out else None)


def members_of(network: Any) -> tuple[Any, ...]:
    """Of an ensemble; any other network is alone."""
    return network.members if isinstance(network, Ensemble) else (network,)


def packable(network: Any) -> bool:
    """Whether kernels take it: an MLP, a bilinear network or an ensemble of them, with widths that are powers of two.

    Also where shapes stand for arrays.
    """
    one, other = members_of(network)[0], ()
    one = one.mlp if isinstance(one, Projection) else one
    if isinstance(one, Mlp):
        bodies, whole = (one,), len(one.layers) > 1 and not one.activate_final
    elif isinstance(one, BilinearTrunk):
        bodies, other = (one.displacement, one.anchor, one.backbone), (one.rank,)
        whole = one.backbone is not None and one.displacement.activate_final
    else:
        return False
    layers = [layer for body in bodies if body for layer in body.layers[: None if body.activate_final else -1]]
    widths = [*other, *(layer.bias.shape[-1] for layer in layers)]
    return whole and all(n >= LEAST and n & (n - 1) == 0 for n in widths)


def _pack(networks: Sequence[Any]) -> Any:
    if isinstance(networks[0], Projection):
        return _pack([n.mlp for n in networks])
    if isinstance(networks[0], Mlp):
        return _pack_mlps(networks, True)
    displacement, anchor, backbone = (_pack_mlps([getattr(n, side) for n in networks], False) for side in SIDES)
    return Bilinear(displacement, anchor, backbone, _affine([n.head for n in networks]))


def pack(networks: Networks, together: tuple[str, ...] = ()) -> Networks:
    """Ensembles stacked, and the networks named in `together` as one, "low+high"; what has no fast form as it is.

    Works on whatever is shaped like networks: weights, moments, targets.
    """
    packed = {
        name: _pack(members_of(network)) if packable(network) else network
        for name, network in networks.items()
        if name not in together
    }
    if together and together[0] in networks:
        packed["+".join(together)] = _pack([networks[name] for name in together])
    return packed


def _set_affine(like: Any, kernel: Array, bias: Array) -> Any:
    width = like.bias.shape[0]
    return eqx.tree_at(lambda x: (x.kernel, x.bias), like, (kernel[..., :width], bias[..., :width]))


def _unpack_mlp(stack: Stack, like: Mlp, index: int) -> Mlp:
    layers, norms = list(like.layers), list(like.norms)
    for i, (kernel, vectors) in enumerate(stack.layers):
        layers[i] = _set_affine(layers[i], kernel[index], vectors[index, 0])
        if norms:
            values = (vectors[index, 1], vectors[index, 2])
            norms[i] = eqx.tree_at(lambda x: (x.scale, x.offset), norms[i], values)
    if stack.out is not None:
        layers[-1] = _set_affine(layers[-1], stack.out.kernel[index], stack.out.bias[index])
    return eqx.tree_at(lambda m: (m.layers, m.norms), like, (tuple(layers), tuple(norms)))


def _unpack(packed: Any, like: Any, index: int) -> Any:
    if isinstance(like, Projection):
        return eqx.tree_at(lambda p: p.mlp, like, _unpack(packed, like.mlp, index))
    if isinstance(like, Mlp):
        return _unpack_mlp(packed, like, index)
    assert isinstance(like, BilinearTrunk)
    for side in SIDES:
        found = _unpack_mlp(getattr(packed, side), getattr(like, side), index)
        like = eqx.tree_at(lambda t, side=side: getattr(t, side), like, found)
    head = _set_affine(like.head, packed.out.kernel[index], packed.out.bias[index])
    return eqx.tree_at(lambda t: t.head, like, head)


def unpack(packed: Networks, like: Networks, together: tuple[str, ...] = ()) -> Networks:
    """The inverse of `pack`."""
    found = {}
    for name, network in like.items():
        if name in together:
            found[name] = _unpack(packed["+".join(together)], network, together.index(name))
        elif not packable(network):
            found[name] = packed[name]
        elif isinstance(network, Ensemble):
            members = tuple(_unpack(packed[name], member, i) for i, member in enumerate(network.members))
            found[name] = eqx.tree_at(lambda e: e.members, network, members)
        else:
            found[name] = _unpack(packed[name], network, 0)
    return found


class Weights(NamedTuple):
    """Packed networks, and copies of their kernels for products, which are None where there are none."""

    networks: Networks
    low: Networks

    @classmethod
    def of(cls, packed: Networks, dtype: Any = LOW) -> "Weights":
        def copy(path: Any, leaf: Array) -> Array | None:
            return lax.stop_gradient(leaf).astype(dtype) if path[-1].name == "kernel" else None

        low = {
            name: jax.tree_util.tree_map_with_path(copy, network) if isinstance(network, Stack | Bilinear) else None
            for name, network in packed.items()
        }
        return cls(packed, low)

    @property
    def dtype(self) -> Any:
        return jax.tree.leaves(self.low)[0].dtype


class Part(NamedTuple):
    """A stretch of a network's input. An exact one is the sum of two numbers of 8 bits each: 16 bits in all."""

    size: int
    exact: bool = True

    @property
    def padded(self) -> int:
        return -(-self.size // LANES) * LANES


def spread_input(x: Float[Array, "*rows size"], part: Part, dtype: Any = LOW) -> Float[Array, "*rows wide"]:
    """A part of an input as products want it: padded with zeros, an exact one as rounded value and remainder."""
    return _spread(x, part, dtype)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _spread(x: Array, part: Part, dtype: Any) -> Any:
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, part.padded - part.size)])
    if not part.exact:
        return x.astype(dtype)
    # Compilers may drop a conversion there and back, but not this.
    rounded = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return jnp.concatenate([rounded, x - rounded], axis=-1).astype(dtype)


# Rounded value and remainder meet the same weights: the gradient at either is that at their sum.
_spread.defvjp(
    lambda x, part, dtype: (_spread(x, part, dtype), None),
    lambda part, dtype, _, dy: (dy[..., : part.size].astype(jnp.float32),),
)


def spread_kernel(kernel: Float[Array, "groups in out"], parts: tuple[Part, ...]) -> Float[Array, "groups wide out"]:
    """The first layer's kernel for spread inputs: rounded value and remainder meet the same weights."""
    pieces, first = [], 0
    for part in parts:
        piece = jnp.pad(kernel[:, first : first + part.size], ((0, 0), (0, part.padded - part.size), (0, 0)))
        pieces += [piece, piece] if part.exact else [piece]
        first += part.size
    return jnp.concatenate(pieces, axis=1)
