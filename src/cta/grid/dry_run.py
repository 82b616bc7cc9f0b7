"""What a plan comes to, before anything is started: cells, runs, hours of devices and cores, and on which rates."""

from collections.abc import Sequence
from dataclasses import dataclass

from cta.grid.cells import Cell
from cta.grid.console import clock
from cta.grid.rates import Budget, Rates, Speed
from cta.grid.units import Unit
from cta.grid.workspace import Workspace
from cta.scores.protocol import short_list

MOST_LINES = 60


@dataclass(frozen=True)
class Need:
    """What is left to do of a cell; `train_s` is None where nothing is known of the agent's speed."""

    cell: Cell
    units: list[Unit]
    train_s: float | None
    speed: Speed | None
    data_core_s: float
    score_core_s: float


def needs(space: Workspace, rates: Rates) -> list[Need]:
    """Cell by cell; data that several need are made once, and so is a training that is asked twice."""
    found, files, begun = [], set[str](), dict[str, set[int]]()
    for cell in space.plan.cells:
        taken = begun.setdefault(cell.folder, set())
        units = space.to_train(cell, taken)
        taken.update(seed for unit in units for seed in unit.seeds)
        source = str(space.source_file(cell))
        rows = 0 if source in files or not units else space.rows_to_generate(cell)
        files |= {source} if units else set()
        wanted = {(seed, step) for seed in cell.seeds for step in cell.all_points} - space.scored(cell)
        episodes = sum(cell.episodes_at(step) * len(cell.tasks) for _, step in wanted)
        agent, dataset = cell.agent, cell.dataset_name
        took = [rates.train_seconds(agent, dataset, len(unit.seeds), unit.left, anywhere=True) for unit in units]
        known = [seconds for seconds in took if seconds is not None]
        seconds = sum(known) if len(known) == len(took) else None
        speed = rates.speed(agent, dataset, max((len(unit.seeds) for unit in units), default=1), anywhere=True)
        data_s, score_s = rates.generate_seconds(rows, 1), rates.score_seconds(episodes, 1)
        found.append(Need(cell, units, seconds, speed, data_s, score_s))
    return found


def outlook(space: Workspace, rates: Rates, budget: Budget, cores: int) -> str:
    """A line for each cell, and the sum."""
    found = needs(space, rates)
    time = "no budget" if budget.seconds is None else f"budget {clock(budget.seconds)}"
    lines = [f"device {rates.device}, {cores} cores, {time}", *_cell_lines(found, budget, rates.device)]
    left = [need for need in found if need.units]
    runs = sum(len(need.units) for need in left)
    seeds = sum(len(unit.seeds) for need in left for unit in need.units)
    known = [need.train_s for need in left if need.train_s is not None]
    unknown = [need for need in left if need.train_s is None]
    lines.append(f"{len(found)} cells; to train: {seeds} seeds in {runs} runs of {len(left)} cells")
    agents = ", ".join(dict.fromkeys(need.cell.agent for need in unknown))
    rest = f", and {len(unknown)} cells at an unknown speed ({agents})" if unknown else ""
    lines.append(f"{_hours(sum(known))} device-hours of training{rest}")
    speeds = [need.speed for need in left if need.speed is not None]
    if foreign := sorted({speed.device for speed in speeds if speed.device != rates.device}):
        here = f"this machine ({rates.device}) is not measured"
        lines.append(f"these device-hours are those of {', '.join(foreign)}; {here}")
    if unknown and known:
        slowest = min(speed.rate for speed in speeds)
        guess = sum(len(unit.seeds) * unit.left / slowest for need in unknown for unit in need.units)
        lines.append(f"about {_hours(sum(known) + guess)} if those are as slow as the slowest known")
    data, score = (sum(getattr(need, name) for need in found) for name in ("data_core_s", "score_core_s"))
    lines.append(f"{_hours(data + score)} core-hours: {_hours(data)} to generate data, {_hours(score)} to score")
    if not left and not any(space.left(cell) for cell in space.plan.cells):
        lines.append(done(space))
    lines += sorted({f"rate of {need.cell.agent}: {need.speed}" for need in left if need.speed})
    source = "recorded" if rates.episodes_per_core else "assumed"
    return "\n".join(
        [*lines, f"rate of scoring: {1 / rates.score_seconds(1, 1):.2f} episodes per second and core, {source}"]
    )


def _cell_lines(found: Sequence[Need], budget: Budget, device: str) -> list[str]:
    lines, end = [], 0.0
    for need in found:
        work = ""
        if need.units:
            end += need.train_s or 0.0
            time = "unknown" if need.train_s is None else clock(need.train_s)
            where = f" on {need.speed.device}" if need.speed and need.speed.device != device else ""
            late = ", not in this budget" if end > budget.left else ""
            seeds = "; ".join(short_list(unit.seeds) for unit in need.units)
            work = f"seeds {seeds}, {time} of training{where}{late}, "
        if work or need.score_core_s:
            lines.append(f"  {need.cell.name}: {work}{_hours(need.score_core_s)} core-hours of scoring")
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"  … and {len(lines) - MOST_LINES} more"]
    return lines


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def done(space: Workspace) -> str:
    """Of a plan with nothing left to do, in a line."""
    return f"the plan is done: {space.out.folder} has all of it"
