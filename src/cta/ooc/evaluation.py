"""Asking an agent for the held-out pairs, with a log of everything discrete that happens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np

from cta.data.files import environment_name
from cta.envs.names import DESK_DATASETS, is_visual
from cta.envs.protocol import Episode, Step, VectorWorld
from cta.errors import CtaError
from cta.evaluation.episodes import EpisodeResult
from cta.evaluation.evaluator import DESK_SLOTS, GROUPS, MOST_WORKERS, usable_cores
from cta.evaluation.pool import Pool
from cta.evaluation.rollout import Policy, Progress, play
from cta.ooc.components import Layout, Rule, Value
from cta.ooc.logs import EpisodeLog
from cta.ooc.pairs_file import HeldOut
from cta.ooc.trials import EPISODES, Trial, desk_task, make_trials, task_info

SLOTS_PER_WORKER = 4
MID_POINTS = Rule()
"""A change is a part crossing the middle of its travel, whatever rule the data were cut by."""


class Witness:
    """A vector world that plays trials and writes down what changes in each of its slots."""

    def __init__(self, world: VectorWorld, trials: Sequence[Trial], layout: Layout, *, own: bool) -> None:
        self._world = world
        self._trials = trials
        self._layout = layout
        self._own = own
        self._playing: dict[int, tuple[Trial, list[np.ndarray]]] = {}
        self.logs: list[EpisodeLog] = []
        self.task_names, self.max_episode_steps = world.task_names, world.max_episode_steps
        self.slots, self.action_dim = world.slots, world.action_dim

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        """Begin one round; trial n is the world's task n + 1."""
        begun = {}
        for slot, episode in start.items():
            trial = self._trials[episode.task - 1]
            self._playing[slot] = (trial, [])
            own = task_info(trial, self._layout) if self._own else None
            begun[slot] = Episode(episode.task, episode.seed, own)
        self._world.send(actions, begun)

    def receive(self) -> Step:
        """Finish the round, and close the log of every episode that ended."""
        step = self._world.receive()
        values = MID_POINTS.values(self._layout, self._layout.measure(step.observations, {}))
        for slot in list(self._playing):
            trial, rows = self._playing[slot]
            rows.append(values[slot])
            if len(rows) == 1:
                self._check_start(trial, rows[0])
            if step.done[slot]:
                self.logs.append(write_log(trial, np.stack(rows), self._layout, success=bool(step.success[slot])))
                del self._playing[slot]
        return step

    def _check_start(self, trial: Trial, values: np.ndarray) -> None:
        found = dict(zip(self._layout.names, values.tolist(), strict=True))
        if found != dict(trial.start):
            raise CtaError(f"internal: pair {trial.pair} began with {found} instead of {dict(trial.start)}")

    def close(self) -> None:
        self._world.close()


def write_log(trial: Trial, values: np.ndarray, layout: Layout, *, success: bool) -> EpisodeLog:
    """The log of an episode from the values (T + 1, C) of its components at every row."""

    def named(row: np.ndarray, columns: np.ndarray) -> dict[str, Value]:
        return {layout.names[column]: layout.say(layout.names[column], int(row[column])) for column in columns}

    differs = values[1:] != values[:-1]
    times = np.flatnonzero(differs.any(axis=1)).tolist()
    changes = tuple((t, named(values[t + 1], np.flatnonzero(differs[t]))) for t in times)
    start = named(values[0], np.arange(len(layout.names)))
    return EpisodeLog(trial.pair, trial.episode, trial.seed, start, changes, success, len(values) - 1)


def check_can_ask(dataset_name: str) -> None:
    """Complain about a world whose observations do not tell what happened."""
    if is_visual(dataset_name):
        raise CtaError(f"{dataset_name}: events are read off state observations; images do not show them")


class PairEvaluator:
    """Plays the fixed list of trials of a dataset's held-out pairs; a context manager that keeps its workers."""

    def __init__(
        self,
        dataset_name: str,
        held_out: HeldOut,
        *,
        episodes: int = EPISODES,
        seed: int = 0,
        workers: int | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        check_can_ask(dataset_name)
        if workers is not None and workers < 1:
            raise CtaError(f"--workers is at least 1, not {workers}")
        self.layout = held_out.layout
        self.trials = make_trials(held_out, episodes=episodes, seed=seed)
        self._dataset_name = dataset_name
        self._limit = max_episode_steps
        self._pool: Pool | None = None
        if dataset_name not in DESK_DATASETS:
            count = min(usable_cores(), MOST_WORKERS) if workers is None else workers
            name = environment_name(dataset_name)
            self._pool = Pool(name, workers=count, limit=max_episode_steps)

    def run(self, make_policy: Callable[[int], Policy], *, progress: Progress | None = None) -> list[EpisodeLog]:
        """Play all trials with a policy; the logs are sorted by pair and episode."""
        planned = [
            EpisodeResult(task, trial.episode, trial.seed, success=False, steps=0)
            for task, trial in enumerate(self.trials, 1)
        ]
        own = self._pool is not None
        witnesses = [Witness(world, self.trials, self.layout, own=own) for world in self._worlds(len(planned))]
        try:
            play(witnesses, make_policy, planned, progress=progress)
        except BaseException:
            self.close()  # requests may be under way; a later call begins with new workers
            raise
        logs = [log for witness in witnesses for log in witness.logs]
        return sorted(logs, key=lambda log: (log.pair, log.episode))

    def _worlds(self, episodes: int) -> Sequence[VectorWorld]:
        if self._pool is None:
            return [self._desk(slots=min(episodes, DESK_SLOTS))]
        slots = min(self._pool.size * SLOTS_PER_WORKER, episodes)
        groups = min(GROUPS, episodes)
        return self._pool.worlds(groups=groups, slots=-(-slots // groups))

    def _desk(self, *, slots: int) -> VectorWorld:
        from cta.envs.desk import EPISODE_LIMIT, find_world  # JAX
        from cta.envs.desk_vector import DeskVectorWorld

        world = find_world(self._dataset_name)
        assert world is not None
        tasks = [desk_task(trial, self.layout) for trial in self.trials]
        return DeskVectorWorld(world, slots=slots, tasks=tasks, max_episode_steps=self._limit or EPISODE_LIMIT)

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
