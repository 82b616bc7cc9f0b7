"""cta table"""

import shlex
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
  cta table --check README.md                          exit with 1 if they are not what the results say
  cta table --curves docs/figures/curves.png           learning curves of everything in the results folder
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


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta table", description=DESCRIPTION)
    from cta.results.formats import FORMATS, filled, show, update
    from cta.results.store import Results

    console = Console(highlight=False, soft_wrap=True)
    if settings.curves:
        from cta.results.curves import draw_curves

        draw_curves(_cells(settings), settings.curves)
        console.print(f"written: {settings.curves}")
    elif settings.update:
        changed = update(settings.update, lambda words: block(words, settings.results))
        console.print(f"{settings.update}: {'updated' if changed else 'was up to date'}")
    elif settings.check:
        text = settings.check.read_text()
        fresh, count = filled(text, lambda words: block(words, settings.results))
        console.print(
            f"{settings.check}: {count} blocks, {'up to date' if fresh == text else 'not what the results say'}"
        )
        return DONE if fresh == text else ERROR
    elif settings.name is None:
        raise CtaError("which table? main, ooc, gcb, maze, pixel, noisy or hierarchy")
    else:
        table = _build(settings, Results(settings.results))
        if settings.format == "terminal":
            show(table, Console(highlight=False))
        else:
            print(FORMATS[settings.format](table), end="")
    return DONE


def block(words: list[str], results: Path):
    """The table a mark in a document asks for; the words are those of this command."""
    from cta.results.store import Results

    settings = tyro.cli(Settings, args=words, prog=f"cta table {shlex.join(words)}")
    if settings.name is None:
        raise CtaError(f"`<!-- table: {' '.join(words)} -->` names no table")
    return _build(settings, Results(results))


def _build(settings: Settings, results):
    from cta.results.tables import Selection, build

    assert settings.name is not None
    selection = Selection(_set(settings.agents), _set(settings.datasets), settings.ours, settings.intervals)
    return build(settings.name, results, selection)


def _cells(settings: Settings) -> list:
    from cta.results.store import Results

    agents, datasets = _set(settings.agents), _set(settings.datasets)
    return [
        cell
        for cell in Results(settings.results).cells()
        if (not agents or cell.agent in agents) and (not datasets or cell.dataset in datasets)
    ]


def _set(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split(",") if word)
