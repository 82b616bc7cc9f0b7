"""The embedded worlds as small images, drawn by array code: observations of the `visual-` datasets, without OpenGL."""

from collections.abc import Iterator
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from cta.envs.desk import Array, DeskState, DeskWorld, handles, host_device, observe

SIDE = 64
"""Pixels of an image's side."""
MARGIN = 5
"""Pixels between the edge of an image and that of the world, so that a gripper in a corner is seen whole."""
AT_ONCE = 1024
"""Frames drawn by one call."""
GROUND, RAIL, UNLIT, LIT, OPEN, SHUT = np.array(
    [(236, 236, 232), (190, 190, 186), (96, 102, 120), (250, 196, 40), (20, 20, 20), (220, 40, 40)], np.float32
)
PARTS = np.array([(52, 120, 190), (60, 150, 80), (150, 80, 160)], np.float32)
"""Colours."""
GRIPPER, HANDLE, BUTTON = 3.5, 4.5, 5.0
"""Half sides of what is drawn as a square, in pixels."""


def _pixel(places: Array) -> Array:
    """Where places of the unit square are in an image: (column, row), rows from the top."""
    flipped = places * np.array([1, -1], np.float32) + np.array([0, 1], np.float32)
    return MARGIN + flipped * (SIDE - 1 - 2 * MARGIN)


def _box(centre: Array, half: Array | float) -> Array:
    """How much of each pixel a box with these half sides covers, (..., side, side): edges lie between pixels, too."""
    away = jnp.abs(jnp.arange(SIDE) - centre[..., None])
    along = jnp.clip(jnp.broadcast_to(half, 2)[:, None] + 0.5 - away, 0.0, 1.0)
    return along[..., 1, :, None] * along[..., 0, None, :]


def _over(image: Array, cover: Array, colour: Array) -> Array:
    """A colour over an image, as far as it covers it."""
    return image + cover[..., None] * (colour - image)


@cache
def _still(world: DeskWorld) -> tuple[np.ndarray, np.ndarray]:
    """What does not move: the ground with its rails and unlit buttons (side, side, 3), the cover of each button."""
    with jax.ensure_compile_time_eval(), jax.default_device(host_device()):
        image = jnp.broadcast_to(GROUND, (SIDE, SIDE, 3))
        shut, wide = (_pixel(handles(world, np.full(len(world.parts), q, np.float32))) for q in (0, 1))
        for middle, half in zip((shut + wide) / 2, abs(shut - wide) / 2, strict=True):
            image = _over(image, _box(middle, half + 0.5), RAIL)
        covers = _box(_pixel(jnp.asarray(world.places)), BUTTON)
        for cover in covers:
            image = _over(image, cover, UNLIT)
        return np.asarray(image), np.asarray(covers)


def draw(world: DeskWorld, state: DeskState) -> Array:
    """One state as an image (side, side, 3) uint8: lit and unlit buttons, handles on their rails, the gripper.

    The gripper's colour says how far it is closed, so that one image is a whole state.
    """
    ground, covers = _still(world)
    lit = jnp.tensordot(jnp.asarray(state.bits, jnp.float32), covers, 1)
    image = ground + lit[..., None] * (LIT - UNLIT)
    for i, centre in enumerate(_pixel(handles(world, state.parts))):
        image = _over(image, _box(centre, HANDLE), PARTS[i])
    colour = OPEN + state.grip * (SHUT - OPEN)
    return jnp.round(_over(image, _box(_pixel(state.gripper), GRIPPER), colour)).astype(jnp.uint8)


@partial(jax.jit, static_argnums=0)
def see(world: DeskWorld, states: DeskState) -> Array:
    """Observations of states with one leading axis: vectors, or images in a world of pixels."""
    return jax.vmap(partial(draw, world))(states) if world.pixels else observe(states)


def see_blocks(world: DeskWorld, states: DeskState) -> Iterator[np.ndarray]:
    """`see` for one leading axis, some frames at a time: all of them as floats would not fit into memory."""
    with jax.default_device(host_device()):
        for first in range(0, len(states.grip), AT_ONCE):
            yield np.asarray(
                see(world, jax.tree.map(lambda array, first=first: array[first : first + AT_ONCE], states))
            )


def see_all(world: DeskWorld, states: DeskState) -> np.ndarray:
    """`see` for any leading axes, in one array."""
    if not world.pixels:
        return np.asarray(observe(states))
    leading = states.grip.shape
    count = int(np.prod(leading))
    flat = jax.tree.map(lambda array: np.asarray(array).reshape(count, *array.shape[len(leading) :]), states)
    frames, first = np.empty((count, SIDE, SIDE, 3), np.uint8), 0
    for block in see_blocks(world, flat):
        frames[first : first + len(block)] = block
        first += len(block)
    return frames.reshape(*leading, SIDE, SIDE, 3)
