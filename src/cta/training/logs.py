"""Where numbers go: CSV files that scripts read, TensorBoard, and W&B when asked for."""

import contextlib
import csv
import io
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cta.alone import alone
from cta.data.files import write_whole
from cta.errors import CtaError

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
            with alone(path):
                self._columns = _header(path)
                if self._columns is None:
                    self._columns = list(columns)
                    self._write([self._columns])

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; the first row ever written fixes the columns."""
        if not rows:
            return
        lines: list[list[str]] = []
        if self._columns is None:
            self._columns = list(rows[0])
            lines.append(self._columns)
        self._write(lines + [[_text(row.get(column, "")) for column in self._columns] for row in rows])

    def _write(self, lines: Sequence[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        # Unbuffered: a buffer would try once more to write what found no room.
        with self.path.open("ab", buffering=0) as file:
            end = _end_of_lines(self.path)
            file.truncate(end)
            rest = memoryview(text.getvalue().encode())
            try:
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise

    def read(self) -> list[dict[str, str]]:
        """All complete rows."""
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
        with alone(self.path):
            self.replace([*(row for row in self.read() if not old(row)), *new])

    def replace(self, rows: Sequence[Row]) -> None:
        """Exactly these rows, in place of what is there, in one piece."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self._columns or []
        if columns:
            writer.writerow(columns)
        writer.writerows([[_text(row.get(column, "")) for column in columns] for row in rows])
        write_whole(self.path, text.getvalue())


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
    """A cell that must hold a whole number."""
    try:
        return int(row[column])
    except (KeyError, ValueError) as error:
        raise CtaError(f"{path}: a row has no number in the column '{column}'; mend or remove that row") from error


def _text(value: Any) -> str:
    # repr of a float is the shortest text that reads back to the same number
    return repr(value) if isinstance(value, float) else str(value)


class MetricLog(Protocol):
    """Anything that shows scalars over steps."""

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLog:
    """Event files, one folder a seed. After a resume TensorBoard drops what was logged beyond `step` before."""

    def __init__(self, folder: Path, *, step: int = 0):
        from tensorboardX.proto import event_pb2

        self._proto: Any = event_pb2
        self._folder = folder
        self._step = step
        self._writers: dict[int, Any] = {}
        self._writing = threading.Lock()
        """Training and evaluation log from threads of their own."""

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.summary import scalar

        with self._writing:
            writer = self._writer(seed)
            for name, value in values.items():
                writer.write_event(self._proto.Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
            writer.flush()

    def _writer(self, seed: int) -> Any:
        if seed not in self._writers:
            # The writer below SummaryWriter: without its thread, in which a full disk would go unheard.
            from tensorboardX.event_file_writer import EventsWriter

            folder = self._folder / f"seed_{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            writer = self._writers[seed] = EventsWriter(str(folder / "events"), f".{os.getpid()}.{self._step}")
            start = self._proto.SessionLog(status=self._proto.SessionLog.START)
            writer.write_event(self._proto.Event(wall_time=time.time(), step=self._step + 1, session_log=start))
        return self._writers[seed]

    def close(self) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()


class WandbLog:
    """One Weights & Biases run a seed; continued under the same id when the run resumes."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], seeds: Sequence[int], group: str | None):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise CtaError("--wandb needs the wandb package: pip install 'cta[wandb]'") from error
        try:
            self._runs = {
                seed: wandb.init(
                    project="cta",
                    group=group or run_dir.name,
                    name=f"{run_dir.name}-seed{seed}",
                    id=f"{run_dir.parent.name}-{run_dir.name}-seed{seed}",
                    resume="allow",
                    dir=run_dir,
                    config={**config, "seed": seed},
                    reinit="create_new",
                )
                for seed in seeds
            }
        except wandb.Error as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise CtaError(f"Weights & Biases: {why}; without a connection, set WANDB_MODE=offline") from error

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        self._runs[seed].log({"step": step, **values})

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
