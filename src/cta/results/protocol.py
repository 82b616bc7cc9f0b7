"""When a cell counts: the paper's seeds, steps and episodes, and what is missing of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.presets import run_preset
from cta.results.rows import Row

SEEDS = 4
TASKS = 5
EPISODES = 50
EVALUATIONS = 3
"""A seed's score is the mean of its last three evaluations."""


@dataclass(frozen=True)
class Protocol:
    """A cell is complete when `seeds` seeds have `episodes` episodes of every task at every one of `points`."""

    points: tuple[int, ...]
    seeds: int = SEEDS
    tasks: int = TASKS
    episodes: int = EPISODES


def protocol_of(dataset: str) -> Protocol:
    """The paper's: 800k, 900k and 1M steps, on images 300k, 400k and 500k; the embedded worlds have their own."""
    run = run_preset(RunConfig(AgentConfig(), dataset=dataset))
    return Protocol(tuple(run.steps - run.eval_interval * back for back in reversed(range(EVALUATIONS))))


@dataclass(frozen=True)
class Cell:
    """Everything known of one agent on one dataset."""

    dataset: str
    agent: str
    rows: tuple[Any, ...]
    record: dict
    held_out = False

    @property
    def name(self) -> str:
        return f"{self.agent} on {self.dataset}" + (", held-out pairs" if self.held_out else "")

    @property
    def protocol(self) -> Protocol:
        return protocol_of(self.dataset)

    def scored(self, *, episodes: int = 1, tasks: int = TASKS) -> set[tuple[int, int]]:
        """(seed, step) with at least so many episodes of each of the first tasks."""
        found: dict[tuple[int, int], set[int]] = defaultdict(set)
        for row in self.rows:
            if row.episodes >= episodes:
                found[row.key].add(row.task)
        return {key for key, seen in found.items() if seen >= set(range(1, tasks + 1))}

    def whole_seeds(self) -> list[int]:
        """Seeds scored at every point of the protocol."""
        p = self.protocol
        done = self.scored(episodes=p.episodes, tasks=p.tasks)
        return [seed for seed in self.seeds if all((seed, point) in done for point in p.points)]

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.rows})

    @property
    def complete(self) -> bool:
        return len(self.whole_seeds()) >= self.protocol.seeds

    def counted(self) -> list[Row]:
        """The rows a score is made of.

        Of a complete cell, those of the protocol's points of its whole seeds. Of any other, each seed's last (up to)
        three evaluations: something to look at, never a result.
        """
        if self.complete:
            whole, points = set(self.whole_seeds()), set(self.protocol.points)
            return [row for row in self.rows if row.seed in whole and row.step in points]
        rows: list[Row] = []
        for seed in self.seeds:
            mine = [row for row in self.rows if row.seed == seed]
            last = sorted({row.step for row in mine})[-EVALUATIONS:]
            rows += [row for row in mine if row.step in last]
        return rows

    def missing(self) -> str:
        """What a complete cell has and this one has not, in a line; empty for a complete one."""
        if self.complete:
            return ""
        p = self.protocol
        done = self.scored(episodes=p.episodes, tasks=p.tasks)
        parts = unscored(self.seeds, p.points, done)
        if len(self.seeds) < p.seeds:
            parts.append(f"{p.seeds - len(self.seeds)} of {p.seeds} seeds")
        return "missing " + "; ".join(parts)


def unscored(seeds: Iterable[int], points: Sequence[int], done: Set[tuple[int, int]]) -> list[str]:
    """In words, for each seed, the points at which it is not `done`."""
    missing = {seed: [short_steps(point) for point in points if (seed, point) not in done] for seed in seeds}
    return [f"seed {seed} at {', '.join(names)}" for seed, names in missing.items() if names]


def task_matrix(rows: Iterable[Row]) -> tuple[list[int], list[int], list[list[float]]]:
    """(seeds, tasks, success rates [seed][task] in [0,1], averaged over the steps in these rows)."""
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows:
        rates[row.seed, row.task].append(row.successes / row.episodes)
    seeds, tasks = sorted({seed for seed, _ in rates}), sorted({task for _, task in rates})
    return seeds, tasks, [[fmean(rates[s, t]) if rates[s, t] else float("nan") for t in tasks] for s in seeds]


def short_steps(step: int) -> str:
    """800000 → 800k, 1000000 → 1M; numbers that would need rounding stay as they are."""
    for scale, suffix in ((1_000_000, "M"), (1_000, "k")):
        if step and step % scale == 0:
            return f"{step // scale}{suffix}"
    return str(step)


def short_list(numbers: Sequence[int]) -> str:
    """0,1,2,3 → 0–3."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
