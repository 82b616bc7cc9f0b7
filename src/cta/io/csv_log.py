"""A CSV file that only grows, whatever happens to the process that writes it."""

import contextlib
import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.files import file_lock, write_whole
from cta.io.json_files import MOST

Row = Mapping[str, Any]


class CsvLog:
    """A CSV file that only grows. Rows reach the disk before `append` returns, all of them or none.

    Half a line that a killed process leaves at the end is never read; the next `append` or `keep` removes it.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None):
        self.path, self._columns = path, _parsed(path)[0]
        if columns and not self._columns:
            with file_lock(path):
                if not _parsed(path)[0]:
                    self._write([columns])
                self._columns = _parsed(path)[0]

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; the first row ever written fixes the columns."""
        if not rows:
            return
        header = [] if self._columns else [list(rows[0])]
        self._columns = self._columns or header[0]
        self._write(header + self._cells(rows))

    def _cells(self, rows: Sequence[Row]) -> list[list[Any]]:
        return [[row.get(column, "") for column in self._columns] for row in rows]

    def _write(self, lines: Sequence[Sequence[Any]]) -> None:
        # Unbuffered: a buffer would try once more to write what found no room.
        with self.path.open("ab", buffering=0) as file:
            end = len(_whole_lines(self.path))
            file.truncate(end)
            rest = memoryview(csv_text(lines).encode())
            try:
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[dict[str, str]]:
        return [row for row in _parsed(self.path)[1] if None not in row and None not in row.values()]

    def keep(self, wanted: Callable[[dict[str, str]], bool]) -> None:
        """Drop all other rows, and half lines."""
        if self.path.exists():
            self.replace([row for row in self.read() if wanted(row)])

    def exchange(self, old: Callable[[dict[str, str]], bool], new: Sequence[Row]) -> None:
        """New rows for old, in one piece; several processes may do so in one file."""
        with file_lock(self.path):
            self.replace([*(row for row in self.read() if not old(row)), *new])

    def replace(self, rows: Sequence[Row]) -> None:
        """Exactly these rows, in place of what is there, in one piece."""
        write_whole(self.path, csv_text([self._columns, *self._cells(rows)] if self._columns else []))


def _parsed(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """(columns, rows) of the whole lines of a file."""
    reader = csv.DictReader(_whole_lines(path).decode(errors="replace").splitlines())
    try:
        return list(reader.fieldnames or []), list(reader)
    except csv.Error as error:
        raise CtaError(f"{path}: not a CSV file ({error})") from None


def _whole_lines(path: Path) -> bytes:
    """The content of a file, if there is one, without the half line at its end."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def whole_number(row: Row, column: str, path: Path) -> int:
    try:
        value = int(row[column])
        if abs(value) > MOST:
            raise ValueError
        return value
    except (KeyError, ValueError) as error:
        raise CtaError(f"{path}: a row has no number in the column '{column}'; correct or remove that row") from error


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """Floats are written with as many digits as read back to the same number."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
