"""Where things stand, read from files alone: data, runs and their checkpoints, scores. Nothing is kept in memory that a
killed driver could lose.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from cta.data.files import dataset_folder, write_whole
from cta.envs.names import known_spec, validation_count
from cta.errors import CtaError
from cta.reproduce.plan import Plan, PlannedCell
from cta.reproduce.units import Pending, Unit
from cta.results.protocol import unscored
from cta.results.records import CLOCK, by_seed
from cta.results.store import Results


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

    # Data

    def data_folder(self, cell: PlannedCell) -> Path:
        """OGBench's folder for data of full size; data of another size stay in the work folder."""
        return dataset_folder(self._dataset_dir) if cell.data.full else self.folder / "data"

    def generated_file(self, cell: PlannedCell) -> Path:
        return self.data_folder(cell) / f"{cell.dataset}.npz"

    def data_file(self, cell: PlannedCell) -> Path:
        """What it is trained on: the generated file, or the one with the held-out pairs cut out."""
        return self.folder / "cut" / f"{cell.dataset}.npz" if cell.held_out else self.generated_file(cell)

    def rows_to_generate(self, cell: PlannedCell) -> int:
        """Rows of both files of the cell's dataset."""
        spec = known_spec(cell.dataset)
        episodes = cell.data.episodes or spec.episodes
        return (episodes + validation_count(episodes)) * ((cell.data.episode_steps or spec.episode_steps) + 1)

    # Runs

    def unit(self, cell: PlannedCell, seeds: Sequence[int]) -> Unit:
        agent = re.sub(r"[^\w.-]", "-", cell.agent)
        data = cell.dataset + ("-ooc" if cell.held_out else "")
        return Unit(cell, tuple(seeds), self.folder / "runs" / data / agent / ("seeds-" + "-".join(map(str, seeds))))

    def units(self, cell: PlannedCell) -> list[Unit]:
        """The runs of this cell that have begun, the furthest first."""
        folder = self.unit(cell, (0,)).path.parent
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        numbers = [[int(seed) for seed in name.split("-")[1:]] for name in names if re.fullmatch(r"seeds(-\d+)+", name)]
        found = [self.unit(cell, seeds) for seeds in numbers if set(seeds) <= set(cell.seeds)]
        return sorted((unit for unit in found if unit.begun), key=lambda unit: (-unit.step, unit.seeds))

    def trained(self, cell: PlannedCell) -> set[int]:
        """Seeds with nothing left to train: scored at every point, or trained to the end here or elsewhere."""
        scored = [self.scored(cell, point) for point in cell.points]
        here = {seed for unit in self.units(cell) if unit.finished for seed in unit.seeds}
        return set.intersection(*scored) | here | self.elsewhere(cell)

    def elsewhere(self, cell: PlannedCell) -> set[int]:
        """Seeds that the record knows as trained to the end; their weights may lie on another machine."""
        if self._retrain:
            return set()
        facts = by_seed(self.store(cell).record(cell.dataset, cell.agent))
        return {seed for seed, known in facts.items() if known.get("steps", 0) >= cell.steps and seed in cell.seeds}

    def untouched(self, cell: PlannedCell) -> list[int]:
        """Seeds that no run here has begun and that still have to train."""
        begun = {seed for unit in self.units(cell) for seed in unit.seeds}
        return [seed for seed in cell.seeds if seed not in begun and seed not in self.trained(cell)]

    def clock(self, unit: Unit) -> float:
        """Seconds its training processes have taken so far."""
        try:
            return float(json.loads((unit.path / CLOCK).read_text())["wall_clock_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def set_clock(self, unit: Unit, seconds: float) -> None:
        """Written twice a second: the plan does not fail for one that fails (a run that withdraws, a full disk)."""
        with contextlib.suppress(CtaError):
            if unit.path.is_dir():
                write_whole(unit.path / CLOCK, json.dumps({"wall_clock_s": round(seconds, 1)}) + "\n")

    # Scores

    def store(self, cell: PlannedCell) -> Results:
        """Where the results of a cell belong."""
        return self.results.held_out() if cell.held_out else self.results

    def scored(self, cell: PlannedCell, step: int) -> set[int]:
        """Seeds whose score at this step is in the results."""
        known = self.store(cell).cell(cell.dataset, cell.agent)
        done = known.scored(episodes=cell.episodes_at(step), tasks=cell.tasks)
        return {seed for seed, at in done if at == step}

    def missing(self, cell: PlannedCell) -> str:
        """What the plan wants of this cell and the results have not, in a line; empty if they have all of it."""
        known = self.store(cell).cell(cell.dataset, cell.agent)
        parts = unscored(cell.seeds, cell.points, known.scored(episodes=cell.episodes, tasks=cell.tasks))
        return f"missing {'; '.join(parts)}" if parts else ""

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

    def all_pending(self) -> list[Pending]:
        """Those of results before those of curves."""
        found = [item for cell in self.plan.cells for item in self.pending(cell)]
        return sorted(found, key=lambda item: not item.urgent)

    # Weights

    def weights_file(self, cell: PlannedCell, seed: int, step: int) -> Path:
        return self.store(cell).weights_file(cell.dataset, cell.agent, seed, step)

    def unpacked(self) -> list[Pending]:
        """Checkpoints of results that are neither scored nor kept as weights."""
        return [
            item
            for item in self.all_pending()
            if item.urgent and not all(self.weights_file(item.unit.cell, s, item.step).exists() for s in item.seeds)
        ]

    def weights_to_score(self) -> list[Path]:
        """The plan's files of weights whose score is not in the results. `cta evaluate` leaves files where they are."""
        wanted = [(cell, point, self.scored(cell, point)) for cell in self.plan.cells for point in cell.points]
        files = [self.weights_file(cell, s, point) for cell, point, done in wanted for s in cell.seeds if s not in done]
        return [path for path in files if path.exists()]

    # Tidiness

    def tidy(self, unit: Unit, *, weights: bool) -> None:
        """Remove the checkpoints, and with `weights` the files of weights, that are scored or not to be scored."""
        waiting = {item.step for item in self.pending(unit.cell) if item.unit == unit}
        for step in unit.checkpoints()[:-1]:
            if step not in waiting:
                # Renamed first, as the trainer does: under its number a checkpoint is whole or not there.
                gone = unit.checkpoint(step).with_name(f".deleted-{step}")
                with contextlib.suppress(OSError):
                    unit.checkpoint(step).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        for point in unit.cell.points if weights else ():
            for seed in self.scored(unit.cell, point):
                self.weights_file(unit.cell, seed, point).unlink(missing_ok=True)

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
