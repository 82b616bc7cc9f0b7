"""Runs without rollouts on a terminal: how well their values order held-out trajectories."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cta.errors import CtaError
from cta.training.logs import CsvLog

HEADER = ("dataset", "agent", "step", "seeds", "episodes", "order by V", "order by φᵀψ")
CAPTION = "rank correlation of value and time along held-out trajectories, mean of the last three measurements"
LAST = 3


def read_offline(run: Path) -> list[dict[str, str]]:
    """Rows of a run's offline.csv; none if there is no such file."""
    path = run / "offline.csv"
    return CsvLog(path).read() if path.is_file() else []


def order_line(rows: Sequence[Mapping[str, str]], where: str) -> tuple[str, ...]:
    """One run in short, from its offline.csv."""
    try:
        step = max(int(row["step"]) for row in rows)
        seeds = sorted({int(row["seed"]) for row in rows})
        orders = [_mean_of_last(rows, column) for column in ("value_order", "dual_order")]
        head = rows[0]["dataset"], rows[0]["agent"], f"{step:,}", str(len(seeds)), rows[-1]["episodes"]
    except (KeyError, ValueError) as error:
        raise CtaError(f"{where}/offline.csv: a row cannot be read ({error}); mend or remove it") from None
    return (*head, *orders)


def _mean_of_last(rows: Sequence[Mapping[str, str]], column: str) -> str:
    curves: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row[column]:
            curves[row["seed"]].append(float(row[column]))
    means = [fmean(curve[-LAST:]) for curve in curves.values()]
    if not means:
        return "–"
    return f"{fmean(means):.3f}" + (f" ± {pstdev(means):.3f}" if len(means) > 1 else "")


def print_orders(lines: Sequence[tuple[str, ...]], *, markdown: bool = False) -> None:
    """`order_line`s as a table."""
    if markdown:
        print("\n".join(f"| {' | '.join(row)} |" for row in (HEADER, ("---",) * len(HEADER), *lines)))
        return
    table = Table(caption=CAPTION)
    for column in HEADER:
        table.add_column(column, justify="left" if column in ("dataset", "agent") else "right")
    for line in lines:
        table.add_row(*map(Text, line))
    Console(highlight=False).print(table)
