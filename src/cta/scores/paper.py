"""The paper's tables, as package data, and its protocol: when a cell counts, and what is missing of it."""

import csv
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

from cta.agents import paper_names
from cta.config import AgentConfig, RunConfig
from cta.presets import run_preset
from cta.scores.schema import ASKED, PAIRS, WHOLE, CellKey, Score
from cta.scores.statistics import LAST_EVALUATIONS

OOC = "ooc"
TABLES = ("main", OOC, "gcb", "maze", "pixel", "noisy", "hierarchy")  # names `cta table` knows
AVERAGE = "average"
ALL_PAIRS = "all"
_AS_PRINTED = {"average_printed": AVERAGE, "overall_printed": ALL_PAIRS}
TASKS = ("1", "2", "3", "4", "5")
EPISODES = 50
SEEDS = 4  # of a cell that the paper does not have


class PaperScore(NamedTuple):
    """Success in %, mean ± standard deviation over seeds; averages are printed without ±."""

    dataset: str
    agent: str
    mean: float
    std: float | None
    seeds: int

    @property
    def text(self) -> str:
        return f"{self.mean:g}" + ("" if self.std is None else f" ± {self.std:g}")


class PaperPair(NamedTuple):
    """Held-out pairs: direct success and success in %."""

    dataset: str
    agent: str
    pair: str
    direct: float
    direct_std: float
    success: float
    success_std: float
    seeds: int

    @property
    def text(self) -> str:
        return f"{self.direct:g}±{self.direct_std:g} ({self.success:g}±{self.success_std:g})"


def paper_scores(table: str) -> list[PaperScore]:
    return [PaperScore(*row) for row in _read(table)]


def paper_pairs() -> list[PaperPair]:
    return [PaperPair(*row) for row in (*_read("ooc_scene"), *_read("ooc_puzzle"))]


def in_paper(dataset: str, agent: str, table: str = "") -> list[int]:
    """Seeds of this agent on this dataset in each table of success rates that has it, or in that `table` alone."""
    names = [table] if table else [name for name in TABLES if name != OOC]
    lines = [line for name in names for line in (paper_pairs() if name == OOC else paper_scores(name))]
    return [line.seeds for line in lines if (line.dataset, line.agent) == (dataset, agent)]


@cache
def _read(name: str) -> list[list[Any]]:
    """The rows of a file, without the name of its table and with our names of agents and averages."""
    text = files("cta.scores").joinpath("paper", f"{name}.csv").read_text("utf-8")
    return [
        [_value(env), paper_names()[method], *map(_value, values), int(seeds)]
        for _, env, method, *values, seeds in csv.reader(text.splitlines()[1:])
    ]


def _value(word: str) -> str | float | None:
    return _AS_PRINTED.get(word, word) if word[:1].isalpha() else float(word) if word else None


def points_of(dataset: str) -> tuple[int, ...]:
    """The steps that are scored: 800k, 900k and 1M, on images 300k, 400k and 500k; the embedded worlds have others."""
    run = run_preset(RunConfig(AgentConfig(), dataset=dataset))
    return tuple(run.steps - run.eval_interval * back for back in reversed(range(LAST_EVALUATIONS)))


@dataclass(frozen=True)
class CellScores:
    """Everything known of one cell: its scores, and the record of who trained and scored it.

    A seed is whole with 50 episodes of every task at every one of `points_of`; a cell is complete with all of the
    paper's seeds.
    """

    key: CellKey
    rows: tuple[Score, ...]
    record: dict[str, Any]

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.rows})

    @property
    def asked(self) -> str:
        """What one of its `parts` is of, one of `ASKED`."""
        return self.rows[0].asked if self.rows else ASKED[self.key.condition != WHOLE]

    @property
    def tasks(self) -> tuple[str, ...]:
        """What every seed of one of its `parts` is scored on."""
        if self.asked == ASKED[0]:
            return TASKS
        printed = [one.pair for one in paper_pairs() if one.dataset == self.key.dataset and one.pair != ALL_PAIRS]
        scored = [row.task for row in self.rows]
        return tuple(dict.fromkeys(printed if printed and self.asked == PAIRS else scored))

    def parts(self) -> list["CellScores"]:
        """Its tasks, its pairs and its presses, which have nothing to do with each other."""
        found = [replace(self, rows=tuple(row for row in self.rows if row.asked == kind)) for kind in ASKED]
        return [part for part in found if part.rows] or [self]

    def scored(self, *, episodes: int = 1, tasks: Sequence[str] = TASKS) -> set[tuple[int, int]]:
        """(seed, step) with at least so many episodes of all these tasks."""
        there = {(row.seed, row.step, row.task) for row in self.rows if row.episodes >= episodes}
        return {(seed, step) for seed, step, _ in there if all((seed, step, task) in there for task in tasks)}

    def wanted_seeds(self, table: str | None = None) -> int:
        """The paper's; `table` says which of its tables counts, by default the one with most seeds."""
        table = table or (OOC if self.asked == PAIRS else "")
        return max(in_paper(self.key.dataset, self.key.agent, table), default=SEEDS)

    def whole_seeds(self) -> list[int]:
        done = self.scored(episodes=EPISODES, tasks=self.tasks)
        return [seed for seed in self.seeds if all((seed, point) in done for point in points_of(self.key.dataset))]

    def counted(self) -> list[Score]:
        """The rows a score is made of: of whole seeds, those of the protocol's points."""
        if whole := set(self.whole_seeds()):
            points = points_of(self.key.dataset)
            return [row for row in self.rows if row.seed in whole and row.step in points]
        # Each seed's last (up to) three evaluations: something to look at, never a result.
        steps = {seed: sorted({row.step for row in self.rows if row.seed == seed}) for seed in self.seeds}
        return [row for row in self.rows if row.step in steps[row.seed][-LAST_EVALUATIONS:]]

    def state(self, table: str | None = None) -> str:
        """complete, or how many seeds there are of how many."""
        wanted, whole = self.wanted_seeds(table), len(self.whole_seeds())
        return "complete" if whole >= wanted else f"{whole} of {wanted} seeds"

    def missing(self) -> str:
        """What its own seeds lack; empty if they lack nothing."""
        done = self.scored(episodes=EPISODES, tasks=self.tasks)
        return "; ".join(unscored(self.seeds, points_of(self.key.dataset), done))


def unscored(seeds: Iterable[int], points: Sequence[int], done: Set[tuple[int, int]]) -> list[str]:
    """In words, for each seed, the points at which it is not `done`."""
    missing = {seed: [short_steps(point) for point in points if (seed, point) not in done] for seed in seeds}
    return [f"seed {seed} at {', '.join(names)}" for seed, names in missing.items() if names]


def short_steps(step: int) -> str:
    """800000 → 800k, 1000000 → 1M; numbers that would need rounding stay as they are."""
    units = ((1_000_000, "M"), (1_000, "k"))
    return next((f"{step // scale}{unit}" for scale, unit in units if step and step % scale == 0), str(step))


def short_list(numbers: Sequence[int]) -> str:
    """0,1,2,3 → 0–3."""
    # Neighbours are as far from their places as each other.
    groups = groupby(enumerate(sorted(numbers)), key=lambda placed: placed[1] - placed[0])
    runs = [[number for _, number in run] for _, run in groups]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
