"""Turning weights into rows of eval.csv, and knowing which rows are still to come."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cta.agents import Agent, Networks
from cta.agents.policy import Policy
from cta.config import RunConfig
from cta.errors import CtaError
from cta.evaluation import Evaluator, scores
from cta.evaluation.episodes import TASKS
from cta.evaluation.rollout import NotANumber
from cta.experiment.health import Health
from cta.experiment.run_dir import RunDir
from cta.training.logs import whole_number

Progress = Callable[[int, int, int], None]
"""Called with (seed, episodes done, episodes in all)."""


def policy_maker(agent: Agent, networks: Networks, config: RunConfig, seed: int) -> Callable[[int], Policy]:
    """A fresh policy for each group of episodes that act together."""

    def make(slots: int) -> Policy:
        settings = {"temperature": config.eval_temperature, "noise": config.eval_gaussian}
        return Policy(agent, networks, **settings, seed=config.eval_seed + seed)

    return make


def task_numbers(evaluator: Evaluator, config: RunConfig) -> tuple[int, ...]:
    """Which tasks a run is scored on."""
    count = len(evaluator.task_names)
    return tuple(range(1, min(count, config.eval_tasks or count) + 1))


def score_rows(
    evaluator: Evaluator,
    agent: Agent,
    networks: Sequence[Networks],
    config: RunConfig,
    step: int,
    progress: Progress | None = None,
    *,
    seeds: Sequence[int] | None = None,
    diverged: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Rows of eval.csv for one step, in order of seed and task; `networks` are those of all seeds of the run.

    Only `seeds` are scored (default: all). A seed whose policy gives actions that are not numbers has no rows and is
    told to `diverged`; without that it is an error.
    """
    rows = []
    tasks = task_numbers(evaluator, config)
    for seed, weights in zip(config.seeds, networks, strict=True):
        if seeds is not None and seed not in seeds:
            continue
        try:
            results = evaluator.run(
                policy_maker(agent, weights, config, seed),
                run_seed=seed,
                tasks=tasks,
                episodes=config.eval_episodes,
                eval_seed=config.eval_seed,
                progress=(lambda done, total, seed=seed: progress(seed, done, total)) if progress else None,
            )
        except NotANumber:
            if diverged is None:
                raise
            diverged(seed)
            continue
        common = {"dataset": config.dataset_name, "agent": config.agent_name, "seed": seed, "step": step}
        for task, (episodes, successes) in scores(results).items():
            rows.append({**common, "task": task, "episodes": episodes, "successes": successes})
    return rows


class ScoreBook:
    """`eval.csv`: which evaluations it holds in full, which are due, and rows put where they belong."""

    def __init__(self, run: RunDir, config: RunConfig, health: Health):
        self._log = run.eval_log()
        self._config = config
        self._health = health

    def due(self, upto: int) -> list[int]:
        """Evaluation steps up to here."""
        config = self._config
        if not config.eval_interval:
            return []
        steps = {*range(config.eval_interval, upto + 1, config.eval_interval)}
        return sorted(steps | ({upto} if upto == config.steps else set()))

    def unscored(self, upto: int) -> list[int]:
        """Evaluation steps up to here that the file does not hold in full."""
        tasks = min(self._config.eval_tasks or len(TASKS), len(TASKS))
        rows = Counter(self._place(row)[:2] for row in self._log.read())
        return [
            step
            for step in self.due(upto)
            if any(rows[step, self._config.seeds.index(seed)] < tasks for seed in self._health.expected(step))
        ]

    def trim(self, upto: int) -> None:
        """Drop the rows that will be written again: of steps after this one, and of evaluations cut short."""
        again = set(self.unscored(upto))
        self._log.keep(lambda row: self._place(row)[0] <= upto and self._place(row)[0] not in again)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write an evaluation's rows, in order of step also where it was done after a later one."""
        before = self._log.read()
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
