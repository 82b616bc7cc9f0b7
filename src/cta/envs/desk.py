"""The desk: a planar world of sliding parts and lock buttons, in pure JAX.

A gripper moves over the unit square. Closed on the handle of an unlocked part it drags the part along its rail; closing
on a button toggles bits, and bits lock and unlock parts. It is the smallest world in which a task changes one thing
while a context (the other parts, the locks) may stay as it is, and in which a locked part forces a detour.
Everything is a pure function of a hashable `DeskWorld` (a static argument to `jit`) and a `DeskState` of arrays.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cta.envs.lights import board
from cta.envs.names import DESK_DATASETS, LIGHTS_SIZES, lights_patterns
from cta.errors import CtaError

SPEED = 0.2  # v: how far the gripper moves in one step at full action
CATCH = 0.1  # ρ: a handle or button is in reach when both coordinates differ by less than this
TRAVEL = 0.4  # l: the length of a rail
CLOSED = 0.6  # the grip above which the gripper counts as closed
TOLERANCE = 0.15  # a part is where the goal wants it when it is off by less than this share of its rail
EPISODE_LIMIT = 80
BOARD_LIMITS = {9: EPISODE_LIMIT, 20: 150, 24: 240}  # on boards of up to so many lights; a press takes about 6 steps
TASKS_3X3 = {  # from all lights off to what is lit after these presses; other boards' tasks are drawn by their presses
    "task1_centre": (4,),
    "task2_two_corners": (0, 8),
    "task3_three_edges": (1, 3, 7),
    "task4_four_corners": (0, 2, 6, 8),
    "task5_four_edges": (1, 3, 5, 7),
}
ACTION_DIM = 3

Array = jax.Array | np.ndarray


@dataclass(frozen=True)
class Part:
    """A sliding part: its handle is at `base + q·l·direction`; it moves only while every bit in `locks` is 1."""

    name: str
    base: tuple[float, float]
    direction: tuple[float, float]
    locks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Button:
    """A button at `place`; a press flips the bits in `toggles`."""

    place: tuple[float, float]
    toggles: tuple[int, ...]


@dataclass(frozen=True)
class DeskTask:
    """Start and goal of an evaluation episode: part positions in [0, 1] and bits in {0, 1}. The gripper is drawn."""

    name: str
    start_parts: tuple[float, ...]
    start_bits: tuple[int, ...]
    goal_parts: tuple[float, ...]
    goal_bits: tuple[int, ...]


@dataclass(frozen=True)
class DeskWorld:
    """The description of a desk: m parts, n buttons with one bit each, and its evaluation tasks."""

    name: str
    parts: tuple[Part, ...]
    buttons: tuple[Button, ...]
    tasks: tuple[DeskTask, ...]
    reach: float = CATCH  # of its buttons: smaller where they stand closer, so that one press never is two
    episode_limit: int = EPISODE_LIMIT
    pixels: bool = False  # whether its observations are images (`desk_vector`)

    @property
    def dataset_name(self) -> str:
        return f"{self.name}-play-v0"

    @property
    def observation_dim(self) -> int:
        return 3 + len(self.parts) + len(self.buttons)

    @cached_property
    def bases(self) -> np.ndarray:
        """Handle places of the shut parts, (m, 2)."""
        return np.array([part.base for part in self.parts], np.float32).reshape(-1, 2)

    @cached_property
    def directions(self) -> np.ndarray:
        """Unit vectors of the rails, (m, 2)."""
        return np.array([part.direction for part in self.parts], np.float32).reshape(-1, 2)

    @cached_property
    def places(self) -> np.ndarray:
        """Button places, (n, 2)."""
        return np.array([button.place for button in self.buttons], np.float32).reshape(-1, 2)

    @cached_property
    def gates(self) -> np.ndarray:
        """gates[i, j] ⇔ part i needs bit j to be 1, (m, n)."""
        bits = range(len(self.buttons))
        return np.array([[j in part.locks for j in bits] for part in self.parts], bool).reshape(-1, len(bits))

    @cached_property
    def toggles(self) -> np.ndarray:
        """toggles[j, k] = 1 ⇔ button j flips bit k, the matrix T, (n, n)."""
        bits = range(len(self.buttons))
        return np.array([[int(k in button.toggles) for k in bits] for button in self.buttons], np.int32)


class DeskState(NamedTuple):
    """gripper x (2,), grip (), part positions q (m,) as float32; bits c (n,) as int32. Batches have leading axes."""

    gripper: Array
    grip: Array
    parts: Array
    bits: Array


def handles(world: DeskWorld, parts: Array) -> Array:
    """Handle places h_i = base_i + q_i·l·dir_i, (m, 2)."""
    return world.bases + parts[:, None] * TRAVEL * world.directions


def unlocked(world: DeskWorld, bits: Array) -> Array:
    """Whether every bit that gates part i is 1, (m,)."""
    return jnp.all(~world.gates | (bits[None, :] == 1), axis=1)


def distance(gripper: Array, places: Array) -> Array:
    """Largest coordinate difference |x − p|∞ to each place, (k, 2) → (k,)."""
    return jnp.max(jnp.abs(gripper - places), axis=-1)


def step(world: DeskWorld, state: DeskState, action: Array) -> DeskState:
    """One step of the world under action (dx, dy, dgrip), clipped to [−1, 1]; all rules read the old x, q, c.

    grip' = clip(grip + a₃, 0, 1), closed' ⇔ grip' > 0.6. The nearest unlocked part in reach of a closed gripper is
    held: q' = clip(q + v·(a_xy·dir)/l, 0, 1), x' = x + (q' − q)·l·dir. Nothing held: x' = clip(x + v·a_xy, 0, 1).
    Closing (closed' and not closed) in reach of button j presses it: c' = c XOR T_j.
    """
    action = jnp.clip(action, -1.0, 1.0)
    move = SPEED * action[:2]
    grip = jnp.clip(state.grip + action[2], 0.0, 1.0)
    closed = grip > CLOSED

    held = _held(world, state, closed)
    parts = jnp.where(held, jnp.clip(state.parts + world.directions @ move / TRAVEL, 0.0, 1.0), state.parts)
    drag = (parts - state.parts) * TRAVEL @ world.directions
    gripper = jnp.where(jnp.any(held), state.gripper + drag, jnp.clip(state.gripper + move, 0.0, 1.0))

    pressed = closed & (state.grip <= CLOSED) & (distance(state.gripper, world.places) < world.reach)
    bits = state.bits ^ (pressed.astype(jnp.int32) @ world.toggles % 2)
    return DeskState(gripper, grip, parts, bits)


def _held(world: DeskWorld, state: DeskState, closed: Array) -> Array:
    """Which part a gripper that is now `closed` holds: at most one is True, (m,)."""
    if not world.parts:
        return jnp.zeros(0, bool)
    away = distance(state.gripper, handles(world, state.parts))
    candidate = closed & unlocked(world, state.bits) & (away < CATCH)
    nearest = jnp.argmin(jnp.where(candidate, away, jnp.inf))
    return candidate & (jnp.arange(len(world.parts)) == nearest)


@jax.jit
def observe(state: DeskState) -> Array:
    """The observation [4(x − ½), 2·grip − 1, 1.5(2q − 1), 2c − 1], float32, (..., 3 + m + n)."""
    gripper, grip = 4.0 * (state.gripper - 0.5), 2.0 * state.grip[..., None] - 1.0
    parts, bits = 1.5 * (2.0 * state.parts - 1.0), 2.0 * state.bits.astype(jnp.float32) - 1.0
    return jnp.concatenate([gripper, grip, parts, bits], axis=-1)


def decode(world: DeskWorld, observations: np.ndarray) -> DeskState:
    """The state behind an observation (..., 3 + m + n): the inverse of `observe`, in NumPy."""
    observations = np.asarray(observations)
    if observations.shape[-1:] != (world.observation_dim,):
        expected, got = world.observation_dim, observations.shape
        raise CtaError(f"an observation of the {world.name} world has {expected} numbers, not shape {got}")
    gripper, grip, parts, bits = np.split(observations, [2, 3, 3 + len(world.parts)], axis=-1)
    return DeskState(gripper / 4 + 0.5, (grip[..., 0] + 1) / 2, (parts / 1.5 + 1) / 2, (bits > 0).astype(np.int32))


def success(state: DeskState, goal: DeskState) -> Array:
    """Every |q − q_goal| < 0.15 and c = c_goal; the gripper does not matter."""
    near = jnp.all(jnp.abs(state.parts - goal.parts) < TOLERANCE, axis=-1)
    return near & jnp.all(state.bits == goal.bits, axis=-1)


DESK = DeskWorld(
    name="desk",
    parts=(
        Part("drawer", (0.15, 0.2), (0.0, 1.0), locks=(0,)),
        Part("window", (0.2, 0.85), (1.0, 0.0), locks=(1,)),
        Part("tray", (0.45, 0.4), (1.0, 0.0)),
    ),
    buttons=(Button((0.8, 0.1), (0,)), Button((0.85, 0.75), (1,))),
    tasks=(
        DeskTask("task1_tray", (0, 0, 0), (1, 1), (0, 0, 1), (1, 1)),
        DeskTask("task2_unlock_drawer", (0, 1, 0), (0, 1), (1, 1, 0), (1, 1)),
        DeskTask("task3_drawer_and_tray", (0, 0, 0), (1, 0), (1, 0, 1), (1, 0)),
        DeskTask("task4_unlock_and_swap", (0, 0, 1), (0, 0), (1, 1, 0), (1, 1)),
        DeskTask("task5_shut_and_lock", (1, 1, 1), (1, 1), (0, 0, 0), (0, 0)),
    ),
)


def _lights(rows: int, columns: int) -> DeskWorld:
    """Lights out: button (r, c), at ((c + ½)/columns, 1 − (r + ½)/rows), flips itself and its 4-neighbours."""
    buttons = tuple(
        Button(((i % columns + 0.5) / columns, 1 - (i // columns + 0.5) / rows), flips)
        for i, flips in enumerate(lights_patterns(rows, columns))
    )
    here, off = board(rows, columns), (0,) * len(buttons)
    if (rows, columns) == (3, 3):
        lit = {name: here.lit_by(presses) for name, presses in TASKS_3X3.items()}
    else:
        lit = {f"task{i}_{n}_press{'es' * (n > 1)}": lights for i, (n, lights) in enumerate(here.tasks(), 1)}
    tasks = tuple(DeskTask(name, (), off, (), lights) for name, lights in lit.items())
    limit = next(limit for lights, limit in BOARD_LIMITS.items() if here.lights <= lights)
    return DeskWorld(f"lights-{rows}x{columns}", (), buttons, tasks, min(CATCH, 0.5 / max(rows, columns)), limit)


def host_device() -> Any:
    """The CPU if JAX has it, so that the desk gives the same numbers beside any accelerator; else the first device."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


STATES = [DESK, *(_lights(*size) for size in LIGHTS_SIZES)]
VISUAL = [replace(world, name=f"visual-{world.name}", pixels=True) for world in STATES]
WORLDS = {world.name: world for world in (*STATES, *VISUAL) if world.dataset_name in DESK_DATASETS}


def find_world(name: str) -> DeskWorld | None:
    """The embedded world with this name or with play data of this name (`desk` or `desk-play-v0`), else None."""
    return WORLDS.get(name.removesuffix("-play-v0"))
