"""cta scores"""

import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from cta.cli.options import Markdown, RunFolders
from cta.errors import CtaError
from cta.io.csv_log import CsvLog
from cta.io.json_files import read_json
from cta.io.text_tables import print_table, print_text
from cta.scores.protocol import TASKS
from cta.scores.schema import DATA, read_scores
from cta.scores.statistics import LAST_EVALUATIONS, missing_seeds, summarise, task_scores

HEADER = ("dataset", "agent", "step", "seeds", "episodes", *TASKS, "success, %")
ORDERS = ("dataset", "agent", "step", "seeds", "episodes", "order by V", "order by φᵀψ")
CAPTION = "rank correlation of value and time along held-out trajectories, mean of the last three measurements"


@dataclass(frozen=True)
class Command:
    """Compare runs: success per task and overall, mean ± standard deviation over seeds of the last three evaluations.

    Lines stand in the order of the runs. Where dataset and agent do not tell runs apart, a column names the folders.
    Runs on data without an environment are compared by how well their values order held-out trajectories.

      cta scores runs/desk-play-v0/*
      cta scores runs/desk-play-v0/* --markdown > table.md
    """

    runs: RunFolders
    markdown: Markdown = False

    def __call__(self) -> None:
        if not self.runs:
            raise CtaError("name at least one run directory")
        files = {run: run / "offline.csv" for run in self.runs}
        orders = {run: rows for run, file in files.items() if file.is_file() and (rows := CsvLog(file).read())}
        if orders:
            print_orders([order_line(rows, str(run)) for run, rows in orders.items()], markdown=self.markdown)
        if scored := [run for run in self.runs if run not in orders]:
            rows, left = [HEADER, *map(_line, scored)], 2
            if len({row[:2] for row in rows}) < len(rows):
                rows = [(name, *row) for name, row in zip(("run", *short_names(scored)), rows, strict=True)]
                left = 3
            print_table(rows, left=left, markdown=self.markdown)


def short_names(runs: Sequence[Path]) -> list[str]:
    """The ends of the paths, with as many folders as it takes to tell different ones apart."""
    paths = [Path(os.path.abspath(run)) for run in runs]
    for folders in range(1, max(len(path.parts) for path in paths)):
        names = [str(Path(*path.parts[-folders:])) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return list(map(str, paths))


def _line(run: Path) -> tuple[str, ...]:
    """One run in short; needs nothing but its eval.csv."""
    if not (run / "eval.csv").is_file():
        raise CtaError(f"{run}: no eval.csv here; is it a run directory?")
    rows = read_scores(run / "eval.csv", growing=True)
    if not rows:
        raise CtaError(f"{run}: no evaluation yet")
    last = max(row.step for row in rows)
    begun = read_json(run / "config.json").get("seeds") if (run / "config.json").is_file() else None
    seeds = [seed for seed in begun if isinstance(seed, int)] if isinstance(begun, list) else []
    missing = missing_seeds(rows, seeds or {row.seed for row in rows})
    if missing:
        left_out = ", ".join(map(str, missing))
        print(f"{run}: not scored at step {last:,} and left out: seed {left_out}", file=sys.stderr)
    data, counted = rows[0].dataset + DATA[rows[0].condition], [row for row in rows if row.seed not in missing]
    head = data, rows[0].agent, f"{last:,}"
    if not counted:
        return (*head, "0", *["–"] * (len(TASKS) + 2))
    found, tasks = summarise(counted), task_scores(counted)
    by_task = [f"{fmean(tasks[task].values()):.0f}" if task in tasks else "–" for task in TASKS]
    return (*head, str(found.seeds), str(counted[0].episodes), *by_task, str(found))


# Runs without rollouts: how well their values order held-out trajectories.


def order_line(rows: Sequence[Mapping[str, str]], where: str) -> tuple[str, ...]:
    """One run in short, from its offline.csv."""
    try:
        step = max(int(row["step"]) for row in rows)
        seeds = sorted({int(row["seed"]) for row in rows})
        orders = [_mean_of_last(rows, column) for column in ("value_order", "dual_order")]
        head = rows[0]["dataset"], rows[0]["agent"], f"{step:,}", str(len(seeds)), rows[-1]["episodes"]
    except (KeyError, ValueError) as error:
        raise CtaError(f"{where}/offline.csv: a row cannot be read ({error}); correct or remove it") from None
    return (*head, *orders)


def _mean_of_last(rows: Sequence[Mapping[str, str]], column: str) -> str:
    curves: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row[column]:
            curves[row["seed"]].append(float(row[column]))
    means = [fmean(curve[-LAST_EVALUATIONS:]) for curve in curves.values()]
    if not means:
        return "–"
    return f"{fmean(means):.3f}" + (f" ± {pstdev(means):.3f}" if len(means) > 1 else "")


def print_orders(lines: Sequence[tuple[str, ...]], *, markdown: bool = False) -> None:
    """`order_line`s as a table."""
    print_table([ORDERS, *lines], markdown=markdown)
    if not markdown:
        print_text(f"order: {CAPTION}")
