"""What a plan comes to, before anything is started: cells, runs, hours of devices and cores, and on which rates."""

from dataclasses import dataclass
from itertools import accumulate

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

    def line(self, device: str, *, late: bool) -> str:
        """Empty if nothing is left."""
        score = f"{_hours(self.score_core_s)} core-hours of scoring"
        if not self.units:
            return f"  {self.cell.name}: {score}" if self.score_core_s else ""
        time = "an unknown time" if self.train_s is None else clock(self.train_s)
        where = f" on {self.speed.device}" if self.speed and self.speed.device != device else ""
        seeds = "; ".join(short_list(unit.seeds) for unit in self.units)
        budget = ", not in this budget" if late else ""
        return f"  {self.cell.name}: seeds {seeds}, {time} of training{where}{budget}, {score}"


def needs(space: Workspace, rates: Rates) -> list[Need]:
    """Cell by cell; data that several need are made once, and so is a training that is asked twice."""
    found, files, begun = [], set[str](), dict[str, set[int]]()
    for cell in space.plan.cells:
        taken, agent, dataset = begun.setdefault(cell.folder, set()), cell.agent, cell.dataset_name
        units = space.to_train(cell, taken)
        taken.update(seed for unit in units for seed in unit.seeds)
        source = str(space.source_file(cell))
        rows = 0 if source in files or not units else space.rows_to_generate(cell)
        files |= {source} if units else set()
        wanted = {(seed, step) for seed in cell.seeds for step in cell.all_points} - space.scored(cell)
        episodes = sum(cell.episodes_at(step) * len(cell.tasks) for _, step in wanted)
        took = [rates.train_seconds(agent, dataset, len(unit.seeds), unit.left) for unit in units]
        known = [seconds for seconds in took if seconds is not None]
        speed = rates.speed(agent, dataset, max((len(unit.seeds) for unit in units), default=1))
        work = rates.generate_seconds(rows, 1), rates.score_seconds(episodes, 1)
        found.append(Need(cell, units, sum(known) if len(known) == len(took) else None, speed, *work))
    return found


def outlook(space: Workspace, rates: Rates, budget: Budget, cores: int) -> str:
    """A line for each cell, and the sum."""
    found = needs(space, rates)
    ends = accumulate((need.train_s or 0.0) * bool(need.units) for need in found)
    cells = [need.line(rates.device, late=end > budget.left) for need, end in zip(found, ends, strict=True)]
    cells = [*filter(None, cells)]
    if len(cells) > MOST_LINES:
        cells[MOST_LINES:] = [f"  … and {len(cells) - MOST_LINES} more"]
    time = "no budget" if budget.seconds is None else f"budget {clock(budget.seconds)}"
    lines = [f"device {rates.device}, {cores} cores, {time}", *cells]
    left = [need for need in found if need.units]
    units = [unit for need in left for unit in need.units]
    seeds = sum(len(unit.seeds) for unit in units)
    lines.append(f"{len(found)} cells; to train: {seeds} seeds in {len(units)} runs of {len(left)} cells")
    trained = sum(need.train_s or 0.0 for need in left)
    unknown = [need for need in left if need.train_s is None]
    agents = ", ".join(dict.fromkeys(need.cell.agent for need in unknown))
    rest = f", and {len(unknown)} cells at an unknown speed ({agents})" if unknown else ""
    lines.append(f"{_hours(trained)} device-hours of training{rest}")
    speeds = [need.speed for need in left if need.speed is not None]
    if foreign := sorted({speed.device for speed in speeds if speed.device != rates.device}):
        here = f"this machine ({rates.device}) is not measured"
        lines.append(f"these device-hours are those of {', '.join(foreign)}; {here}")
    if unknown and speeds:
        slowest = min(speed.rate for speed in speeds)
        guess = sum(len(unit.seeds) * unit.left / slowest for need in unknown for unit in need.units)
        lines.append(f"about {_hours(trained + guess)} if those are as slow as the slowest known")
    data, score = sum(need.data_core_s for need in found), sum(need.score_core_s for need in found)
    lines.append(f"{_hours(data + score)} core-hours: {_hours(data)} to generate data, {_hours(score)} to score")
    if not left and not any(space.left(cell) for cell in space.plan.cells):
        lines.append(done(space))
    lines += sorted({f"rate of {need.cell.agent}: {need.speed}" for need in left if need.speed})
    speed = f"{1 / rates.score_seconds(1, 1):.2f} episodes per second and core"
    lines.append(f"rate of scoring: {speed}, {rates.score_source}")
    return "\n".join(lines)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def done(space: Workspace) -> str:
    """Of a plan with nothing left to do, in a line."""
    return f"the plan is done: {space.out.folder} has all of it"
