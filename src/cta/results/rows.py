"""Rows of result files: a cell's task, or one of its held-out pairs, at one step of one seed."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cta.data.files import write_whole
from cta.errors import CtaError


class Row(NamedTuple):
    """`successes` of `episodes` episodes of a task, by the policy of a seed at a step."""

    dataset: str
    agent: str
    seed: int
    step: int
    task: int
    episodes: int
    successes: int

    @property
    def key(self) -> tuple[int, int]:
        """(seed, step): what is scored, replaced or refused as a whole."""
        return self.seed, self.step

    def problem(self) -> str | None:
        """Why this cannot be a score."""
        if not self.dataset or not self.agent or min(self[2:7]) < 0:
            return "a name is missing or a number is negative"
        if self.episodes < 1 or self.successes > self.episodes:
            return f"{self.successes} successes in {self.episodes} episodes"
        return None


class PairRow(NamedTuple):
    """The same of a held-out pair, whose number is the task; `direct` and `lenient` of the successes were direct."""

    dataset: str
    agent: str
    seed: int
    step: int
    task: int
    episodes: int
    successes: int
    pair: str
    direct: int
    lenient: int

    @property
    def key(self) -> tuple[int, int]:
        """(seed, step)."""
        return self.seed, self.step

    def problem(self) -> str | None:
        """Why this cannot be a score."""
        if min(self.direct, self.lenient) < 0 or max(self.direct, self.lenient) > self.successes:
            return "more direct successes than successes"
        return Row(*self[:7]).problem()


AnyRow = Row | PairRow
Kind = type[Row] | type[PairRow]
COLUMNS = Row._fields
"""The columns of a result file, in this order and no others."""
TEXT = ("dataset", "agent", "pair")


def make_row(kind: Kind, values: Mapping[str, Any], where: str = "row") -> Any:
    """A row from text or numbers; anything that cannot be a score is an error that names the place."""
    try:
        found: dict[str, Any] = {
            name: str(values[name]) if name in TEXT else int(values[name]) for name in kind._fields
        }
    except (TypeError, ValueError) as error:
        raise CtaError(f"{where}: not a whole number ({error})") from error
    row = kind(**found)
    if problem := row.problem():
        raise CtaError(f"{where}: {problem}")
    return row


def read_rows(path: Path, kind: Kind = Row) -> list[Any]:
    """All rows of a file; wrong columns, numbers that are none and repeated rows are errors."""
    try:
        text = path.read_text()
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(reader.fieldnames or ()) != kind._fields:
        raise CtaError(f"{path}: the columns must be exactly {','.join(kind._fields)}")
    rows = []
    for values in reader:
        where = f"{path}, line {reader.line_num}"
        if None in values or None in values.values():
            raise CtaError(f"{where}: not {len(kind._fields)} columns")
        rows.append(make_row(kind, values, where))
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        if row[:5] in seen:
            raise CtaError(f"{path}: seed {row.seed}, step {row.step}, task {row.task} is there twice")
        seen.add(row[:5])
    return rows


def write_rows(path: Path, rows: Iterable[AnyRow], kind: Kind = Row) -> None:
    """The whole file or none of it, sorted by seed, step and task."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind._fields)
    writer.writerows(sorted(rows))
    write_whole(path, text.getvalue())
