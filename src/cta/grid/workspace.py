"""Where things stand, read from files alone: data, runs and their checkpoints, scores. Nothing is kept in memory that a
killed runner could lose.
"""

import contextlib
import re
import shutil
from collections.abc import Sequence, Set
from itertools import product
from pathlib import Path

from cta.config import to_dict
from cta.data.locations import dataset_folder, is_path, resolve
from cta.envs.names import KNOWN, validation_count
from cta.errors import CtaError
from cta.grid.cells import Cell
from cta.grid.plan import Plan
from cta.grid.units import Pending, Unit, listed
from cta.io.files import safe_name, write_whole
from cta.io.json_files import write_json
from cta.scores.records import by_seed
from cta.scores.schema import WHOLE
from cta.scores.store import Scores

DEFAULT = Path("runs") / "grid"
"""The work folder of all plans, so that each finds what others have made."""


class Workspace:
    """WORK/cells/CELL holds a cell's runs and its scores, WORK/data what was made for it; OUT is what plans publish.

    A cell's folder is named by its content: see `Cell.folder`.
    """

    def __init__(self, plan: Plan, folder: Path, out: Path, *, dataset_dir: str | None = None):
        self.plan = plan
        self.folder = folder.expanduser().absolute()
        self.out = Scores(out)
        self._dataset_dir = dataset_dir
        self._seen: dict[str, tuple[set[tuple[int, int]], set[tuple[int, int]], set[int]]] = {}
        """Of each cell: (seed, step) scored in OUT, in the work folder, and seeds that OUT knows as trained."""

    def cell_folder(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.folder

    def source_file(self, cell: Cell) -> Path:
        """Its data before anything is cut out: one's own file, OGBench's folder for data of full size, else WORK."""
        if is_path(cell.dataset):
            return resolve(cell.dataset).train.absolute()
        if cell.data.full:
            return dataset_folder(self._dataset_dir).absolute() / f"{cell.dataset}.npz"
        whole = Cell(cell.dataset, cell.agent, (), 1, (1,), data=cell.data)
        return self.folder / "data" / whole.data_name / f"{cell.dataset}.npz"

    def data_file(self, cell: Cell) -> Path:
        """What it is trained on."""
        if cell.condition == WHOLE:
            return self.source_file(cell)
        folder = self.folder / "data" / cell.data_name
        only = f"pair{cell.cut.only}/" if cell.cut.only is not None else ""
        return folder / f"{only}{cell.dataset_name}.npz"

    def rows_to_generate(self, cell: Cell) -> int:
        """Rows of both files of the cell's dataset that still have to be simulated here."""
        spec = KNOWN.get(cell.dataset)
        if spec is None or spec.needs_expert or self.source_file(cell).exists():
            return 0
        episodes = cell.data.episodes or spec.episodes
        return (episodes + validation_count(episodes)) * ((cell.data.episode_steps or spec.episode_steps) + 1)

    def unit(self, cell: Cell, seeds: Sequence[int]) -> Unit:
        return Unit(cell, tuple(seeds), self.cell_folder(cell) / ("seeds-" + "-".join(map(str, seeds))))

    def write_cell(self, cell: Cell) -> None:
        """Say in the cell's folder what it is."""
        if not (path := self.cell_folder(cell) / "cell.json").exists():
            about = {"dataset": cell.dataset_name, "agent": cell.agent, "condition": cell.condition}
            write_json(path, about | {"data": cell.data_identity, "settings": to_dict(cell.config)})

    def units(self, cell: Cell) -> list[Unit]:
        """The runs of this cell that have begun, the furthest first."""
        folder = self.cell_folder(cell)
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        numbers = [[int(seed) for seed in name.split("-")[1:]] for name in names if re.fullmatch(r"seeds(-\d+)+", name)]
        found = [self.unit(cell, seeds) for seeds in numbers if set(seeds) & set(cell.seeds)]
        return sorted((unit for unit in found if unit.begun), key=lambda unit: (-unit.step, unit.seeds))

    def to_train(self, cell: Cell, taken: Set[int]) -> list[Unit]:
        """Runs to continue, and seeds to begin, but for those that somebody else has `taken`."""
        begun = [unit for unit in self.to_continue(cell) if not taken & set(unit.seeds)]
        fresh = [seed for seed in self.to_begin(cell) if seed not in taken]
        return [*begun, self.unit(cell, fresh)] if fresh else begun

    def to_continue(self, cell: Cell) -> list[Unit]:
        """Runs that have begun and still have something to train."""
        rest = set(cell.seeds) - self.trained(cell)
        return [unit for unit in self.units(cell) if not unit.finished and rest & set(unit.seeds)]

    def to_begin(self, cell: Cell) -> list[int]:
        """Seeds that no run here has begun and that still have to train."""
        begun = {seed for unit in self.units(cell) for seed in unit.seeds} | self.trained(cell)
        return [seed for seed in cell.seeds if seed not in begun]

    def trained(self, cell: Cell) -> set[int]:
        """Seeds with nothing left to train: scored at every point, or trained to the end here or elsewhere."""
        scored = self.scored(cell)
        everywhere = {seed for seed in cell.seeds if all((seed, point) in scored for point in cell.points)}
        here = {seed for unit in self.units(cell) if unit.finished for seed in unit.seeds}
        return everywhere | here | self._look(cell)[2]

    def home(self, cell: Cell) -> Scores:
        """The scores of a cell's runs in the work folder, under their `run_key`."""
        return Scores(self.cell_folder(cell) / safe_name(f"scores {cell.manner}"))

    def scored(self, cell: Cell) -> set[tuple[int, int]]:
        """(seed, step) that this plan wants and that have a score, here or in the published scores."""
        published, here, _ = self._look(cell)
        return published | here

    def _look(self, cell: Cell) -> tuple[set[tuple[int, int]], set[tuple[int, int]], set[int]]:
        if cell.name not in self._seen:
            out = self.out.cell(cell.key)
            facts = by_seed(out.record).items()
            trained = {seed for seed, known in facts if known.get("steps", 0) >= cell.steps and seed in cell.seeds}
            here = cell.scored(self.home(cell).cell(cell.run_key))
            self._seen[cell.name] = cell.scored(out), here, trained
        return self._seen[cell.name]

    def publish(self, cell: Cell) -> int:
        """Bring the scores of a cell from the work folder into OUT; returns how many policies are new there."""
        self._seen.pop(cell.name, None)
        published, here, _ = self._look(cell)
        fresh = here - published
        if not fresh:
            return 0
        mine = self.home(cell).cell(cell.run_key)
        theirs = by_seed(self.out.cell(cell.key).record)
        other = next((s for s, _ in fresh if theirs.get(s, {}).get("cell", cell.digest) != cell.digest), None)
        if other is not None:
            raise CtaError(f"{self.out.folder} has {cell.key.name} from other data: give another --out")
        seeds = {seed for seed, _ in fresh}
        facts = [(seed, known) for seed, known in by_seed(mine.record).items() if seed in seeds]
        training = [{"seeds": [seed], **known, "cell": cell.digest} for seed, known in facts]
        rows = [row for row in mine.rows if (row.seed, row.step) in fresh and row.task in cell.tasks]
        rows = [row._replace(settings=cell.key.settings) for row in rows]
        self.out.add(cell.key, {**mine.record, "training": training}, rows, replace=True)
        # The event logs of held-out pairs travel with their scores.
        for seed, step in fresh if cell.ask == "pairs" else ():
            source = self.home(cell).events_file(cell.run_key, seed, step)
            if source.exists():
                write_whole(self.out.events_file(cell.key, seed, step), source.read_bytes())
        self._seen.pop(cell.name)
        return len(fresh)

    def pending(self, cell: Cell) -> list[Pending]:
        """Checkpoints to score, earliest step first."""
        scored, units = self.scored(cell), self.units(cell)
        there = [(point, unit) for point in cell.all_points for unit in units if point in unit.checkpoints()]
        found = [Pending(unit, point, seed) for point, unit in there for seed in unit.good(point)]
        return [item for item in found if (item.seed, item.step) not in scored]

    def all_pending(self) -> list[Pending]:
        """Those of results before those of curves."""
        found = [item for cell in self.plan.cells for item in self.pending(cell)]
        return sorted(found, key=lambda item: not item.urgent)

    def weights_file(self, cell: Cell, seed: int, step: int) -> Path:
        return self.out.weights_file(cell.run_key, seed, step)

    def unpacked(self) -> list[Pending]:
        """Checkpoints of results that are neither scored nor kept as weights."""
        urgent = [item for item in self.all_pending() if item.urgent]
        return [item for item in urgent if not self.weights_file(item.unit.cell, item.seed, item.step).exists()]

    def weights_to_score(self) -> list[Path]:
        """The plan's files of weights whose score is missing. `cta evaluate` leaves files where they are."""
        wanted = [(cell, s, point) for cell in self.plan.cells for point in cell.points for s in cell.seeds]
        files = [self.weights_file(cell, s, p) for cell, s, p in wanted if (s, p) not in self.scored(cell)]
        return [path for path in files if path.exists()]

    def tidy(self, unit: Unit, *, weights: bool) -> None:
        """Remove checkpoints that no cell of the plan wants, and with `weights` the files of weights that are scored.

        Those of results stay: more episodes may be asked for later.
        """
        cells = [cell for cell in self.plan.cells if cell.folder == unit.cell.folder]
        kept = {point for cell in cells for point in cell.points}
        kept |= {item.step for cell in cells for item in self.pending(cell) if item.unit.path == unit.path}
        for step in unit.checkpoints()[:-1]:
            if step not in kept:
                # Renamed first, as the trainer does: under its number a checkpoint is whole or not there.
                gone = unit.checkpoint(step).with_name(f".deleted-{step}")
                with contextlib.suppress(OSError):
                    unit.checkpoint(step).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        for cell in cells if weights else ():
            for seed, point in self.scored(cell):
                self.weights_file(cell, seed, point).unlink(missing_ok=True)

    def left(self, cell: Cell) -> list[str]:
        """What this cell still needs, in words."""
        parts = [f"{u.name}: {u.step:,} of {cell.steps:,} steps trained" for u in self.to_continue(cell)]
        if fresh := self.to_begin(cell):
            parts.append(f"{cell.name}: seeds {listed(fresh)} to train")
        waiting: dict[tuple[int, str], list[int]] = {}
        for item in self.pending(cell):
            waiting.setdefault((item.step, ""), []).append(item.seed)
        here = {seed for unit in self.units(cell) for seed in unit.seeds}
        for seed, point in product(sorted(self._look(cell)[2] - here), cell.points):
            if (seed, point) not in self.scored(cell):
                waiting.setdefault((point, " from their weights (`cta evaluate`)"), []).append(seed)
        for (step, how), seeds in waiting.items():
            parts.append(f"{cell.name}, step {step:,}, seeds {listed(seeds)} to score{how}")
        return parts

    def lost(self, cell: Cell) -> list[str]:
        """What cannot be had: seeds that diverged, and steps whose checkpoint is gone."""
        parts = []
        for unit in self.units(cell):
            bad = {seed: step for seed, step in unit.diverged.items() if seed in cell.seeds}
            parts += [f"{cell.name}, seed {seed}: diverged (NaN or inf) at step {step:,}" for seed, step in bad.items()]
            points = [point for point in cell.points if unit.finished and point not in unit.checkpoints()]
            if gone := [p for p in points if any((seed, p) not in self.scored(cell) for seed in unit.good(p))]:
                steps = ", ".join(f"{step:,}" for step in gone)
                parts.append(f"{unit.name}: no checkpoint at step {steps}; remove {unit.path} to train it again")
        return parts
