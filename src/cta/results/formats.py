"""A table as Markdown, LaTeX, CSV or on a terminal, and inside a document between marks."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable

from cta.data.files import write_whole
from cta.errors import CtaError
from cta.results.tables import Table

MARK = re.compile(r"<!-- (?P<kind>table|curves|pairs): (?P<words>[^>]*?) -->\n(?P<body>.*?)<!-- /(?P=kind) -->", re.S)
"""A block of a document: a table, with the words of `cta table`, or a picture of curves or pairs, with its file."""
NOTHING = "No results yet.\n"
NAMES = 3
"""Columns at the left that are always shown, whole: dataset, agent (or pair), the paper's number (or agent)."""
LEAST_FIRST = (
    "data", "episodes", "steps", "IQM (95% CI)", "lenient", "ours − paper (95% CI)", "95% CI", "95% CI of direct",
    "seeds",
)  # fmt: skip
"""Columns that a narrow terminal does without, the least important first."""
GAP = 2
"""Spaces between two columns on a terminal."""


def markdown(table: Table) -> str:
    """A pipe table, notes below; a sentence if there is nothing to show."""
    if not table.lines:
        return NOTHING
    rows = [table.columns, tuple("---" for _ in table.columns), *table.lines]
    text = "\n".join(f"| {' | '.join(_escaped(word) for word in row)} |" for row in rows)
    return text + "\n" + "".join(f"\n{note}." for note in table.notes) + ("\n" if table.notes else "")


def _escaped(word: str) -> str:
    return word.replace("|", "\\|")


def latex(table: Table) -> str:
    """A booktabs table; needs \\usepackage{booktabs}."""
    rule = "l" * len(table.columns)
    lines = [f"\\begin{{tabular}}{{{rule}}}", "\\toprule"]
    lines += [" & ".join(_tex(word) for word in table.columns) + " \\\\", "\\midrule"]
    lines += [" & ".join(_tex(word) for word in line) + " \\\\" for line in table.lines]
    lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join([*lines, *(f"% {note}" for note in table.notes)]) + "\n"


def _tex(word: str) -> str:
    for plain, escaped in (("\\", "\\textbackslash{}"), ("%", "\\%"), ("&", "\\&"), ("_", "\\_"), ("#", "\\#")):
        word = word.replace(plain, escaped)
    for plain, math in (("±", "$\\pm$"), ("–", "--"), ("×", "$\\times$")):
        word = word.replace(plain, math)
    return word


def as_csv(table: Table) -> str:
    """Header and lines; the notes are for readers and left out."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.lines])
    return text.getvalue()


def show(table: Table, console: Console) -> None:
    """On a terminal: only columns that hold something and have room, their words never broken."""
    if not table.lines:
        console.print(NOTHING, end="")
        return
    held = [i for i, _ in enumerate(table.columns) if i < NAMES or any(line[i].strip("–") for line in table.lines)]
    kept = _with_room(table, held, console.width)
    left_out = ", ".join(table.columns[i] for i in held if i not in kept)
    if _width(table, kept) > console.width:
        table = _broken(table)
    # Without edges and with narrow gaps the essential columns of every table of success rates fit 80 columns.
    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "collapse_padding": True}
    # A table that is still too wide is not squeezed: the terminal breaks its lines, and every number stays readable.
    shown = RichTable(title=table.title, title_justify="left", width=_width(table, kept), **style)
    for i in kept:
        shown.add_column(table.columns[i], no_wrap=True)
    for line in table.lines:
        shown.add_row(*[line[i] for i in kept])
    console.print(shown, crop=False, no_wrap=True, overflow="ignore")
    console.print()
    room = f"no room for: {left_out}; a wider terminal or --format markdown or csv shows them"
    for note in (*((room,) if left_out else ()), *table.notes):
        console.print(note, soft_wrap=True, markup=False)


def _with_room(table: Table, held: Sequence[int], room: int) -> list[int]:
    """The columns of `held` that a terminal shows: all but as many of the least important as have no room."""
    kept = list(held)
    for name in LEAST_FIRST:
        if _width(table, kept) <= room:
            break
        kept = [i for i in kept if table.columns[i] != name]
    return kept


def _width(table: Table, kept: Sequence[int]) -> int:
    """How wide these columns are side by side."""
    rows = (table.columns, *table.lines)
    widths = [max(cell_len(part) for row in rows for part in row[i].split("\n")) for i in kept]
    return sum(widths) + GAP * (len(kept) - 1)


def _broken(table: Table) -> Table:
    """With what stands in brackets on a line of its own."""
    columns, *lines = [tuple(word.replace(" (", "\n(") for word in row) for row in (table.columns, *table.lines)]
    return replace(table, columns=columns, lines=tuple(lines))


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}


Fill = Callable[[str, list[str]], str]
"""(table, curves or pairs; words of the mark) → the block's body."""


def filled(text: str, fill: Fill) -> tuple[str, int]:
    """A document with every marked block made anew, and how many there were."""
    count = 0

    def block(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        kind, words = match["kind"], match["words"]
        return f"<!-- {kind}: {words} -->\n{fill(kind, words.split())}<!-- /{kind} -->"

    fresh = MARK.sub(block, text)
    if len(re.findall(r"<!-- (?:table|curves|pairs):", fresh)) != count:
        raise CtaError("a mark has no end: a block is `<!-- table: main --ours -->` … `<!-- /table -->`")
    return fresh, count


def refill(path: Path, fill: Fill, *, write: bool) -> tuple[bool, int]:
    """Fill a document's blocks; returns whether they were up to date, and how many there are."""
    try:
        text = path.read_text()
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    fresh, count = filled(text, fill)
    if not count:
        raise CtaError(f"{path}: no block to fill; write `<!-- table: main --ours -->` and `<!-- /table -->` into it")
    if write and fresh != text:
        write_whole(path, fresh)
    return fresh == text, count
