"""Where numbers go: CSV files that scripts read, TensorBoard, and W&B when asked for."""

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cta.errors import CtaError

Row = Mapping[str, Any]


class CsvLog:
    """An append-only CSV file. Rows reach the disk before `append` returns, whole batches at a time."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None):
        self.path = path
        self._columns = list(columns) if columns else None
        if path.exists() and path.stat().st_size:
            with path.open(newline="") as file:
                self._columns = next(csv.reader(file))
        elif columns:
            self._write([self._columns or []])

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows; the first row ever written fixes the columns."""
        if not rows:
            return
        if self._columns is None:
            self._columns = list(rows[0])
            self._write([self._columns])
        self._write([[_text(row.get(column, "")) for column in self._columns] for row in rows])

    def _write(self, lines: Sequence[Sequence[str]]) -> None:
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, str]]:
        """All complete rows; a torn last line (a process killed while writing) is left out."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        rows = csv.DictReader(whole.splitlines())
        return [row for row in rows if None not in row and None not in row.values()]

    def keep(self, wanted: Callable[[dict[str, str]], bool]) -> None:
        """Drop the rows a resumed run will write again, torn ones included."""
        if not self.path.exists() or self._columns is None:
            return
        rows = [row for row in self.read() if wanted(row)]
        fresh = self.path.with_suffix(".tmp")
        fresh.unlink(missing_ok=True)
        log = CsvLog(fresh, self._columns)
        log.append(rows)
        os.replace(fresh, self.path)


def _text(value: Any) -> str:
    # repr of a float is the shortest text that reads back to the same number
    return repr(value) if isinstance(value, float) else str(value)


class MetricLog(Protocol):
    """Anything that shows scalars over steps."""

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLog:
    """Event files, one folder a seed."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._writers: dict[int, Any] = {}

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        if seed not in self._writers:
            from tensorboardX import SummaryWriter

            self._writers[seed] = SummaryWriter(str(self._folder / f"seed_{seed}"))
        for name, value in values.items():
            self._writers[seed].add_scalar(name, value, step)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandbLog:
    """One Weights & Biases run a seed; continued under the same id when the run resumes."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], seeds: Sequence[int], group: str | None):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise CtaError("--wandb needs the wandb package: pip install 'cta[wandb]'") from error
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

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        self._runs[seed].log({"step": step, **values})

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
