"""Curves and final bars of an ablation, one row of panels a dataset."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cta.analysis.figures import INK, QUIET, save
from cta.evaluation import seed_scores
from cta.evaluation.episodes import LAST_EVALUATIONS, overall_success

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#9ecae9", "#4c78a8", "#e0812b", "#c0392b", "#54a24b", "#9467bd", "#8c6d31", "#d6618f")


def draw(path: Path, rows: Sequence[Mapping[str, Any]], *, what: str) -> None:
    """Left: success over training, mean and standard deviation over seeds. Right: the mean of the last evaluations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if isinstance(rows[0]["value"], str):
        draw_names(path, rows)
        return
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = Figure(figsize=(9, 3.1 * len(datasets)), dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(datasets), 2, squeeze=False, width_ratios=[1.3, 1])
    for (curves, bars), dataset in zip(panels, datasets, strict=True):
        mine = [row for row in rows if row["dataset"] == dataset]
        values = list(dict.fromkeys(row["value"] for row in mine))
        for place, value in enumerate(values):
            these = [row for row in mine if row["value"] == value]
            colour = COLOURS[place % len(COLOURS)]
            _curve(curves, these, colour, label=f"{what} = {value}")
            _bar(bars, these, colour, place)
        _style(curves, title=f"{dataset}: success over training, %")
        curves.set_xlabel("training step", fontsize=8, color=INK)
        curves.legend(fontsize=8, frameon=False, loc="upper left", labelcolor=INK)
        _style(bars, title=f"mean of the last {LAST_EVALUATIONS} evaluations, %")
        bars.set_xticks(range(len(values)), [f"{what} = {value}" for value in values])
    save(figure, path)


def draw_names(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each name, more of them than curves could tell apart: the mean of the last evaluations, every seed a
    dot, and the first name's mean all the way down.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    names = list(dict.fromkeys(row["value"] for row in rows))
    figure = Figure(
        figsize=(5.5 * len(datasets), 0.9 + 0.27 * len(names)), dpi=130, facecolor="white", layout="constrained"
    )
    FigureCanvasAgg(figure)
    for ax, dataset in zip(figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        mine = [row for row in rows if row["dataset"] == dataset]
        known = list(dict.fromkeys(row["value"] for row in mine))
        _style(ax, title=f"{dataset}: mean of the last {LAST_EVALUATIONS} evaluations, %")
        for place, name in enumerate(known):
            scores = [100 * score for score in seed_scores([row for row in mine if row["value"] == name]).values()]
            mean = float(np.mean(scores))
            ax.barh(place, mean, color=COLOURS[1] if place else COLOURS[2], height=0.62)
            ax.plot(scores, place + np.linspace(-0.15, 0.15, len(scores)), "o", color=INK, markersize=2.5)
            if not place:
                ax.axvline(mean, color=COLOURS[2], linewidth=1, linestyle="--")
        ax.set_yticks(range(len(known)), known)
        ax.set_xlim(0, 109)
        ax.set_ylim(len(known) - 0.4, -0.6)
        ax.grid(axis="y", visible=False)
        ax.grid(axis="x", color="#e8eaed", linewidth=0.8)
    save(figure, path)


def _curve(ax: "Axes", rows: Sequence[Mapping[str, Any]], colour: str, *, label: str) -> None:
    by_step: dict[int, list[float]] = defaultdict(list)
    for (_, step), rate in overall_success(rows).items():
        by_step[step].append(100 * rate)
    steps = sorted(by_step)
    means = np.array([np.mean(by_step[step]) for step in steps])
    spread = np.array([np.std(by_step[step]) for step in steps])
    ax.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=3, label=label)
    ax.fill_between(steps, means - spread, means + spread, color=colour, alpha=0.18, linewidth=0)


def _bar(ax: "Axes", rows: Sequence[Mapping[str, Any]], colour: str, place: int) -> None:
    scores = [100 * score for score in seed_scores(rows).values()]
    mean, spread = float(np.mean(scores)), float(np.std(scores))
    error = {"yerr": spread, "ecolor": QUIET, "capsize": 3} if len(scores) > 1 else {}
    ax.bar(place, mean, color=colour, width=0.62, **error)
    ax.text(place, max(*scores, mean + spread) + 2, f"{mean:.0f}", ha="center", va="bottom", fontsize=9, color=INK)
    if len(scores) > 1:
        ax.plot(place + np.linspace(-0.15, 0.15, len(scores)), scores, "o", color=INK, markersize=3)


def _style(ax: "Axes", *, title: str) -> None:
    ax.set_title(title, fontsize=9.5, color=INK, loc="left")
    ax.set_ylim(0, 109)
    ax.grid(axis="y", color="#e8eaed", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=8, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(QUIET)
