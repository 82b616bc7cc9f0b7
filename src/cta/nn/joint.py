"""The ordinary network form: one MLP on the concatenation of anchor and condition."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cta.nn.layers import Linear, Mlp


class JointMlp(eqx.Module):
    """`head(MLP([x; z]))` with the signature of `BilinearTrunk`: condition z first, anchor x second."""

    trunk: Mlp
    head: Linear

    def __init__(
        self,
        key: PRNGKeyArray,
        condition: int,
        anchor: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        layer_norm: bool,
        head_scale: float,
    ):
        trunk_key, head_key = jax.random.split(key)
        self.trunk = Mlp(trunk_key, condition + anchor, hidden, layer_norm=layer_norm, activate_final=True)
        self.head = Linear(head_key, hidden[-1], outputs, scale=head_scale)

    def __call__(
        self, condition: Float[Array, "batch z"], anchor: Float[Array, "batch x"]
    ) -> Float[Array, "batch out"]:
        return self.head(self.trunk(jnp.concatenate([anchor, condition], axis=-1)))
