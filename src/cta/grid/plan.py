"""A plan: which agents on which datasets, how many seeds and steps, scored when. A small TOML file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cta.agents import find_stored
from cta.config import AgentConfig, RunConfig, from_dict
from cta.envs.lights import board_of
from cta.envs.names import KNOWN, known_spec
from cta.errors import CtaError
from cta.grid.cells import Cell, DataSize, own_pairs
from cta.io.files import read_toml
from cta.plugins import is_code
from cta.presets import run_preset
from cta.scores.paper import EPISODES, points_of
from cta.scores.schema import WHOLE
from cta.validation import LARGEST, Bounds, Count, NotNegative, Seeds, check_bounds

MOST_SEEDS = 1000
SLOWEST = 1e-6  # a rate per second below this, or above its inverse, is a mistake
Steps = Annotated[
    tuple[int, ...], Bounds(f"be steps from 1 to {LARGEST}", lambda steps: all(0 < step <= LARGEST for step in steps))
]


@dataclass(frozen=True)
class Wanted:
    """What may stand in a cell of the file, and but for datasets and agents also at the top, for all cells."""

    agents: tuple[str, ...]
    datasets: tuple[str, ...]
    seeds: Seeds = (0, 1, 2, 3)  # a count, or a list
    steps: Count | None = None
    eval_points: Steps = ()
    episodes: Count = EPISODES
    curve_points: Steps = ()
    curve_episodes: Count = 10
    temperature: NotNegative = 0.0
    size: Literal["paper", "small"] = "paper"
    data: DataSize = field(default_factory=DataSize)
    condition: Literal["whole", "held-out", "random"] = WHOLE
    ask: Literal["tasks", "pairs", "presses"] | None = None


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which they are wanted, and speeds for machines without a record."""

    name: str
    cells: tuple[Cell, ...]
    rates: Mapping[str, float] = field(default_factory=dict)

    def only(self, *, datasets: Sequence[str] = (), agents: Sequence[str] = ()) -> "Plan":
        """The part with these datasets and agents; none named means all."""
        cells = self.cells
        for name, wanted in (("dataset", datasets), ("agent", agents)):
            known = {getattr(cell, name) for cell in self.cells}
            if unknown := sorted(set(wanted) - known):
                raise CtaError(f"--{name}s {', '.join(unknown)}: not in the plan, which has {', '.join(sorted(known))}")
            cells = [cell for cell in cells if not wanted or getattr(cell, name) in wanted]
        if not cells:
            raise CtaError(f"the plan has no cell of {', '.join(datasets)} with {', '.join(agents)}")
        return replace(self, cells=tuple(cells))

    def check(self) -> "Plan":
        """Itself; an error in one line if a cell is there twice, or has settings that its agent has not."""
        names: set[str] = set()
        for cell in self.cells:
            if cell.name in names:
                raise CtaError(f"{self.name}: {cell.name} is there twice")
            names.add(cell.name)
            _ = cell.key
            if cell.dataset_name not in KNOWN:
                world = "belongs to no known environment, in which its agents could be scored"
                raise CtaError(f"{self.name}: {cell.dataset_name} {world}: `cta train` and `cta evaluate --env` can")
        return self


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan; whatever is wrong is said in one line that names the place."""
    path = Path(path)
    values = read_toml(path)
    tables, rates = values.pop("cells", None), values.pop("rates", {})
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise CtaError(f"{path}: no [[cells]]; a cell has a dataset and agents")
    numbers: Iterable[Any] = rates.values() if isinstance(rates, dict) else [None]
    if not all(type(rate) in (int, float) and SLOWEST <= rate <= 1 / SLOWEST for rate in numbers):
        raise CtaError(f"{path}: rates is a table of positive numbers")
    parts = [_cells({**values, **table}, f"{path}: cells {number}") for number, table in enumerate(tables, 1)]
    return Plan(path.stem, tuple(cell for part in parts for cell in part), rates).check()


def _cells(table: dict[str, Any], where: str) -> list[Cell]:
    settings = _settings(table.pop("settings", {}), where)
    if "dataset" in table:
        table["datasets"] = [table.pop("dataset")]
    if not table.get("datasets") or not table.get("agents"):
        raise CtaError(f"{where}: a cell has a dataset (or datasets) and agents, such as ['cta', 'hiql-analogy']")
    if type(seeds := table.get("seeds")) is int:
        table["seeds"] = list(range(min(seeds, MOST_SEEDS + 1)))
    wanted = from_dict(Wanted, table, where)
    check_bounds(wanted, f"{where}: ")
    if len(wanted.seeds) > MOST_SEEDS:
        raise CtaError(f"{where}: at most {MOST_SEEDS} seeds")
    try:
        return [_cell(wanted, dataset, agent, settings) for dataset in wanted.datasets for agent in wanted.agents]
    except CtaError as error:
        raise CtaError(f"{where}: {error}") from None


def _cell(wanted: Wanted, dataset: str, agent: str, settings: tuple[tuple[str, Any], ...]) -> Cell:
    if is_code(agent):  # nothing in a file is imported, and its jobs would need the module as well
        raise CtaError(f"agent {agent} is code of its own: a plan names registered agents only")
    find_stored(agent, "plan")
    known_spec(dataset)
    steps = wanted.steps or run_preset(RunConfig(AgentConfig(), dataset=dataset)).steps
    points = tuple(sorted(set(wanted.eval_points or points_of(dataset))))
    curve = tuple(sorted(set(wanted.curve_points) - set(points)))
    if max(points) != steps or max(curve, default=0) > steps:
        raise CtaError(f"eval_points must end at the last of {steps} steps")
    ask = wanted.ask or ("tasks" if wanted.condition == WHOLE else "pairs")
    if wanted.condition != WHOLE or ask == "pairs":
        own_pairs(dataset)
    if ask == "presses":
        board_of(dataset)
    same = ("episodes", "curve_episodes", "temperature", "size", "data", "condition")
    asked = {"curve_points": curve, "settings": settings, "ask": ask, **{name: getattr(wanted, name) for name in same}}
    cell = Cell(dataset, agent, tuple(sorted(wanted.seeds)), steps, points, **asked)
    _ = cell.key  # which its settings must have
    return cell


def _settings(values: Any, where: str) -> tuple[tuple[str, Any], ...]:
    """Nested tables as dotted names."""
    if not isinstance(values, dict):
        raise CtaError(f"{where}: settings is a table of the agent's settings")
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            flat += [(f"{key}.{inner}", leaf) for inner, leaf in _settings(value, where)]
        else:
            flat.append((key, tuple(value) if isinstance(value, list) else value))
    return tuple(sorted(flat))
