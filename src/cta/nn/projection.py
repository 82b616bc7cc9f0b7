"""η: a small network whose output has a fixed length."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.nn.layers import Mlp

TINY = 1e-12


class Projection(eqx.Module):
    """`η(x) = √e·u/‖u‖`, u = MLP(hidden…, e); without the scaling if not `normalise`. Inputs are concatenated."""

    mlp: Mlp
    normalise: bool = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, inputs: int, outputs: int, *, hidden: Sequence[int], layer_norm: bool, normalise: bool
    ):
        self.mlp = Mlp(key, inputs, [*hidden, outputs], layer_norm=layer_norm)
        self.normalise = normalise

    def __call__(self, *inputs: Float[Array, "batch _"]) -> Float[Array, "batch out"]:
        u = self.mlp(*inputs)
        return scale_to_length(u) if self.normalise else u


def scale_to_length(u: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
    """Scale each vector to length √dim.

    The norm is `m·sqrt(Σ(u/m)² + 1e-12)`, m = max|u|, so that neither tiny nor huge vectors overflow; non-finite
    entries count as zero. Nothing has no direction, and gets no gradient: it would be infinite. New networks, whose
    biases are zero, make nothing of nothing, as of the displacement between equal states.
    """
    u = jnp.where(jnp.isfinite(u), u, 0.0)
    u = jnp.where(_largest(u) > TINY, u, stop_gradient(u))
    largest = jnp.maximum(_largest(u), TINY)
    norm = largest * jnp.sqrt(jnp.sum((u / largest) ** 2, axis=-1, keepdims=True) + 1e-12)
    return u.shape[-1] ** 0.5 * u / norm


def _largest(u: Float[Array, "*batch dim"]) -> Float[Array, "*batch 1"]:
    return jnp.max(jnp.abs(u), axis=-1, keepdims=True)
