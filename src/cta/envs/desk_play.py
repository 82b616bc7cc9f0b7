"""Play data on the desk: an oracle that keeps drawing things to do, with noise, and the dataset it leaves behind."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cta.data import TrajectoryDataset
from cta.data.npz import Column, column
from cta.data.progress import Advance, progress
from cta.envs import desk
from cta.envs.desk import SPEED, TRAVEL, Array, DeskState, DeskWorld, handles, host_device
from cta.envs.desk_vector import SIDE, see_all, see_blocks
from cta.errors import CtaError

NEAR = 0.06  # the oracle acts on an anchor, and a part has arrived, when it is off by less than this
OPEN = 0.3  # released: the grip below which the oracle draws the next subtask
TOGETHER = 2048  # episodes played at once
NOISE = np.array([0.3, 0.3, 0.15], np.float32)  # standard deviation of (dx, dy, dgrip), halved near the anchor


class Subtask(NamedTuple):
    """What the oracle is about: a number among parts, then buttons, where a part should go, whether it lets go."""

    which: Array
    target: Array
    releasing: Array


def draw_subtask(world: DeskWorld, state: DeskState, lots: Array) -> Subtask:
    """Uniform among unlocked parts (move to the other side) and buttons (press): the highest of the lots (m + n,)."""
    possible = jnp.concatenate([desk.unlocked(world, state.bits), jnp.ones(len(world.buttons), bool)])
    index = jnp.argmax(jnp.where(possible, lots, -1.0)).astype(jnp.int32)
    other_side = _part_of(world, (state.parts < 0.5).astype(jnp.float32), index)
    return Subtask(index, other_side, jnp.zeros((), bool))


def _part_of(world: DeskWorld, values: Array, index: Array) -> Array:
    """values[index] for a part, 0 for a button: parts come first in a subtask's index, (m, ...) → (...)."""
    zeros = jnp.zeros((len(world.buttons), *values.shape[1:]), values.dtype)
    return jnp.concatenate([values, zeros])[index]


def oracle_action(world: DeskWorld, state: DeskState, subtask: Subtask) -> tuple[Array, Array]:
    """The noiseless action (3,) toward the subtask, and whether the gripper is near its anchor.

    Away from the anchor it opens first and then moves clip(d/v); near it closes, and once closed on a part pulls
    dir·clip((target − q)·l/v, −1, 1); when the subtask is done it stands still and opens.
    """
    anchor = jnp.concatenate([handles(world, state.parts), jnp.asarray(world.places)])[subtask.which]
    offset = anchor - state.gripper
    near = desk.distance(state.gripper, anchor) < NEAR
    closed = state.grip > desk.CLOSED
    missing = _part_of(world, subtask.target - state.parts, subtask.which)
    pull = _part_of(world, jnp.asarray(world.directions), subtask.which) * jnp.clip(missing * TRAVEL / SPEED, -1, 1)

    move = jnp.where(near, pull * closed, jnp.clip(offset / SPEED, -1, 1) * ~closed)
    grip = jnp.where(near & ~subtask.releasing, 1.0, -1.0)
    return jnp.append(move * ~subtask.releasing, grip), near


def _advance(world: DeskWorld, before: DeskState, after: DeskState, subtask: Subtask, lots: Array) -> Subtask:
    """The subtask of the next step: the same, letting go once it is done, or a new one once let go."""
    missing = _part_of(world, jnp.abs(after.parts - subtask.target), subtask.which)
    arrived = (subtask.which < len(world.parts)) & (missing < NEAR)
    done = arrived | jnp.any(after.bits != before.bits)
    kept = subtask._replace(releasing=subtask.releasing | done)
    again = kept.releasing & (after.grip < OPEN)
    return jax.tree.map(partial(jnp.where, again), draw_subtask(world, after, lots), kept)


class Draws(NamedTuple):
    """Everything random in an episode of T rows: the gripper's start (2,), coins for parts and bits (m + n,), standard
    normal action noise (T, 3) and lots for the subtasks (T + 1, m + n)."""

    place: np.ndarray
    coins: np.ndarray
    noise: np.ndarray
    lots: np.ndarray


def draw_episode(world: DeskWorld, steps: int, seed: tuple[int, ...]) -> Draws:
    """The draws of one episode. NumPy makes them, because compiling JAX's generators takes longer than all the rest."""
    things = len(world.parts) + len(world.buttons)
    rng = np.random.default_rng(seed)
    place, coins = rng.random(2, np.float32), rng.integers(0, 2, things, np.int32)
    noise = rng.standard_normal((steps, desk.ACTION_DIM), np.float32)
    return Draws(place, coins, noise, lots=rng.random((steps + 1, things), np.float32))


def play_episode(world: DeskWorld, draws: Draws) -> tuple[DeskState, Array, Array]:
    """One episode of T rows: states (T, ...) before each action, clipped actions (T, 3), subtask numbers (T,)."""
    m = len(world.parts)
    parts, bits = draws.coins[:m].astype(jnp.float32), draws.coins[m:]
    state = DeskState(draws.place, jnp.zeros((), jnp.float32), parts, bits)

    def body(carry: tuple[DeskState, Subtask], drawn: tuple[Array, Array]) -> tuple:
        state, subtask = carry
        noise, lots = drawn
        wanted, near = oracle_action(world, state, subtask)
        action = jnp.clip(wanted + NOISE * noise / (1 + near), -1.0, 1.0)
        after = desk.step(world, state, action)
        return (after, _advance(world, state, after, subtask, lots)), (state, action, subtask.which)

    carry = (state, draw_subtask(world, state, draws.lots[0]))
    return jax.lax.scan(body, carry, (draws.noise, draws.lots[1:]))[1]


@partial(jax.jit, static_argnums=0)
def play(world: DeskWorld, draws: Draws) -> tuple[DeskState, Array, Array]:
    """`play_episode` for many episodes at once: all arrays get a leading axis of episodes."""
    return jax.vmap(partial(play_episode, world))(draws)


class Played(NamedTuple):
    """Rows of whole episodes back to back: states before each action, actions, and the last row of each episode."""

    name: str
    world: DeskWorld
    states: DeskState
    actions: np.ndarray
    ends: np.ndarray

    @property
    def info(self) -> dict[str, np.ndarray]:
        """`qpos` (gripper xy, grip and part positions) and `button_states` (the bits)."""
        gripper, grip, parts, bits = self.states
        qpos = np.concatenate([gripper, np.asarray(grip)[:, None], parts], axis=-1)
        return {"qpos": qpos, "button_states": np.asarray(bits, np.int64)}

    def dataset(self) -> TrajectoryDataset:
        seen = see_all(self.world, self.states)
        return TrajectoryDataset.from_arrays(seen, self.actions, self.ends, info=self.info, name=self.name)

    def columns(self, advance: Advance) -> dict[str, Column]:
        """The same for a file: frames are drawn while they are written, and never are in memory together."""

        def frames() -> Iterator[np.ndarray]:
            for block in see_blocks(self.world, self.states):
                yield block
                advance(len(block))

        shape, dtype = ((SIDE, SIDE, 3), np.uint8) if self.world.pixels else ((self.world.observation_dim,), np.float32)
        seen = Column(np.dtype(dtype), (len(self.ends), *shape), frames())
        arrays = {"actions": self.actions, "terminals": self.ends, **self.info}
        return {"observations": seen} | {key: column(values) for key, values in arrays.items()}


def generate_play(world_name: str, **size: int) -> tuple[TrajectoryDataset, TrajectoryDataset]:
    """Play data of an embedded world as (training, validation) datasets; the size is that of `play_both`."""
    train, validation = play_both(world_name, **size)
    return train.dataset(), validation.dataset()


def play_both(
    world_name: str, *, episodes: int = 500, validation_episodes: int = 50, episode_steps: int = 150, seed: int = 0
) -> tuple[Played, Played]:
    """Episodes for training and for validation, of an embedded world (`desk`, `lights-4x5`).

    An episode has `episode_steps` rows, the last of which leads nowhere. Episode i of either part depends on the seed
    and i only, and is computed on the CPU wherever there is one: beside an accelerator the bytes are the same.
    """
    world = desk.find_world(world_name)
    if world is None:
        raise CtaError(f"there is no embedded world '{world_name}'; there are desk and lights-RxC")
    if min(episodes, validation_episodes) < 1 or episode_steps < 2:
        raise CtaError("play data needs at least one episode of each kind and two rows per episode")
    counts = (episodes, validation_episodes)
    seeds = [(seed, part, episode) for part, count in enumerate(counts) for episode in range(count)]
    together, made = min(TOGETHER, len(seeds)), []
    with progress(world.dataset_name, total=len(seeds) * episode_steps, unit="rows") as advance:
        for first in range(0, len(seeds), together):
            these = seeds[first : first + together]
            # The last ones are filled up, so that nothing is compiled twice.
            filled = these + these[-1:] * (together - len(these))
            drawn = [draw_episode(world, episode_steps, seed) for seed in filled]
            with jax.default_device(host_device()):
                played = play(world, jax.tree.map(lambda *values: np.stack(values), *drawn))[:2]
            count = len(these)
            made.append(jax.tree.map(lambda array, count=count: np.concatenate(np.asarray(array)[:count]), played))
            advance(count * episode_steps)
    states, actions = jax.tree.map(lambda *parts: np.concatenate(parts), *made)
    ends = np.tile(np.arange(episode_steps) == episode_steps - 1, len(seeds))
    cut = episodes * episode_steps
    train, validation = (
        Played(name, world, *jax.tree.map(lambda array, rows=rows: array[rows], (states, actions, ends)))
        for name, rows in ((world.dataset_name, slice(cut)), (f"{world.dataset_name}-val", slice(cut, None)))
    )
    return train, validation
