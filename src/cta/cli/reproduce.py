"""cta reproduce"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.alone import lock
from cta.cli import DONE, ERROR, INTERRUPTED
from cta.errors import CtaError
from cta.streams import listener

DESCRIPTION = """\
Carry out a plan: generate the data, train every seed, score it, and write results as they come.

The accelerator trains while the cores generate the next dataset and score checkpoints. Everything is kept in files: a
second start, after a signal, a crash or a spent budget, continues with the rest. With --budget it begins only what is
expected to end in time, with fewer seeds of a cell if all do not fit and never with fewer steps, and says what it left.

  cta reproduce plans/paper-core.toml --out mine                   all of it, in a results folder of your own
  cta reproduce plans/paper-core.toml --dry-run --budget 28m       what would be done when, and on which estimates
  cta reproduce plans/paper-core.toml --budget 28m                 in a slot; every checkpoint of a result is kept as
                                                                   weights for `cta evaluate` until it is scored
  cta reproduce plans/paper-core.toml --evaluate later --weights float16
  cta reproduce plans/paper-core.toml --agents cta --work runs/cta       one of two machines, or of two processes

exit codes: 0 done or budget spent, 1 error, 2 wrong usage, 3 interrupted and resumable
"""


@dataclass(frozen=True)
class Settings:
    """How to carry it out."""

    plan: Annotated[Positional[Path], arg(metavar="PLAN")]
    """TOML file: datasets, agents, seeds, steps, evaluation points, episodes."""
    datasets: str = ""
    """Only these of the plan's datasets, with commas between them (default: all)."""
    agents: str = ""
    """Only these of the plan's agents, with commas between them (default: all). So machines can share a plan."""
    budget: str = ""
    """Wall-clock time, such as 28m, 1h30m or 90s (default: as long as it takes)."""
    out: Path = Path("results")
    """Results folder: what is there is not done again."""
    work: Path | None = None
    """Folder of runs and logs (default: runs/reproduce/PLAN)."""
    dataset_dir: str | None = None
    """Folder of full-size datasets (default: OGBench's)."""
    evaluate: Literal["here", "later"] = "here"
    """Score beside training, or only keep inference weights (in OUT/weights) for `cta evaluate`."""
    weights: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of kept weights; 16 bits halve the files and round every weight, and the record says so."""
    workers: int | None = None
    """Processes for generation and for scoring (default: the number of cores)."""
    partial: bool = False
    """Also begin what does not fit the budget; the next start with the same --work continues it."""
    retrain: bool = False
    """Train again what the records know as trained but nobody has scored."""
    rehearse: Literal["auto", "always", "never"] = "auto"
    """Compile and measure on random rows while the data are made; auto: on an accelerator."""
    reserve: str = ""
    """Part of the budget kept for ending: checkpoint, weights (default: 30s, at most a tenth of the budget)."""
    dry_run: bool = False
    """Print the schedule and stop."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta reproduce", description=DESCRIPTION)
    from cta.cores import usable_cores
    from cta.reproduce.board import Board
    from cta.reproduce.crew import Options
    from cta.reproduce.driver import Driver
    from cta.reproduce.outlook import outlook
    from cta.reproduce.plan import read_plan
    from cta.reproduce.rates import Rates, device_name
    from cta.reproduce.work import Workspace
    from cta.results.store import Results

    plan = read_plan(settings.plan).only(datasets=_words(settings.datasets), agents=_words(settings.agents))
    budget = seconds(settings.budget, "--budget") if settings.budget else None
    reserve = seconds(settings.reserve, "--reserve") if settings.reserve else min(30.0, (budget or 0) / 10)
    if settings.workers is not None and settings.workers < 1:
        raise CtaError(f"--workers is at least 1, not {settings.workers}")
    results = Results(settings.out)
    folder = settings.work or Path("runs") / "reproduce" / plan.name
    space = Workspace(plan, folder, results, dataset_dir=settings.dataset_dir, retrain=settings.retrain)
    device = device_name()
    rates = Rates.of(results, device, plan.rates)
    cores = settings.workers or usable_cores()
    later = settings.evaluate == "later"
    rehearse = settings.rehearse == "always" or (settings.rehearse == "auto" and device != "cpu")
    options = Options(budget, reserve, cores, later, settings.weights, settings.partial, rehearse)
    console = Console(file=listener(sys.stdout), highlight=False, soft_wrap=True)
    board = Board()
    driver = Driver(space, rates, options, board)
    if settings.dry_run:
        console.print(outlook(driver, device=device), markup=False)
        return DONE
    with _alone(folder) as held, board:
        driver.run(held)
    _summary(console, driver)
    if driver.stopped:
        return INTERRUPTED
    return ERROR if driver.failed else DONE


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _summary(console: Console, driver) -> None:
    """What is there now, and what was left."""
    from cta.reproduce.outlook import done

    space = driver.space
    for cell in space.plan.cells:
        known = space.store(cell).cell(cell.dataset, cell.agent)
        if known.rows:
            console.print(f"{cell.name}: {space.missing(cell) or _whole(known)}", markup=False)
    left = [part for cell in space.plan.cells for part in space.left(cell)]
    console.print(f"results: {space.results.folder}")
    if left:
        console.print("left, for the next start:")
        for part in left:
            console.print(f"  {part}", markup=False)
    else:
        console.print(done(space), markup=False)
    files = space.weights_to_score()
    if files:
        size = sum(file.stat().st_size for file in files if file.exists()) / 2**20
        console.print(f"weights to score elsewhere: {len(files)} files, {size:.0f} MiB in {space.results.folder}")


def _whole(known) -> str:
    """Of a cell that has all the plan asks for; the plan may ask for less than the paper's protocol."""
    from cta.results.paper import in_paper

    if known.complete or not in_paper(known.dataset, known.agent, held_out=known.held_out):
        return "complete"
    return f"complete by this plan; by the paper's protocol {known.missing()}"


def seconds(text: str, flag: str) -> float:
    """28m → 1680; 1h30m, 90s and plain seconds too."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not text.strip() or match is None:
        raise CtaError(f"{flag} {text}: give a time such as 28m, 1h30m or 90s")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = 3600 * hours + 60 * minutes + rest
    if total <= 0:
        raise CtaError(f"{flag} {text}: no time at all")
    return total


@contextmanager
def _alone(folder: Path, *, patience: float = 60.0) -> Iterator[int]:
    """The lock of the work folder. Processes of a killed driver hold it until they have gone, so wait a little."""
    with ExitStack() as opened:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
            opened.callback(os.close, file)
            ours = lock(file, waiting=f"waiting for another process in {folder} to end", patience=patience)
        except OSError as error:
            raise CtaError(f"{folder}: cannot work here ({error.strerror})") from error
        if not ours:
            raise CtaError(f"another `cta reproduce` works in {folder}: wait for it, or give --work")
        yield file
