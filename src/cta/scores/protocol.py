"""When a cell counts: the paper's seeds, steps and episodes, and what is missing of them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.presets import run_preset
from cta.scores.paper import OOC, paper_pair_names, paper_seeds
from cta.scores.records import PAIRS, PRESSES
from cta.scores.schema import ASKED, WHOLE, CellKey, Score
from cta.scores.statistics import LAST_EVALUATIONS

TASKS = ("1", "2", "3", "4", "5")
EPISODES = 50


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
    def name(self) -> str:
        return self.key.name

    @property
    def seeds(self) -> list[int]:
        return sorted({row.seed for row in self.rows})

    @property
    def asked(self) -> str:
        """What one of its `parts` was asked for."""
        return self.rows[0].asked if self.rows else ASKED[self.key.condition != WHOLE]

    @property
    def tasks(self) -> tuple[str, ...]:
        """What every seed of one of its `parts` is scored on."""
        scored = tuple(dict.fromkeys(row.task for row in self.rows))
        if self.asked == PAIRS:
            return paper_pair_names(self.key.dataset) or scored
        return scored if self.asked == PRESSES else TASKS

    def parts(self) -> list["CellScores"]:
        """Its tasks, its pairs and its presses, which have nothing to do with each other."""
        found = [replace(self, rows=tuple(row for row in self.rows if row.asked == kind)) for kind in ASKED]
        return [part for part in found if part.rows] or [self]

    def scored(self, *, episodes: int = 1, tasks: Sequence[str] = TASKS) -> set[tuple[int, int]]:
        """(seed, step) with at least so many episodes of all these tasks."""
        found: dict[tuple[int, int], set[str]] = defaultdict(set)
        for row in self.rows:
            if row.episodes >= episodes:
                found[row.seed, row.step].add(row.task)
        return {key for key, seen in found.items() if seen >= set(tasks)}

    def wanted_seeds(self, table: str | None = None) -> int:
        """The paper's; `table` says which of its tables counts, by default the one with most seeds."""
        return paper_seeds(self.key.dataset, self.key.agent, table or (OOC if self.asked == PAIRS else ""))

    def whole_seeds(self) -> list[int]:
        done = self.scored(episodes=EPISODES, tasks=self.tasks)
        return [seed for seed in self.seeds if all((seed, point) in done for point in points_of(self.key.dataset))]

    def counted(self) -> list[Score]:
        """The rows a score is made of.

        Of whole seeds, those of the protocol's points. Where there are none, each seed's last (up to) three
        evaluations: something to look at, never a result.
        """
        if whole := set(self.whole_seeds()):
            points = points_of(self.key.dataset)
            return [row for row in self.rows if row.seed in whole and row.step in points]
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
