"""Networks of equal shape as one network with a leading axis, and inputs padded for the matrix units.

Packing changes where numbers lie, never the numbers: Adam and the moving averages act on each alone.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from cta.agents import Networks
from cta.nn import Ensemble, Mlp

LOW = jnp.bfloat16
LANES = 32
"""Inner lengths of products are multiples of this."""


def _members(network: Any) -> tuple[Any, ...]:
    return network.members if isinstance(network, Ensemble) else (network,)


def _stack(networks: tuple[Any, ...]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)


def _head(network: Any) -> Any:
    return network.layers[-1] if isinstance(network, Mlp) else network.head


def _with_head(network: Any, head: Any) -> Any:
    return eqx.tree_at(_head, network, head, is_leaf=lambda x: x is None)


def pack(networks: Networks) -> Networks:
    """Ensembles stacked; the two policies' bodies stacked as `policies`, their heads, unequal, beside them.

    Works on whatever is shaped like networks: weights, moments, targets.
    """
    packed = {name: _stack(_members(net)) for name, net in networks.items() if name not in ("low", "high")}
    if "low" in networks:
        pair = networks["low"], networks["high"]
        packed["policies"] = _stack(tuple(_with_head(net, None) for net in pair))
        packed["low_head"], packed["high_head"] = (_stack((_head(net),)) for net in pair)
    return packed


def unpack(packed: Networks, like: Networks) -> Networks:
    """The inverse of `pack`."""

    def member(name: str, index: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[index], packed[name])

    found = {}
    for name, network in like.items():
        if name in ("low", "high"):
            body = member("policies", ("low", "high").index(name))
            found[name] = _with_head(body, member(f"{name}_head", 0))
        elif isinstance(network, Ensemble):
            members = tuple(member(name, i) for i in range(len(network.members)))
            found[name] = eqx.tree_at(lambda e: e.members, network, members)
        else:
            found[name] = member(name, 0)
    return found


def low_copy(packed: Networks, dtype: Any = LOW) -> Networks:
    """The kernels alone, in the type of the products."""
    return jax.tree.map(lambda leaf: lax.stop_gradient(leaf).astype(dtype) if leaf.ndim == 3 else None, packed)


class Part(NamedTuple):
    """A stretch of a network's input. An exact one is the sum of two numbers of 8 bits each: 16 bits in all."""

    size: int
    exact: bool = True

    @property
    def padded(self) -> int:
        return -(-self.size // LANES) * LANES


def spread_input(x: Float[Array, "*rows size"], part: Part, dtype: Any = LOW) -> Float[Array, "*rows wide"]:
    """A part of an input as products want it: padded with zeros, an exact one as rounded value and remainder."""
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, part.padded - part.size)])
    if not part.exact:
        return x.astype(dtype)
    # Compilers may drop a conversion there and back, but not this.
    rounded = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return jnp.concatenate([rounded, x - rounded], axis=-1).astype(dtype)


def spread_kernel(kernel: Float[Array, "groups in out"], parts: tuple[Part, ...]) -> Float[Array, "groups wide out"]:
    """The first layer's kernel for spread inputs: rounded value and remainder meet the same weights."""
    pieces, first = [], 0
    for part in parts:
        piece = jnp.pad(kernel[:, first : first + part.size], ((0, 0), (0, part.padded - part.size), (0, 0)))
        pieces += [piece, piece] if part.exact else [piece]
        first += part.size
    return jnp.concatenate(pieces, axis=1)
