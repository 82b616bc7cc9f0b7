"""cta table"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli import DONE, ERROR
from cta.errors import CtaError

DESCRIPTION = """\
The paper's tables with ours beside them, from the files in the results folder and the paper's numbers.

main (success on play data), ooc (held-out pairs), gcb, maze, pixel, noisy, hierarchy. Every line names seeds, steps,
episodes and data. A cell that is not four seeds × all steps × 50 episodes is marked incomplete.

  cta table main --ours                                only what we have
  cta table main --agents cta,hiql-analogy --format latex > table.tex
  cta table ooc --format csv
  cta table --update README.md                         fill the blocks `<!-- table: main --ours -->` … `<!-- /table -->`
                                                       and draw `<!-- curves: FILE.png -->` … `<!-- /curves -->`
                                                       and `<!-- pairs: FILE.png -->` … `<!-- /pairs -->`
  cta table --check README.md                          exit with 1 if they are not what the results say
  cta table --curves docs/figures/curves.png           learning curves of everything in the results folder
  cta table --pairs docs/figures/pairs.png             bars of the held-out pairs, ours beside the paper's
"""
Name = Literal["main", "ooc", "gcb", "maze", "pixel", "noisy", "hierarchy"]


@dataclass(frozen=True)
class Settings:
    """Which table, and how to print it."""

    name: Annotated[Positional[Name | None], arg(metavar="TABLE")] = None
    """main, ooc, gcb, maze, pixel, noisy or hierarchy."""
    format: Literal["terminal", "markdown", "latex", "csv"] = "terminal"
    """How to print it."""
    results: Path = Path("results")
    """Results folder."""
    agents: str = ""
    """Only these agents, separated by commas."""
    datasets: str = ""
    """Only these datasets, separated by commas."""
    ours: bool = False
    """Only lines we have results for."""
    intervals: bool = True
    """Bootstrap intervals (they take a second a line)."""
    update: Path | None = None
    """Fill the marked blocks of this document instead."""
    check: Path | None = None
    """Only compare the marked blocks of this document."""
    curves: Path | None = None
    """Draw learning curves into this PNG, SVG or PDF file instead."""
    pairs: Path | None = None
    """Draw held-out pairs into this PNG, SVG or PDF file instead."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta table", description=DESCRIPTION)
    from cta.results.formats import FORMATS, refill, show
    from cta.results.store import DEFAULT, Results

    results = Results(settings.results)
    # Without any results of one's own there are still the paper's tables.
    if settings.results != DEFAULT:
        results.existing()
    console = Console(highlight=False, soft_wrap=True)
    if settings.curves or settings.pairs:
        for kind, path in (("curves", settings.curves), ("pairs", settings.pairs)):
            if path:
                _pictured(kind)[1](_wanted(_cells(kind, results), settings), path)
                console.print(f"written: {path}")
    elif document := settings.update or settings.check:
        write = settings.update is not None
        same, count = refill(document, filler(document, settings.results, draw=write), write=write)
        state = "up to date" if same else "updated" if write else "not what the results say"
        console.print(f"{document}: {count} blocks, {state}")
        return DONE if same or write else ERROR
    elif settings.name is None:
        raise CtaError("which table? main, ooc, gcb, maze, pixel, noisy or hierarchy")
    else:
        table = _build(settings, results)
        if settings.ours and not table.lines:
            _refuse_foreign(results)
        if settings.format == "terminal":
            show(table, Console(highlight=False))
        else:
            print(FORMATS[settings.format](table), end="")
    return DONE


def filler(document: Path, results: Path, *, draw: bool) -> Callable[[str, list[str]], str]:
    """What makes the blocks of a document; pictures are drawn anew with `draw`, and only looked at without."""
    from cta.results.formats import NOTHING, markdown
    from cta.results.pictures import digest, drawn_from
    from cta.results.store import Results

    def table(words: list[str]) -> str:
        settings = tyro.cli(Settings, args=words, prog=f"cta table {shlex.join(words)}")
        if settings.name is None:
            raise CtaError(f"`<!-- table: {' '.join(words)} -->` names no table")
        return markdown(_build(settings, Results(results)))

    def picture(kind: str, words: list[str]) -> str:
        if len(words) != 1 or not words[0].endswith(".png"):
            raise CtaError(f"`<!-- {kind}: {' '.join(words)} -->` names no PNG file")
        cells = _cells(kind, Results(results))
        if not cells:
            return NOTHING
        caption, drawing = _pictured(kind)
        target = document.parent / words[0]
        if draw and drawn_from(target) != digest(cells):
            drawing(cells, target)
        good = drawn_from(target) == digest(cells)
        return f"![{caption}]({words[0]})\n" if good else f"{words[0]} is not what the results say.\n"

    return lambda kind, words: table(words) if kind == "table" else picture(kind, words)


def _pictured(kind: str) -> tuple[str, Callable[..., None]]:
    """A picture's caption and what draws it."""
    from cta.results.bars import draw_pairs
    from cta.results.curves import draw_curves

    return {"curves": ("learning curves", draw_curves), "pairs": ("held-out pairs", draw_pairs)}[kind]


def _cells(kind: str, results) -> list:
    """What a picture of this kind is of."""
    from cta.results.pairs import read_pairs

    cells = results.cells() if kind == "curves" else read_pairs(results.folder / "ooc")
    return [cell for cell in cells if cell.rows]


def _build(settings: Settings, results):
    from cta.results.tables import Selection, build

    assert settings.name is not None
    selection = Selection(_set(settings.agents), _set(settings.datasets), settings.ours, settings.intervals)
    return build(settings.name, results, selection)


def _refuse_foreign(results) -> None:
    """Results that no table of the paper has a line for are not "no results": say what shows them."""
    from cta.results.paper import in_paper

    cells = [cell for cell in results.all_cells() if cell.rows]
    if cells and not any(in_paper(cell.dataset, cell.agent, held_out=cell.held_out) for cell in cells):
        folder = results.folder
        raise CtaError(f"the results in {folder} are in no table of the paper: `cta results list {folder}` shows them")


def _wanted(cells: list, settings: Settings) -> list:
    agents, datasets = _set(settings.agents), _set(settings.datasets)
    return [c for c in cells if (not agents or c.agent in agents) and (not datasets or c.dataset in datasets)]


def _set(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split(",") if word)
