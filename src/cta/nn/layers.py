"""Affine maps, layer normalisation and the multilayer perceptron they form."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Linear(eqx.Module):
    """`x·kernel + bias`, the kernel uniform in ±sqrt(6·scale/(in+out)), the bias zero."""

    kernel: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int, *, scale: float = 1.0):
        limit = (6 * scale / (inputs + outputs)) ** 0.5
        self.kernel = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        return x @ self.kernel + self.bias


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis (ε = 1e-6), then a learned scale and offset."""

    scale: Float[Array, " dim"]
    offset: Float[Array, " dim"]

    def __init__(self, dim: int):
        self.scale = jnp.ones(dim)
        self.offset = jnp.zeros(dim)

    def __call__(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-6) * self.scale + self.offset


class Mlp(eqx.Module):
    """Affine → GELU (tanh form) → layer norm, per layer; the last layer stays affine unless `activate_final`.

    Several inputs are concatenated. `head_scale` scales the last layer's initial weights (0.01: a small-init head).
    """

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]
    activate_final: bool = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        inputs: int,
        sizes: Sequence[int],
        *,
        layer_norm: bool,
        activate_final: bool = False,
        head_scale: float = 1.0,
    ):
        keys = jax.random.split(key, len(sizes))
        widths = [inputs, *sizes]
        activated = sizes if activate_final else sizes[:-1]
        scales = [1.0] * (len(sizes) - 1) + [head_scale]
        self.layers = tuple(
            Linear(k, i, o, scale=scale) for k, (i, o), scale in zip(keys, pairwise(widths), scales, strict=True)
        )
        self.norms = tuple(LayerNorm(size) for size in activated) if layer_norm else ()
        self.activate_final = activate_final

    def __call__(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*batch out"]:
        x = jnp.concatenate(inputs, axis=-1)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i + 1 < len(self.layers) or self.activate_final:
                x = jax.nn.gelu(x, approximate=True)
                if self.norms:
                    x = self.norms[i](x)
        return x
