"""Held-out pairs as bars: direct success, success above it, ours beside the paper's."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from cta.errors import CtaError
from cta.results.pairs import PairCell, pair_tasks
from cta.results.paper import ALL_PAIRS, paper_pairs
from cta.results.pictures import colours, panels, save, seeds_note


def draw_pairs(cells: Sequence[PairCell], path: Path) -> None:
    """One panel a dataset and kind of data, a group of bars a pair: for each agent the paper's (pale) and ours."""
    cells = [cell for cell in cells if cell.rows]
    if not cells:
        raise CtaError("no held-out pairs to draw")
    colour = colours(cells)
    kinds = sorted({(cell.dataset, cell.condition) for cell in cells})
    printed = {(s.dataset, s.agent, s.pair): s for s in paper_pairs()}
    figure, axes = panels(len(kinds), 6.4)
    for axis, (dataset, condition) in zip(axes, kinds, strict=True):
        mine = [cell for cell in cells if (cell.dataset, cell.condition) == (dataset, condition)]
        pairs = [*max((cell.pairs for cell in mine), key=len), ALL_PAIRS]
        width = 0.8 / (2 * len(mine))
        for place, cell in enumerate(mine):
            for group, pair in enumerate(pairs):
                at = group - 0.4 + (2 * place + 0.5) * width
                score = printed.get((dataset, cell.agent, pair))
                if score is not None:
                    found = ((score.direct, score.direct_std), score.success)
                    _bar(axis, at, 0.9 * width, colour[cell.agent], *found, alpha=0.4)
                if pair in (*cell.pairs, ALL_PAIRS):
                    found = (cell.mean_and_spread(pair, "direct"), cell.mean_and_spread(pair, "successes")[0])
                    _bar(axis, at + width, 0.9 * width, colour[cell.agent], *found, alpha=1.0)
            axis.bar(0, 0, color=colour[cell.agent], label=f"{cell.agent} ({seeds_note(cell)})")
        axis.bar(0, 0, color="#555555", alpha=0.4, label="pale: the paper's")
        axis.bar(0, 0, color="none", edgecolor="#555555", label="outline: success by any way")
        axis.set_title(f"{dataset}, {condition}", fontsize=10)
        words = {f"pair{i}": f"pair{i}\n{fill(task, 18)}" for i, task in enumerate(pair_tasks(dataset), 1)}
        axis.set_xticks(range(len(pairs)), [words.get(pair, pair) for pair in pairs], fontsize=7)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.24), "ncols": 2}
        axis.legend(fontsize=7, frameon=False, **below)
    axes[0].set_ylabel("direct success, %", fontsize=9)
    save(figure, path, cells)


def _bar(
    axis, at: float, width: float, colour: str, direct: tuple[float, float], success: float, *, alpha: float
) -> None:
    axis.bar(at, success, width, color="none", edgecolor=colour, alpha=alpha, lw=0.8)
    axis.bar(at, direct[0], width, color=colour, alpha=alpha, lw=0)
    axis.errorbar(at, direct[0], yerr=direct[1], color="#222222", alpha=max(alpha, 0.6), capsize=2, lw=0.8)
