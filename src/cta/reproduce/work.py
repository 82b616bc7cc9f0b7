"""Where things stand, read from files alone: data, runs and their checkpoints, scores. Nothing is kept in memory that a
killed driver could lose.
"""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cta.data.files import dataset_folder, write_whole
from cta.envs.names import known_spec, validation_count
from cta.reproduce.plan import Plan, PlannedCell
from cta.results.protocol import TASKS
from cta.results.records import by_seed
from cta.results.store import Results

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

    def checkpoints(self) -> list[int]:
        """Steps with a complete checkpoint (one being written has another name)."""
        folder = self.path / "checkpoints"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(path.name) for path in found if path.name.isdigit())

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
        """Whether to begin with it: starting a scoring process takes long enough for the next checkpoint to come."""
        try:
            age = time.time() - (self.unit.path / "checkpoints" / str(self.step)).stat().st_mtime
        except OSError:
            return False
        return self.unit.finished or age > SETTLE_S

    @property
    def urgent(self) -> bool:
        """Part of a result, not only of a curve."""
        return self.step in self.unit.cell.points

    @property
    def name(self) -> str:
        return f"{self.unit.cell.name}, step {self.step:,}, seeds {','.join(map(str, self.seeds))}"


PACKED, CLOCK = "packed.json", "clock.json"
"""Small files in a run directory: which steps are kept as weights; seconds its training took."""


class Workspace:
    """The work folder of a plan (runs, logs, small data) and the results folder."""

    def __init__(self, plan: Plan, folder: Path, results: Results, *, dataset_dir: str | None, retrain: bool = False):
        self.plan = plan
        self.folder = folder
        self.results = results
        self._dataset_dir = dataset_dir
        self._retrain = retrain

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def weights(self) -> Path:
        """Where weights that are to be scored elsewhere are kept."""
        return self.results.folder / "weights"

    def data_folder(self, cell: PlannedCell) -> Path:
        """OGBench's folder for data of full size; data of another size stay in the work folder."""
        return dataset_folder(self._dataset_dir) if cell.data.full else self.folder / "data"

    def data_file(self, cell: PlannedCell) -> Path:
        return self.data_folder(cell) / f"{cell.dataset}.npz"

    def rows_to_generate(self, cell: PlannedCell) -> int:
        """Rows of both files of the cell's dataset."""
        spec = known_spec(cell.dataset)
        episodes = cell.data.episodes or spec.episodes
        return (episodes + validation_count(episodes)) * ((cell.data.episode_steps or spec.episode_steps) + 1)

    def unit(self, cell: PlannedCell, seeds: Sequence[int]) -> Unit:
        agent = re.sub(r"[^\w.-]", "-", cell.agent)
        name = "seeds-" + "-".join(map(str, seeds))
        return Unit(cell, tuple(seeds), self.folder / "runs" / cell.dataset / agent / name)

    def units(self, cell: PlannedCell) -> list[Unit]:
        """The runs of this cell that have begun, the furthest first."""
        folder = self.unit(cell, (0,)).path.parent
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        numbers = [[int(seed) for seed in name.split("-")[1:]] for name in names if re.fullmatch(r"seeds(-\d+)+", name)]
        found = [self.unit(cell, seeds) for seeds in numbers if set(seeds) <= set(cell.seeds)]
        return sorted((unit for unit in found if unit.begun), key=lambda unit: (-unit.step, unit.seeds))

    def all_units(self) -> list[Unit]:
        return [unit for cell in self.plan.cells for unit in self.units(cell)]

    def scored(self, cell: PlannedCell, step: int) -> set[int]:
        """Seeds whose score at this step is in the results."""
        known = self.results.cell(cell.dataset, cell.agent)
        done = known.scored(episodes=cell.episodes_at(step), tasks=TASKS)
        return {seed for seed, at in done if at == step}

    def pending(self, cell: PlannedCell) -> list[Pending]:
        """Checkpoints to score, earliest step first."""
        found = []
        for point in cell.all_points:
            done = self.scored(cell, point)
            for unit in self.units(cell):
                seeds = tuple(seed for seed in unit.seeds if seed not in done)
                if seeds and point in unit.checkpoints():
                    found.append(Pending(unit, point, seeds))
        return found

    def trained(self, cell: PlannedCell) -> set[int]:
        """Seeds with nothing left to train: scored at every point, or trained to the end here or elsewhere."""
        scored = [self.scored(cell, point) for point in cell.points]
        here = {seed for unit in self.units(cell) if unit.finished for seed in unit.seeds}
        return set.intersection(*scored) | here | self.elsewhere(cell)

    def elsewhere(self, cell: PlannedCell) -> set[int]:
        """Seeds that the record knows as trained to the end; their weights may lie on another machine."""
        if self._retrain:
            return set()
        facts = by_seed(self.results.record(cell.dataset, cell.agent))
        return {seed for seed, known in facts.items() if known.get("steps", 0) >= cell.steps and seed in cell.seeds}

    def untouched(self, cell: PlannedCell) -> list[int]:
        """Seeds that no run here has begun and that still have to train."""
        begun = {seed for unit in self.units(cell) for seed in unit.seeds}
        return [seed for seed in cell.seeds if seed not in begun and seed not in self.trained(cell)]

    def left(self, cell: PlannedCell) -> list[str]:
        """What this cell still needs, in words."""
        parts = []
        for unit in self.units(cell):
            if not unit.finished and not set(unit.seeds) <= self.trained(cell):
                parts.append(f"{unit.name}: {unit.step:,} of {cell.steps:,} steps trained")
        fresh = self.untouched(cell)
        if fresh:
            parts.append(f"{cell.name}: seeds {','.join(map(str, fresh))} to train")
        parts += [f"{pending.name} to score" for pending in self.pending(cell)]
        open_here = {(seed, item.step) for item in self.pending(cell) for seed in item.seeds}
        for point in cell.points:
            away = self.elsewhere(cell) - self.scored(cell, point) - {s for s, at in open_here if at == point}
            if away:
                names = ",".join(map(str, sorted(away)))
                parts.append(f"{cell.name}, step {point:,}, seeds {names} to score from their weights (`cta evaluate`)")
        return parts

    def unpacked(self, unit: Unit) -> list[int]:
        """Points of a finished run that are neither scored nor kept as weights."""
        kept = _numbers(unit.path / PACKED, "steps")
        if not unit.finished:
            return []
        return [
            item.step for item in self.pending(unit.cell) if item.unit == unit and item.urgent and item.step not in kept
        ]

    def tidy(self, unit: Unit) -> None:
        """Remove the checkpoints that nobody needs: those before the newest that are scored or not to be scored."""
        waiting = {item.step for item in self.pending(unit.cell) if item.unit == unit}
        for step in unit.checkpoints()[:-1]:
            if step not in waiting:
                folder = unit.path / "checkpoints"
                # Renamed first, as the trainer does: under its number a checkpoint is whole or not there.
                gone = folder / f".deleted-{step}"
                with contextlib.suppress(OSError):
                    (folder / str(step)).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def clock(self, unit: Unit) -> float:
        """Seconds its training processes have taken so far."""
        return next(iter(_numbers(unit.path / CLOCK, "wall_clock_s")), 0.0)

    def set_clock(self, unit: Unit, seconds: float) -> None:
        if unit.path.is_dir():
            write_whole(unit.path / CLOCK, json.dumps({"wall_clock_s": round(seconds, 1)}) + "\n")


def _numbers(path: Path, name: str) -> list[float]:
    """A number or a list of them in a small JSON file; nothing if there is none."""
    try:
        value = json.loads(path.read_text())[name]
        return [float(number) for number in (value if isinstance(value, list) else [value])]
    except (OSError, ValueError, KeyError, TypeError):
        return []
