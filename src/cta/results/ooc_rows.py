"""Result files of held-out pairs: the columns of every result file, then `pair,direct,lenient`."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from cta.errors import CtaError
from cta.results.protocol import EVALUATIONS, SEEDS, protocol_of
from cta.results.rows import COLUMNS, Row

OOC_COLUMNS = (*COLUMNS, "pair", "direct", "lenient")
HELD_OUT = "held-out"


class OocRow(NamedTuple):
    """A row, its pair, and how many of its successes were direct."""

    row: Row
    pair: str
    direct: int
    lenient: int


@dataclass(frozen=True)
class OocCell:
    """One agent trained on one kind of data (pairs cut, or a control)."""

    dataset: str
    agent: str
    condition: str
    rows: tuple[OocRow, ...]

    @property
    def pairs(self) -> tuple[str, ...]:
        return tuple(sorted({row.pair for row in self.rows}, key=lambda pair: (len(pair), pair)))

    @property
    def seeds(self) -> list[int]:
        return sorted({row.row.seed for row in self.rows})

    @property
    def steps(self) -> list[int]:
        """The last (up to) three steps that are scored."""
        return sorted({row.row.step for row in self.rows})[-EVALUATIONS:]

    @property
    def episodes(self) -> list[int]:
        return sorted({row.row.episodes for row in self.rows})

    @property
    def complete(self) -> bool:
        """The paper's seeds and steps, every pair at each of them."""
        points = protocol_of(self.dataset).points
        seen = {(row.row.seed, row.row.step, row.pair) for row in self.rows}
        whole = all((s, point, pair) in seen for s in self.seeds for point in points for pair in self.pairs)
        return whole and len(self.seeds) >= SEEDS

    def rates(self, pair: str, kind: str) -> list[float]:
        """Each seed's rate (direct, successes or lenient), averaged over the last three evaluations."""
        found: dict[int, list[float]] = defaultdict(list)
        for row in self.rows:
            if row.pair == pair and row.row.step in self.steps:
                count = row.row.successes if kind == "successes" else getattr(row, kind)
                found[row.row.seed].append(count / row.row.episodes)
        return [fmean(found[seed]) for seed in sorted(found)]


def read(folder: Path) -> list[OocCell]:
    """Every cell. Files in the folder itself are of data with the pairs cut; a subfolder's name says of which data."""
    cells: dict[tuple[str, str, str], list[OocRow]] = defaultdict(list)
    for path in sorted([*folder.glob("*.csv"), *folder.glob("*/*.csv")]):
        condition = HELD_OUT if path.parent == folder else path.parent.name
        for row in _read_file(path):
            cells[row.row.dataset, row.row.agent, condition].append(row)
    return [OocCell(*key, tuple(_unique(rows, folder))) for key, rows in sorted(cells.items())]


def _read_file(path: Path) -> list[OocRow]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != OOC_COLUMNS:
            raise CtaError(f"{path}: the columns must be exactly {','.join(OOC_COLUMNS)}")
        rows = []
        for values in reader:
            row = Row.of(values, f"{path}, line {reader.line_num}")
            try:
                found = OocRow(row, str(values["pair"]), int(values["direct"]), int(values["lenient"]))
            except (TypeError, ValueError) as error:
                raise CtaError(f"{path}, line {reader.line_num}: not a whole number ({error})") from error
            if not 0 <= max(found.direct, found.lenient) <= row.successes or min(found.direct, found.lenient) < 0:
                raise CtaError(f"{path}, line {reader.line_num}: more direct successes than successes")
            rows.append(found)
    return rows


def _unique(rows: Sequence[OocRow], folder: Path) -> list[OocRow]:
    seen = set()
    for row in rows:
        key = (row.row.seed, row.row.step, row.pair, row.row.task)
        if key in seen:
            raise CtaError(f"{folder}: {row.pair} of seed {row.row.seed} at step {row.row.step} is there twice")
        seen.add(key)
    return sorted(rows)
