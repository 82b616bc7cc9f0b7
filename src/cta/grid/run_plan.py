"""A plan from beginning to end, for whichever command made it: what it comes to, all of it, and what there is then."""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

from rich.console import Console as RichConsole

from cta.cpu_count import cpu_count
from cta.errors import CtaError
from cta.exit_codes import DONE, ERROR, INTERRUPTED, SEED_STOPPED
from cta.grid import How
from cta.grid.cells import Unit
from cta.grid.plan import Plan
from cta.grid.processes import LocalEngine, RayEngine
from cta.grid.rates import Budget, Rates, Speed, device_name
from cta.grid.runner import Runner
from cta.grid.workspace import DEFAULT, NOTHING_LEFT, Workspace
from cta.io.files import check_writable, lock, safe_stream
from cta.io.text_tables import clock
from cta.scores.paper import short_list, unscored
from cta.scores.store import Scores

MOST_LINES = 60


def run_plan(plan: Plan, how: How) -> int:
    """Make every cell, publish the scores in OUT, and say what there is; returns the exit code."""
    if how.workers is not None and how.workers < 1:
        raise CtaError(f"--workers is at least 1, not {how.workers}")
    folder = how.work or DEFAULT
    space = Workspace(plan.check(), folder, how.out, dataset_dir=how.dataset_dir)
    rates = Rates.of([*Scores().cells(), *space.out.cells()], device_name(), plan.rates)
    cores = how.workers or cpu_count()
    budget = Budget(seconds(how.budget, "--budget") if how.budget else None)
    screen = RichConsole(file=safe_stream(sys.stdout), highlight=False, soft_wrap=True)
    if how.dry_run:
        screen.print(dry_run(space, rates, budget, cores), markup=False)
        return DONE
    check_writable(space.out.folder)
    with work_lock(folder) as held:
        ray = how.engine == "ray"
        engine = RayEngine(how.gpus_per_unit, how.workers) if ray else LocalEngine(cores, held)
        runner = Runner(space, rates, budget, how, engine)
        runner.run()
    return _summary(screen, runner)


def dry_run(space: Workspace, rates: Rates, budget: Budget, cores: int) -> str:
    """A line for each cell, the sum, and on which rates. Data and trainings that several cells need count once."""
    cells: list[str] = []
    units, unknown = list[Unit](), list[Unit]()
    speeds: dict[str, Speed] = {}
    scoring_rates: set[str] = set()
    trained = scored = 0.0
    begun = defaultdict[str, set[int]](set)
    for cell in space.plan.cells:
        mine = space.to_train(cell, begun[cell.folder])
        begun[cell.folder].update(seed for unit in mine for seed in unit.seeds)
        wanted = set(product(cell.seeds, cell.all_points)) - space.scored(cell)
        episodes = sum(cell.episodes_at(step) * len(cell.tasks) for _, step in wanted)
        per_s, source = rates.score_rate(cell.dataset_name)
        scored += episodes / per_s
        scoring = f"{_hours(episodes / per_s)} core-hours of scoring"
        if episodes:
            scoring_rates.add(f"rate of scoring: {per_s:.2f} episodes per second and core, {source}")
        if not mine:
            cells += [f"  {cell.name}: {scoring}"] if episodes else []
            continue
        units += mine
        speed = rates.speed(cell.agent, cell.dataset_name, max(len(unit.seeds) for unit in mine))
        if speed is None:
            unknown += mine
            took = "an unknown time"
        else:
            speeds[f"rate of {cell.agent}: {speed}"] = speed
            times = [rates.train_seconds(cell.agent, cell.dataset_name, len(unit.seeds), unit.left) for unit in mine]
            trained += sum(filter(None, times))
            took = clock(sum(filter(None, times)))
        where = f" on {speed.device}" if speed and speed.device != rates.device else ""
        late = ", not in this budget" if trained > budget.left else ""
        seeds = "; ".join(short_list(unit.seeds) for unit in mine)
        cells.append(f"  {cell.name}: seeds {seeds}, {took} of training{where}{late}, {scoring}")
    if len(cells) > MOST_LINES:
        cells[MOST_LINES:] = [f"  … and {len(cells) - MOST_LINES} more"]
    time = "no budget" if budget.seconds is None else f"budget {clock(budget.seconds)}"
    lines = [f"device {rates.device}, {cores} cores, {time}", *cells]
    to_generate = {space.source_file(unit.cell): (unit.cell, space.rows_to_generate(unit.cell)) for unit in units}
    data = sum(rates.generate_seconds(cell.dataset_name, rows, 1) for cell, rows in to_generate.values())
    seeds, count = sum(len(unit.seeds) for unit in units), len({unit.cell for unit in units})
    lines.append(f"{len(space.plan.cells)} cells; to train: {seeds} seeds in {len(units)} runs of {count} cells")
    slow = ", ".join(dict.fromkeys(unit.cell.agent for unit in unknown))
    rest = f", and {len({unit.cell for unit in unknown})} cells at an unknown speed ({slow})" if unknown else ""
    lines.append(f"{_hours(trained)} device-hours of training{rest}")
    if foreign := sorted({speed.device for speed in speeds.values()} - {rates.device}):
        here = f"this machine ({rates.device}) is not measured"
        lines.append(f"these device-hours are those of {', '.join(foreign)}; {here}")
    if unknown and speeds:
        guess = sum(len(unit.seeds) * unit.left for unit in unknown) / min(speed.rate for speed in speeds.values())
        lines.append(f"about {_hours(trained + guess)} if those are as slow as the slowest known")
    lines.append(f"{_hours(data + scored)} core-hours: {_hours(data)} to generate data, {_hours(scored)} to score")
    if not units and not any(space.left(cell) for cell in space.plan.cells):
        lines.append(NOTHING_LEFT.format(space.out.folder))
    return "\n".join([*lines, *sorted(speeds), *sorted(scoring_rates)])


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def _summary(screen: RichConsole, runner: Runner) -> int:
    """What is there now, what was left, what failed and why; the exit code."""
    space = runner.space
    for cell in space.plan.cells:
        if space.out.cell(cell.key).rows:
            missing = "; ".join(unscored(cell.seeds, cell.points, space.scored(cell)))
            screen.print(f"{cell.name}: {f'missing {missing}' if missing else 'complete by this plan'}", markup=False)
    left, lost = ([part for cell in space.plan.cells for part in parts(cell)] for parts in (space.left, space.lost))
    screen.print(f"results: {space.out.folder}")
    failed = sorted(f"{what}: {reason}" for what, reason in runner.failed.items())
    for title, parts in (("left, for the next start:", left), ("not to be had:", lost), ("failed:", failed)):
        for line in (title, *(f"  {part}" for part in parts)) if parts else ():
            screen.print(line, markup=False)
    if not left and not lost and not failed:
        screen.print(NOTHING_LEFT.format(space.out.folder), markup=False)
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
