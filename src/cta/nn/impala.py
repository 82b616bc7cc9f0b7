"""The convolutional encoder of images, `impala_small`."""

from collections.abc import Sequence
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

    def linear(self, x: Float[Array, "batch h w in"]) -> Float[Array, "batch h w out"]:
        """Without the bias."""
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.kernel, (1, 1), "SAME", dimension_numbers=layout)

    def __call__(self, x: Float[Array, "batch h w in"]) -> Float[Array, "batch h w out"]:
        return self.linear(x) + self.bias


@jax.custom_vjp
def max_pool(x: Float[Array, "batch h w c"]) -> Float[Array, "batch h2 w2 c"]:
    """3×3 max-pool, stride 2, SAME. Of equal numbers the first of a window gets its gradient."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def _pads(size: tuple[int, ...]) -> Sequence[tuple[int, int]]:
    return jax.lax.padtype_to_pads(size, (3, 3), (2, 2), "SAME")


def _max_pool_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    """The maxima; which place of its window, 0 to 8, each was found at; and no images of the size of these."""
    size = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), *_pads(size), (0, 0)), constant_values=-jnp.inf)
    spans = [2 * ceil(n / 2) - 1 for n in size]
    places = [padded[:, i : i + spans[0] : 2, j : j + spans[1] : 2] for i, j in np.ndindex(3, 3)]
    best, at = places[0], jnp.zeros(places[0].shape, jnp.uint8)
    for place, here in enumerate(places[1:], 1):
        at = jnp.where(here > best, jnp.uint8(place), at)
        best = jnp.maximum(best, here)
    return best, (at, x[:0])


def _max_pool_back(kept: tuple[Array, Array], dy: Array) -> tuple[Array]:
    """Pixel by pixel, from the windows that hold it: compilers scatter one number after the other.

    A window begins at every second row of the padded image, so an even row is the first of one window and the last of
    the one before, an odd row the middle of one; columns likewise.
    """
    at, size = kept[0], kept[1].shape[1:3]

    def taken(row: int, column: int) -> Array:
        """What windows give to this place of theirs, laid where it is among the even or odd rows and columns."""
        down, right = (((1, 0) if place == 2 else (0, 1)) for place in (row, column))
        return jnp.pad(jnp.where(at == 3 * row + column, dy, 0), ((0, 0), down, right, (0, 0)))

    even_even = taken(0, 0) + taken(0, 2) + taken(2, 0) + taken(2, 2)
    even = jnp.stack([even_even, taken(0, 1) + taken(2, 1)], axis=3)
    odd = jnp.stack([taken(1, 0) + taken(1, 2), taken(1, 1)], axis=3)
    batch, height, width, channels = even_even.shape
    dx = jnp.stack([even, odd], axis=2).reshape(batch, 2 * height, 2 * width, channels)
    (top, _), (left, _) = _pads(size)
    return (dx[:, top : top + size[0], left : left + size[1]],)


max_pool.defvjp(_max_pool_forward, _max_pool_back)


class Stack(eqx.Module):
    """Convolution → 3×3 max-pool, stride 2, SAME → x + conv(relu(conv(relu(x))))."""

    first: Conv
    residual: tuple[Conv, Conv]

    def __init__(self, key: PRNGKeyArray, inputs: int, outputs: int):
        keys = jax.random.split(key, 3)
        self.first = Conv(keys[0], inputs, outputs)
        self.residual = (Conv(keys[1], outputs, outputs), Conv(keys[2], outputs, outputs))

    def __call__(self, x: Float[Array, "batch h w in"]) -> Float[Array, "batch h2 w2 out"]:
        # The bias does not change which number of a window is largest, and four times as few are left after it.
        x = max_pool(self.first.linear(x)) + self.first.bias
        y = x
        for conv in self.residual:
            y = conv(jax.nn.relu(y))
        return x + y


class Impala(eqx.Module):
    """Images → 512 features: x/255, three stacks of 16, 32, 32 channels, ReLU, flatten, one affine-GELU layer.

    Images stay uint8 until here; floats are taken to be on the same scale, 0…255. Each stack halves height and width
    (rounding up), so 64×64 leaves 8·8·32 = 2048 numbers for the last layer. The stacks compute in the type of their
    weights.
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
        x = images.reshape(-1, *images.shape[-3:]).astype(self.stacks[0].first.kernel.dtype) / 255
        for stack in self.stacks:
            x = stack(x)
        return self.output(jax.nn.relu(x).reshape(*batch, -1).astype(jnp.float32))
