"""A plan from beginning to end, for whichever command made it."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console as RichConsole

from cta.cpu_count import cpu_count
from cta.errors import CtaError
from cta.exit_codes import DONE, ERROR, INTERRUPTED, SEED_STOPPED
from cta.grid.console import Console
from cta.grid.dry_run import done, outlook
from cta.grid.engines import Engine, LocalEngine, RayEngine
from cta.grid.how import How
from cta.grid.plan import Plan
from cta.grid.rates import Budget, Rates, device_name
from cta.grid.runner import Runner
from cta.grid.workspace import DEFAULT, Workspace
from cta.io.file_lock import lock
from cta.io.files import check_writable, safe_stream
from cta.scores.protocol import unscored
from cta.scores.store import Scores


def run_plan(plan: Plan, how: How) -> int:
    """Make every cell, publish the scores in OUT, and say what there is; returns the exit code."""
    if how.workers is not None and how.workers < 1:
        raise CtaError(f"--workers is at least 1, not {how.workers}")
    folder = how.work or DEFAULT
    space = Workspace(plan.check(), folder, how.out, dataset_dir=how.dataset_dir)
    rates = Rates.of([*Scores().cells(), *space.out.cells()], device_name(), plan.rates)
    cores = how.workers or cpu_count()
    budget = Budget(how.seconds)
    screen = RichConsole(file=safe_stream(sys.stdout), highlight=False, soft_wrap=True)
    if how.dry_run:
        screen.print(outlook(space, rates, budget, cores), markup=False)
        return DONE
    check_writable(space.out.folder)
    with work_lock(folder) as held, Console() as console:
        engine: Engine = LocalEngine(cores, held)
        if how.engine == "ray":
            engine = RayEngine(gpus_per_unit=how.gpus_per_unit, cores=how.workers)
        runner = Runner(space, rates, budget, how, engine, console)
        runner.run()
    return _summary(screen, runner)


def _summary(screen: RichConsole, runner: Runner) -> int:
    """What is there now, what was left, what failed and why; the exit code."""
    space = runner.space
    for cell in space.plan.cells:
        if space.out.cell(cell.key).rows:
            missing = "; ".join(unscored(cell.seeds, cell.points, space.scored(cell)))
            screen.print(f"{cell.name}: {f'missing {missing}' if missing else 'complete by this plan'}", markup=False)
    left = [part for cell in space.plan.cells for part in space.left(cell)]
    lost = [part for cell in space.plan.cells for part in space.lost(cell)]
    screen.print(f"results: {space.out.folder}")
    failed = sorted(f"{what}: {reason}" for what, reason in runner.failed.items())
    for title, parts in (("left, for the next start:", left), ("not to be had:", lost), ("failed:", failed)):
        for line in (title, *(f"  {part}" for part in parts)) if parts else ():
            screen.print(line, markup=False)
    if not left and not lost and not failed:
        screen.print(done(space), markup=False)
    if files := space.weights_to_score():
        size = sum(file.stat().st_size for file in files if file.exists()) / 2**20
        screen.print(f"weights to score elsewhere: {len(files)} files, {size:.0f} MiB in {space.out.folder}")
    if runner.stop:
        return INTERRUPTED
    if failed or (left and not runner.how.packs):
        return ERROR
    return SEED_STOPPED if lost else DONE


@contextmanager
def work_lock(folder: Path, *, patience: float = 60.0) -> Iterator[int]:
    """The lock of the work folder. Processes of a killed runner hold it until they have gone, so wait a little."""
    with ExitStack() as opened:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
            opened.callback(os.close, file)
            ours = lock(file, waiting=f"waiting for another process in {folder} to end", patience=patience)
        except OSError as error:
            raise CtaError(f"{folder}: cannot work here ({error.strerror})") from error
        if not ours:
            raise CtaError(f"another plan is carried out in {folder}: wait for it, or give --work")
        yield file
