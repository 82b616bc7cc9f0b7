import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rich.console import Console

from cta.agents import find
from cta.cli import run
from cta.cli.ooc import print_pairs
from cta.cli.options import parse_seeds
from cta.errors import CtaError, need_extra
from cta.exit_codes import DONE, SEED_STOPPED
from cta.grid import How
from cta.grid.plan import Plan
from cta.grid.run_plan import run_plan
from cta.grid.studies import scored_cell, study_plan
from cta.grid.workspace import Workspace
from cta.io.json_files import read_json, write_json
from cta.io.text_tables import print_table, print_text
from cta.ooc import find_layout, held_out_of
from cta.scores.pair_table import BLOCKS, PLAIN, PairAnswer, pair_lines
from cta.scores.paper import ALL_PAIRS
from cta.scores.schema import HELD_OUT, PAIRS, Score, write_scores
from cta.scores.store import Scores
from cta.validation import Bounds, Count

DATASET = "lights-3x3-play-v0"
AGENTS = ("cta", "hiql")
WORLD = """\
Nine buttons in a square, numbered row by row; a press flips the button's own
light and those beside it. Five presses are cut out of play data wherever these
lights are on (1) or off (0), and two agents are asked for exactly them:"""
NEXT = {
    f"ooc study {DATASET} --seeds 8 --steps 6000 --controls uncut,random": "the same for five agents, with controls",
    f"analogies RUN --query ooc --data {DATASET}": "the nearest analogies of the held-out pairs, as pictures",
    "train --dataset desk-play-v0": "an agent on another small world, on all of its data",
}
"""The words of a command, and why."""
CURVE_SHARE, CURVE_EPISODES = 0.4, 20
"""Scores on the world's own tasks, for the curves of the page: after each such share of training, episodes per task."""


@dataclass(frozen=True)
class Command:
    """Cut held-out pairs of context and task out of play data of an embedded world, train CTA and a baseline on what is
    left, ask both for these pairs, map CTA's analogies, and write one page. Stopped, the same command continues.
    """

    seeds: str = "6"
    """Seeds of each agent: a count or a list, as in `cta train`."""
    steps: Count = 6_000
    """Optimiser steps of each agent."""
    pairs: Annotated[int, Bounds("be at least 5", lambda pairs: pairs >= 5)] = 3_000
    """Points of the analogy map."""
    out: Path | None = None
    """Folder for data, runs and the page (default: runs/demo-SEEDS-STEPS)."""

    def __call__(self) -> int:
        seeds = parse_seeds(self.seeds)
        need_extra("report", "openTSNE", "the map")
        out = self.out or Path("runs") / f"demo-{self.seeds}-{self.steps}"
        enter(out, self.seeds, self.steps)
        began = time.monotonic()
        found, runs, code = train(seeds, self.steps, out)
        if code not in (DONE, SEED_STOPPED):
            print("the same command continues")
            return code
        mapping = ["analogies", runs[0], "--pairs", str(self.pairs), "--frames", "0"]
        for command in (mapping, ["report", *runs, "--out", str(out / "page")]):
            print(f"\n$ cta {shlex.join(command)}", flush=True)
            if (code := run(command)) != DONE:
                return code
        conclude(found, out / "page" / "index.html", runs[0])
        print(f"\nseeds {self.seeds}, {self.steps:,} steps, {(time.monotonic() - began) / 60:.1f} minutes")
        return DONE


def enter(out: Path, seeds: str, steps: int) -> None:
    """Begin in an empty folder, or continue the demo that was begun there."""
    record, mine = out / "demo.json", {"seeds": seeds, "steps": steps}
    if record.is_file():
        found = read_json(record, {"seeds": str, "steps": int})
        if found != mine:
            was = f"seeds {found['seeds']} and steps {found['steps']}"
            raise CtaError(f"{out} has a demo with {was}: give the same, or another --out")
        print(f"continuing in {out}; remove it to begin anew")
    elif out.exists() and any(out.iterdir()):
        raise CtaError(f"{out} is not empty: choose another --out")
    else:
        write_json(record, mine)


def train(seeds: tuple[int, ...], steps: int, out: Path) -> tuple[dict[str, list[Score]], list[str], int]:
    """Both agents on cut data, with tables for the page in their runs; scores on pairs by agent, runs, exit code."""
    held_out = held_out_of(find_layout(DATASET))
    print(WORLD)
    print_pairs(held_out, "  ")
    print(flush=True)
    asked = study_plan(DATASET, held_out, agents=AGENTS, seeds=seeds, steps=steps).cells
    every = max(1, round(CURVE_SHARE * steps))
    curves = [scored_cell(DATASET, agent, seeds, steps, every, CURVE_EPISODES) for agent in AGENTS]
    # All points alike: they are scored together, in fewer processes.
    curves = [replace(cell, points=cell.all_points, curve_points=(), condition=HELD_OUT) for cell in curves]
    plan = Plan("demo", (*asked, *curves))
    code = run_plan(plan, How(out=out / "results", work=out))
    space, scores = Workspace(plan, out, out / "results"), Scores(out / "results")
    runs, found = [], {}
    for cell in asked:
        rows = scores.cell(cell.key).rows
        found[find(cell.agent).paper_name] = [row for row in rows if cell.wants(row)]
        for unit in space.units(cell):
            write_scores(unit.path / "eval.csv", [row for row in rows if row.asked != PAIRS])
            write_scores(unit.path / "ooc.csv", [row for row in rows if row.asked == PAIRS])
            runs.append(str(unit.path) if out.is_absolute() else os.path.relpath(unit.path))
    lines = [line for name, rows in found.items() for line in pair_lines(rows, name)]
    if lines:
        pairs = [*((f"pair{number}", pair.name) for number, pair in held_out.numbered()), (ALL_PAIRS, "")]
        rows = [[pair, task, *(line.both(pair) for line in lines)] for pair, task in pairs]
        title = "direct success (success) on pairs that were never shown, %, ± over seeds"
        print_table([["pair", "task", *found], *rows], title=title)
    return found, runs, code


def conclude(found: dict[str, list[Score]], page: Path, run_directory: str) -> None:
    """The answer in a sentence and in bars, where the page is, and what to try next."""
    answer = PairAnswer(found)
    print_text("\n" + answer.sentence())
    print("", *answer.bars(BLOCKS if Console().encoding.startswith("utf") else PLAIN), sep="\n")
    print(f"\nThe page opens in any browser, without a network:\n  {page.resolve()}\n\nWhat next:")
    # How this program can be called again from here.
    mine, known = Path(sys.argv[0]), shutil.which("cta")
    command = shlex.quote(str(mine)) if mine.name == "cta" else "python -m cta"
    if known and mine.exists() and Path(known).samefile(mine):
        command = "cta"
    for words, why in NEXT.items():
        print(f"  # {why}\n  {command} {words.replace('RUN', shlex.quote(run_directory))}")
