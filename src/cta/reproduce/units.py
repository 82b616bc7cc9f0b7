"""Some seeds of a cell that train together, and their checkpoints, read from the run directory."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from cta.reproduce.plan import PlannedCell

SETTLE_S = 5.0


@dataclass(frozen=True)
class Unit:
    """Some seeds of a cell that train together, in one run directory."""

    cell: PlannedCell
    seeds: tuple[int, ...]
    path: Path

    @property
    def name(self) -> str:
        return f"{self.cell.name}, seed{'s' if len(self.seeds) > 1 else ''} {','.join(map(str, self.seeds))}"

    @property
    def begun(self) -> bool:
        return (self.path / "config.json").is_file()

    def checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / str(step)

    def checkpoints(self) -> list[int]:
        """Steps with a complete checkpoint (one being written has another name)."""
        try:
            found = os.listdir(self.path / "checkpoints")
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in found if name.isdigit())

    @property
    def step(self) -> int:
        """Steps that need not be repeated."""
        return max(self.checkpoints(), default=0)

    @property
    def finished(self) -> bool:
        return self.step >= self.cell.steps


@dataclass(frozen=True)
class Pending:
    """A checkpoint with seeds that are not scored yet."""

    unit: Unit
    step: int
    seeds: tuple[int, ...]

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

    @property
    def last(self) -> bool:
        return self.step == self.unit.cell.steps

    @property
    def name(self) -> str:
        return f"{self.unit.cell.name}, step {self.step:,}, seeds {','.join(map(str, self.seeds))}"
