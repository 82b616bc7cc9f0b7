import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from cta.cli.options import Markdown, RunFolders
from cta.errors import CtaError
from cta.io.csv_log import CsvLog
from cta.io.json_files import read_json
from cta.io.text_tables import print_table, print_text
from cta.scores.paper import TASKS
from cta.scores.schema import DATA, Score, read_scores
from cta.scores.statistics import LAST_EVALUATIONS, missing_seeds, seed_scores, summarise, task_scores

if TYPE_CHECKING:
    from cta.experiment import Run

HEADER = ("dataset", "agent", "step", "seeds", "episodes", *TASKS, "success, %")
ORDERS = ("dataset", "agent", "step", "seeds", "episodes", "order by V", "order by φᵀψ")
CAPTION = "rank correlation of value and time along held-out trajectories, mean of the last three measurements"


@dataclass(frozen=True)
class Command:
    """Compare runs: success per task and overall, mean ± standard deviation over seeds of the last three evaluations.

    Where dataset and agent do not tell runs apart, a column names the folders. Runs on data without an environment are
    compared by how well their values order held-out trajectories.

      cta scores runs/desk-play-v0/* --markdown > table.md
    """

    runs: RunFolders
    markdown: Markdown = False

    def __call__(self) -> None:
        orders = {run: rows for run in self.runs if (rows := CsvLog(run / "offline.csv").read())}
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
    ends = ([str(Path(*path.parts[-folders:])) for path in paths] for folders in itertools.count(1))
    return next(names for names in ends if len(set(names)) == len(set(paths)))


def _line(run: Path) -> tuple[str, ...]:
    """One run in short; needs nothing but its eval.csv."""
    if not (run / "eval.csv").is_file():
        raise CtaError(f"{run}: no eval.csv here; is it a run directory?")
    rows = read_scores(run / "eval.csv", growing=True)
    if not rows:
        raise CtaError(f"{run}: no evaluation yet; those of a plan are in its --out (cta table --results OUT)")
    last = max(row.step for row in rows)
    begun = read_json(run / "config.json").get("seeds") if (run / "config.json").is_file() else None
    seeds = [seed for seed in begun if isinstance(seed, int)] if isinstance(begun, list) else []
    if missing := missing_seeds(rows, seeds or {row.seed for row in rows}):
        left_out = ", ".join(map(str, missing))
        print(f"{run}: not scored at step {last:,} and left out: seed {left_out}", file=sys.stderr)
    data, counted = rows[0].dataset + DATA[rows[0].condition], [row for row in rows if row.seed not in missing]
    head = data, rows[0].agent, f"{last:,}"
    if not counted:
        return (*head, "0", *["–"] * (len(TASKS) + 2))
    found, tasks = summarise(counted), task_scores(counted)
    by_task = [f"{fmean(tasks[task].values()):.0f}" if task in tasks else "–" for task in TASKS]
    return (*head, str(found.seeds), str(counted[0].episodes), *by_task, str(found))


def order_line(rows: Sequence[Mapping[str, str]], where: str) -> tuple[str, ...]:
    """A run without rollouts in short, from its offline.csv: how well its values order held-out trajectories."""
    try:
        step, seeds = max(int(row["step"]) for row in rows), {int(row["seed"]) for row in rows}
        head = rows[0]["dataset"], rows[0]["agent"], f"{step:,}", str(len(seeds)), rows[-1]["episodes"]
        return (*head, *(_mean_of_last(rows, column) for column in ("value_order", "dual_order")))
    except (KeyError, ValueError) as error:
        raise CtaError(f"{where}/offline.csv: a row cannot be read ({error}); correct or remove it") from None


def _mean_of_last(rows: Sequence[Mapping[str, str]], column: str) -> str:
    curves: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row[column]:
            curves[row["seed"]].append(float(row[column]))
    means = [fmean(curve[-LAST_EVALUATIONS:]) for curve in curves.values()]
    spread = f" ± {pstdev(means):.3f}" if len(means) > 1 else ""
    return f"{fmean(means):.3f}{spread}" if means else "–"


def print_orders(lines: Sequence[tuple[str, ...]], *, markdown: bool = False) -> None:
    print_table([ORDERS, *lines], markdown=markdown)
    if not markdown:
        print_text(f"order: {CAPTION}")


def print_scores(rows: Sequence[Score], run: "Run") -> None:
    """Success per task at the newest step, averaged over seeds, and the last-three score per seed."""
    if not rows:
        print("no evaluation in this run")
        return
    last = max(row.step for row in rows)
    newest = [row for row in rows if row.step == last]
    seeds = seed_scores(newest)
    table = [["task", *(f"seed {seed}" for seed in seeds), "mean"]]
    for task, rates in {**task_scores(newest), "all": seeds}.items():
        cells = [f"{rates[seed]:.{int(task == 'all')}f}" if seed in rates else "–" for seed in seeds]
        table.append([task, *cells, f"{fmean(rates.values()):.1f}"])
    title = f"{run.config.agent_name} on {run.config.dataset_name}, step {last:,}, success in %"
    print_table(table, left=1, title=title)
    missing = missing_seeds(rows, run.config.seeds)
    for seed in missing:
        print(f"seed {seed} is missing: {run.stopped().get(seed, f'not scored at step {last:,}')}")
    if counted := [row for row in rows if row.seed not in missing]:
        found, episodes = summarise(counted), newest[0].episodes
        over = f"over {found.seeds} seeds" if found.seeds > 1 else "(one seed)"
        count = min(LAST_EVALUATIONS, len({row.step for row in rows}))
        means = f"mean over tasks and over the last {count} evaluation{'s' * (count > 1)}"
        print(f"score {found} {over}: {means}, {episodes} episode{'s' * (episodes != 1)} per task")
