"""cta presses: boards of lights in exact numbers."""

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from cta.cli.options import Checkpoints, Opening, RunFolders
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
        dataset = known_spec(self.name if self.name.count("-") > 1 else f"{self.name}-play-v0").name
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


@dataclass(frozen=True, kw_only=True)
class Order(Opening):
    """Without a rollout: does the value know how many presses are left, and is the high policy over-fitted?

    For each number n of presses: Spearman's rank correlation of −V with the exact number over pairs (rows of held-out
    data with their lights set) up to n presses apart, and over n − 1 and n alone (0: V does not tell them apart), into
    RUN/press_order.csv. Below: held-out loss and log likelihood of the high policy, now and at their best.

      cta presses order RUN RUN --step all --pairs 1000
    """

    runs: RunFolders
    step: Checkpoints = "last"
    pairs: Count = 256
    """Pairs for each number of presses."""
    most: Count | None = None
    """The largest number of presses (default: what the hardest goal needs)."""

    def __call__(self) -> None:
        from cta.evaluation.offline import press_order
        from cta.experiment.candidates import candidates

        for folder in self.runs:
            run = self.open_run(folder)
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
    newest = [row for row in rows if row["step"] == last]
    shown = {"order": "up to n", "step_order": "n−1 and n", "mean": "mean"}
    measures = [*dict.fromkeys(row["measure"] for row in newest)]
    table = [["presses", *(f"{name}, {what}" for name in measures for what in shown.values())]]
    for presses in sorted({row["presses"] for row in newest}):
        table.append([str(presses)])
        for name in measures:
            mine = [row for row in newest if (row["presses"], row["measure"]) == (presses, name)]
            means = [fmean(row[column] for row in mine) if mine[0][column] != "" else None for column in shown]
            table[-1] += ["–" if mean is None else f"{mean:.3f}" for mean in means]
    print_table(table, left=1, title=f"{rows[0]['agent']} on {rows[0]['dataset']}, step {last:,}")
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in CsvLog(path / "train.csv").read():
        for what, column in HELD_OUT.items():
            if row.get(column):
                curves[row["seed"], what][int(row["step"])] = float(row[column])
    for (seed, what), curve in curves.items():
        best, now = (max if what == LIKELIHOOD else min)(curve, key=lambda step: curve[step]), max(curve)
        said = f"{curve[now]:.4g} at step {now:,}, best {curve[best]:.4g} at step {best:,}"
        print(f"seed {seed}: held-out {what} of the high policy {said}")
    print(f"rows: {path / ORDERS}")


COMMANDS = {"board": Board, "order": Order}
