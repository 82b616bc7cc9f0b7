"""Learning curves of the results, with the paper's final numbers beside them."""

import hashlib
import io
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

from cta.data.files import write_whole
from cta.errors import CtaError
from cta.results.paper import paper_scores
from cta.results.protocol import Cell, short_steps

COLOURS = ("#1f4e9e", "#c2571a", "#3d7a3a", "#7b4a9e", "#8a6d1f", "#2c7f8c", "#a03050", "#555555")
PAPER_TABLES = ("main", "maze", "pixel", "noisy")


def curve(cell: Cell) -> list[tuple[int, float, float, int]]:
    """(step, mean, standard deviation over seeds, seeds) in %, for steps at which every task was scored."""
    rates: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in cell.rows:
        rates[row.step, row.seed][row.task] = 100 * row.successes / row.episodes
    tasks = {row.task for row in cell.rows}
    steps: dict[int, list[float]] = defaultdict(list)
    for (step, _), found in rates.items():
        if set(found) == tasks:
            steps[step].append(fmean(found.values()))
    return [(step, fmean(scores), pstdev(scores), len(scores)) for step, scores in sorted(steps.items())]


def digest(cells: Sequence[Cell]) -> str:
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


def draw_curves(cells: Sequence[Cell], path: Path) -> None:
    """One panel a dataset: mean and band over seeds for each agent, the paper's mean ± at the right edge."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    cells = [cell for cell in cells if cell.rows]
    if not cells:
        raise CtaError("no results to draw")
    datasets = sorted({cell.dataset for cell in cells})
    agents = sorted({cell.agent for cell in cells})
    colour = {agent: COLOURS[i % len(COLOURS)] for i, agent in enumerate(agents)}
    figure, axes = pyplot.subplots(1, len(datasets), figsize=(4.2 * len(datasets), 3.2), squeeze=False, sharey=True)
    printed = {(s.dataset, s.agent): s for name in PAPER_TABLES for s in paper_scores(name)}
    for axis, dataset in zip(axes[0], datasets, strict=True):
        mine = [cell for cell in cells if cell.dataset == dataset]
        last = max(row.step for cell in mine for row in cell.rows)
        for place, cell in enumerate(mine):
            points = curve(cell)
            if not points:
                continue
            steps, means, spreads, seeds = (list(column) for column in zip(*points, strict=True))
            note = f"{max(seeds)} seed{'s' * (max(seeds) > 1)}" + ("" if cell.complete else ", incomplete")
            axis.plot(steps, means, marker="o", ms=3, color=colour[cell.agent], label=f"{cell.agent} ({note})")
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
        axis.set_ylim(0, 100)
        axis.xaxis.set_major_formatter(lambda value, _: short_steps(round(value)) if value >= 0 else "")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=7, frameon=False, loc="lower right")
        axis.tick_params(labelsize=8)
    axes[0][0].set_ylabel("success, %", fontsize=9)
    figure.tight_layout()
    content = io.BytesIO()
    kind = path.suffix.lstrip(".") or "png"
    figure.savefig(content, format=kind, dpi=150, metadata={"Description": digest(cells)} if kind == "png" else None)
    pyplot.close(figure)
    write_whole(path, content.getvalue())
