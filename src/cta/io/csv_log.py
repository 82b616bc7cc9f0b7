"""A CSV file that only grows, whatever happens to the process that writes it."""

import contextlib
import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.file_lock import file_lock
from cta.io.files import write_whole
from cta.io.json_files import MOST

Row = Mapping[str, Any]


class CsvLog:
    """A CSV file that only grows. Rows reach the disk before `append` returns, all of them or none.

    A process killed while it writes can leave half a line at the end; it is never read, and the next `append` or `keep`
    removes it.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None):
        self.path = path
        self._columns = _header(path)
        if self._columns is None and columns:
            with file_lock(path):
                self._columns = _header(path)
                if self._columns is None:
                    self._columns = list(columns)
                    self._write([self._columns])

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; the first row ever written fixes the columns."""
        if not rows:
            return
        header = [list(rows[0])] if self._columns is None else []
        self._columns = header[0] if header else self._columns
        self._write(header + self._cells(rows))

    def _cells(self, rows: Sequence[Row]) -> list[list[str]]:
        return [[_text(row.get(column, "")) for column in self._columns or []] for row in rows]

    def _write(self, lines: Sequence[Sequence[str]]) -> None:
        # Unbuffered: a buffer would try once more to write what found no room.
        with self.path.open("ab", buffering=0) as file:
            end = _end_of_lines(self.path)
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
        """Bytes; 0 if there is no file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        text = self.path.read_bytes()
        lines = text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines()
        try:
            return [row for row in csv.DictReader(lines) if None not in row and None not in row.values()]
        except csv.Error as error:
            raise CtaError(f"{self.path}: not a CSV file ({error})") from None

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
        write_whole(self.path, csv_text([*([self._columns] if self._columns else []), *self._cells(rows)]))


def _header(path: Path) -> list[str] | None:
    """The columns of a file that has a whole first line."""
    if not path.exists() or not _end_of_lines(path):
        return None
    with path.open(newline="", errors="replace") as file:
        try:
            return next(csv.reader(file))
        except csv.Error as error:
            raise CtaError(f"{path}: not a CSV file ({error})") from None


def _end_of_lines(path: Path) -> int:
    """The size of a file without the half line at its end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0


def whole_number(row: Row, column: str, path: Path) -> int:
    try:
        value = int(row[column])
        if abs(value) > MOST:
            raise ValueError
        return value
    except (KeyError, ValueError) as error:
        raise CtaError(f"{path}: a row has no number in the column '{column}'; mend or remove that row") from error


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _text(value: Any) -> str:
    # repr of a float is the shortest text that reads back to the same number
    return repr(value) if isinstance(value, float) else str(value)
