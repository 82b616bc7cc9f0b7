"""Plans that commands make: the paper's ablations, readings, and the out-of-combination study.

A reading is what changes where the paper's text and the released code differ: the presets follow the code throughout,
as whoever wants the published numbers must, and a reading changes one place of it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from cta.config import ConditionedConfig, TwoLevelConfig
from cta.data import resolve
from cta.errors import CtaError
from cta.experiment import run_config
from cta.grid.cells import Cell, Cut
from cta.grid.plan import Plan
from cta.io.csv_log import csv_text
from cta.io.files import FigureFormat, save_figure, write_whole
from cta.ooc.evaluation import check_can_ask, make_trials
from cta.ooc.pairs import HeldOut
from cta.scores.schema import HELD_OUT, RANDOM, WHOLE, Score
from cta.scores.statistics import LAST_EVALUATIONS, curve, seed_scores, summarise
from cta.scores.store import Scores

READING = "reading"
DEFAULT_VALUES = {"k": ("10", "20", "30", "40"), "b": ("4", "8", "16", "32")}
SETTINGS = {"k": "subgoal_steps", "b": "trunk.rank"}
EVALUATIONS = 10  # how often a run is scored on the way, unless asked otherwise
AGENTS = ("cta", "hiql-analogy", "hiql-dual", "gciql-dual", "hiql")
CONTROLS = {"uncut": WHOLE, "random": RANDOM}


def scored_cell(
    dataset: str,
    agent: str,
    seeds: tuple[int, ...],
    steps: int | None = None,
    interval: int | None = None,
    episodes: int | None = None,
) -> Cell:
    """The preset's cell, scored on its tasks every `interval` steps (default: ten times); the last three count."""
    given: dict[str, Any] = {"steps": steps, "eval_interval": interval, "eval_episodes": episodes}
    run = run_config(agent, dataset, seeds=seeds, **{name: value for name, value in given.items() if value is not None})
    run.check()
    if interval == 0:  # which a run takes for none
        raise CtaError("--eval-interval must be at least 1, not 0")
    every = interval or max(1, run.steps // EVALUATIONS)
    points = sorted({*range(every, run.steps + 1, every), run.steps})
    last, before = tuple(points[-LAST_EVALUATIONS:]), tuple(points[:-LAST_EVALUATIONS])
    return Cell(dataset, agent, seeds, run.steps, last, run.eval_episodes, before, run.eval_episodes)


def study_plan(
    dataset: str,
    held_out: HeldOut,
    *,
    agents: Sequence[str] = AGENTS,
    seeds: tuple[int, ...] = (0, 1, 2, 3),
    steps: int | None = None,
    controls: Sequence[str] = (),
    per_pair: bool = False,
    episodes: int = 50,
    flags: tuple[str, ...] = (),
) -> Plan:
    """The out-of-combination study: data without the held-out pairs, and controls, asked for these pairs.

    `controls` are the data beside the cut ones: `uncut` (what the cut costs) and `random` (as many random windows cut:
    what cutting itself costs). `steps` None is the preset's. `flags` name pairs and thresholds other than the world's.
    """
    if unknown := [control for control in controls if control not in CONTROLS]:
        raise CtaError(f"--controls: there is no '{unknown[0]}'; there are {', '.join(CONTROLS)}")
    if not agents or len(set(agents)) != len(agents):
        raise CtaError("--agents: name each agent once")
    if per_pair and "random" in controls:
        raise CtaError("--per-pair: the control of random windows goes with all pairs cut at once")
    check_can_ask(resolve(dataset).name)
    make_trials(held_out, episodes=episodes)
    record = json.dumps(held_out.record(), sort_keys=True)
    numbers = tuple(number for number, _ in held_out.numbered())
    whole = Cut(flags, record, numbers) if flags else Cut()
    alone = [Cut((*flags, "--per-pair"), record, (number,), number) for number in numbers]
    bases = [scored_cell(dataset, agent, seeds, steps, episodes=episodes) for agent in agents]
    bases = [replace(base, curve_points=(), ask="pairs") for base in bases]
    cells = [replace(base, condition=HELD_OUT, cut=cut) for base in bases for cut in (alone if per_pair else [whole])]
    cells += [replace(base, condition=CONTROLS[one], cut=whole) for one in controls for base in bases]
    return Plan("study", tuple(cells)).check()


def ablation_plan(
    what: str, values: Sequence[str] | None, *, datasets: Sequence[str], agent: str, **size: Any
) -> tuple[Plan, list[str]]:
    """A plan, and the value of each of its cells; `size` is what `scored_cell` takes."""
    bases = [scored_cell(dataset, agent, **size) for dataset in datasets]
    chosen = values or (readings_of(bases[0]) if what == READING else DEFAULT_VALUES[what])
    for name, given in (("--values", chosen), ("--dataset", datasets)):
        if len(set(given)) != len(given):
            raise CtaError(f"{name}: name each once")
    cells = [_with_value(base, what, value) for base in bases for value in chosen]
    return Plan(f"ablate-{what}", tuple(cells)).check(), [*chosen] * len(bases)


def _with_value(base: Cell, what: str, value: str) -> Cell:
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


READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "code": ("the presets", {}),
    "two-stages": (
        "the dual representation learns alone for half of the steps, then is frozen",
        {"dual.pretrain_steps": lambda cell: cell.steps // 2},
    ),
    "dual-ema": ("slow copies of φ and ψ in the critic's target", {"dual.value_target": "ema"}),
    "one-dual": ("one φ, ψ and critic instead of two", {"dual.ensemble": 1}),
    "unscaled": ("φᵀψ without 1/√d", {"dual.scale": "none"}),
    "free-eta": ("η's output is not brought to a length", {"eta.normalise": False}),
    "eta-ema": ("a slow copy of η in the value's target", {"eta.ema": True}),
    "eta-by-policy": ("the low policy trains η too", {"policy_rep_grad_stop": False}),
    "one-value": ("one value instead of two", {"value_ensemble": 1}),
    "unclipped": ("advantage weights without upper bound", {"awr_clip": float("inf")}),
    "no-backbone": ("a linear head on the bilinear features", {"trunk.form": "head"}),
    "pure": ("the bilinear features are the output", {"trunk.form": "pure"}),
    "linear-features": ("no GELU and norm before the inner product", {"trunk.activate_final": False}),
    "hold": ("acting, a subgoal is kept for k steps", {"high_hold": lambda cell: cell.config.subgoal_steps}),
    "sampling": ("acting, both policies are sampled", {"eval_temperature": 1.0}),
}
"""What is done otherwise, and the settings that do it; what depends on the cell is a function of it."""


def readings_of(cell: Cell) -> tuple[str, ...]:
    config = cell.config
    if not isinstance(config, TwoLevelConfig) or config.conditioning not in ("dual", "analogy"):
        raise CtaError(f"{cell.agent}: readings are of the two-level agents with a dual representation")
    trunk = config.networks == "bilinear"
    return tuple(name for name, (_, changes) in READINGS.items() if trunk or "trunk." not in " ".join(changes))


def read(cell: Cell, name: str) -> Cell:
    """The same cell by another reading."""
    if name not in (names := readings_of(cell)):
        raise CtaError(f"{cell.agent} has no reading {name!r}, only {', '.join(names)}")
    changes = {path: value(cell) if callable(value) else value for path, value in READINGS[name][1].items()}
    return replace(cell, temperature=changes.pop("eval_temperature", 0.0), settings=tuple(sorted(changes.items())))


def write_ablation(
    what: str, plan: Plan, values: Sequence[str], out: Path, scores: Scores, *, format: FigureFormat = "png"
) -> list[dict[str, Any]]:
    """OUT/summary.csv and OUT/ablation.FORMAT of the cells that are scored; returns the summary (success in %)."""
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
        drawn.append((value if what == READING else f"{what} = {value}", rows))
    if lines:
        write_whole(out / "summary.csv", csv_text([[*lines[0]], *([*line.values()] for line in lines)]))
        _draw(out / f"ablation.{format}", drawn, curves=what != READING)
    return lines


def _draw(path: Path, found: Sequence[tuple[str, Sequence[Score]]], *, curves: bool) -> None:
    """Success over training, unless `curves` of so many values would not be told apart, beside bars of the last
    evaluations: every seed a dot, without curves the first mean all the way down.
    """
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(rows[0].dataset for _, rows in found))
    size = (9, 3.1 * len(datasets)) if curves else (5.5, 0.9 * len(datasets) + 0.27 * len(found))
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    panels = figure.subplots(len(datasets), 1 + curves, squeeze=False)
    for (*over_steps, bars), dataset in zip(panels, datasets, strict=True):
        mine = [(label, rows) for label, rows in found if rows[0].dataset == dataset]
        for place, (label, rows) in enumerate(mine):
            colour = f"C{place}" if curves else "C0" if place else "C1"
            for axis in over_steps:
                steps, means, spread = (np.array(column) for column in zip(*curve(rows), strict=True))
                axis.plot(steps, means, color=colour, marker="o", markersize=3, label=label)
                axis.fill_between(steps, means - spread, means + spread, color=colour, alpha=0.18, linewidth=0)
            scores = list(seed_scores(rows).values())
            bars.barh(place, fmean(scores), color=colour, height=0.62)
            bars.plot(scores, np.linspace(place - 0.15, place + 0.15, len(scores)), "ko", markersize=2.5)
            bars.text(max(scores) + 2, place, f"{fmean(scores):.0f}", va="center", fontsize=8)
            if not curves and not place:
                bars.axvline(fmean(scores), color=colour, linewidth=1, linestyle="--")
        for axis in over_steps:
            axis.set(ylim=(0, 112), xlabel="training step", title=f"{dataset}: success over training, %")
            axis.legend(fontsize=8, frameon=False, loc="upper left")
        bars.set(xlim=(0, 112), title=f"{dataset}: mean of the last {LAST_EVALUATIONS} evaluations, %")
        bars.set_yticks(range(len(mine)), [label for label, _ in mine])
        bars.invert_yaxis()
        for axis in (*over_steps, bars):
            axis.title.set_fontsize(9.5)
            axis.tick_params(labelsize=8, length=0)
            axis.spines[["left", "top", "right"]].set_visible(False)
            axis.grid(axis="y" if axis in over_steps else "x", alpha=0.3)
            axis.set_axisbelow(True)
    save_figure(figure, path)
