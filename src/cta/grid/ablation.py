"""The paper's ablations: plans of one setting over a grid, everything else as it is, and what they come to.

And readings: where the paper's text and the released code differ, every other reading as a change of settings. The
presets follow the code throughout, as whoever wants the published numbers must. A reading changes one place of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cta.config import ConditionedConfig, TwoLevelConfig
from cta.errors import CtaError
from cta.experiment import run_config
from cta.grid.cells import Cell
from cta.grid.plan import Plan
from cta.io.csv_log import csv_text
from cta.io.files import save_figure, write_whole
from cta.scores.schema import WHOLE, Score
from cta.scores.statistics import LAST_EVALUATIONS, curve, seed_scores, summarise
from cta.scores.store import Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def write_ablation(what: str, plan: Plan, values: Sequence[str], out: Path, scores: Scores) -> list[dict[str, Any]]:
    """OUT/summary.csv and OUT/ablation.png of the cells that are scored; returns the summary.

    Success in per cent, mean of the last three evaluations, over seeds.
    """
    lines, drawn = [], []
    for value, cell in zip(values, plan.cells, strict=True):
        rows = [row for row in scores.cell(cell.key).rows if cell.wants(row)]
        if not rows:
            continue
        found = summarise(rows)
        numbers = {"seeds": found.seeds, "success": round(found.mean, 1), "sd": round(found.std, 1)}
        lines.append(
            {"dataset": cell.dataset_name, "agent": cell.agent, "setting": what, "value": value}
            | {"steps": max(row.step for row in rows), "episodes": rows[-1].episodes, **numbers}
            | {"per_seed": " ".join(f"{score:.1f}" for score in seed_scores(rows).values())}
        )
        drawn.append((value, rows))
    if lines:
        write_whole(out / "summary.csv", csv_text([[*lines[0]], *([*line.values()] for line in lines)]))
        _draw(out / "ablation.png", drawn, what=what, names=what == READING)
    return lines


CODE = "code"
"""The reading of the presets."""
TEMPERATURE = "eval_temperature"


class Reading(NamedTuple):
    """What is done otherwise, and the settings that do it; what depends on the cell is a function of it."""

    text: str
    changes: Mapping[str, Any]


READINGS = {
    CODE: Reading("the presets", {}),
    "two-stages": Reading(
        "the dual representation learns alone for half of the steps, then is frozen",
        {"dual.pretrain_steps": lambda cell: cell.steps // 2},
    ),
    "dual-ema": Reading("slow copies of φ and ψ in the critic's target", {"dual.value_target": "ema"}),
    "one-dual": Reading("one φ, ψ and critic instead of two", {"dual.ensemble": 1}),
    "unscaled": Reading("φᵀψ without 1/√d", {"dual.scale": "none"}),
    "free-eta": Reading("η's output is not brought to a length", {"eta.normalise": False}),
    "eta-ema": Reading("a slow copy of η in the value's target", {"eta.ema": True}),
    "eta-by-policy": Reading("the low policy trains η too", {"policy_rep_grad_stop": False}),
    "one-value": Reading("one value instead of two", {"value_ensemble": 1}),
    "unclipped": Reading("advantage weights without upper bound", {"awr_clip": float("inf")}),
    "no-backbone": Reading("a linear head on the bilinear features", {"trunk.form": "head"}),
    "pure": Reading("the bilinear features are the output", {"trunk.form": "pure"}),
    "linear-features": Reading("no GELU and norm before the inner product", {"trunk.activate_final": False}),
    "hold": Reading("acting, a subgoal is kept for k steps", {"high_hold": lambda cell: cell.config.subgoal_steps}),
    "sampling": Reading("acting, both policies are sampled", {TEMPERATURE: 1.0}),
}


def readings_of(cell: Cell) -> tuple[str, ...]:
    config = cell.config
    if not isinstance(config, TwoLevelConfig) or config.conditioning not in ("dual", "analogy"):
        raise CtaError(f"{cell.agent}: readings are of the two-level agents with a dual representation")
    trunk = config.networks == "bilinear"
    return tuple(name for name, one in READINGS.items() if trunk or not any("trunk" in path for path in one.changes))


def read(cell: Cell, name: str) -> Cell:
    """The same cell by another reading."""
    if name not in (names := readings_of(cell)):
        raise CtaError(f"{cell.agent} has no reading {name!r}, only {', '.join(names)}")
    changes = {path: value(cell) if callable(value) else value for path, value in READINGS[name].changes.items()}
    return replace(cell, temperature=changes.pop(TEMPERATURE, 0.0), settings=tuple(sorted(changes.items())))


INK, QUIET = "#2f3640", "#9aa3ad"
COLOURS = ("#9ecae9", "#4c78a8", "#e0812b", "#c0392b", "#54a24b", "#9467bd", "#8c6d31", "#d6618f")
Lines = Sequence[tuple[str, Sequence[Score]]]
"""The scores for each value."""


def _draw(path: Path, found: Lines, *, what: str, names: bool) -> None:
    """Left: success over training, mean and standard deviation over seeds. Right: the mean of the last evaluations.

    Of `names`, more than curves could tell apart: only the bars, with the first name's mean all the way down.
    """
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(rows[0].dataset for _, rows in found))
    high = [0.9 + 0.27 * sum(rows[0].dataset == dataset for _, rows in found) for dataset in datasets]
    size = (5.5, sum(high)) if names else (9, 3.1 * len(datasets))
    figure = Figure(figsize=size, dpi=130, facecolor="white", layout="constrained")
    shape = {"height_ratios": high} if names else {"width_ratios": [1.3, 1]}
    panels = figure.subplots(len(datasets), 1 if names else 2, squeeze=False, gridspec_kw=shape)
    for (*curves, bars), dataset in zip(panels, datasets, strict=True):
        part = [(value if names else f"{what} = {value}", rows) for value, rows in found if rows[0].dataset == dataset]
        for ax in curves:
            _style(ax, "y", title=f"{dataset}: success over training, %")
            for place, (label, rows) in enumerate(part):
                _curve(ax, rows, COLOURS[place % len(COLOURS)], label=label)
            ax.set_xlabel("training step", fontsize=8, color=INK)
            ax.legend(fontsize=8, frameon=False, loc="upper left", labelcolor=INK)
        _style(bars, "x", title=f"{dataset}: mean of the last {LAST_EVALUATIONS} evaluations, %")
        _bars(bars, part, names=names)
    save_figure(figure, path)


def _curve(ax: "Axes", rows: Sequence[Score], colour: str, *, label: str) -> None:
    steps, means, spread = (np.array(column) for column in zip(*curve(rows), strict=True))
    ax.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=3, label=label)
    ax.fill_between(steps, means - spread, means + spread, color=colour, alpha=0.18, linewidth=0)


def _bars(ax: "Axes", part: Lines, *, names: bool) -> None:
    """A bar for each value, its mean at the end, every seed a dot."""
    for place, (_, rows) in enumerate(part):
        scores = list(seed_scores(rows).values())
        mean = float(np.mean(scores))
        colour = COLOURS[1 if place else 2] if names else COLOURS[place % len(COLOURS)]
        ax.barh(place, mean, color=colour, height=0.62)
        ax.plot(scores, place + np.linspace(-0.15, 0.15, len(scores)), "o", color=INK, markersize=2.5)
        ax.text(max(scores) + 2, place, f"{mean:.0f}", ha="left", va="center", fontsize=8, color=INK)
        if names and not place:
            ax.axvline(mean, color=colour, linewidth=1, linestyle="--")
    ax.set_yticks(range(len(part)), [name for name, _ in part])
    ax.set_ylim(len(part) - 0.4, -0.6)


def _style(ax: "Axes", across: Literal["x", "y"], *, title: str) -> None:
    """`across`: the axis of per cent."""
    ax.set_title(title, fontsize=9.5, color=INK, loc="left")
    (ax.set_ylim if across == "y" else ax.set_xlim)(0, 112)
    ax.grid(axis=across, color="#e8eaed", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=8, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(QUIET)
