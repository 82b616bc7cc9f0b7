"""One evaluator: it plays lists of episodes in one world, be it an embedded one, OGBench's, or somebody's own."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Self

import numpy as np

from cta.cpu_count import cpu_count
from cta.data import TrajectoryDataset, environment_name
from cta.envs.lights import board_of
from cta.envs.names import DESK_DATASETS, STATE_DIMS
from cta.envs.protocol import Episode, VectorWorld
from cta.errors import CtaError
from cta.evaluation import rollout
from cta.evaluation.handle import Worker, WorkersWorld
from cta.evaluation.rollout import EPISODES, TASKS, EpisodeResult, MakePolicy, Policy, Progress, plan_episodes
from cta.plugins import is_code
from cta.units import UNKNOWN, Units

DESK_SLOTS = 512
MOST_EPISODES = 1_000_000
MOST_WORKERS = 16  # beyond this, starting workers takes longer than they save on 250 episodes
GROUPS = 2
ROWS = 64  # environments in all, about: a policy computes 32 actions in half as much time again as 16
ROWS_ALONE, MOST_ALONE = 32, 16  # the same, and of a worker, where each is compiled for itself: 170 MB and a second
FEWEST_SLOTS, EPISODES_PER_SLOT = 4, 3  # at least; with fewer episodes workers would run dry at different times


def default_slots(workers: int, episodes: int, *, alone: bool = False) -> int:
    """How many environments each of `workers` processes steps; `alone`: they do not share a compiled model."""
    wanted = min(ROWS_ALONE // workers, MOST_ALONE) if alone else ROWS // workers
    return max(FEWEST_SLOTS, min(wanted, episodes // (EPISODES_PER_SLOT * workers)))


class Evaluator:
    """Plays episodes in one dataset's world; a context manager that keeps its workers between calls.

    The embedded worlds run in this process, all episodes at once. OGBench's run in `workers` processes with up to
    `slots_per_worker` environments each (default: 4 to 64, see `default_slots`), in two groups: while the policy
    computes for one, the other steps. With `own` the name is `module:factory`, an environment of somebody's own, whose
    policies act in [-1,1] (`unit`) or its units (`own`). A worker that gives no answer within `timeout` seconds, dies
    or raises is replaced up to `retries` times per evaluation, without a trace in the results; `self.retries` counts.
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
        self._closed: list[Worker] = []

    @property
    def retries(self) -> int:
        """How many times a worker had to be replaced so far."""
        return sum(worker.retries for worker in (*self._running.values(), *self._closed))

    @property
    def last_failure(self) -> str:
        workers = (*self._running.values(), *reversed(self._closed))
        return next((worker.last_failure for worker in workers if worker.last_failure), "")

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
        self, make_policy: MakePolicy, tasks: Sequence[int] = TASKS, episodes: int = EPISODES, *,
        run_seed: int, eval_seed: int = 0, progress: Progress | None = None,
    ) -> list[EpisodeResult]:  # fmt: skip
        """Play the episodes that `plan_episodes` plans; results are sorted by task and episode."""
        planned = plan_episodes(run_seed=run_seed, tasks=tasks, episodes=episodes, eval_seed=eval_seed)
        return self.play(make_policy, planned, progress=progress)

    def play(self, make_policy: MakePolicy, planned: Sequence[Episode], **options: Any) -> list[EpisodeResult]:
        """Play these episodes and return their results, sorted; `options` are those of `rollout.play`."""
        try:
            return rollout.play(self._worlds(len(planned)), make_policy, planned, **options)
        except BaseException:
            # Requests may be under way; a later call begins with new workers.
            self.close()
            raise

    def _worlds(self, episodes: int) -> Sequence[VectorWorld]:
        """Worlds for a new evaluation: the slots of the workers in two groups, or one with all desks."""
        if self.dataset_name in DESK_DATASETS:
            from cta.envs.desk_vector import DeskVectorWorld, world_of  # the desk runs on JAX, workers do without

            slots = self.worlds_per_worker(episodes)
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
            self._closed.append(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OwnEvaluator(Evaluator):
    """An `Evaluator` whose world is made by `module:factory`: it checks that the world fits the policy.

    `shape` and `units` are those of the policies; where the bounds of actions are not known, [-1,1] is stretched to the
    environment's. `data` opens the training data, for goals that are parts of states.
    """

    def __init__(
        self, env: str, *, shape: tuple[int, ...], units: Units, data: Callable[[], TrajectoryDataset], **options: Any
    ) -> None:
        if not is_code(env):
            raise CtaError(f"--env {env}: give module:factory, a function in a module that makes the environment")
        super().__init__(env, own="unit" if units.bounds is None else "own", **options)
        self._shape, self._units = shape, units
        self._states = cache(lambda: np.asarray(data().observations))
        self._completed: dict[bytes, np.ndarray] = {}

    def play(self, make_policy: MakePolicy, planned: Sequence[Episode], **options: Any) -> list[EpisodeResult]:
        def fitted(slots: int) -> Policy:
            policy = make_policy(slots)

            def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
                if (found := observations.shape[1:]) != self._shape:
                    shapes = f"observations have shape {found}, the policy was trained on {self._shape}"
                    raise CtaError(f"--env {self.dataset_name}: {shapes}")
                if goals.dtype != np.uint8 and np.isnan(goals).any():
                    goals = np.stack([self._whole(goal) for goal in goals])
                return policy(observations, goals, first)

            return act

        return super().play(fitted, planned, **options)

    def _whole(self, goal: np.ndarray) -> np.ndarray:
        key = goal.tobytes()
        if key not in self._completed:
            self._completed[key] = complete_goal(goal, self._states(), self._units)
        return self._completed[key]


def complete_goal(goal: np.ndarray, states: np.ndarray, units: Units = UNKNOWN) -> np.ndarray:
    """A whole state, as a policy wants it, for a goal that names only a part of one (the rest is NaN)."""
    # The recorded state nearest in the known part is one that can be, unlike one with made-up numbers.
    known = ~np.isnan(goal)
    if known.all():
        return goal
    apart = (units.see(states) - units.see(goal))[:, known]
    nearest = states[np.argmin(np.sum(apart**2, axis=1))].copy()
    nearest[known] = goal[known]
    return nearest


def press_numbers(dataset_name: str, most: int | None = None) -> range:
    """1, 2, … up to what the hardest goal of the board needs, or to the `most` that are wanted."""
    hardest = board_of(dataset_name).hardest
    return range(1, min(hardest, most or hardest) + 1)


def press_names(dataset_name: str) -> tuple[str, ...]:
    """The tasks of their scores: presses1, presses2, …"""
    return tuple(f"presses{number}" for number in press_numbers(dataset_name))


def draw_boards(dataset_name: str, presses: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and goals, (count, lights) each: fair coins, and what exactly so many presses at least lead to."""
    board = board_of(dataset_name)
    starts = np.random.default_rng((seed, presses, 0)).integers(0, 2, (count, board.lights), np.uint8)
    return starts, starts ^ board.draw(presses, count, np.random.default_rng((seed, presses, 1)))


def plan_presses(dataset_name: str, *, episodes: int, seed: int = 0, most: int | None = None) -> list[Episode]:
    """All episodes, sorted by number of presses, their task: the same for every method; a longer list begins alike."""
    if not 1 <= episodes <= MOST_EPISODES or seed < 0:
        raise CtaError(f"an evaluation has 1 to {MOST_EPISODES} episodes per number of presses, and a seed from 0 on")
    planned = []
    for number in press_numbers(dataset_name, most):
        noise = np.random.default_rng((seed, number, 2)).integers(0, 2**32, episodes).tolist()
        pairs = zip(*draw_boards(dataset_name, number, episodes, seed), strict=True)
        for episode, (start, goal) in enumerate(pairs):
            own = _task(dataset_name, f"presses{number}_episode{episode}", start, goal)
            planned.append(Episode(number, noise[episode], own, episode))
    return planned


def _task(dataset_name: str, name: str, start: np.ndarray, goal: np.ndarray) -> Any:
    """As the world is asked for it: a `DeskTask`, or OGBench's `task_info`."""
    if dataset_name not in DESK_DATASETS:
        return {"task_name": name, "init_button_states": start.astype(int), "goal_button_states": goal.astype(int)}
    from cta.envs.desk import DeskTask  # JAX

    return DeskTask(name, (), tuple(start.tolist()), (), tuple(goal.tolist()))


class PressEvaluator(Evaluator):
    """An `Evaluator` of composition: success against the least number of presses, on fixed starts and goals."""

    def __init__(
        self, dataset_name: str, *, episodes: int = EPISODES, seed: int = 0, most: int | None = None, **options: Any
    ) -> None:
        self.planned = plan_presses(dataset_name, episodes=episodes, seed=seed, most=most)
        super().__init__(dataset_name, **options)

    def ask(self, make_policy: MakePolicy, *, progress: Progress | None = None) -> dict[str, tuple[int, int]]:
        """{presses1: (episodes, successes), …} of a policy."""
        found = rollout.scores(self.play(make_policy, self.planned, progress=progress))
        return {f"presses{number}": counts for number, counts in found.items()}
