"""A folder of results: one CSV file and one record a cell. Adding is atomic, and nothing is ever counted twice."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cta.alone import alone
from cta.data.files import write_whole
from cta.errors import CtaError
from cta.results import records
from cta.results.pairs import PairCell
from cta.results.protocol import Cell, short_steps
from cta.results.records import Record
from cta.results.rows import AnyRow, Kind, PairRow, Row, read_rows, write_rows

DEFAULT = Path("results")


class Results:
    """`FOLDER/DATASET.AGENT.csv` and `.json`. Files of several cells with the right columns can be read as well."""

    def __init__(self, folder: str | Path = DEFAULT, kind: Kind = Row):
        self.folder = Path(folder).expanduser()
        self._kind: Kind = kind
        self._cell = Cell if kind is Row else PairCell

    def held_out(self) -> "Results":
        """The folder of held-out pairs inside this one."""
        return Results(self.folder / "ooc", PairRow)

    def existing(self) -> "Results":
        """Itself, if the folder is there: a mistyped name is no empty folder."""
        if not self.folder.is_dir():
            raise CtaError(f"{self.folder}: no such folder")
        return self

    def all_cells(self) -> list[Cell]:
        """Every cell in the folder, and after them those of held-out pairs."""
        return [*self.cells(), *self.held_out().cells()]

    def weights_file(self, dataset: str, agent: str, seed: int, step: int) -> Path:
        """Where weights that are to be scored elsewhere are kept."""
        name = f"{self.path(dataset, agent).stem}.seed{seed}.{short_steps(step)}.safetensors"
        return self.folder / "weights" / name

    def path(self, dataset: str, agent: str) -> Path:
        """The CSV file of a cell; its record has the ending .json."""
        # An agent from outside the package is called module:Class.
        return self.folder / f"{dataset}.{re.sub(r'[^A-Za-z0-9_-]', '-', agent)}.csv"

    def cells(self) -> list[Cell]:
        """Every cell in the folder, by dataset and agent."""
        rows: dict[tuple[str, str], list[AnyRow]] = {}
        home: dict[tuple, Path] = {}
        for path in sorted(self.folder.glob("*.csv")):
            for row in read_rows(path, self._kind):
                if row[:5] in home:
                    raise CtaError(f"{path} and {home[row[:5]]} both score seed {row.seed} of {row.agent}: keep one")
                home[row[:5]] = path
                rows.setdefault((row.dataset, row.agent), []).append(row)
        for path in sorted(self.folder.glob("*.json")):
            known = _names(path)
            if known is not None:
                rows.setdefault(known, [])
        return [self._cell(*key, tuple(sorted(found)), self.record(*key)) for key, found in sorted(rows.items())]

    def cell(self, dataset: str, agent: str) -> Cell:
        """One cell, perhaps empty."""
        path = self.path(dataset, agent)
        rows = read_rows(path, self._kind) if path.exists() else []
        stray = next((row for row in rows if (row.dataset, row.agent) != (dataset, agent)), None)
        if stray is not None:
            raise CtaError(f"{path} holds a row of {stray.agent} on {stray.dataset}")
        return self._cell(dataset, agent, tuple(sorted(rows)), self.record(dataset, agent))

    def record(self, dataset: str, agent: str) -> Record:
        """The record of a cell, perhaps empty."""
        return records.read_record(self.path(dataset, agent).with_suffix(".json"), dataset, agent)

    def add(self, record: Record, rows: Iterable[AnyRow] = (), *, replace: bool = False) -> None:
        """Add what was trained and scored in one cell.

        A (seed, step) that is there already stays if the new rows are the same; if they differ they are refused, or
        with `replace` take the place of the old ones.
        """
        dataset, agent = record["dataset"], record["agent"]
        new = _by_key(rows)
        with self._alone(dataset, agent):
            cell = self.cell(dataset, agent)
            problem = records.conflicts(cell.record, record)
            if problem and not replace:
                raise CtaError(f"{self.path(dataset, agent)}: {problem}: use another results folder")
            old = _by_key(cell.rows)
            for (seed, step), fresh in new.items():
                known = old.get((seed, step), fresh)
                if sorted(known) != sorted(fresh) and not replace:
                    raise CtaError(
                        f"{self.path(dataset, agent)}: seed {seed} at step {step} is scored already, with another "
                        "result: keep one of them, or replace what is there with --replace"
                    )
            fresh_keys = [key for key in new if replace or key not in old]
            base = records.empty(dataset, agent) if problem else cell.record
            kept = {} if problem else old
            together = records.merged(base, record, scores=fresh_keys, replace=replace)
            # The record first: facts without rows do no harm, rows without facts would.
            write_whole(self.path(dataset, agent).with_suffix(".json"), json.dumps(together, indent=1) + "\n")
            if kept | new:
                write_rows(
                    self.path(dataset, agent), [row for part in (kept | new).values() for row in part], self._kind
                )

    def merge(self, other: "Results", *, replace: bool = False) -> list[Cell]:
        """Add every cell of another folder, held-out pairs included; returns them as they are now."""
        cells = other.cells()
        for cell in cells:
            self.add(cell.record, cell.rows, replace=replace)
        found = [self.cell(cell.dataset, cell.agent) for cell in cells]
        if self._kind is Row:
            found += self.held_out().merge(other.held_out(), replace=replace)
        return found

    def notices(self) -> list[str]:
        """What a reader should know before comparing cells."""
        return records.notices(cell.record for cell in self.cells())

    @contextmanager
    def _alone(self, dataset: str, agent: str) -> Iterator[None]:
        """Several scoring processes write into one folder."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(alone(self.path(dataset, agent)))
            except OSError as error:
                raise CtaError(f"{self.folder}: cannot write results here ({error.strerror})") from error
            yield


def _by_key(rows: Iterable[AnyRow]) -> dict[tuple[int, int], list[AnyRow]]:
    found: dict[tuple[int, int], list[AnyRow]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def _names(path: Path) -> tuple[str, str] | None:
    """(dataset, agent) of a record; None for JSON of another kind."""
    try:
        values = json.loads(path.read_text())
        return values["dataset"], values["agent"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
