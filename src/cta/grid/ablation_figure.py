"""Curves and final bars of an ablation, one row of panels per dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from cta.analysis.figures import INK, QUIET, save
from cta.scores.schema import Score
from cta.scores.statistics import LAST_EVALUATIONS, curve, seed_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#9ecae9", "#4c78a8", "#e0812b", "#c0392b", "#54a24b", "#9467bd", "#8c6d31", "#d6618f")
Lines = Sequence[tuple[str, Sequence[Score]]]
"""The scores for each value."""


def draw(path: Path, found: Lines, *, what: str, names: bool) -> None:
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
    save(figure, path)


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
