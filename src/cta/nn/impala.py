"""The convolutional encoder of images, `impala_small`."""

from math import ceil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from cta.nn.layers import Mlp

CHANNELS = (16, 32, 32)
FEATURES = 512


class Conv(eqx.Module):
    """3×3 convolution, stride 1, SAME; the kernel uniform in ±sqrt(6/(9·in + 9·out)) (Xavier), the bias zero."""

    kernel: Float[Array, "3 3 in out"]
    bias: Float[Array, " out"]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        limit = (6 / (9 * (inputs + outputs))) ** 0.5
        self.kernel = jax.random.uniform(key, (3, 3, inputs, outputs), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "batch h w in"]) -> Float[Array, "batch h w out"]:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.kernel, (1, 1), "SAME", dimension_numbers=layout) + self.bias


@jax.custom_vjp
def max_pool(x: Float[Array, "batch h w c"]) -> Float[Array, "batch h2 w2 c"]:
    """3×3 max-pool, stride 2, SAME. Of equal numbers the first of a window gets its gradient."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _max_pool_back(kept: tuple[Array, Array], dy: Array) -> tuple[Array]:
    """Place by place of the windows, in elementwise operations: compilers scatter one number after the other."""
    x, y = kept
    pads = jax.lax.padtype_to_pads(x.shape[1:3], (3, 3), (2, 2), "SAME")
    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=-jnp.inf)
    spans = [2 * n - 1 for n in y.shape[1:3]]
    given, dx = jnp.zeros(y.shape, bool), jnp.zeros_like(x)
    for at in np.ndindex(3, 3):
        rows, columns = (slice(i, i + span, 2) for i, span in zip(at, spans, strict=True))
        taker = (padded[:, rows, columns] == y) & ~given
        given |= taker
        places = [
            (i - low, n - (i - low) - span, 1)
            for i, span, n, (low, _) in zip(at, spans, x.shape[1:3], pads, strict=True)
        ]
        dx += jax.lax.pad(jnp.where(taker, dy, 0), jnp.zeros((), dy.dtype), ((0, 0, 0), *places, (0, 0, 0)))
    return (dx,)


max_pool.defvjp(lambda x: ((y := max_pool(x)), (x, y)), _max_pool_back)


class Stack(eqx.Module):
    """Convolution → 3×3 max-pool, stride 2, SAME → x + conv(relu(conv(relu(x))))."""

    first: Conv
    residual: tuple[Conv, Conv]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        keys = jax.random.split(key, 3)
        self.first = Conv(keys[0], inputs, outputs)
        self.residual = (Conv(keys[1], outputs, outputs), Conv(keys[2], outputs, outputs))

    def __call__(self, x: Float[Array, "batch h w in"]) -> Float[Array, "batch h2 w2 out"]:
        x = max_pool(self.first(x))
        y = x
        for conv in self.residual:
            y = conv(jax.nn.relu(y))
        return x + y


class Impala(eqx.Module):
    """Images → 512 features: x/255, three stacks of 16, 32, 32 channels, ReLU, flatten, one affine-GELU layer.

    Images stay uint8 until here; floats are taken to be on the same scale, 0…255. Each stack halves height and width
    (rounding up), so 64×64 leaves 8·8·32 = 2048 numbers for the last layer.
    """

    stacks: tuple[Stack, ...]
    output: Mlp

    def __init__(self, key: PRNGKeyArray, channels: int, *, size: tuple[int, ...] = (64, 64)):
        keys = jax.random.split(key, len(CHANNELS) + 1)
        inputs = (channels, *CHANNELS[:-1])
        self.stacks = tuple(Stack(k, i, o) for k, i, o in zip(keys[:-1], inputs, CHANNELS, strict=True))
        height, width = (ceil(n / 2 ** len(CHANNELS)) for n in size)
        flat = height * width * CHANNELS[-1]
        self.output = Mlp(keys[-1], flat, (FEATURES,), layer_norm=False, activate_final=True)

    def __call__(self, images: Num[Array, "*batch h w c"]) -> Float[Array, "*batch 512"]:
        batch = images.shape[:-3]
        x = images.reshape(-1, *images.shape[-3:]).astype(jnp.float32) / 255
        for stack in self.stacks:
            x = stack(x)
        return self.output(jax.nn.relu(x).reshape(*batch, -1))
