"""Held-out pairs as results: `ooc/` in a results folder, with the columns `pair,direct,lenient` added."""

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from cta.results.paper import ALL_PAIRS
from cta.results.protocol import Cell, Protocol, protocol_of
from cta.results.records import empty
from cta.results.rows import PairRow, read_rows

HELD_OUT = "held-out"


def pair_tasks(dataset: str) -> list[str]:
    """The tasks of the pairs that come with a dataset's world, in words; an error where there are none."""
    from cta.ooc.components import find_layout
    from cta.ooc.pairs import built_in_pairs

    return [pair.name for pair in built_in_pairs(find_layout(dataset))]


def pair_count(dataset: str) -> int:
    """How many pairs come with a dataset's world; an error where there are none."""
    return len(pair_tasks(dataset))


@dataclass(frozen=True)
class PairCell(Cell):
    """One agent trained on one kind of data (pairs cut, or a control)."""

    condition: str = HELD_OUT
    held_out = True

    @property
    def protocol(self) -> Protocol:
        """The paper's seeds, steps and episodes, for every pair."""
        return replace(protocol_of(self.dataset), tasks=pair_count(self.dataset))

    @property
    def pairs(self) -> tuple[str, ...]:
        return tuple(sorted({row.pair for row in self.rows}, key=lambda pair: (len(pair), pair)))

    def rates(self, pair: str, kind: str) -> dict[int, float]:
        """Each seed's rate (direct, successes or lenient), averaged over the evaluations that count."""
        found: dict[int, list[float]] = defaultdict(list)
        rows: list[Any] = self.counted()
        for row in rows:
            if row.pair == pair:
                found[row.seed].append(getattr(row, kind) / row.episodes)
        return {seed: fmean(values) for seed, values in sorted(found.items())}

    def mean_and_spread(self, pair: str, kind: str) -> tuple[float, float]:
        """Mean and deviation over seeds in %; over all pairs the mean of both, as the paper prints them."""
        pairs = self.pairs if pair == ALL_PAIRS else (pair,)
        found = [self.rates(name, kind).values() for name in pairs]
        return 100 * fmean(map(fmean, found)), 100 * fmean(map(pstdev, found))


def read_pairs(folder: Path) -> list[PairCell]:
    """Every cell. Files in the folder itself are of data with the pairs cut; a subfolder's name says of which data."""
    cells: dict[tuple[str, str, str], list[PairRow]] = defaultdict(list)
    for path in sorted([*folder.glob("*.csv"), *folder.glob("*/*.csv")]):
        condition = HELD_OUT if path.parent == folder else path.parent.name
        for row in read_rows(path, PairRow):
            cells[row.dataset, row.agent, condition].append(row)
    return [
        PairCell(dataset, agent, tuple(sorted(rows)), empty(dataset, agent), condition)
        for (dataset, agent, condition), rows in sorted(cells.items())
    ]
