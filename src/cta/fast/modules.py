"""Networks that are called like those of `cta.nn` and computed by fused kernels: any agent's loss takes them.

What a loss freezes or does not ask for costs nothing: the compiler leaves out what nobody reads. A network called twice
with the same inputs is computed once, forwards and back.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from cta.agents import Agent, Networks, Spec
from cta.fast.networks import Layout, Trunk, head, hidden_layers, mlp, output_layer, trunk
from cta.fast.packing import LANES, SIDES, Bilinear, Part, Stack, Weights, members_of, packable, spread_input
from cta.nn import Ensemble, Projection, Quasimetric


class Memo:
    """Calls of one loss: the network's and the inputs' identities, with what they name, and the outputs."""

    def __init__(self):
        self.calls: dict[tuple[int, ...], tuple[Any, ...]] = {}


class Fused(eqx.Module):
    """Equal packed networks fed the same inputs; outputs (groups, …), or of a network that is `alone` as its own."""

    network: Any
    low: Any
    alone: bool = eqx.field(static=True)
    data: tuple[int, ...] = eqx.field(static=True)
    """Lengths of inputs that are data, and enter exactly; all others are made by networks."""
    memo: Memo = eqx.field(static=True)

    def __call__(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*groups_batch out"]:
        # A frozen copy of the network has arrays of its own, and so calls of its own.
        key = tuple(map(id, [jax.tree.leaves(self.network)[0], *inputs]))
        if key not in self.memo.calls:
            self.memo.calls[key] = (self.network, inputs, self.compute(*inputs))
        return self.memo.calls[key][-1]

    def compute(self, *inputs: Array) -> Array:
        raise NotImplementedError

    def spread(self, *inputs: Array) -> tuple[Array, tuple[Part, ...]]:
        """All inputs side by side as products want them, (rows, wide), and what they are."""
        parts = tuple(Part(x.shape[-1], exact=x.shape[-1] in self.data) for x in inputs)
        dtype = jax.tree.leaves(self.low)[0].dtype
        flat = [spread_input(x.reshape(-1, part.size), part, dtype) for x, part in zip(inputs, parts, strict=True)]
        return jnp.concatenate(flat, axis=-1), parts

    def shaped(self, y: Float[Array, "groups rows out"], like: Array) -> Array:
        y = y.reshape(-1, *like.shape[:-1], y.shape[-1])
        return y[0] if self.alone else y


class FusedMlp(Fused):
    """`Mlp`. Narrow outputs, such as values and actions, are made in float32."""

    network: Stack
    low: Stack

    def compute(self, *inputs: Array) -> Array:
        x, parts = self.spread(*inputs)
        layers, out = hidden_layers(self.network, self.low, parts, fan=True), self.network.out
        assert out is not None
        wide = out.bias.shape[-1] >= LANES
        y, _ = mlp(x, None, layers, output_layer(self.network, self.low) if wide else None)
        return self.shaped(y if wide else head(y, out), inputs[0])


class FusedBilinear(Fused):
    """`BilinearTrunk`."""

    network: Bilinear
    low: Bilinear
    rank: int = eqx.field(static=True)

    def compute(self, *inputs: Array) -> Array:
        displacement, *anchor = inputs
        (z, z_parts), (x, x_parts) = self.spread(displacement), self.spread(*anchor)
        net = Trunk(
            *(
                hidden_layers(getattr(self.network, side), getattr(self.low, side), parts, fan=bool(parts))
                for side, parts in zip(SIDES, (z_parts, x_parts, ()), strict=True)
            )
        )
        features: Any = trunk(z, None, x, net, Layout(self.rank, 1))
        return self.shaped(head(features[0], self.network.out), displacement)


class FusedQuasimetric(Quasimetric):
    """`Quasimetric` without sorting, and without the scattering that is its way back."""

    def __init__(self, omega: Array):
        self.omega = omega

    def length(self, starts: Float[Array, "*batch n"], ends: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """The ends that no interval reaches beyond, less the starts that none reaches back from; of equals the first.

        Which these are is constant for differentiation.
        """
        s, e = stop_gradient(starts), stop_gradient(ends)
        earlier = jnp.tri(s.shape[-1], k=-1, dtype=bool)

        def beyond(at: Array, reach: Array) -> Array:
            """Whether another interval holds the point of i and reaches further."""
            i, j = reach[..., :, None], reach[..., None, :]
            further = (j > i) | ((j == i) & earlier)
            holds = (s[..., None, :] <= at[..., :, None]) & (at[..., :, None] <= e[..., None, :])
            return jnp.any(further & holds & (e > s)[..., None, :], axis=-1)

        closes, opens = (e > s) & ~beyond(e, e), (e > s) & ~beyond(s, -s)
        return jnp.sum(jnp.where(closes, ends, 0) - jnp.where(opens, starts, 0), axis=-1)


def shapes(agent: Agent, spec: Spec) -> Networks:
    """An agent's networks with shapes in place of arrays."""
    return jax.eval_shape(lambda key: agent.init(key, spec), jax.random.key(0))


def fused(like: Networks, weights: Weights, spec: Spec) -> Networks:
    """Packed networks as a loss calls them; `like` says what they were."""
    data, memo = (spec.observation_dim, spec.action_dim), Memo()

    def one(name: str, packed: Any) -> Any:
        network: Any = like[name]
        if isinstance(network, Quasimetric) and network.omega is not None:
            return FusedQuasimetric(packed.omega)
        if not packable(network):
            return packed
        alone = not isinstance(network, Ensemble)
        options: dict[str, Any] = {"low": weights.low[name], "alone": alone, "data": data, "memo": memo}
        first: Any = members_of(network)[0]
        if isinstance(packed, Bilinear):
            return FusedBilinear(packed, rank=first.rank, **options)
        called = FusedMlp(packed, **options)
        return eqx.tree_at(lambda p: p.mlp, first, called) if isinstance(first, Projection) else called

    return {name: one(name, packed) for name, packed in weights.networks.items()}
