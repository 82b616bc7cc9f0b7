"""The five-task protocol of OGBench, on the embedded worlds and on OGBench's own."""

from collections.abc import Callable, Sequence
from typing import Self

from cta.cores import usable_cores
from cta.data.files import environment_name
from cta.envs.names import DESK_DATASETS, STATE_DIMS
from cta.evaluation.episodes import EPISODES, TASKS, EpisodeResult, plan_episodes
from cta.evaluation.pool import Pool
from cta.evaluation.rollout import Policy, Progress, play

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
EPISODES_A_SLOT = 3
"""At least, or workers would run dry at different times at the end."""


def slots_a_worker(workers: int, episodes: int, *, alone: bool = False) -> int:
    """How many environments each of `workers` processes steps; `alone`: they do not share a compiled model."""
    wanted = min(ROWS_ALONE // workers, MOST_ALONE) if alone else ROWS // workers
    return max(FEWEST_SLOTS, min(wanted, episodes // (EPISODES_A_SLOT * workers)))


class Evaluator:
    """Evaluates policies on the tasks of one dataset's world; a context manager that keeps its workers between calls.

    The embedded worlds run in this process, all episodes at once. OGBench's worlds run in `workers` processes with up
    to `slots_per_worker` environments each (default: from 4 with many workers to 32 with two, where there are episodes
    enough), in two groups: while the policy computes for one, the other steps.
    `max_episode_steps` shortens episodes. A worker that gives no answer within `timeout` seconds, dies or raises is
    replaced up to `retries` times an evaluation, without a trace in the results; `self.retries` counts.
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
    ) -> None:
        self.dataset_name = dataset_name
        self._limit = max_episode_steps
        self._slots_per_worker = slots_per_worker
        self._pool: Pool | None = None
        if dataset_name not in DESK_DATASETS:
            cores = max(1, usable_cores() - beside_training)
            count = min(cores, MOST_WORKERS) if workers is None else max(1, workers)
            # module:factory is an environment of somebody's own
            name = dataset_name if ":" in dataset_name else environment_name(dataset_name)
            options = {"limit": max_episode_steps, "timeout": timeout, "retries": retries}
            self._pool = Pool(name, workers=count, give_way=beside_training, **options)

    @property
    def retries(self) -> int:
        """How many times a worker had to be replaced so far."""
        return self._pool.retries if self._pool else 0

    @property
    def last_failure(self) -> str:
        """Why a worker was last replaced."""
        return self._pool.last_failure if self._pool else ""

    @property
    def worker_pids(self) -> list[int]:
        """The processes that are running for this evaluator."""
        return self._pool.pids if self._pool else []

    @property
    def task_names(self) -> tuple[str, ...]:
        """OGBench's names of the tasks, such as task1_open."""
        return self._pool.describe()[0] if self._pool else self._desk(slots=1).task_names

    def run(
        self,
        make_policy: Callable[[int], Policy],
        *,
        run_seed: int,
        tasks: Sequence[int] = TASKS,
        episodes: int = EPISODES,
        eval_seed: int = 0,
        progress: Progress | None = None,
    ) -> list[EpisodeResult]:
        """Play `episodes` episodes of each task and return them sorted by task and episode.

        `make_policy(slots)` is called once for each group of slots. Start, goal and settling steps of an episode are a
        function of (eval_seed, run_seed, task, episode), so results are paired across checkpoints and methods.
        """
        planned = plan_episodes(run_seed=run_seed, tasks=tasks, episodes=episodes, eval_seed=eval_seed)
        try:
            return play(self._worlds(len(planned)), make_policy, planned, progress=progress)
        except BaseException:
            # Requests may be under way; a later call begins with new workers.
            self.close()
            raise

    def _worlds(self, episodes: int) -> list:
        if self._pool is None:
            return [self._desk(slots=min(episodes, DESK_SLOTS))]
        groups, workers = min(GROUPS, episodes), self._pool.size
        alone = self._pool.env_name not in STATE_DIMS
        wanted = self._slots_per_worker or slots_a_worker(workers, episodes, alone=alone)
        slots = min(workers * wanted, episodes)
        return self._pool.worlds(groups=groups, slots=-(-slots // groups))

    def _desk(self, *, slots: int):
        from cta.envs.desk import EPISODE_LIMIT, find_world  # the desk runs on JAX, which workers do without
        from cta.envs.desk_vector import DeskVectorWorld

        world = find_world(self.dataset_name)
        assert world is not None
        return DeskVectorWorld(world, slots=slots, max_episode_steps=self._limit or EPISODE_LIMIT)

    def close(self) -> None:
        """End the worker processes. From another thread it makes a `run` that is under way raise CtaError."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
