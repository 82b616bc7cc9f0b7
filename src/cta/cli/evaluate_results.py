"""`cta evaluate` into a results folder: files of weights, or a run's checkpoints with --results."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli import DONE
from cta.errors import CtaError
from cta.ranges import LARGEST
from cta.results.store import DEFAULT

DESCRIPTION = """\
Score policies by the paper's protocol into a results folder: files of weights that `cta reproduce` kept, or runs.

Every seed at every step becomes five rows of RESULTS/DATASET.AGENT.csv, with its record beside them. Policies trained
on data with pairs cut out (`cta ooc cut`) are asked for these pairs instead, into RESULTS/ooc. What is scored already
is skipped, so an interrupted command is simply given again. RESULTS is the folder whose weights/ the files lie in,
or what --results says. Files of weights stay where they are.

  cta evaluate mine/weights/*.safetensors                weights into mine, on any machine with the simulator
  cta evaluate mine/weights/*.safetensors --results all  the same into another folder
  cta evaluate RUN --step 800000 --results results       a checkpoint of a run
  cta evaluate mine/weights/*.safetensors --again        once more, in place of what is there
"""


@dataclass(frozen=True)
class Settings:
    """What to score and where to put it."""

    sources: Annotated[Positional[tuple[Path, ...]], arg(metavar="WEIGHTS|RUN…")]
    """Files of weights, or run directories."""
    results: Path | None = None
    """Results folder (default: the one in whose weights/ a file lies; for files elsewhere and runs: results)."""
    step: str = ""
    """Steps separated by commas (default: all of a file, the newest of a run)."""
    seeds: str = ""
    """Seeds separated by commas (default: all)."""
    episodes: Annotated[int, arg(aliases=["--eval-episodes"])] = 50
    """Episodes per task or pair."""
    workers: int | None = None
    """Processes that step the simulator (default: the number of cores)."""
    eval_seed: int = 0
    """Base seed of the episodes."""
    again: bool = False
    """Score again what is there already, and replace it."""


def wanted(argv: list[str]) -> bool:
    """Whether this command line of `cta evaluate` is for a results folder."""
    return any(word.endswith(".safetensors") or word.split("=")[0] == "--results" for word in argv)


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta evaluate", description=DESCRIPTION)
    if not settings.sources:
        raise CtaError("name at least one file of weights or run directory")
    for name, least in (("episodes", 1), ("workers", 1), ("eval_seed", 0)):
        value = getattr(settings, name)
        if value is not None and not least <= value <= LARGEST:
            raise CtaError(f"--{name.replace('_', '-')} must be from {least} to {LARGEST}, not {value}")
    # Policies are evaluated on the CPU; an accelerator's memory is left to whoever trains there.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # One thread for it: a few rows at a time gain nothing from more, and the cores belong to the simulators.
    os.environ.setdefault("PJRT_NPROC", "1")
    from rich.progress import Progress

    from cta.compilation import enable_cache
    from cta.results.candidates import Candidate, candidates
    from cta.results.scoring import score_into
    from cta.results.store import Results

    enable_cache()
    steps, seeds = numbers(settings.step, "--step"), numbers(settings.seeds, "--seeds")
    found: dict[Path, list[Candidate]] = {}
    for source in settings.sources:
        for item in candidates(source, steps, seeds):
            folder = settings.results or results_folder(source, held_out=item.held_out is not None)
            found.setdefault(folder, []).append(item)
    if not found:
        raise CtaError("none of these holds such a step and seed")
    options: dict[str, Any] = {"workers": settings.workers, "eval_seed": settings.eval_seed, "again": settings.again}
    said = []
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=None)

        def progress(label: str, done: int, total: int) -> None:
            bar.update(task, description=label, completed=done, total=total)

        for folder, items in found.items():
            counts = score_into(Results(folder), items, episodes=settings.episodes, **options, progress=progress)
            said.append((folder, *counts))
    console = Console(highlight=False, soft_wrap=True)
    for folder, scored, skipped in said:
        there = f", {skipped} were there already" if skipped else ""
        console.print(f"{scored} scored into {folder}{there}", markup=False)
    if any(item.precision != "float32" for items in found.values() for item in items):
        console.print("some weights were kept in 16 bits: the record says so")
    return DONE


def results_folder(source: Path, *, held_out: bool) -> Path:
    """The results folder that a file of weights lies in; for anything else the one of the current folder."""
    folder = source.expanduser().absolute().parent
    if source.suffix != ".safetensors" or folder.name != "weights":
        return DEFAULT
    # Scores of held-out pairs go into the `ooc` of a results folder by themselves.
    home = folder.parent
    return home.parent if held_out and home.name == "ooc" else home


def numbers(text: str, flag: str) -> list[int]:
    """Numbers separated by commas."""
    try:
        return sorted(int(number) for number in text.replace("_", "").split(",") if number)
    except ValueError as error:
        raise CtaError(f"{flag} {text}: give numbers separated by commas") from error
