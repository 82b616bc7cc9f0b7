"""Figures of scores: learning curves and bars of held-out pairs, ours beside the paper's. A PNG says what it shows."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from textwrap import fill
from typing import Any

from cta.errors import CtaError
from cta.io.figure_files import save_figure
from cta.scores.pair_table import pair_lines
from cta.scores.paper import ALL_PAIRS, OOC, TABLES, paper_pairs, paper_scores
from cta.scores.protocol import CellScores, short_steps
from cta.scores.records import PRESSES, TASKS
from cta.scores.statistics import curve, task_scores
from cta.scores.store import Scores
from cta.scores.tables import agent_words

COLOURS = ("#1f4e9e", "#c2571a", "#3d7a3a", "#7b4a9e", "#8a6d1f", "#2c7f8c", "#a03050", "#555555")


def draw_curves(cells: Sequence[CellScores], path: Path) -> None:
    """One panel per dataset: mean and band over seeds for each agent, the paper's mean ± at the right edge."""
    if not cells:
        raise CtaError("no results to draw")
    datasets, colour = sorted({cell.key.dataset for cell in cells}), _colours(cells)
    figure, axes = _panels(len(datasets), 4.2)
    printed = {(s.dataset, s.agent): s for name in reversed(TABLES) if name != OOC for s in paper_scores(name)}
    for axis, dataset in zip(axes, datasets, strict=True):
        mine = [cell for cell in cells if cell.key.dataset == dataset]
        last = max(row.step for cell in mine for row in cell.rows)
        for place, cell in enumerate(mine):
            steps, means, spreads = (list(column) for column in zip(*curve(cell.rows), strict=True))
            shown = {"color": colour[cell.key.agent]}
            axis.plot(steps, means, marker="o", ms=3, label=f"{_label(cell)} ({cell.state()})", **shown)
            rough = [i for i, step in enumerate(steps) if step in rough_steps(cell)]
            axis.plot([steps[i] for i in rough], [means[i] for i in rough], "o", ms=3, mfc="white", zorder=3, **shown)
            low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            axis.fill_between(steps, low, high, alpha=0.18, lw=0, **shown)
            if (score := printed.get((dataset, cell.key.agent))) is not None and not cell.key.settings:
                at = last * (1.04 + 0.025 * place)
                axis.errorbar(
                    [at], [score.mean], yerr=score.std or 0, fmt="D", ms=4, mfc="white", capsize=2, lw=1, **shown
                )
        axis.set_title(dataset, fontsize=10)
        axis.set_xlabel("optimiser steps (○ fewer episodes, ◇ the paper's final score ±)", fontsize=8)
        axis.set_xlim(0, last * (1.06 + 0.025 * len(mine)))
        axis.xaxis.set_major_formatter(lambda value, _: short_steps(round(value)) if value >= 0 else "")
        axis.grid(alpha=0.25)
        axis.legend(fontsize=7, frameon=False, loc="lower right")
    axes[0].set_ylabel("success, %", fontsize=9)
    save(figure, path, cells)


def rough_steps(cell: CellScores) -> set[int]:
    """Steps that were scored with fewer episodes per task than the most."""
    most = max(row.episodes for row in cell.rows)
    return {row.step for row in cell.rows if row.episodes < most}


def draw_pairs(cells: Sequence[CellScores], path: Path) -> None:
    """One panel per dataset and kind of data, a group of bars per pair: for each agent the paper's (pale) and ours."""
    if not cells:
        raise CtaError("no held-out pairs to draw")
    colour, kinds = _colours(cells), sorted({(cell.key.dataset, cell.key.condition) for cell in cells})
    printed = {(s.dataset, s.agent, s.pair): s for s in paper_pairs()}
    figure, axes = _panels(len(kinds), 6.4, height=3.0 + 0.1 * len(colour))
    for axis, (dataset, condition) in zip(axes, kinds, strict=True):
        mine = [cell for cell in cells if (cell.key.dataset, cell.key.condition) == (dataset, condition)]
        pairs = [*max((task_scores(cell.rows) for cell in mine), key=len), ALL_PAIRS]
        width = 0.8 / (2 * len(mine))
        for place, cell in enumerate(mine):
            (ours,) = pair_lines(cell.counted())
            shown = {"color": colour[cell.key.agent], "width": 0.9 * width}
            for group, pair in enumerate(pairs):
                at = group - 0.4 + (2 * place + 0.5) * width
                if (score := printed.get((dataset, cell.key.agent, pair))) is not None:
                    _bar(axis, at, (score.direct, score.direct_std), score.success, alpha=0.4, **shown)
                if rates := ours.pairs.get(pair):
                    _bar(axis, at + width, rates["direct"], rates["successes"][0], alpha=1.0, **shown)
            axis.bar(0, 0, color=colour[cell.key.agent], label=f"{_label(cell)} ({cell.state()})")
        axis.bar(0, 0, color="#555555", alpha=0.4, label="pale: the paper's")
        axis.bar(0, 0, color="none", edgecolor="#555555", label="outline: success by any way")
        axis.set_title(f"{dataset}, {condition}", fontsize=10)
        axis.set_xticks(range(len(pairs)), [_pair_label(dataset, pair) for pair in pairs], fontsize=7)
        axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=2)
    axes[0].set_ylabel("direct success, %", fontsize=9)
    save(figure, path, cells)


def _bar(
    axis: Any, at: float, direct: tuple[float, float], success: float, *, color: str, width: float, alpha: float
) -> None:
    axis.bar(at, success, width, color="none", edgecolor=color, alpha=alpha, lw=0.8)
    axis.bar(at, direct[0], width, color=color, alpha=alpha, lw=0)
    axis.errorbar(at, direct[0], yerr=direct[1], color="#222222", alpha=max(alpha, 0.6), capsize=2, lw=0.8)


def _pair_label(dataset: str, pair: str) -> str:
    """A pair with its task in words, where it comes with the dataset's world."""
    from cta.ooc.components import find_layout
    from cta.ooc.pairs import built_in_pairs

    names = {f"pair{number}": task.name for number, task in enumerate(built_in_pairs(find_layout(dataset)), 1)}
    return f"{pair}\n{fill(names[pair], 18)}" if pair in names else pair


def draw_presses(cells: Sequence[CellScores], path: Path) -> None:
    """Composition curves, one panel per dataset: success against the least number of presses, a band over seeds."""
    if not cells:
        raise CtaError("no scores by presses to draw: `cta evaluate RUN --ask presses --results DIR` makes them")
    datasets, colour = sorted({cell.key.dataset for cell in cells}), _colours(cells)
    figure, axes = _panels(len(datasets), 4.2)
    for axis, dataset in zip(axes, datasets, strict=True):
        mine = [cell for cell in cells if cell.key.dataset == dataset]
        for place, cell in enumerate(mine):
            rates = {int(task.removeprefix(PRESSES)): [*s.values()] for task, s in task_scores(cell.counted()).items()}
            numbers, means = [*rates], [fmean(found) for found in rates.values()]
            spreads = [pstdev(found) for found in rates.values()]
            before = sum(other.key.agent == cell.key.agent for other in mine[:place])
            shown = {"color": colour[cell.key.agent], "ls": ("-", "--", ":", "-.")[before % 4]}
            steps, seeds = max(row.step for row in cell.rows), len(cell.seeds)
            label = f"{agent_words(cell.key)}, {short_steps(steps)}, {seeds} seed{'s' * (seeds > 1)}"
            axis.plot(numbers, means, marker="o", ms=3, label=label, **shown)
            low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            axis.fill_between(numbers, low, high, alpha=0.18, lw=0, color=shown["color"])
        axis.set_title(dataset, fontsize=10)
        axis.set_xlabel("least number of presses from start to goal", fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("success, %", fontsize=9)
    save(figure, path, cells)


FIGURES: dict[str, tuple[str, Callable[[Sequence[CellScores], Path], None]]] = {
    "curves": ("learning curves", draw_curves),
    "pairs": ("held-out pairs", draw_pairs),
    PRESSES: ("composition curves", draw_presses),
}
"""The kinds of figures: caption, and what draws them."""


def drawn_cells(kind: str, scores: Scores) -> list[CellScores]:
    """What a figure of this kind shows."""
    parts = [part for cell in scores.cells() for part in cell.parts() if part.rows]
    return [part for part in parts if part.asked == {"curves": TASKS}.get(kind, kind)]


def digest(cells: Sequence[CellScores]) -> str:
    """A fingerprint of the scores; a PNG picture carries that of the scores it shows."""
    return hashlib.sha256(repr([tuple(row) for cell in cells for row in cell.rows]).encode()).hexdigest()


def drawn_from(path: Path) -> str | None:
    """The fingerprint in a picture; None if there is no picture or none in it."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return picture.info.get("Description")
    except OSError:
        return None


def _colours(cells: Sequence[CellScores]) -> dict[str, str]:
    return {agent: COLOURS[i % len(COLOURS)] for i, agent in enumerate(sorted({cell.key.agent for cell in cells}))}


def _label(cell: CellScores) -> str:
    return cell.key.agent + (f" {cell.key.settings}" if cell.key.settings else "")


def _panels(count: int, width: float, height: float = 3.2) -> tuple[Any, list[Any]]:
    """A figure with panels side by side, `width` inches each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height))
    axes = figure.subplots(1, count, squeeze=False, sharey=True)
    for axis in axes[0]:
        axis.set_ylim(0, 100)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, list(axes[0])


def save(figure: Any, path: Path, cells: Sequence[CellScores]) -> None:
    """Write a figure of these cells."""
    figure.tight_layout()
    save_figure(figure, path, dpi=150, metadata={"Description": digest(cells)} if path.suffix == ".png" else None)
