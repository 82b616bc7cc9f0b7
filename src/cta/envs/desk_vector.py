"""Many desks stepped together: the `VectorWorld` of the embedded worlds."""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np

from cta.envs.desk import ACTION_DIM, WORLDS, Array, DeskState, DeskTask, DeskWorld, host_device, step, success
from cta.envs.desk_pixels import see
from cta.envs.protocol import Episode, Step
from cta.errors import CtaError


def start_and_goal(task: DeskTask, seed: int) -> tuple[DeskState, DeskState]:
    """The start and goal states of an episode: both grippers open, at places drawn from the seed."""
    places = np.random.default_rng(seed).random((2, 2), np.float32)

    def state(place: np.ndarray, parts: tuple[float, ...], bits: tuple[int, ...]) -> DeskState:
        return DeskState(place, np.zeros((), np.float32), np.array(parts, np.float32), np.array(bits, np.int32))

    return state(places[0], task.start_parts, task.start_bits), state(places[1], task.goal_parts, task.goal_bits)


@partial(jax.jit, static_argnums=0)
def _advance(world: DeskWorld, states: DeskState, goals: DeskState, actions: Array) -> tuple[DeskState, Array, Array]:
    """All slots one step on: states, observations and whether each is at its goal."""
    states = jax.vmap(partial(step, world))(states, actions)
    return states, see(world, states), success(states, goals)


def world_of(dataset_name: str) -> DeskWorld:
    """The embedded world of one of `DESK_DATASETS`."""
    return WORLDS[dataset_name.removesuffix("-play-v0")]


class DeskVectorWorld:
    """`slots` desks side by side, stepped by one compiled program; NumPy in and out, as `VectorWorld` asks."""

    def __init__(self, world: DeskWorld, *, slots: int, max_episode_steps: int | None = None) -> None:
        self.world = world
        self.slots = slots
        self.task_names = tuple(task.name for task in world.tasks)
        self.max_episode_steps = max_episode_steps or world.episode_limit
        self.action_dim = ACTION_DIM
        idle = start_and_goal(world.tasks[0], 0)
        self._states, self._goals = (jax.tree.map(lambda value: np.stack([value] * slots), state) for state in idle)
        self._goal_observations = np.asarray(see(self.world, self._goals))
        self._steps = np.full(slots, self.max_episode_steps)
        self._pending: tuple[Array, Array] | None = None

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        """Begin one round: slots in `start` begin that episode (their action is ignored), the others step."""
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
        for slot, episode in start.items():
            tasks = self.world.tasks
            if episode.own is None and not 1 <= episode.task <= len(tasks):
                raise CtaError(f"the {self.world.name} world has tasks 1 to {len(tasks)}, not {episode.task}")
            task = tasks[episode.task - 1] if episode.own is None else episode.own
            for old, new in zip((states, self._goals), start_and_goal(task, episode.seed), strict=True):
                for array, value in zip(old, new, strict=True):
                    np.asarray(array)[slot] = value
            reached[slot] = False
            self._steps[slot] = 0

    def receive(self) -> Step:
        """Finish the round begun by `send`. A slot that is past its episode's end keeps stepping, and stays done."""
        if self._pending is None:
            raise RuntimeError("receive without send")
        observations, reached = (np.asarray(array) for array in self._pending)
        self._pending = None
        return Step(observations, self._goal_observations, reached, reached | (self._steps >= self.max_episode_steps))
