"""Distances that may differ by direction, of latents that carry them."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

GROUP = 8  # coordinates per interval group of an IQE


class Quasimetric(eqx.Module):
    """d(x,y) ≥ 0 with d(x,x) = 0 and the triangle inequality, but not always d(x,y) = d(y,x).

    IQE: component k is the length of the union of the intervals [x_i, max(x_i,y_i)], i in group k;
    `d = σ(ω)·mean_k + (1−σ(ω))·max_k`, ω learned. MRN: `‖(x−y)_first half‖₂ + ReLU(max (x−y)_second half)`.
    """

    omega: Float[Array, ""] | None

    def __init__(self, kind: Literal["iqe", "mrn"]):
        self.omega = jnp.zeros(()) if kind == "iqe" else None

    def __call__(self, x: Float[Array, "*batch dim"], y: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        if self.omega is None:
            half = x.shape[-1] // 2
            gap = x - y
            # The square root has no derivative at zero, where a latent is compared with itself.
            symmetric = jnp.sqrt(jnp.maximum(jnp.sum(gap[..., :half] ** 2, axis=-1), 1e-12))
            return symmetric + jax.nn.relu(jnp.max(gap[..., half:], axis=-1))
        lengths = self.length(_groups(x), _groups(jnp.maximum(x, y)))
        mix = jax.nn.sigmoid(self.omega)
        return mix * jnp.mean(lengths, axis=-1) + (1 - mix) * jnp.max(lengths, axis=-1)

    def length(self, starts: Float[Array, "*batch n"], ends: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        return union_length(starts, ends)


def _groups(x: Float[Array, "*batch dim"]) -> Float[Array, "*batch groups 8"]:
    return x.reshape(*x.shape[:-1], -1, GROUP)


def union_length(starts: Float[Array, "*batch n"], ends: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """Length of the union of the intervals [start_i, end_i]: walk them by start, count what no earlier one covers."""
    starts, ends = jax.lax.sort((starts, ends), num_keys=1)
    covered = starts[..., 0]
    total = jnp.zeros_like(covered)
    for i in range(starts.shape[-1]):
        total = total + jnp.maximum(ends[..., i] - jnp.maximum(starts[..., i], covered), 0.0)
        covered = jnp.maximum(covered, ends[..., i])
    return total
