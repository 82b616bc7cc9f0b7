"""One evaluator: it plays lists of episodes in one world, be it an embedded one, OGBench's, or somebody's own."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from cta.cpu_count import cpu_count
from cta.data import TrajectoryDataset
from cta.data.locations import environment_name
from cta.envs.names import DESK_DATASETS, STATE_DIMS
from cta.envs.protocol import Episode, VectorWorld
from cta.errors import CtaError
from cta.evaluation.handle import Worker, WorkersWorld
from cta.evaluation.rollout import EPISODES, TASKS, EpisodeResult, MakePolicy, Policy, Progress, plan_episodes, play
from cta.units import UNKNOWN, Units

DESK_SLOTS = 512
MOST_WORKERS = 16
"""Beyond this, starting workers takes longer than they save on 250 episodes."""
GROUPS = 2
ROWS = 64
"""Environments in all, about: a policy computes 32 actions in half as much time again as 16."""
ROWS_ALONE, MOST_ALONE = 32, 16
"""The same, and those of a worker, where each is compiled for itself, which takes 170 MB and a second."""
FEWEST_SLOTS = 4
"""Environments of a worker."""
EPISODES_PER_SLOT = 3
"""At least, or workers would run dry at different times at the end."""


def default_slots(workers: int, episodes: int, *, alone: bool = False) -> int:
    """How many environments each of `workers` processes steps; `alone`: they do not share a compiled model."""
    wanted = min(ROWS_ALONE // workers, MOST_ALONE) if alone else ROWS // workers
    return max(FEWEST_SLOTS, min(wanted, episodes // (EPISODES_PER_SLOT * workers)))


class Evaluator:
    """Plays episodes in one dataset's world; a context manager that keeps its workers between calls.

    The embedded worlds run in this process, all episodes at once. OGBench's worlds run in `workers` processes with up
    to `slots_per_worker` environments each (default: from 4 with many workers to 32 with two, where there are episodes
    enough), in two groups: while the policy computes for one, the other steps. With `own` the name is not a dataset's
    but `module:factory`, an environment of somebody's own, whose policies act in [-1,1] (`unit`) or its units (`own`).
    `max_episode_steps` shortens episodes. A worker that gives no answer within `timeout` seconds, dies or raises is
    replaced up to `retries` times per evaluation, without a trace in the results; `self.retries` counts.
    `beside_training` leaves a core to the process that trains, and lets it go first on the others.
    """

    def __init__(
        self,
        dataset_name: str,
        *,
        workers: int | None = None,
        slots_per_worker: int | None = None,
        max_episode_steps: int | None = None,
        timeout: float = 60.0,
        retries: int = 3,
        beside_training: bool = False,
        own: str = "",
    ) -> None:
        self.dataset_name = dataset_name
        self.env_name = dataset_name if own or dataset_name in DESK_DATASETS else environment_name(dataset_name)
        cores = max(1, cpu_count() - beside_training)
        self.workers = min(cores, MOST_WORKERS) if workers is None else max(1, workers)
        self._limit = max_episode_steps
        self._slots_per_worker = slots_per_worker
        self._options = {"limit": max_episode_steps, "timeout": timeout, "allowed": retries}
        self._options |= {"give_way": beside_training, "own": own}
        self._running: dict[int, Worker] = {}
        self._retired, self._last_failure = 0, ""

    @property
    def retries(self) -> int:
        """How many times a worker had to be replaced so far."""
        return self._retired + sum(worker.retries for worker in self._running.values())

    @property
    def last_failure(self) -> str:
        """Why a worker was last replaced."""
        failures = [worker.last_failure for worker in self._running.values() if worker.last_failure]
        return failures[0] if failures else self._last_failure

    @property
    def worker_pids(self) -> list[int]:
        """The processes that are running for this evaluator."""
        return [worker.pid for worker in self._running.values()]

    def _worker(self, index: int) -> Worker:
        if index not in self._running:
            self._running[index] = Worker(self.env_name, **self._options)
        return self._running[index]

    @cached_property
    def about(self) -> tuple[tuple[str, ...], int, int]:
        """(task names, episode limit, action size) of a world that runs in workers."""
        self._worker(0).submit("describe")
        return self._worker(0).result()

    @property
    def task_names(self) -> tuple[str, ...]:
        """OGBench's names of the tasks, such as task1_open."""
        return self._worlds(1)[0].task_names if self.dataset_name in DESK_DATASETS else self.about[0]

    def run(
        self,
        make_policy: MakePolicy,
        *,
        run_seed: int,
        tasks: Sequence[int] = TASKS,
        episodes: int = EPISODES,
        eval_seed: int = 0,
        progress: Progress | None = None,
    ) -> list[EpisodeResult]:
        """Play `episodes` episodes of each task and return them sorted by task and episode.

        Start, goal and settling steps of an episode are a function of (eval_seed, run_seed, task, episode), so results
        are paired across checkpoints and methods.
        """
        planned = plan_episodes(run_seed=run_seed, tasks=tasks, episodes=episodes, eval_seed=eval_seed)
        return self.play(make_policy, planned, progress=progress)

    def play(self, make_policy: MakePolicy, planned: Sequence[Episode], **options: Any) -> list[EpisodeResult]:
        """Play these episodes and return their results, sorted; the policy is made once per group of slots.

        `options` are those of `rollout.play`: `watch` sees every step of every episode, `progress` hears of the end of
        each.
        """
        try:
            return play(self._worlds(len(planned)), make_policy, planned, **options)
        except BaseException:
            # Requests may be under way; a later call begins with new workers.
            self.close()
            raise

    def _worlds(self, episodes: int) -> Sequence[VectorWorld]:
        """Worlds for a new evaluation: the slots of the workers in two groups, or one with all desks."""
        if self.dataset_name in DESK_DATASETS:
            from cta.envs.desk_vector import DeskVectorWorld, world_of  # the desk runs on JAX, workers do without

            slots = min(episodes, DESK_SLOTS)
            return [DeskVectorWorld(world_of(self.dataset_name), slots=slots, max_episode_steps=self._limit)]
        groups, slots = self.groups_and_slots(episodes)
        # All are started before the first is waited for.
        workers = [self._worker(index) for index in range(min(self.workers, slots))]
        for worker in workers:
            worker.forgive()
        return [WorkersWorld(workers, self.about, group=group, groups=groups, slots=slots) for group in range(groups)]

    def groups_and_slots(self, episodes: int) -> tuple[int, int]:
        """(groups, slots of each) for so many episodes."""
        alone = self.env_name not in STATE_DIMS
        wanted = self._slots_per_worker or default_slots(self.workers, episodes, alone=alone)
        groups = min(GROUPS, episodes)
        return groups, -(-min(self.workers * wanted, episodes) // groups)

    def worlds_per_worker(self, episodes: int) -> int:
        """How many worlds each process steps at once: a policy's float32 sums depend on it in the last bit."""
        if self.dataset_name in DESK_DATASETS:
            return min(episodes, DESK_SLOTS)
        groups, slots = self.groups_and_slots(episodes)
        return -(-groups * slots // self.workers)

    def close(self) -> None:
        """End the worker processes. From another thread it makes a `run` that is under way raise CtaError."""
        while self._running:
            _, worker = self._running.popitem()
            worker.close()
            self._retired += worker.retries
            self._last_failure = worker.last_failure or self._last_failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OwnEvaluator(Evaluator):
    """An `Evaluator` whose world is made by `module:factory`: it checks that the world fits the policy.

    `shape` is that of the observations the policies were trained on, `units` are theirs: where these do not know the
    bounds of actions, the policies' [-1,1] is stretched to the environment's. `data` opens the training data, asked for
    only if the environment's goals are parts of states (see `complete_goal`).
    """

    def __init__(
        self, env: str, *, shape: tuple[int, ...], units: Units, data: Callable[[], TrajectoryDataset], **options: Any
    ) -> None:
        module, _, factory = env.partition(":")
        if not (module and factory):
            raise CtaError(f"--env {env}: give module:factory, a function in a module that makes the environment")
        super().__init__(env, own="unit" if units.bounds is None else "own", **options)
        self._shape, self._units, self._data = shape, units, data
        self._completed: dict[bytes, np.ndarray] = {}

    def play(self, make_policy: MakePolicy, planned: Sequence[Episode], **options: Any) -> list[EpisodeResult]:
        return super().play(lambda slots: self._fitted(make_policy(slots)), planned, **options)

    def _fitted(self, policy: Policy) -> Policy:
        def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
            if observations.shape[1:] != self._shape:
                found, wanted = observations.shape[1:], self._shape
                raise CtaError(
                    f"--env {self.dataset_name}: observations have shape {found}, the policy was trained on {wanted}"
                )
            if goals.dtype != np.uint8 and np.isnan(goals).any():
                goals = np.stack([self._whole(goal) for goal in goals])
            return policy(observations, goals, first)

        return act

    def _whole(self, goal: np.ndarray) -> np.ndarray:
        key = goal.tobytes()
        if key not in self._completed:
            self._completed[key] = complete_goal(goal, self._states, self._units)
        return self._completed[key]

    @cached_property
    def _states(self) -> np.ndarray:
        return np.asarray(self._data().observations)


def complete_goal(goal: np.ndarray, states: np.ndarray, units: Units = UNKNOWN) -> np.ndarray:
    """A state for a goal that names only a part of one: the recorded state nearest to it in the part that is known.

    A policy wants a whole state as its goal. The nearest one of the data is a state that can be, unlike one whose
    unknown numbers are made up; its known part is then set to what was asked for.
    """
    known = ~np.isnan(goal)
    if known.all():
        return goal
    apart = (units.see(states) - units.see(goal))[:, known]
    nearest = states[np.argmin(np.sum(apart**2, axis=1))].copy()
    nearest[known] = goal[known]
    return nearest
