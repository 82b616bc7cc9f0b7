"""Turning weights into rows of eval.csv or offline.csv; which seeds are well, rows to come, and checkpoints to keep."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cta.agents import Agent, Networks
from cta.agents.policy import Policy
from cta.config import RunConfig
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.evaluation import Evaluator, scores
from cta.evaluation.offline import MEASURES, trajectory_order
from cta.evaluation.rollout import TASKS, NotANumber
from cta.experiment.run_dir import RunDir
from cta.io.csv_log import CsvLog, whole_number
from cta.scores.schema import CellKey, Score
from cta.scores.statistics import LAST_EVALUATIONS
from cta.units import Units

Steps = Collection[int]
Reason = dict[str, int | str]  # {"step": when, "loss": which}


def policy_maker(
    agent: Agent, networks: Networks, units: Units, config: RunConfig, seed: int
) -> Callable[[int], Policy]:
    """A fresh policy for each group of episodes that act together."""
    how = {"temperature": config.eval_temperature, "noise": config.eval_gaussian}
    return lambda slots: Policy(agent, networks, units, **how, seed=config.eval_seed + seed)


def score_rows(
    evaluator: Evaluator,
    agent: Agent,
    networks: Mapping[int, Networks],
    units: Units,
    config: RunConfig,
    step: int,
    key: CellKey,
    progress: Callable[[int, int, int], None],
    diverged: Callable[[int, int], None] | None = None,
) -> list[Score]:
    """The scores of these seeds' policies on the tasks of a run; `progress` hears (seed, episodes done, in all).

    A seed whose policy gives actions that are not numbers has none and is told to `diverged`, if anybody listens.
    """
    count, rows = len(evaluator.task_names), []
    tasks = range(1, min(count, config.eval_tasks or count) + 1)
    how: dict[str, Any] = {"tasks": tasks, "episodes": config.eval_episodes, "eval_seed": config.eval_seed}
    for seed, weights in networks.items():
        policies = policy_maker(agent, weights, units, config, seed)
        try:
            found = scores(evaluator.run(policies, run_seed=seed, **how, progress=partial(progress, seed)))
        except NotANumber:
            if diverged is None:
                raise
            diverged(seed, step)
        else:
            rows += [Score(*key, seed, step, str(task), *counts) for task, counts in found.items()]
    return rows


class Health:
    """The seeds that diverged, as `provenance.json` has them under `stopped`; the truth is in `TrainState.bad`."""

    def __init__(self, run: RunDir, seeds: Sequence[int]):
        self._run, self._seeds = run, tuple(seeds)
        self.stopped: dict[int, Reason] = {}

    @property
    def live(self) -> list[int]:
        return [seed for seed in self._seeds if seed not in self.stopped]

    def update(self, bad: Sequence[Mapping[str, int]]) -> list[int]:
        """Take in the first bad step of each loss of each seed; returns the seeds that are new."""
        found = {}
        for seed, losses in zip(self._seeds, bad, strict=True):
            if losses and self.stopped.get(seed, {}).get("loss") in (None, "actions"):
                step = min(losses.values())
                # A loss of its own says more than the sum of all.
                names = [name for name, at in losses.items() if at == step]
                found[seed] = {"step": step, "loss": next((n for n in names if n != "total_loss"), names[0])}
        self._note(found)
        return sorted(found)

    def refuse(self, seed: int, step: int) -> None:
        """A policy gave actions that are not numbers: the weights diverged in the very last step."""
        if seed not in self.stopped:
            self._note({seed: {"step": step + 1, "loss": "actions"}})

    def _note(self, found: Mapping[int, Reason]) -> None:
        self.stopped |= found
        record = {str(seed): self.stopped[seed] for seed in sorted(self.stopped)}
        if record != self._run.provenance().get("stopped", {}):
            self._run.record({"stopped": record})

    def good_after(self, step: int) -> list[int]:
        """Seeds that were not known to be bad when `step` steps were done."""
        return [seed for seed in self._seeds if seed in self.live or int(self.stopped[seed]["step"]) > step]


def describe(seed: int, reason: Reason) -> str:
    return f"seed {seed} stopped at step {int(reason['step']):,}: {reason['loss']} diverged (NaN, inf, or exploded)"


class ScoreBook:
    """`eval.csv`: which evaluations it holds in full, which are due, and rows put where they belong."""

    def __init__(self, run: RunDir, config: RunConfig, health: Health):
        self._log, self._config, self._health = run.eval_log(), config, health

    def due(self, upto: int) -> list[int]:
        """Steps up to here at which the run is evaluated."""
        every = self._config.eval_interval
        steps = [*range(every, upto + 1, every)] if every else []
        return [*steps, upto] if every and upto == self._config.steps and upto % every else steps

    def unscored(self, upto: int) -> list[int]:
        """Evaluation steps up to here that the file does not hold in full."""
        tasks = min(self._config.eval_tasks or len(TASKS), len(TASKS))
        rows, seeds = Counter(self._place(row)[:2] for row in self._log.read()), self._config.seeds

        def lacks(step: int) -> bool:
            # A loss that is bad at a step can come from weights that were bad after the step before it.
            return any(rows[step, seeds.index(seed)] < tasks for seed in self._health.good_after(step + 1))

        return [step for step in self.due(upto) if lacks(step)]

    def trim(self, upto: int) -> None:
        """Drop the rows that will be written again: of steps after this one, and of evaluations cut short."""
        again = set(self.unscored(upto))
        self._log.keep(lambda row: self._place(row)[0] <= upto and self._place(row)[0] not in again)

    def add(self, scores: Sequence[Score]) -> None:
        """Write an evaluation's rows, in order of step also where it was done after a later one."""
        before, rows = self._log.read(), [score.row() for score in scores]
        if before and rows and self._place(before[-1]) > self._place(rows[0]):
            self._log.replace(sorted([*before, *rows], key=self._place))
        else:
            self._log.append(rows)

    def _place(self, row: Mapping[str, Any]) -> tuple[int, int, int]:
        """Where a row belongs: step, place of its seed, task."""
        step, seed, task = (whole_number(row, column, self._log.path) for column in ("step", "seed", "task"))
        if seed not in self._config.seeds:
            raise CtaError(f"{self._log.path}: seed {seed} does not belong to this run")
        return step, self._config.seeds.index(seed), task


def steps_to_keep(
    steps: Sequence[int], *, last: int, planned: Steps, evaluated: Steps, unscored: Steps, healthy: Mapping[int, Any]
) -> set[int]:
    """Of the stored `steps`: the `last` few (0: all), those a score comes from, and what may be needed again.

    The last few are `planned` ones: a checkpoint that a signal left stays until there is a newer one. A score is the
    mean of the last three `evaluated` steps. The newest one of every seed from before it diverged stays, too.
    """
    if last == 0:
        return set(steps)
    ordered = sorted(steps)
    kept = {*ordered[-1:], *[step for step in ordered if step in planned][-last:]}
    kept |= set([step for step in ordered if step in evaluated][-LAST_EVALUATIONS:])
    kept |= set(ordered) & set(unscored)
    newest_good: dict[int, int] = {}
    for step in ordered:
        newest_good |= {seed: step for seed, good in enumerate(healthy.get(step) or []) if good}
    return kept | set(newest_good.values())


class OfflineBook:
    """`offline.csv`: the order of held-out trajectories, of a run that has no world to roll out in."""

    def __init__(self, run: RunDir, config: RunConfig, agent: Agent, held_out: TrajectoryDataset):
        self._log = CsvLog(run.path / "offline.csv", ("dataset", "agent", "seed", "step", "episodes", *MEASURES))
        self._config, self._agent, self._held_out = config, agent, held_out

    def trim(self, upto: int) -> None:
        self._log.keep(lambda row: whole_number(row, "step", self._log.path) <= upto)

    def measure(self, step: int, networks: Sequence[Networks], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Measure and write the rows of one step, for those `seeds` of the run; `networks` are those of all seeds."""
        rows = []
        for seed, weights in zip(self._config.seeds, networks, strict=True):
            if seed in seeds and (orders := trajectory_order(self._agent, weights, self._held_out)):
                whose = {"dataset": self._config.dataset_name, "agent": self._config.agent_name, "seed": seed}
                episodes = len(next(iter(orders.values())))
                means = {name: float(np.mean(values)) for name, values in orders.items()}
                rows.append({**whose, "step": step, "episodes": episodes, **means})
        self._log.append(rows)
        return rows
