"""Where things stand, read from files alone: data, runs and their checkpoints, scores."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import product
from pathlib import Path

from cta.config import to_dict
from cta.data import dataset_folder, is_path, resolve
from cta.envs.names import KNOWN, validation_count
from cta.errors import CtaError
from cta.grid.cells import Cell, DataSize, Pending, Unit, listed
from cta.grid.plan import Plan
from cta.io.files import safe_name, write_whole
from cta.io.json_files import write_json
from cta.scores.schema import WHOLE
from cta.scores.store import Scores, by_seed
from cta.training.checkpoints import Checkpoints

DEFAULT = Path("runs") / "grid"  # for all plans, so that each finds what others have made
NOTHING_LEFT = "the plan is done: {} has all of it"


class Workspace:
    """WORK/cells/CELL holds a cell's runs and its scores, WORK/data what was made for it; OUT is what plans publish."""

    def __init__(self, plan: Plan, folder: Path, out: Path, *, dataset_dir: str | None = None):
        self.plan = plan
        self.folder = folder.expanduser().absolute()
        self.out = Scores(out)
        self._dataset_dir = dataset_dir
        self._seen: dict[str, tuple[set[tuple[int, int]], set[tuple[int, int]], set[int]]] = {}

    def cell_folder(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.folder

    def source_file(self, cell: Cell) -> Path:
        """Its data before anything is cut out: one's own file, OGBench's folder for data of full size, else WORK."""
        if is_path(cell.dataset):
            return resolve(cell.dataset).train.absolute()
        if cell.data == DataSize():  # full size
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
        names = [path.name for path in self.cell_folder(cell).glob("seeds-*")]
        numbers = [[int(seed) for seed in name.split("-")[1:]] for name in names if re.fullmatch(r"seeds(-\d+)+", name)]
        found = [self.unit(cell, seeds) for seeds in numbers if set(seeds) & set(cell.seeds)]
        return sorted((unit for unit in found if unit.begun), key=lambda unit: (-unit.step, unit.seeds))

    def to_train(self, cell: Cell, taken: Set[int] = frozenset()) -> list[Unit]:
        """Runs to continue, then seeds that no run here has begun, but for what somebody else has `taken`."""
        units, scored = self.units(cell), self.scored(cell)
        # Trained to the end elsewhere or here, or scored at every point.
        finished = self._look(cell)[2] | {seed for unit in units if unit.finished for seed in unit.seeds}
        finished |= {seed for seed in cell.seeds if all((seed, point) in scored for point in cell.points)}
        rest = [seed for seed in cell.seeds if seed not in finished]
        begun = [unit for unit in units if not unit.finished and {*unit.seeds} & {*rest} and not {*unit.seeds} & taken]
        busy = taken | {seed for unit in units for seed in unit.seeds}
        fresh = [seed for seed in rest if seed not in busy]
        return begun + ([self.unit(cell, fresh)] if fresh else [])

    def home(self, cell: Cell) -> Scores:
        """The scores of a cell's runs in the work folder, under their `run_key`."""
        return Scores(self.cell_folder(cell) / safe_name(f"scores {cell.manner}"))

    def scored(self, cell: Cell) -> set[tuple[int, int]]:
        """(seed, step) that this plan wants and that have a score, here or in the published scores."""
        published, here, _ = self._look(cell)
        return published | here

    def _look(self, cell: Cell) -> tuple[set[tuple[int, int]], set[tuple[int, int]], set[int]]:
        """(seed, step) scored in OUT, in the work folder, and seeds that OUT knows as trained."""
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
        if any(theirs.get(seed, {}).get("cell", cell.digest) != cell.digest for seed, _ in fresh):
            raise CtaError(f"{self.out.folder} has {cell.key.name} from other data: give another --out")
        facts, seeds = by_seed(mine.record), {seed for seed, _ in fresh}
        training = [{"seeds": [s], **known, "cell": cell.digest} for s, known in facts.items() if s in seeds]
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
        return [Pending(unit, p, seed) for p, unit in there for seed in unit.good(p) if (seed, p) not in scored]

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
        """Remove checkpoints that no cell of the plan wants, and with `weights` files of weights that are scored."""
        cells = [cell for cell in self.plan.cells if cell.folder == unit.cell.folder]
        kept = {point for cell in cells for point in cell.points}  # more episodes of results may be asked for later
        kept |= {item.step for cell in cells for item in self.pending(cell) if item.unit.path == unit.path}
        if unit.checkpoints():
            with contextlib.suppress(OSError):
                Checkpoints(unit.path / "checkpoints", keep=lambda steps: {*kept, steps[-1]}).prune()
        for cell in cells if weights else ():
            for seed, point in self.scored(cell):
                self.weights_file(cell, seed, point).unlink(missing_ok=True)

    def left(self, cell: Cell) -> list[str]:
        """What this cell still needs, in words."""
        parts = []
        for unit in self.to_train(cell):
            begun = f"{unit.name}: {unit.step:,} of {cell.steps:,} steps trained"
            parts.append(begun if unit.begun else f"{cell.name}: seeds {listed(unit.seeds)} to train")
        waiting: dict[tuple[int, str], list[int]] = defaultdict(list)
        for item in self.pending(cell):
            waiting[item.step, ""].append(item.seed)
        here = {seed for unit in self.units(cell) for seed in unit.seeds}
        for seed, point in product(sorted(self._look(cell)[2] - here), cell.points):
            if (seed, point) not in self.scored(cell):
                waiting[point, " from their weights (`cta evaluate`)"].append(seed)
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
