"""cta scores"""

import os
import sys
from collections.abc import Sequence
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
Lines stand in the order of the runs. Where dataset and agent do not tell runs apart, a column names the folders.

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
        print_orders([order_line(rows, str(run)) for run, rows in orders.items()], markdown=settings.markdown)
    scored = [run for run in settings.runs if run not in orders]
    if not scored:
        return DONE
    header, *lines = _with_names(scored, [HEADER, *map(_line, scored)])
    if settings.markdown:
        print(markdown(header, lines))
        return DONE
    table = Table()
    for column in header:
        left = column in ("run", "dataset", "agent")
        table.add_column(column, justify="left" if left else "right", overflow="fold")  # names must not be cut off
    for line in lines:
        table.add_row(*map(Text, line))
    Console(highlight=False).print(table)
    return DONE


HEADER = ("dataset", "agent", "step", "seeds", "episodes", "1", "2", "3", "4", "5", "success, %")


def _with_names(runs: Sequence[Path], rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The header and the lines, with a first column for the runs where dataset and agent repeat."""
    labels = [line[:2] for line in rows[1:]]
    if len(set(labels)) == len(labels):
        return rows
    return [(name, *row) for name, row in zip(("run", *short_names(runs)), rows, strict=True)]


def short_names(runs: Sequence[Path]) -> list[str]:
    """The ends of the paths, with as many folders as it takes to tell different ones apart."""
    paths = [Path(os.path.abspath(run)) for run in runs]
    for folders in range(1, max(len(path.parts) for path in paths)):
        names = [str(Path(*path.parts[-folders:])) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return list(map(str, paths))


def markdown(header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    rows = [header, ("---",) * len(header), *lines]
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
    return (*common[:2], f"{last[-1]:,}", str(len(scores)), common[2], *tasks, _overall(scores))


def _overall(scores: Sequence[float]) -> str:
    """Mean and spread over seeds; one seed has no spread."""
    if not scores:
        return "–"
    spread = f" ± {pstdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.1f}{spread}"


def _trained_seeds(run: Path) -> list[int]:
    """The seeds a run was begun with, where it says so."""
    if not (run / "config.json").is_file():
        return []
    from cta.experiment.run_dir import read_json

    seeds = read_json(run / "config.json").get("seeds")
    return [seed for seed in seeds if isinstance(seed, int)] if isinstance(seeds, list) else []
