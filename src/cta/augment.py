"""Random crops of image batches, on the device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

PAD = 3
"""Pixels of edge padding on every side; crops start at an offset in {0…2·PAD}²."""


def random_crop(key: PRNGKeyArray, batch: dict[str, Array], probability: float) -> dict[str, Array]:
    """With `probability`, once for the whole batch: edge-pad images by 3 and crop back to their size at random.

    Each element of the batch has one offset for all its images, so that state, goals and targets move together. An
    image is a uint8 field (batch, H, W, C); all other fields pass. Without images, or with probability 0, nothing is
    computed.
    """
    images = {name: field for name, field in batch.items() if field.dtype == jnp.uint8 and field.ndim == 4}
    if not images or probability == 0:
        return batch
    coin, place = jax.random.split(key)
    count = next(iter(images.values())).shape[0]
    offsets = jax.random.randint(place, (count, 2), 0, 2 * PAD + 1)
    # The middle offset is the image itself: no branch, which several seeds side by side could not take apart.
    offsets = jnp.where(jax.random.bernoulli(coin, probability), offsets, PAD)
    return {**batch, **{name: crop(field, offsets) for name, field in images.items()}}


def crop(images: UInt8[Array, "batch h w c"], offsets: Int[Array, "batch 2"]) -> UInt8[Array, "batch h w c"]:
    """Each image edge-padded by 3, cut back to its size at its own offset (down, right)."""
    padded = jnp.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")

    def cut(image: Array, offset: Array) -> Array:
        return jax.lax.dynamic_slice(image, (offset[0], offset[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, offsets)
