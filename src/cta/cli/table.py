import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro
from tyro.conf import Positional, arg

from cta.cli.options import words
from cta.errors import CtaError
from cta.exit_codes import DONE, ERROR
from cta.io.files import write_whole
from cta.scores.paper import OOC, CellScores, in_paper
from cta.scores.schema import PAIRS
from cta.scores.store import DEFAULT, Scores
from cta.scores.tables import FORMATS, NOTHING, Selection, build, markdown, show

MARK = re.compile(
    r"<!-- (?P<kind>table|curves|pairs|presses): (?P<words>[^>]*?) -->\n(?P<body>.*?)<!-- /(?P=kind) -->", re.S
)
"""A block of a document: a table, with the words of `cta table`, or a picture with its file."""

TableName = Literal["main", "ooc", "gcb", "maze", "pixel", "noisy", "hierarchy", "presses", "boards"]


@dataclass(frozen=True)
class Command:
    """The paper's tables with ours beside them, from the files in the results folder and the paper's numbers.

    A seed counts when it has all steps with 50 episodes of every task; the last column says how many there are of how
    many the paper has. CSV has more columns: interval, IQM, steps, episodes, data.

      cta table main --ours                           only what we have
      cta table ooc --agents cta,hiql-analogy --format latex > table.tex
      cta table boards --results mine                 agents on boards of lights, beside CTA (docs/beyond.md)
      cta table --update README.md                    fill the blocks `<!-- table: main --ours -->` … `<!-- /table -->`,
                                                      draw `<!-- curves: FILE.png -->`, `<!-- pairs: FILE.png -->`
      cta table --check README.md                     exit with 1 if they are not what the results say
      cta table --curves docs/figures/curves.png      learning curves of everything in the results folder
      cta table --pairs docs/figures/pairs.png        bars of the held-out pairs, ours beside the paper's
      cta table --presses curves.svg --results mine   success against the least number of presses (docs/beyond.md)
    """

    name: Annotated[Positional[TableName | None], arg(metavar="TABLE")] = None
    """main (play data), ooc (held-out pairs), gcb, maze, pixel, noisy, hierarchy; ours alone: presses, boards."""
    format: Literal["terminal", "markdown", "latex", "csv"] = "terminal"
    """How to print it."""
    results: Path = DEFAULT
    """Results folder."""
    agents: str = ""
    """Only these agents, separated by commas."""
    datasets: str = ""
    """Only these datasets, separated by commas."""
    ours: bool = False
    """Only lines we have results for."""
    update: tuple[Path, ...] = ()
    """Fill the marked blocks of these documents instead."""
    check: tuple[Path, ...] = ()
    """Only compare the marked blocks of these documents."""
    curves: Path | None = None
    """Draw learning curves into this PNG, SVG or PDF file instead."""
    pairs: Path | None = None
    """Draw held-out pairs into this PNG, SVG or PDF file instead."""
    presses: Path | None = None
    """Draw success against the least number of presses into this PNG, SVG or PDF file instead."""

    @property
    def selection(self) -> Selection:
        return Selection(frozenset(words(self.agents)), frozenset(words(self.datasets)), self.ours)

    def __call__(self) -> int:
        scores = Scores(self.results)
        # Without any results of one's own there are still the paper's tables.
        if self.results != DEFAULT:
            scores.existing()
        if self.curves or self.pairs or self.presses:
            self._draw(scores)
        elif self.update or self.check:
            return self._fill(scores)
        elif self.name is None:
            raise CtaError(f"which table? One of {', '.join(get_args(TableName))}")
        else:
            table = build(self.name, scores, self.selection)
            if self.ours and not table.lines:
                _explain_nothing(scores)
            print(FORMATS[self.format](table), end="") if self.format in FORMATS else show(table)
        return DONE

    def _fill(self, scores: Scores) -> int:
        stale = False
        for path in (*self.update, *self.check):
            write = path in self.update
            same, count = refill(path, filler(path, scores, draw=write), write=write)
            stale |= not (same or write)
            state = "up to date" if same else "updated" if write else "not what the results say"
            print(f"{path}: {count} blocks, {state}")
        return ERROR if stale else DONE

    def _draw(self, scores: Scores) -> None:
        from cta.report.score_figures import FIGURES, draw

        for kind in FIGURES:
            if path := getattr(self, kind):
                draw(kind, self.cells(kind, scores), path)
                print(f"written: {path}")

    def cells(self, kind: str, scores: Scores) -> list[CellScores]:
        from cta.report.score_figures import drawn_cells

        return [c for c in drawn_cells(kind, scores) if self.selection.wants(c.key.dataset, c.key.agent)]


def refill(path: Path, fill: Callable[[str, list[str]], str], *, write: bool) -> tuple[bool, int]:
    """Make every marked block anew by `fill`: (kind, words) → body. Whether all were up to date, and how many."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CtaError(f"{path}: cannot be read ({error})") from error

    def block(mark: re.Match[str]) -> str:
        kind, words = mark["kind"], mark["words"]
        return f"<!-- {kind}: {words} -->\n{fill(kind, words.split())}<!-- /{kind} -->"

    fresh, count = MARK.subn(block, text)
    if len(re.findall(r"<!-- (?:table|curves|pairs|presses):", fresh)) != count:
        raise CtaError("a mark has no end: a block is `<!-- table: main --ours -->` … `<!-- /table -->`")
    if not count:
        raise CtaError(f"{path}: no block to fill; write `<!-- table: main --ours -->` and `<!-- /table -->` into it")
    if write and fresh != text:
        write_whole(path, fresh)
    return fresh == text, count


def filler(document: Path, scores: Scores, *, draw: bool) -> Callable[[str, list[str]], str]:
    """What makes the blocks of a document; pictures are drawn anew with `draw`, and only looked at without.

    A block takes the options that choose lines, and results of its own: `--results DIR`, as seen from the document.
    """

    def fill(kind: str, words: list[str]) -> str:
        mark, files = f"`<!-- {kind}: {' '.join(words)} -->`", 0 if kind == "table" else 1
        if files and not (words and words[0].endswith(".png")):
            raise CtaError(f"{mark} names no PNG file")
        asked = tyro.cli(Command, args=words[files:], prog=f"cta table: a block of {document}, {kind}")
        source = scores if asked.results == DEFAULT else Scores(document.parent / asked.results)
        if kind == "table":
            if asked.name is None:
                raise CtaError(f"{mark} names no table")
            return markdown(build(asked.name, source, asked.selection))
        from cta.report import score_figures as figures

        cells, target = asked.cells(kind, source), document.parent / words[0]
        if not cells:
            return NOTHING
        if draw and figures.drawn_from(target) != figures.digest(cells):
            figures.draw(kind, cells, target)
        if figures.drawn_from(target) != figures.digest(cells):
            return f"{words[0]} is not what the results say.\n"
        return f"![{figures.FIGURES[kind].caption}]({words[0]})\n"

    return fill


def _explain_nothing(scores: Scores) -> None:
    """Why there is no line of ours: no results where we looked, or none that a table of the paper has a line for."""
    folder = scores.folder
    parts = [part for cell in scores.cells() for part in cell.parts() if part.rows]
    if not parts:
        print(f"looked in {folder.absolute()}; --results DIR looks elsewhere", file=sys.stderr)
    elif not any(in_paper(p.key.dataset, p.key.agent, OOC if p.asked == PAIRS else "") for p in parts):
        raise CtaError(f"the results in {folder} are in no table of the paper: `cta results list {folder}` shows them")
