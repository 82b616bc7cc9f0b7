"""cta scores"""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from cta.cli import DONE
from cta.errors import CtaError

DESCRIPTION = """\
Compare runs: success per task and overall, mean ± standard deviation over seeds, mean of the last three evaluations.

Runs on data without an environment are compared by how well their values order held-out trajectories.

  cta scores runs/desk-play-v0/*
  cta scores runs/desk-play-v0/* --markdown > table.md
"""


@dataclass(frozen=True)
class Settings:
    """What to compare."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN…")]
    """Run directories."""
    markdown: bool = False
    """Print a Markdown table."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta scores", description=DESCRIPTION)
    if not settings.runs:
        raise CtaError("name at least one run directory")
    from cta.cli.orders import order_line, print_orders, read_offline

    orders = {run: rows for run in settings.runs if (rows := read_offline(run))}
    if orders:
        print_orders(sorted(order_line(rows, str(run)) for run, rows in orders.items()), markdown=settings.markdown)
    lines = sorted((_line(run) for run in settings.runs if run not in orders), key=lambda line: line[:2])
    if not lines:
        return DONE
    if settings.markdown:
        print(markdown(lines))
        return DONE
    table = Table()
    for column in HEADER:
        table.add_column(column, justify="left" if column in ("dataset", "agent") else "right")
    for line in lines:
        table.add_row(*map(Text, line))
    Console(highlight=False).print(table)
    return DONE


HEADER = ("dataset", "agent", "step", "seeds", "episodes", "1", "2", "3", "4", "5", "success, %")


def markdown(lines: list[tuple[str, ...]]) -> str:
    """A Markdown table of `_line`s."""
    rows = [HEADER, ("---",) * len(HEADER), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _line(run: Path) -> tuple[str, ...]:
    """One run in short; needs nothing but its eval.csv."""
    from cta.evaluation import seed_scores
    from cta.evaluation.episodes import LAST_EVALUATIONS, missing_seeds
    from cta.training.logs import CsvLog

    if not (run / "eval.csv").is_file():
        raise CtaError(f"{run}: no eval.csv here; is it a run directory?")
    rows = CsvLog(run / "eval.csv").read()
    if not rows:
        raise CtaError(f"{run}: no evaluation yet")
    try:
        by_seed = seed_scores(rows)
        common = tuple(rows[0][key] for key in ("dataset", "agent", "episodes", "task"))[:3]
    except CtaError as error:
        raise CtaError(f"{run}/eval.csv: {error}") from None
    except KeyError as error:
        raise CtaError(f"{run}/eval.csv: the column {error} is missing") from None
    last = sorted({int(row["step"]) for row in rows})[-LAST_EVALUATIONS:]
    missing = missing_seeds(rows, _trained_seeds(run) or {int(row["seed"]) for row in rows})
    if missing:
        seeds = ", ".join(map(str, missing))
        print(f"{run}: not scored at step {last[-1]:,} and left out: seed {seeds}", file=sys.stderr)
    recent = [row for row in rows if int(row["step"]) in last and int(row["seed"]) not in missing]
    tasks = []
    for task in map(str, range(1, 6)):
        rates = [int(row["successes"]) / int(row["episodes"]) for row in recent if row["task"] == task]
        tasks.append(f"{100 * fmean(rates):.0f}" if rates else "–")
    scores = [100 * score for seed, score in by_seed.items() if seed not in missing]
    overall = f"{fmean(scores):.1f} ± {pstdev(scores):.1f}" if scores else "–"
    return (*common[:2], f"{last[-1]:,}", str(len(scores)), common[2], *tasks, overall)


def _trained_seeds(run: Path) -> list[int]:
    """The seeds a run was begun with, where it says so."""
    if not (run / "config.json").is_file():
        return []
    from cta.experiment.run_dir import read_json

    seeds = read_json(run / "config.json").get("seeds")
    return [seed for seed in seeds if isinstance(seed, int)] if isinstance(seeds, list) else []
