"""Collect and list score files, keep the weights of runs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cta.envs.names import DESK_DATASETS, KNOWN
from cta.errors import CtaError
from cta.io.files import write_whole
from cta.io.text_tables import print_table
from cta.scores.paper import CellScores, short_list, short_steps
from cta.scores.schema import HELD_OUT, PAIRS, TASKS, TRAINED_ON
from cta.scores.statistics import summarise
from cta.scores.store import DEFAULT, Scores
from cta.scores.tables import NOTHING


@dataclass(frozen=True)
class Add:
    """Add the scores of other folders: results that a machine brought back, runs, or studies of earlier versions.

    What is there already stays; the same seed and step with another result is refused, or with --replace takes its
    place. Of a run: eval.csv and ooc.csv. Event logs of held-out pairs come along.

      cta results add slot1/results runs/scene-play-v0/cta-20260101-120000
    """

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR…")]
    """Folders with score files, or run directories."""
    to: Annotated[Path, arg(metavar="DIR")] = DEFAULT
    """The folder to add to."""
    replace: bool = False
    """Let the new results win."""

    def __call__(self) -> None:
        target = Scores(self.to)
        found = {folder: _cells(folder) for folder in self.folders}
        for folder, cells in found.items():
            if not cells:
                raise CtaError(f"{folder}: no results in it")
            for cell in cells:
                target.add(cell.key, cell.record, cell.rows, replace=self.replace)
                self._add_logs(target, cell, folder)
                for part in target.cell(cell.key).parts():
                    print(f"{part.key.name}: {_state(part)}")
        for notice in target.notices():
            print(f"notice: {notice}")

    def _add_logs(self, target: Scores, cell: CellScores, folder: Path) -> None:
        """Of a results folder, of one of an earlier version, or of a run."""
        for seed, step in sorted({(row.seed, row.step) for row in cell.rows if row.asked == PAIRS}):
            there = target.events_file(cell.key, seed, step)
            own = folder / "ooc" / f"step_{step}" / f"seed_{seed}.jsonl.gz"
            for file in (folder / "events" / there.name, folder / "ooc" / "events" / there.name, own):
                if file.is_file() and (self.replace or not there.exists()):
                    write_whole(there, file.read_bytes())


@dataclass(frozen=True)
class List:
    """Show the cells of a results folder or run directory and what is missing of each."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")] = DEFAULT
    """The results folder or run directory."""

    def __call__(self) -> None:
        rows = [("dataset", "agent", "success, %", "seeds", "steps", "state")]
        for part in (part for cell in _cells(self.folder) for part in cell.parts()):
            key, steps = part.key, [short_steps(step) for step in sorted({row.step for row in part.rows})]
            steps = steps if len(steps) < 5 else [*steps[:2], f"… {steps[-1]}"]
            usual = PAIRS if key.condition == HELD_OUT else TASKS
            pairs = "" if part.asked in (TASKS, usual) else f", asked for {part.asked}"
            agent = key.agent + (f" ({key.settings})" if key.settings else "")
            success = str(summarise(part.counted())) if part.rows else "–"
            known = success, short_list(part.seeds) or "–", ", ".join(steps) or "–", _state(part)
            rows.append((key.dataset + TRAINED_ON[key.condition] + pairs, agent, *known))
        print_table(rows) if len(rows) > 1 else print(NOTHING, end="")


def _cells(folder: Path) -> list[CellScores]:
    """The cells of a results folder, of a study's folder, or the one of a run directory."""
    if not (folder / "config.json").is_file():
        return Scores(folder).existing().cells()
    from cta.experiment import Run
    from cta.experiment.candidates import run_cell

    return [run_cell(Run(folder))]


def _state(part: CellScores) -> str:
    if part.key.dataset not in KNOWN or part.key.dataset in DESK_DATASETS:  # the paper's protocol is not theirs
        return f"{len(part.seeds)} seed{'s' * (len(part.seeds) != 1)}"
    missing = part.missing()
    return part.state() + (f"; missing {missing}" if missing else "")


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Keep what acting needs of a run's checkpoints, in files that `cta evaluate` scores on any machine.

    One file per seed and step, in RESULTS/weights. 16 bits halve it and round every weight; records of scores say so.

      cta results pack RUN --step 800000,900000,1000000 --weights float16
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run directory."""
    step: str
    """Steps separated by commas."""
    weights: Literal["float32", "float16", "bfloat16"] = "float32"
    """Their precision."""
    results: Annotated[Path, arg(metavar="DIR")] = DEFAULT
    """Results folder; seeds scored there with enough episodes are left out."""
    episodes: int = 50
    """How many are enough."""

    def __call__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from cta.experiment import Run
        from cta.experiment.candidates import numbers, pack_run

        steps = numbers(self.step, "--step")
        if not steps:
            raise CtaError("--step: name at least one step, such as 1000000")
        options = {"scores": Scores(self.results), "episodes": self.episodes, "precision": self.weights}
        sizes = [file.stat().st_size / 2**20 for file in pack_run(Run(self.run), steps, **options)]
        largest = max(sizes, default=0)
        print(f"{len(sizes)} files of weights, {sum(sizes):.1f} MiB, the largest {largest:.1f} in {self.results}")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Keep one policy in a small file that `cta evaluate` and `cta.load_policy` open without its run.

    FILE.json beside it says where it comes from, and its scores: in the results folder, and in the folder FILE, where
    `cta evaluate FILE.safetensors` scores it. So, for what rounding costs:

      cta results keep RUN --seed 2 --step 1000000 --out pretrained/puzzle-4x4-cta.safetensors
      cta evaluate pretrained/puzzle-4x4-cta.safetensors
      cta results keep pretrained/puzzle-4x4-cta.safetensors --out pretrained/puzzle-4x4-cta.safetensors
    """

    source: Annotated[Positional[Path], arg(metavar="RUN|WEIGHTS")]
    """A run directory, or a file of weights."""
    out: Annotated[Path, arg(metavar="FILE")]
    """The file, whose name ends in .safetensors."""
    seed: int | None = None
    """Seed of a run with several (default: the first that has not diverged)."""
    step: int | None = None
    """Checkpoint (default: the newest)."""
    weights: Literal["float32", "float16", "bfloat16"] = "float16"
    """Their precision."""
    results: Annotated[Path, arg(metavar="DIR")] = DEFAULT
    """Results folder with the policy's scores."""

    def __call__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from cta.experiment.candidates import candidates, keep

        if self.out.suffix != ".safetensors":
            raise CtaError(f"--out {self.out}: its name must end in .safetensors")
        chosen = "" if self.step is None else str(self.step), [] if self.seed is None else [self.seed]
        if (item := next(candidates(self.source, *chosen), None)) is None:
            raise CtaError(f"{self.source}: it holds no policy of such a seed and step")
        keep(item, self.out, self.weights, [self.results, self.out.with_suffix("")])
        print(f"{self.out}: {item.label}, {self.out.stat().st_size / 2**20:.1f} MiB in {self.weights}")


COMMANDS = {"add": Add, "list": List, "pack": Pack, "keep": Keep}
