"""A table as Markdown, LaTeX, CSV or on a terminal, and inside a document between marks."""

import re
from collections.abc import Callable
from pathlib import Path

from cta.errors import CtaError
from cta.io.csv_log import csv_text
from cta.io.files import write_whole
from cta.io.text_tables import pipe_table, print_table, print_text
from cta.scores.tables import SHOWN, Table

MARK = re.compile(
    r"<!-- (?P<kind>table|curves|pairs|presses): (?P<words>[^>]*?) -->\n(?P<body>.*?)<!-- /(?P=kind) -->", re.S
)
"""A block of a document: a table, with the words of `cta table`, or a picture with its file."""
NOTHING = "No results yet.\n"
TEX = str.maketrans(
    {"\\": "\\textbackslash{}", "±": "$\\pm$", "–": "--", "×": "$\\times$"} | {c: f"\\{c}" for c in "%&_#"}
)


def markdown(table: Table) -> str:
    """A pipe table, notes below; a sentence if there is nothing to show."""
    if not table.lines:
        return NOTHING
    notes = "".join(f"\n{note}." for note in table.notes)
    return pipe_table(_shown(table)) + "\n" + notes + ("\n" if notes else "")


def latex(table: Table) -> str:
    """A booktabs table; needs \\usepackage{booktabs}."""
    header, *lines = [" & ".join(word.translate(TEX) for word in row) + " \\\\" for row in _shown(table)]
    begin = [f"\\begin{{tabular}}{{{'l' * SHOWN}}}", "\\toprule", header, "\\midrule"]
    return "\n".join([*begin, *lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _shown(table: Table) -> list[tuple[str, ...]]:
    return [row[:SHOWN] for row in (table.columns, *table.lines)]


def show(table: Table) -> None:
    if not table.lines:
        print(NOTHING, end="")
        return
    print_table(_shown(table), left=3, drop=table.drop, title=table.title)
    for note in table.notes:
        print_text(note)


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex}
FORMATS["csv"] = lambda table: csv_text([table.columns, *table.lines])
"""All columns; the notes are for readers and left out."""
Fill = Callable[[str, list[str]], str]
"""(table, curves or pairs; words of the mark) → the block's body."""


def refill(path: Path, fill: Fill, *, write: bool) -> tuple[bool, int]:
    """Make every marked block of a document anew; returns whether they were up to date, and how many there are."""
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
