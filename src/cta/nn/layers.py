"""Affine maps, layer normalisation and the multilayer perceptron they form."""

import math
from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

EPSILON = 1e-6
"""Added to a variance."""
GELU_SLOPE, GELU_CUBE = (2 / math.pi) ** 0.5, 0.044715
"""`gelu(x) = ½x(1 + tanh(√(2/π)·(x + 0.044715·x³)))`."""


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
        return centred * jax.lax.rsqrt(variance + EPSILON) * self.scale + self.offset


@jax.custom_vjp
def gelu_norm(
    x: Float[Array, "*batch dim"], scale: Float[Array, " dim"], offset: Float[Array, " dim"]
) -> Float[Array, "*batch dim"]:
    """`LayerNorm(gelu(x))` with its derivative written out.

    The same function in fewer passes over memory than differentiating it term by term takes: mean and variance come
    from one pass (`E h² − (E h)²`, harmless after GELU, whose mean is of the order of its deviation), and the three
    sums of the backward pass share one product. Worth 5–10% of a training step on a CPU.
    """
    return _gelu_norm_forward(x, scale, offset)[0]


def _gelu_norm_forward(x: Array, scale: Array, offset: Array) -> tuple[Array, tuple[Array, ...]]:
    t = jnp.tanh(GELU_SLOPE * (x + GELU_CUBE * (x * x * x)))
    h = 0.5 * x * (1.0 + t)
    mean = jnp.mean(h, axis=-1, keepdims=True)
    variance = jnp.maximum(jnp.mean(h * h, axis=-1, keepdims=True) - mean * mean, 0.0)
    inverse = jax.lax.rsqrt(variance + EPSILON)
    return (h - mean) * inverse * scale + offset, (x, t, h, mean, inverse, scale)


def _gelu_norm_backward(saved: tuple[Array, ...], dy: Array) -> tuple[Array, Array, Array]:
    x, t, h, mean, inverse, scale = saved
    normal = (h - mean) * inverse
    # The barrier has the product written once and read by both sums, instead of being computed inside each.
    product = jax.lax.optimization_barrier(dy * normal)
    weights = scale[:, None] / x.shape[-1]
    dh = inverse * (dy * scale - dy @ weights - normal * (product @ weights))
    slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU_SLOPE * (1.0 + 3 * GELU_CUBE * (x * x))
    rows = tuple(range(x.ndim - 1))
    return dh * slope, jnp.sum(product, axis=rows), jnp.sum(dy, axis=rows)


gelu_norm.defvjp(_gelu_norm_forward, _gelu_norm_backward)


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
        return _forward(self, *inputs)


# Compiled for itself only so that JAX traces it once for all networks and calls of one shape: starting a run takes
# half as long, and the compiler puts the body back in its place.
@jax.jit
def _forward(network: Mlp, *inputs: Array) -> Array:
    x = jnp.concatenate(inputs, axis=-1)
    for i, layer in enumerate(network.layers):
        x = layer(x)
        if i + 1 < len(network.layers) or network.activate_final:
            if network.norms:
                x = gelu_norm(x, network.norms[i].scale, network.norms[i].offset)
            else:
                x = jax.nn.gelu(x, approximate=True)
    return x
