"""Some seeds of a cell that train together, and their checkpoints, read from the run directory."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

from cta.errors import CtaError
from cta.grid.cells import Cell
from cta.io.csv_log import CsvLog
from cta.io.json_files import read_json

SETTLE_S = 5.0


@dataclass(frozen=True)
class Unit:
    """A seed block of a cell: one run directory, one training process."""

    cell: Cell
    seeds: tuple[int, ...]
    path: Path

    @property
    def name(self) -> str:
        return f"{self.cell.name}, seed{'s' if len(self.seeds) > 1 else ''} {listed(self.seeds)}"

    @property
    def begun(self) -> bool:
        return (self.path / "config.json").is_file()

    def checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / str(step)

    def checkpoints(self) -> list[int]:
        """Steps with a complete checkpoint (one being written has another name)."""
        try:
            return sorted(int(name) for name in os.listdir(self.path / "checkpoints") if name.isdigit())
        except FileNotFoundError:
            return []

    @property
    def step(self) -> int:
        """Steps that need not be repeated."""
        return max(self.checkpoints(), default=0)

    @property
    def left(self) -> int:
        return self.target - self.step

    @property
    def finished(self) -> bool:
        """Trained as far as the cell wants it, or as far as any of its seeds could be."""
        return self.reached(self.cell.steps)

    def reached(self, step: int) -> bool:
        return self.step >= step or set(self.seeds) <= set(self.diverged)

    @property
    def diverged(self) -> dict[int, int]:
        """Seeds whose numbers were NaN or inf, with the step."""
        stopped = _json(self.path / "provenance.json", {"stopped": {...: {"step!": int}}}).get("stopped", {})
        return {int(seed): why["step"] for seed, why in stopped.items() if seed.isdecimal()}

    def good(self, step: int) -> list[int]:
        """The cell's seeds that had not diverged at a step."""
        bad = self.diverged
        return [seed for seed in self.seeds if seed in self.cell.seeds and step < bad.get(seed, step + 1)]

    @property
    def target(self) -> int:
        """The step to train to next: the last, or before it a point that the run itself would not keep."""
        every = _json(self.path / "config.json", {"checkpoint_interval": int}).get("checkpoint_interval", 0)
        points = [point for point in self.cell.all_points if self.step < point < self.cell.steps]
        odd = [point for point in points if self.begun and (every < 1 or point % every)]
        return min(odd, default=self.cell.steps)

    def progress(self) -> tuple[int, float]:
        """(last logged step, steps per second: the median of the last logged blocks, 0 before the first)."""
        try:
            rows = CsvLog(self.path / "train.csv").read()
            rate = median_high(float(row["steps_per_s"]) for row in rows[-5 * len(self.seeds) :])
            return int(rows[-1]["step"]), rate
        # Not begun, a run that has just removed it, or a damaged file, of which the job itself will speak.
        except (FileNotFoundError, CtaError, KeyError, ValueError):
            return self.step, 0.0


class Pending(NamedTuple):
    """A seed at a checkpoint, not scored yet."""

    unit: Unit
    step: int
    seed: int

    @property
    def settled(self) -> bool:
        """Whether to begin with it while its run goes on: the next checkpoint may come while a process starts."""
        try:
            return time.time() - self.unit.checkpoint(self.step).stat().st_mtime > SETTLE_S
        except OSError:
            return False

    @property
    def urgent(self) -> bool:
        """Part of a result, not only of a curve."""
        return self.step in self.unit.cell.points


def listed(numbers: Iterable[int]) -> str:
    """As commands take and names have them."""
    return ",".join(map(str, numbers))


def _json(path: Path, shape: dict[Any, Any]) -> dict[str, Any]:
    """Nothing of what is not there yet, or damaged: the job that reads it says what is wrong."""
    try:
        return read_json(path, shape)
    except CtaError:
        return {}
