"""Curves and final bars of an ablation, one row of panels per dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cta.analysis.figures import INK, QUIET, save
from cta.scores.protocol import CellScores
from cta.scores.statistics import LAST_EVALUATIONS, curve, seed_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#9ecae9", "#4c78a8", "#e0812b", "#c0392b", "#54a24b", "#9467bd", "#8c6d31", "#d6618f")
Lines = Sequence[tuple[str, CellScores]]
"""The scores for each value."""


def draw(path: Path, found: Lines, *, what: str, names: bool) -> None:
    """Left: success over training, mean and standard deviation over seeds. Right: the mean of the last evaluations.

    Of `names`, more than curves could tell apart: a bar for each, every seed a dot, the first name's mean all the way
    down.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(known.key.dataset for _, known in found))
    parts = [[(value, known) for value, known in found if known.key.dataset == dataset] for dataset in datasets]
    size = (5.5 * len(parts), 0.9 + 0.27 * max(map(len, parts))) if names else (9, 3.1 * len(parts))
    figure = Figure(figsize=size, dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    title = f"mean of the last {LAST_EVALUATIONS} evaluations, %"
    if names:
        for ax, dataset, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], datasets, parts, strict=True):
            _style(ax, title=f"{dataset}: {title}")
            _names(ax, part)
        save(figure, path)
        return
    panels = figure.subplots(len(parts), 2, squeeze=False, width_ratios=[1.3, 1])
    for (curves, bars), dataset, part in zip(panels, datasets, parts, strict=True):
        for place, (value, known) in enumerate(part):
            colour = COLOURS[place % len(COLOURS)]
            _curve(curves, known, colour, label=f"{what} = {value}")
            _bar(bars, known, colour, place)
        _style(curves, title=f"{dataset}: success over training, %")
        curves.set_xlabel("training step", fontsize=8, color=INK)
        curves.legend(fontsize=8, frameon=False, loc="upper left", labelcolor=INK)
        _style(bars, title=title)
        bars.set_xticks(range(len(part)), [f"{what} = {value}" for value, _ in part])
    save(figure, path)


def _names(ax: "Axes", part: Lines) -> None:
    for place, (_, known) in enumerate(part):
        scores = list(seed_scores(known.rows).values())
        mean = float(np.mean(scores))
        ax.barh(place, mean, color=COLOURS[1] if place else COLOURS[2], height=0.62)
        ax.plot(scores, place + np.linspace(-0.15, 0.15, len(scores)), "o", color=INK, markersize=2.5)
        if not place:
            ax.axvline(mean, color=COLOURS[2], linewidth=1, linestyle="--")
    ax.set_yticks(range(len(part)), [name for name, _ in part])
    ax.set_xlim(0, 109)
    ax.set_ylim(len(part) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", color="#e8eaed", linewidth=0.8)


def _curve(ax: "Axes", known: CellScores, colour: str, *, label: str) -> None:
    steps, means, spread = (np.array(column) for column in zip(*curve(known.rows), strict=True))
    ax.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=3, label=label)
    ax.fill_between(steps, means - spread, means + spread, color=colour, alpha=0.18, linewidth=0)


def _bar(ax: "Axes", known: CellScores, colour: str, place: int) -> None:
    scores = list(seed_scores(known.rows).values())
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
