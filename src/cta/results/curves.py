"""Learning curves of the results, with the paper's final numbers beside them."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from cta.errors import CtaError
from cta.results.paper import paper_scores
from cta.results.pictures import colours, panels, save, seeds_note
from cta.results.protocol import Cell, short_steps

PAPER_TABLES = ("main", "maze", "pixel", "noisy")


def curve(cell: Cell) -> list[tuple[int, float, float]]:
    """(step, mean, standard deviation over seeds) in %, for steps at which every task was scored."""
    rates: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in cell.rows:
        rates[row.step, row.seed][row.task] = 100 * row.successes / row.episodes
    tasks = {row.task for row in cell.rows}
    steps: dict[int, list[float]] = defaultdict(list)
    for (step, _), found in rates.items():
        if set(found) == tasks:
            steps[step].append(fmean(found.values()))
    return [(step, fmean(scores), pstdev(scores)) for step, scores in sorted(steps.items())]


def draw_curves(cells: Sequence[Cell], path: Path) -> None:
    """One panel a dataset: mean and band over seeds for each agent, the paper's mean ± at the right edge."""
    cells = [cell for cell in cells if cell.rows]
    if not cells:
        raise CtaError("no results to draw")
    datasets = sorted({cell.dataset for cell in cells})
    colour = colours(cells)
    figure, axes = panels(len(datasets), 4.2)
    printed = {(s.dataset, s.agent): s for name in PAPER_TABLES for s in paper_scores(name)}
    for axis, dataset in zip(axes, datasets, strict=True):
        mine = [cell for cell in cells if cell.dataset == dataset]
        last = max(row.step for cell in mine for row in cell.rows)
        for place, cell in enumerate(mine):
            points = curve(cell)
            if not points:
                continue
            steps, means, spreads = (list(column) for column in zip(*points, strict=True))
            label = f"{cell.agent} ({seeds_note(cell)})"
            axis.plot(steps, means, marker="o", ms=3, color=colour[cell.agent], label=label)
            low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            axis.fill_between(steps, low, high, color=colour[cell.agent], alpha=0.18, lw=0)
            score = printed.get((dataset, cell.agent))
            if score is not None:
                at = last * (1.04 + 0.025 * place)
                bars = {"yerr": score.std or 0, "color": colour[cell.agent], "fmt": "D", "ms": 4, "mfc": "white"}
                axis.errorbar([at], [score.mean], **bars, capsize=2, lw=1)
        axis.set_title(dataset, fontsize=10)
        axis.set_xlabel("optimiser steps (◇ the paper's final score ±)", fontsize=8)
        axis.set_xlim(0, last * (1.06 + 0.025 * len(mine)))
        axis.xaxis.set_major_formatter(lambda value, _: short_steps(round(value)) if value >= 0 else "")
        axis.grid(alpha=0.25)
        axis.legend(fontsize=7, frameon=False, loc="lower right")
    axes[0].set_ylabel("success, %", fontsize=9)
    save(figure, path, cells)
