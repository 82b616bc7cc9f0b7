"""Many desks together: what they show, stepped as one `VectorWorld`.

They show their state as a vector or, in the `visual-` worlds, as a small image drawn by array code, without OpenGL.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np

from cta.envs import desk
from cta.envs.desk import Array, DeskState, DeskTask, DeskWorld, handles, host_device, observe
from cta.envs.protocol import Episode, Step
from cta.errors import CtaError

SIDE = 64  # pixels of an image's side
MARGIN = 5  # pixels between the edge of an image and that of the world, so that a gripper in a corner is seen whole
AT_ONCE = 1024  # frames drawn by one call
COLOURS = [(236, 236, 232), (190, 190, 186), (96, 102, 120), (250, 196, 40), (20, 20, 20), (220, 40, 40)]
GROUND, RAIL, UNLIT, LIT, OPEN, SHUT = np.array(COLOURS, np.float32)
PARTS = np.array([(52, 120, 190), (60, 150, 80), (150, 80, 160)], np.float32)
GRIPPER, HANDLE, BUTTON = 3.5, 4.5, 5.0  # half sides of what is drawn as a square, in pixels


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
    """One state as an image (side, side, 3) uint8, all of it: the gripper's colour says how far it is closed."""
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
    """`see`, some frames at a time: all of them as floats would not fit into memory."""
    with jax.default_device(host_device()):
        for first in range(0, len(states.grip), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            yield np.asarray(see(world, jax.tree.map(lambda array, some=some: array[some], states)))


def see_all(world: DeskWorld, states: DeskState) -> np.ndarray:
    """The same in one array."""
    if not world.pixels:
        return np.asarray(observe(states))
    frames = chain.from_iterable(see_blocks(world, states))
    return np.fromiter(frames, (np.uint8, (SIDE, SIDE, 3)), len(states.grip))


def start_and_goal(task: DeskTask, seed: int) -> tuple[DeskState, DeskState]:
    """The states an episode starts in and leads to: both grippers open, at places drawn from the seed."""
    places = np.random.default_rng(seed).random((2, 2), np.float32)

    def state(place: np.ndarray, parts: tuple[float, ...], bits: tuple[int, ...]) -> DeskState:
        return DeskState(place, np.zeros((), np.float32), np.array(parts, np.float32), np.array(bits, np.int32))

    return state(places[0], task.start_parts, task.start_bits), state(places[1], task.goal_parts, task.goal_bits)


@partial(jax.jit, static_argnums=0)
def _advance(world: DeskWorld, states: DeskState, goals: DeskState, actions: Array) -> tuple[DeskState, Array, Array]:
    """All slots one step on: states, observations and whether each is at its goal."""
    states = jax.vmap(partial(desk.step, world))(states, actions)
    return states, see(world, states), desk.success(states, goals)


def world_of(dataset_name: str) -> DeskWorld:
    return desk.WORLDS[dataset_name.removesuffix("-play-v0")]


class DeskVectorWorld:
    """`slots` desks side by side, stepped by one compiled program; NumPy in and out, as `VectorWorld` asks."""

    def __init__(self, world: DeskWorld, *, slots: int, max_episode_steps: int | None = None) -> None:
        self.world, self.slots, self.action_dim = world, slots, desk.ACTION_DIM
        self.task_names = tuple(task.name for task in world.tasks)
        self.max_episode_steps = max_episode_steps or world.episode_limit
        idle = start_and_goal(world.tasks[0], 0)
        self._states, self._goals = (jax.tree.map(lambda value: np.stack([value] * slots), state) for state in idle)
        self._goal_observations = np.asarray(see(self.world, self._goals))
        self._steps = np.full(slots, self.max_episode_steps)
        self._pending: tuple[Array, Array] | None = None

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        with jax.default_device(host_device()):
            states, observations, reached = _advance(self.world, self._states, self._goals, np.float32(actions))
            self._steps += 1
            if start:
                states, self._goals, reached = jax.tree.map(np.array, (states, self._goals, reached))
                self._begin(start, states, reached)
                observations = see(self.world, states)
                self._goal_observations = np.asarray(see(self.world, self._goals))
        self._states = states
        self._pending = observations, reached

    def _begin(self, start: Mapping[int, Episode], states: DeskState, reached: np.ndarray) -> None:
        """Write the starts and goals of new episodes into host arrays; few rounds start any."""
        tasks = self.world.tasks
        for slot, episode in start.items():
            if episode.own is None and not 1 <= episode.task <= len(tasks):
                raise CtaError(f"the {self.world.name} world has tasks 1 to {len(tasks)}, not {episode.task}")
            task = tasks[episode.task - 1] if episode.own is None else episode.own
            for old, new in zip((states, self._goals), start_and_goal(task, episode.seed), strict=True):
                for array, value in zip(old, new, strict=True):
                    np.asarray(array)[slot] = value
            reached[slot] = False
            self._steps[slot] = 0

    def receive(self) -> Step:
        """A slot that is past its episode's end keeps stepping, and stays done."""
        if self._pending is None:
            raise RuntimeError("receive without send")
        observations, reached = (np.asarray(array) for array in self._pending)
        self._pending = None
        return Step(observations, self._goal_observations, reached, reached | (self._steps >= self.max_episode_steps))
