"""One row of a result file: a cell's task at one step of one seed."""

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

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "row") -> "Row":
        """Read text or numbers; anything that cannot be a score is an error that names the place."""
        try:
            numbers = {name: int(values[name]) for name in cls._fields[2:]}
        except (TypeError, ValueError) as error:
            raise CtaError(f"{where}: not a whole number ({error})") from error
        row = cls(str(values["dataset"]), str(values["agent"]), **numbers)
        if not row.dataset or not row.agent or min(numbers.values()) < 0:
            raise CtaError(f"{where}: a name is missing or a number is negative")
        if row.episodes < 1 or row.successes > row.episodes:
            raise CtaError(f"{where}: {row.successes} successes in {row.episodes} episodes")
        return row

    @property
    def key(self) -> tuple[int, int]:
        """(seed, step): what is scored, replaced or refused as a whole."""
        return self.seed, self.step


COLUMNS = Row._fields
"""The columns of a result file, in this order and no others."""


def read_rows(path: Path) -> list[Row]:
    """All rows of a file; wrong columns, numbers that are none and repeated rows are errors."""
    try:
        text = path.read_text()
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise CtaError(f"{path}: the columns must be exactly {','.join(COLUMNS)}")
    rows = []
    for values in reader:
        where = f"{path}, line {reader.line_num}"
        if None in values or None in values.values():
            raise CtaError(f"{where}: not {len(COLUMNS)} columns")
        rows.append(Row.of(values, where))
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        if row[:5] in seen:
            raise CtaError(f"{path}: seed {row.seed}, step {row.step}, task {row.task} is there twice")
        seen.add(row[:5])
    return rows


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """The whole file or none of it, sorted by seed, step and task."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sorted(rows))
    write_whole(path, text.getvalue())
