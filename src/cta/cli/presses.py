"""cta presses: boards of lights in exact numbers."""

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from cta.cli.options import Checkpoints, OwnAgent, RunFolders, Unverified
from cta.envs.lights import board_of, read_board
from cta.envs.names import known_spec
from cta.errors import CtaError
from cta.io.csv_log import CsvLog, csv_text
from cta.io.files import check_writable, write_whole
from cta.io.text_tables import print_table
from cta.validation import Count

ORDERS = "press_order.csv"
COLUMNS = ("dataset", "agent", "seed", "step", "measure", "presses", "pairs", "mean", "order", "step_order")
LIKELIHOOD = "log likelihood"
HELD_OUT = {"loss": "validation/high_actor/actor_loss", LIKELIHOOD: "validation/high_actor/bc_log_prob"}


@dataclass(frozen=True)
class Board:
    """What can be reached on a board of lights, and with how few presses.

    cta presses board lights-4x4                                        rank, hardest goal, the five tasks
    cta presses board puzzle-4x4 --goal 1100100000000000                the fewest presses from all off to this
    cta presses board lights-4x5 --start 1…0 --goal 0…1                 from one board to another
    """

    name: Annotated[Positional[str], arg(metavar="WORLD")]
    """lights-RxC or puzzle-RxC, or a dataset of such a world."""
    start: str | None = None
    """Zeros and ones, light after light, row after row (default: all off)."""
    goal: str | None = None
    """The same of a goal: prints the fewest presses that lead there."""

    def __call__(self) -> None:
        dataset = self.name if self.name.count("-") > 1 else f"{self.name}-play-v0"
        known_spec(dataset)
        board = board_of(dataset)
        if self.goal is not None:
            goal = read_board(self.goal, board.lights, "--goal")
            start = read_board(self.start or "0" * board.lights, board.lights, "--start")
            board.distance(start, goal)
            presses = board.presses(np.bitwise_xor(start, goal)).nonzero()[0].tolist()
            print(f"{len(presses)} presses: {', '.join(map(str, presses)) or 'none'}")
            return
        if self.start is not None:
            raise CtaError("--start is for a --goal")
        share = "every goal" if board.rank == board.lights else f"1 in {2 ** (board.lights - board.rank)} goals"
        print(f"{board.rows}x{board.columns}: {board.lights} lights, rank {board.rank} over F₂: {share} can be reached")
        print(f"the hardest goal needs {board.hardest} presses")
        if dataset.startswith("lights-"):
            from cta.envs.desk import find_world

            world: Any = find_world(dataset)
            for task in world.tasks:
                lit = "".join(map(str, task.goal_bits))
                print(f"{task.name}: {board.distance(task.start_bits, task.goal_bits)} presses to {lit}")


@dataclass(frozen=True)
class Order:
    """Without a rollout: does the value know how many presses are left, and is the high policy over-fitted?

    For each number n of presses: Spearman's rank correlation of −V with the exact number over pairs up to n presses
    apart, and over n − 1 and n presses alone (0: the value does not tell them apart). Pairs are rows of the held-out
    data with their lights set. Written to RUN/press_order.csv. Below: held-out loss and log likelihood of the high
    policy, now and at their best, from train.csv.

      cta presses order RUN RUN
      cta presses order RUN --step all --pairs 1000
    """

    runs: RunFolders
    step: Checkpoints = "last"
    pairs: Count = 256
    """Pairs for each number of presses."""
    most: Count | None = None
    """The largest number of presses (default: what the hardest goal needs)."""
    agent: OwnAgent = None
    unverified: Unverified = False

    def __call__(self) -> None:
        if not self.runs:
            raise CtaError("name at least one run directory")
        from cta.evaluation.offline import press_order
        from cta.experiment import Run
        from cta.experiment.candidates import candidates

        for folder in self.runs:
            run = Run(str(folder), agent=self.agent, unverified=self.unverified)
            check_writable(run.path)
            name = run.config.dataset_name
            board_of(name)
            _, train, validation = run.open_data()
            rows: list[dict[str, Any]] = []
            for item in candidates(run, self.step):
                print(f"{item.label}: asking for values", file=sys.stderr, flush=True)
                said = {"dataset": name, "agent": item.key.agent, "seed": item.seed, "step": item.step}
                asked = item.agent, item.load(), name, validation or train
                rows += [said | one for one in press_order(*asked, pairs=self.pairs, most=self.most)]
            if not rows:
                raise CtaError(f"{run.path}: its agent {run.config.agent_name} has no value to ask for")
            write_whole(run.path / ORDERS, csv_text([COLUMNS, *([row[c] for c in COLUMNS] for row in rows)]))
            _print(rows, run.path)


def _print(rows: list[dict[str, Any]], path: Path) -> None:
    """The newest step, averaged over seeds; then held-out loss and log likelihood, which agents of one level lack."""
    last = max(row["step"] for row in rows)
    found: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["step"] == last:
            found[row["presses"]][row["measure"]].append(row)

    def mean(mine: list[dict[str, Any]], column: str) -> str:
        return "–" if mine[0][column] == "" else f"{fmean(row[column] for row in mine):.3f}"

    measures = found[min(found)]
    header = ["presses", *(f"{name}, {what}" for name in measures for what in ("up to n", "n−1 and n", "mean"))]
    lines = [
        [str(presses), *(mean(by[name], column) for name in measures for column in ("order", "step_order", "mean"))]
        for presses, by in sorted(found.items())
    ]
    print_table([header, *lines], left=1, title=f"{rows[0]['agent']} on {rows[0]['dataset']}, step {last:,}")
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in CsvLog(path / "train.csv").read() if (path / "train.csv").is_file() else ():
        for what, column in HELD_OUT.items():
            if row.get(column):
                curves[row["seed"], what][int(row["step"])] = float(row[column])
    for (seed, what), curve in curves.items():
        best, now = (max if what == LIKELIHOOD else min)(curve, key=lambda step: curve[step]), max(curve)
        print(
            f"seed {seed}: held-out {what} of the high policy {curve[now]:.4g} at step {now:,}, "
            f"best {curve[best]:.4g} at step {best:,}"
        )
    print(f"rows: {path / ORDERS}")


COMMANDS = {"board": Board, "order": Order}
