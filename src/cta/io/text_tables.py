"""Tables as text: columns on a terminal, Markdown, or everything in a pipe. Prose, and durations."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = 2  # spaces between two columns on a terminal


def pipe_table(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(word.replace('|', chr(92) + '|') for word in row)} |" for row in lines)


def print_table(
    rows: Sequence[Sequence[str]], *, left: int = 2, drop: Sequence[int] = (), markdown: bool = False, **options: Any
) -> None:
    """A header and rows on standard output, columns after the first `left` aligned right, words never broken.

    A terminal gets the columns that it has room for, without the first ones of `drop` (by default the last stays, those
    before it go). A pipe gets all of them.
    """
    if markdown:
        print(pipe_table(rows))
        return
    console, kept = Console(highlight=False), [*range(len(rows[0]))]
    for place in drop or range(len(kept) - 2, left - 1, -1):
        if console.is_terminal and _width(rows, kept) > console.width:
            kept.remove(place)
    style = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "collapse_padding": True}
    table = Table(title_justify="left", width=_width(rows, kept), **style, **options)
    for place in kept:
        table.add_column(Text(rows[0][place]), justify="left" if place < left else "right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*(Text(row[place]) for place in kept))
    # What is still too wide is not squeezed: the terminal breaks its lines, and every number stays readable.
    console.width = max(console.width, _width(rows, kept))
    console.print(table, crop=False, no_wrap=True, overflow="ignore")
    if left_out := [title for place, title in enumerate(rows[0]) if place not in kept]:
        print(f"no room for: {', '.join(left_out)}")


def print_text(text: str) -> None:
    """Prose: a terminal gets lines broken between words, a pipe gets it in one line."""
    console = Console(highlight=False)
    console.print(text, markup=False, soft_wrap=not console.is_terminal)


def clock(seconds: float) -> str:
    """75 → 0:01:15."""
    return str(timedelta(seconds=round(max(0.0, seconds))))


def _width(rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    return sum(max(cell_len(row[i]) for row in rows) for i in kept) + GAP * (len(kept) - 1)
