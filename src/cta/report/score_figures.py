"""Figures of scores: learning curves and bars of held-out pairs, ours beside the paper's. A PNG says what it shows."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from textwrap import fill
from typing import Any, NamedTuple

from cta.errors import CtaError
from cta.io.files import save_figure
from cta.ooc import find_layout, held_out_of
from cta.scores.pair_table import pair_lines
from cta.scores.paper import ALL_PAIRS, OOC, TABLES, CellScores, paper_pairs, paper_scores, short_steps
from cta.scores.schema import PRESSES, TASKS
from cta.scores.statistics import curve, task_scores
from cta.scores.store import Scores
from cta.scores.tables import agent_words

COLOURS = ("#1f4e9e", "#c2571a", "#3d7a3a", "#7b4a9e", "#8a6d1f", "#2c7f8c", "#a03050", "#555555")
Cells = Sequence[CellScores]


def draw(kind: str, cells: Cells, path: Path) -> None:
    """A figure of a kind: panels side by side, a colour for each agent."""
    from matplotlib.figure import Figure

    figure_of = FIGURES[kind]
    if not cells:
        raise CtaError(figure_of.nothing)
    agents = sorted({cell.key.agent for cell in cells})
    colour = {agent: COLOURS[place % len(COLOURS)] for place, agent in enumerate(agents)}
    panels: dict[str, list[CellScores]] = defaultdict(list)
    for cell in cells:
        panels[figure_of.panel.format(cell.key)].append(cell)
    heights = {"pairs": 3.0 + 0.1 * len(agents), PRESSES: 2.7 + 0.135 * max(map(len, panels.values()))}
    figure = Figure(figsize=(figure_of.width * len(panels), heights.get(kind, 3.2)))
    (axes,) = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axis, title in zip(axes, sorted(panels), strict=True):
        axis.set_ylim(0, 100)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_title(title, fontsize=10)
        figure_of.draw(axis, panels[title], colour)
    axes[0].set_ylabel(figure_of.shown, fontsize=9)
    figure.tight_layout()
    save_figure(figure, path, dpi=150, metadata={"Description": digest(cells)} if path.suffix == ".png" else None)


def _curves(axis: Any, cells: Cells, colour: dict[str, str]) -> None:
    """Mean and band over seeds for each agent, the paper's mean ± at the right edge."""
    printed = {(s.dataset, s.agent): s for name in reversed(TABLES) if name != OOC for s in paper_scores(name)}
    last = max(row.step for cell in cells for row in cell.rows)
    for place, cell in enumerate(cells):
        steps, means, spreads = (list(column) for column in zip(*curve(cell.rows), strict=True))
        shown = {"color": colour[cell.key.agent]}
        _band(axis, steps, means, spreads, label=_label(cell), **shown)
        most = max(row.episodes for row in cell.rows)
        fewer = {row.step for row in cell.rows if row.episodes < most}
        rough = [i for i, step in enumerate(steps) if step in fewer]
        axis.plot([steps[i] for i in rough], [means[i] for i in rough], "o", ms=3, mfc="white", zorder=3, **shown)
        if (score := printed.get((cell.key.dataset, cell.key.agent))) is not None and not cell.key.settings:
            marks = {"fmt": "D", "ms": 4, "mfc": "white", "capsize": 2, "lw": 1, **shown}
            axis.errorbar([last * (1.04 + 0.025 * place)], [score.mean], yerr=score.std or 0, **marks)
    axis.set_xlabel("optimiser steps (○ fewer episodes, ◇ the paper's final score ±)", fontsize=8)
    axis.set_xlim(0, last * (1.06 + 0.025 * len(cells)))
    axis.xaxis.set_major_formatter(lambda value, _: short_steps(round(value)) if value >= 0 else "")
    axis.legend(fontsize=7, frameon=False, loc="best")


def _band(axis: Any, x: list[int], means: list[float], spreads: list[float], *, color: str, **shown: Any) -> None:
    axis.plot(x, means, marker="o", ms=3, color=color, **shown)
    low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
    axis.fill_between(x, low, high, alpha=0.18, lw=0, color=color)
    axis.grid(alpha=0.25)


def _pairs(axis: Any, cells: Cells, colour: dict[str, str]) -> None:
    """A group of bars per pair: for each agent the paper's (pale) and ours."""
    printed = {(s.dataset, s.agent, s.pair): s for s in paper_pairs()}
    pairs = [*max((task_scores(cell.rows) for cell in cells), key=len), ALL_PAIRS]
    width, dataset = 0.8 / (2 * len(cells)), cells[0].key.dataset

    def bar(at: float, direct: tuple[float, float], success: float, color: str, alpha: float) -> None:
        axis.bar(at, success, 0.9 * width, color="none", edgecolor=color, alpha=alpha, lw=0.8)
        axis.bar(at, direct[0], 0.9 * width, color=color, alpha=alpha, lw=0)
        axis.errorbar(at, direct[0], yerr=direct[1], color="#222222", alpha=max(alpha, 0.6), capsize=2, lw=0.8)

    for place, cell in enumerate(cells):
        (ours,) = pair_lines(cell.counted())
        color = colour[cell.key.agent]
        for group, pair in enumerate(pairs):
            at = group - 0.4 + (2 * place + 0.5) * width
            if (score := printed.get((dataset, cell.key.agent, pair))) is not None:
                bar(at, (score.direct, score.direct_std), score.success, color, 0.4)
            if rates := ours.pairs.get(pair):
                bar(at + width, rates["direct"], rates["successes"][0], color, 1.0)
        axis.bar(0, 0, color=color, label=_label(cell))
    axis.bar(0, 0, color="#555555", alpha=0.4, label="pale: the paper's")
    axis.bar(0, 0, color="none", edgecolor="#555555", label="outline: success by any way")
    # Pairs with their tasks in words, where they come with the dataset's world.
    names = {f"pair{number}": pair.name for number, pair in held_out_of(find_layout(dataset)).numbered()}
    words = [f"{pair}\n{fill(names[pair], 18)}" if pair in names else pair for pair in pairs]
    axis.set_xticks(range(len(pairs)), words, fontsize=7)
    axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=2)


def _presses(axis: Any, cells: Cells, colour: dict[str, str]) -> None:
    """Composition curves: success against the least number of presses, a band over seeds."""
    for place, cell in enumerate(cells):
        rates = {int(task.removeprefix(PRESSES)): [*s.values()] for task, s in task_scores(cell.counted()).items()}
        means, spreads = ([of(found) for found in rates.values()] for of in (fmean, pstdev))
        before = sum(colour[other.key.agent] == colour[cell.key.agent] for other in cells[:place])
        shown = {"color": colour[cell.key.agent], "ls": ("-", "--", ":", "-.", (0, (6, 1, 1, 1)))[before % 5]}
        steps, seeds = max(row.step for row in cell.rows), len(cell.seeds)
        label = f"{agent_words(cell.key)}, {short_steps(steps)}, {seeds} seed{'s' * (seeds > 1)}"
        _band(axis, [*rates], means, spreads, label=label, **shown)
    axis.set_xlabel("least number of presses from start to goal", fontsize=8)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(fontsize=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.25))


def _label(cell: CellScores) -> str:
    """The agent, its settings and its seeds; none of them counts where episodes or evaluations are fewer."""
    name, seeds = f"{cell.key.agent} {cell.key.settings}".strip(), len(cell.seeds)
    short = f"{seeds} seed{'s' * (seeds > 1)}, short of the protocol"
    return f"{name} ({cell.state() if cell.whole_seeds() else short})"


class Kind(NamedTuple):
    """A kind of figures: panels side by side, and what is said where there is `nothing` to draw."""

    caption: str
    draw: Callable[[Any, Cells, dict[str, str]], None]
    nothing: str
    panel: str = "{0.dataset}"  # its title, made of the key of its cells
    width: float = 4.2  # of a panel, in inches
    shown: str = "success, %"


BY_CONDITION, DIRECT = "{0.dataset}, {0.condition}", "direct success, %"
NO_PRESSES = "no scores by presses to draw: `cta evaluate RUN --ask presses --results DIR` makes them"
FIGURES = {
    "curves": Kind("learning curves", _curves, "no results to draw"),
    "pairs": Kind("held-out pairs", _pairs, "no held-out pairs to draw", BY_CONDITION, 6.4, DIRECT),
    PRESSES: Kind("composition curves", _presses, NO_PRESSES),
}


def drawn_cells(kind: str, scores: Scores) -> list[CellScores]:
    parts = [part for cell in scores.cells() for part in cell.parts() if part.rows]
    return [part for part in parts if part.asked == {"curves": TASKS}.get(kind, kind)]


def digest(cells: Cells) -> str:
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
