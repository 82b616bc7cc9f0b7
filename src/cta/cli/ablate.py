"""cta ablate"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from cta.cli import DONE, INTERRUPTED

DESCRIPTION = """\
Train an agent over a grid of one setting: k, the steps to a subgoal; b, the rank of the bilinear features; or readings:
what changes if the paper's text is followed where the released code does something else.

Everything else stays as the paper has it for the dataset. Success over training and the mean of the last three
evaluations are drawn as in the paper's figures. Finished runs are kept: run the command again to go on after a stop. A
grid with other steps, seeds, agents or datasets needs an OUT of its own.

Writes ablation.png, summary.csv, evaluations.csv and record.json to OUT, and a run directory for each value.

  cta ablate k                                        k = 10, 20, 30, 40 on the desk
  cta ablate b --seeds 4 --steps 6000                 b = 4, 8, 16, 32
  cta ablate k --dataset scene-play-v0 --dataset puzzle-4x4-play-v0 --out runs/ablate-k-large
  cta ablate reading --seeds 4 --steps 3000           all readings on the desk
  cta ablate reading --values code unscaled --agent hiql-analogy --out runs/ablate-reading-hiql

exit codes: 0 done, 1 error, 2 wrong usage, 3 interrupted; the same command goes on
"""


@dataclass(frozen=True)
class Settings:
    """What to train."""

    what: Annotated[Positional[Literal["k", "b", "reading"]], arg(metavar="k|b|reading")]
    """The setting that varies."""
    values: tuple[str, ...] | None = None
    """Its values (default: the paper's, k 10 20 30 40, b 4 8 16 32; all readings that the agent has)."""
    dataset: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Dataset name or file; may be repeated (default: desk-play-v0)."""
    agent: str = "cta"
    """Agent."""
    seeds: str = "1"
    """A count (4 means 0…3) or a list (0,3,5)."""
    steps: int | None = None
    """Optimiser steps a run (default: the preset's)."""
    eval_interval: int | None = None
    """Steps between evaluations (default: a tenth of the steps)."""
    eval_episodes: int | None = None
    """Episodes per task (default: the preset's)."""
    dataset_dir: str | None = None
    """Folder of datasets."""
    out: Path | None = None
    """Folder of runs and results (default: runs/ablate-k, -b or -reading)."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta ablate", description=DESCRIPTION)
    from cta.analysis.ablation import Ablation, default_values, parse_values, run_ablation
    from cta.cli.train import parse_seeds
    from cta.experiment import Interrupted

    datasets = settings.dataset or ("desk-play-v0",)
    out = settings.out or Path("runs") / f"ablate-{settings.what}"
    ablation = Ablation(
        what=settings.what,
        values=parse_values(settings.what, settings.values)
        or default_values(settings.what, settings.agent, datasets[0]),
        out=out,
        datasets=datasets,
        agent=settings.agent,
        seeds=parse_seeds(settings.seeds),
        steps=settings.steps,
        eval_interval=settings.eval_interval,
        eval_episodes=settings.eval_episodes,
        dataset_dir=settings.dataset_dir,
    )
    console = Console(highlight=False, soft_wrap=True)
    try:
        lines = run_ablation(ablation, say=console.print)
    except Interrupted as stop:
        print(f"cta ablate: {stop}; the same command goes on from there", file=sys.stderr)
        return INTERRUPTED
    table = Table(title=f"success, %, mean of the last three evaluations, {settings.agent}")
    for name in ("dataset", settings.what, "steps", "seeds", "episodes", "success", "per seed"):
        table.add_column(name, justify="left" if name == "dataset" else "right")
    for line in lines:
        score = f"{line['success']} ± {line['sd']}" if line["seeds"] > 1 else str(line["success"])
        counts = (str(line[name]) for name in ("value", "steps", "seeds", "episodes"))
        table.add_row(line["dataset"], *counts, score, line["per_seed"])
    console.print(table)
    console.print(f"picture: {out / 'ablation.png'}; tables and record beside it")
    return DONE
