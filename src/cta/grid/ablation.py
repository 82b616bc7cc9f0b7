"""The paper's ablations: plans of one setting over a grid, everything else as it is, and what they come to.

And readings: where the paper's text and the released code differ, every other reading as a change of settings. The
presets follow the code throughout, as whoever wants the published numbers must. A reading changes one place of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cta.config import ConditionedConfig, TwoLevelConfig
from cta.errors import CtaError
from cta.experiment import run_config
from cta.grid.cells import Cell
from cta.grid.plan import Plan
from cta.io.csv_log import csv_text
from cta.io.files import write_whole
from cta.scores.protocol import CellScores
from cta.scores.schema import WHOLE
from cta.scores.statistics import LAST_EVALUATIONS, seed_scores, summarise
from cta.scores.store import Scores

READING = "reading"
DEFAULT_VALUES = {"k": ("10", "20", "30", "40"), "b": ("4", "8", "16", "32")}
SETTINGS = {"k": "subgoal_steps", "b": "trunk.rank"}
EVALUATIONS = 10
"""How often a run is scored on the way, unless asked otherwise."""


def ablation_plan(
    what: str,
    values: Sequence[str] | None,
    *,
    datasets: Sequence[str],
    agent: str,
    seeds: tuple[int, ...],
    steps: int | None = None,
    interval: int | None = None,
    episodes: int | None = None,
) -> tuple[Plan, list[str]]:
    """A plan, and the value of each of its cells."""
    bases = [scored_cell(dataset, agent, seeds, steps, interval, episodes) for dataset in datasets]
    chosen = values or (readings_of(bases[0]) if what == READING else DEFAULT_VALUES[what])
    for name, given in (("--values", chosen), ("--dataset", datasets)):
        if len(set(given)) != len(given):
            raise CtaError(f"{name}: name each once")
    cells = [_cell(base, what, value) for base in bases for value in chosen]
    return Plan(f"ablate-{what}", tuple(cells)).check(), [*chosen] * len(bases)


def scored_cell(
    dataset: str,
    agent: str,
    seeds: tuple[int, ...],
    steps: int | None,
    interval: int | None = None,
    episodes: int | None = None,
    *,
    condition: str = WHOLE,
) -> Cell:
    """The preset's cell, scored on its tasks every `interval` steps (default: ten times); the last three count."""
    preset = run_config(agent, dataset)
    given = {"--steps": steps, "--eval-interval": interval, "--eval-episodes": episodes}
    for flag, value in given.items():
        if value is not None and value < 1:
            raise CtaError(f"{flag} must be at least 1, not {value}")
    steps = steps or preset.steps
    run_config(agent, dataset, seeds=seeds, steps=steps).check()
    interval = interval or max(1, steps // EVALUATIONS)
    points = sorted({*range(interval, steps + 1, interval), steps})
    last, curve = tuple(points[-LAST_EVALUATIONS:]), tuple(points[:-LAST_EVALUATIONS])
    count = episodes or preset.eval_episodes
    wanted = {"curve_points": curve, "curve_episodes": count, "condition": condition}
    return Cell(dataset, agent, seeds, steps, last, count, **wanted)


def _cell(base: Cell, what: str, value: str) -> Cell:
    if what == READING:
        return read(base, value)
    if not value.isdecimal() or int(value) < 1:
        raise CtaError(f"--values: {value!r} is not a whole number of at least 1")
    config = base.config
    if what == "k" and not isinstance(config, TwoLevelConfig):
        raise CtaError(f"{base.agent} has no subgoals: k belongs to the two-level agents")
    if what == "b" and not (isinstance(config, ConditionedConfig) and config.networks == "bilinear"):
        raise CtaError(f"{base.agent} has no bilinear networks: b belongs to cta, cta-gcb and gcivl-analogy")
    return replace(base, settings=((SETTINGS[what], int(value)),))


def summary(what: str, value: str, cell: Cell, known: CellScores) -> dict[str, Any]:
    """Success in per cent, mean of the last three evaluations, over seeds."""
    found = summarise(known.rows)
    return {
        "dataset": cell.dataset_name,
        "agent": cell.agent,
        "setting": what,
        "value": value,
        "steps": max(row.step for row in known.rows),
        "episodes": known.rows[-1].episodes,
        "seeds": found.seeds,
        "success": round(found.mean, 1),
        "sd": round(found.std, 1),
        "per_seed": " ".join(f"{score:.1f}" for score in seed_scores(known.rows).values()),
    }


def write_ablation(what: str, plan: Plan, values: Sequence[str], out: Path, scores: Scores) -> list[dict[str, Any]]:
    """OUT/summary.csv and OUT/ablation.png of the cells that are scored; returns the summary."""
    from cta.grid.ablation_figure import draw

    found = []
    for value, cell in zip(values, plan.cells, strict=True):
        known = scores.cell(cell.key)
        if rows := tuple(filter(cell.wants, known.rows)):
            found.append((value, cell, replace(known, rows=rows)))
    lines = [summary(what, value, cell, known) for value, cell, known in found]
    if lines:
        write_whole(out / "summary.csv", csv_text([[*lines[0]], *([*line.values()] for line in lines)]))
        draw(out / "ablation.png", [(value, known) for value, _, known in found], what=what, names=what == READING)
    return lines


# Readings

CODE = "code"
"""The reading of the presets."""
TEMPERATURE = "eval_temperature"


@dataclass(frozen=True)
class Reading:
    """What is done otherwise, and the settings that do it, given the preset and the number of steps."""

    text: str
    changes: Callable[[TwoLevelConfig, int], Mapping[str, Any]]


def _fixed(text: str, **changes: Any) -> Reading:
    return Reading(text, lambda config, steps: {name.replace("__", "."): value for name, value in changes.items()})


READINGS = {
    CODE: _fixed("the presets"),
    "two-stages": Reading(
        "the dual representation learns alone for half of the steps, then is frozen",
        lambda config, steps: {"dual.pretrain_steps": steps // 2},
    ),
    "dual-ema": _fixed("slow copies of φ and ψ in the critic's target", dual__value_target="ema"),
    "one-dual": _fixed("one φ, ψ and critic instead of two", dual__ensemble=1),
    "unscaled": _fixed("φᵀψ without 1/√d", dual__scale="none"),
    "free-eta": _fixed("η's output is not brought to a length", eta__normalise=False),
    "eta-ema": _fixed("a slow copy of η in the value's target", eta__ema=True),
    "eta-by-policy": _fixed("the low policy trains η too", policy_rep_grad_stop=False),
    "one-value": _fixed("one value instead of two", value_ensemble=1),
    "unclipped": _fixed("advantage weights without upper bound", awr_clip=float("inf")),
    "no-backbone": _fixed("a linear head on the bilinear features", trunk__form="head"),
    "pure": _fixed("the bilinear features are the output", trunk__form="pure"),
    "linear-features": _fixed("no GELU and norm before the inner product", trunk__activate_final=False),
    "hold": Reading("acting, a subgoal is kept for k steps", lambda config, steps: {"high_hold": config.subgoal_steps}),
    "sampling": _fixed("acting, both policies are sampled", eval_temperature=1.0),
}


def readings_of(cell: Cell) -> tuple[str, ...]:
    config = _two_level(cell)
    trunk = config.networks == "bilinear"
    changes = {name: reading.changes(config, cell.steps) for name, reading in READINGS.items()}
    return tuple(n for n, changed in changes.items() if trunk or not any("trunk" in path for path in changed))


def read(cell: Cell, name: str) -> Cell:
    """The same cell by another reading."""
    names = readings_of(cell)
    if name not in names:
        raise CtaError(f"{cell.agent} has no reading {name!r}, only {', '.join(names)}")
    changes = dict(READINGS[name].changes(_two_level(cell), cell.steps))
    return replace(cell, temperature=changes.pop(TEMPERATURE, 0.0), settings=tuple(sorted(changes.items())))


def _two_level(cell: Cell) -> TwoLevelConfig:
    config = cell.config
    if not isinstance(config, TwoLevelConfig) or config.conditioning not in ("dual", "analogy"):
        raise CtaError(f"{cell.agent}: readings are of the two-level agents with a dual representation")
    return config
