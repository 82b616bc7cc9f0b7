"""A plan: which agents on which datasets, how many seeds and steps, scored when. A small TOML file."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.envs.names import known_spec
from cta.errors import CtaError
from cta.presets import PAPER_NAMES, run_preset
from cta.results.pairs import pair_count
from cta.results.protocol import EPISODES, SEEDS, TASKS, protocol_of

DEFAULTS = {"seeds", "steps", "eval_points", "episodes", "curve_points", "curve_episodes", "settings", "held_out"}
"""What may stand at the top, for all cells, and again in a cell, for it alone."""


@dataclass(frozen=True)
class DataSize:
    """Which data to generate; sizes not given are the published ones."""

    seed: int = 0
    episodes: int | None = None
    episode_steps: int | None = None

    @property
    def full(self) -> bool:
        return self.seed == 0 and self.episodes is None and self.episode_steps is None


@dataclass(frozen=True)
class PlannedCell:
    """One agent on one dataset: `seeds` × `steps`, scored at `points` with `episodes` episodes a task."""

    dataset: str
    agent: str
    seeds: tuple[int, ...]
    steps: int
    points: tuple[int, ...]
    episodes: int = EPISODES
    curve_points: tuple[int, ...] = ()
    """Further steps to score when nothing more urgent is waiting, for learning curves."""
    curve_episodes: int = 10
    settings: tuple[tuple[str, Any], ...] = ()
    """Changes to the agent's settings: (flag without --agent., value)."""
    data: DataSize = DataSize()
    held_out: bool = False
    """Trained on data with the world's pairs cut out, and asked for these pairs instead of the five tasks."""

    @property
    def name(self) -> str:
        return f"{self.agent} on {self.material}"

    @property
    def material(self) -> str:
        """What it is trained on, in words."""
        return self.dataset + (", held-out pairs" if self.held_out else "")

    @property
    def tasks(self) -> int:
        """How many tasks or pairs a score has."""
        return pair_count(self.dataset) if self.held_out else TASKS

    def episodes_at(self, step: int) -> int:
        """Episodes a task at one of the points."""
        return self.episodes if step in self.points else self.curve_episodes

    @property
    def all_points(self) -> tuple[int, ...]:
        return tuple(sorted({*self.points, *self.curve_points}))


@dataclass(frozen=True)
class Plan:
    """Cells in the order in which they are wanted, and guesses at speed for machines without a record."""

    name: str
    cells: tuple[PlannedCell, ...]
    rates: Mapping[str, float] = field(default_factory=dict)

    def only(self, *, datasets: Sequence[str] = (), agents: Sequence[str] = ()) -> "Plan":
        """The part with these datasets and agents; none named means all."""
        for flag, wanted, known in (
            ("--datasets", datasets, {cell.dataset for cell in self.cells}),
            ("--agents", agents, {cell.agent for cell in self.cells}),
        ):
            if unknown := set(wanted) - known:
                raise CtaError(
                    f"{flag} {', '.join(sorted(unknown))}: not in the plan, which has {', '.join(sorted(known))}"
                )
        cells = [c for c in self.cells if (not datasets or c.dataset in datasets) and (not agents or c.agent in agents)]
        if not cells:
            raise CtaError(f"the plan has no cell of {', '.join(datasets)} with {', '.join(agents)}")
        return replace(self, cells=tuple(cells))


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan; whatever is wrong is said in one line that names the place."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CtaError(f"{path}: not valid TOML ({error})") from error
    _only(values, DEFAULTS | {"data", "cells", "rates"}, str(path))
    tables = values.get("cells")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise CtaError(f"{path}: no [[cells]]; a cell has a dataset and agents")
    common = {name: values[name] for name in DEFAULTS | {"data"} if name in values}
    cells: list[PlannedCell] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}: cells {number}"
        _only(table, DEFAULTS | {"dataset", "agents"}, where)
        cells += _cells({**common, **table}, where)
    names = [cell.name for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise CtaError(f"{path}: {twice} is there twice")
    return Plan(path.stem, tuple(cells), _rates(values.get("rates", {}), str(path)))


def _cells(table: Mapping[str, Any], where: str) -> list[PlannedCell]:
    dataset, agents = table.get("dataset"), table.get("agents")
    if not isinstance(dataset, str):
        raise CtaError(f"{where}: dataset is missing")
    known_spec(dataset)
    if not isinstance(agents, list) or not agents:
        raise CtaError(f"{where}: agents is a list such as ['cta', 'hiql-analogy']")
    steps = _number(table, "steps", run_preset(RunConfig(AgentConfig(), dataset=dataset)).steps, where)
    points = _numbers(table, "eval_points", protocol_of(dataset).points, where)
    curve = _numbers(table, "curve_points", (), where)
    if max(points) != steps or max(curve, default=0) > steps:
        raise CtaError(f"{where}: eval_points must end at the last of {steps} steps")
    common = {
        "seeds": _seeds(table.get("seeds", SEEDS), where),
        "steps": steps,
        "points": points,
        "episodes": _number(table, "episodes", EPISODES, where),
        "curve_points": tuple(point for point in curve if point not in points),
        "curve_episodes": _number(table, "curve_episodes", 10, where),
        "settings": _settings(table.get("settings", {}), where),
        "data": _data(table.get("data", {}), where),
        "held_out": table.get("held_out", False),
    }
    if not isinstance(common["held_out"], bool):
        raise CtaError(f"{where}: held_out is true or false, not {common['held_out']!r}")
    if common["held_out"]:
        pair_count(dataset)
    for agent in agents:
        if not _known(agent):
            raise CtaError(f"{where}: there is no agent '{agent}'; `cta agents` lists them")
    return [PlannedCell(dataset, agent, **common) for agent in agents]


def _known(agent: Any) -> bool:
    """A registered agent, or the name of one from outside the package (`module:Class`), which its own run looks for."""
    if agent in PAPER_NAMES.values() or ":" in str(agent):
        return True
    from cta.agents import REGISTRY  # only now: it starts JAX, which the driver can do without

    return agent in REGISTRY


def _only(values: Mapping[str, Any], allowed: set[str], where: str) -> None:
    unknown = sorted(set(values) - allowed)
    if unknown:
        raise CtaError(f"{where}: unknown key '{unknown[0]}'; known are {', '.join(sorted(allowed))}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(table: Mapping[str, Any], name: str, default: int, where: str) -> int:
    value = table.get(name, default)
    if not _whole(value) or value < 1:
        raise CtaError(f"{where}: {name} is a number of at least 1, not {value!r}")
    return value


def _numbers(table: Mapping[str, Any], name: str, default: tuple[int, ...], where: str) -> tuple[int, ...]:
    values = table.get(name, list(default))
    if not isinstance(values, list) or not all(_whole(value) and value > 0 for value in values):
        raise CtaError(f"{where}: {name} is a list of steps, not {values!r}")
    if not values and default:
        raise CtaError(f"{where}: {name} is empty")
    return tuple(sorted(set(values)))


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    """A count, or a list."""
    seeds = list(range(value)) if _whole(value) else value
    if not isinstance(seeds, list) or not seeds or not all(_whole(seed) and seed >= 0 for seed in seeds):
        raise CtaError(f"{where}: seeds is a count or a list of numbers, not {value!r}")
    return tuple(sorted(set(seeds)))


def _settings(values: Any, where: str) -> tuple[tuple[str, Any], ...]:
    """Nested tables as dotted flags."""
    if not isinstance(values, dict):
        raise CtaError(f"{where}: settings is a table of the agent's settings")
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            flat += [(f"{key}.{inner}", leaf) for inner, leaf in _settings(value, where)]
        else:
            flat.append((key, tuple(value) if isinstance(value, list) else value))
    return tuple(flat)


def _data(values: Any, where: str) -> DataSize:
    if not isinstance(values, dict):
        raise CtaError(f"{where}: data is a table with seed, episodes, episode_steps")
    _only(values, {"seed", "episodes", "episode_steps"}, f"{where}: data")
    if not all(_whole(value) and value >= 0 for value in values.values()):
        raise CtaError(f"{where}: data has numbers from 0 on")
    return DataSize(**values)


def _rates(values: Any, where: str) -> dict[str, float]:
    if not isinstance(values, dict) or not all(
        isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0 for rate in values.values()
    ):
        raise CtaError(f"{where}: rates is a table of positive numbers")
    return {name: float(rate) for name, rate in values.items()}
