"""cta demo"""

import time
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import tyro

from cta.cli import DONE, run
from cta.errors import CtaError

DESCRIPTION = """\
Everything on the embedded desk, in minutes, without a GPU or a simulator: cut held-out pairs of context and task out of
play data, train CTA and a baseline on what is left, ask both for the held-out pairs, map CTA's analogies, and write one
page about it all.

It prints every command it runs, so that each can be tried alone. One seed of a small world shows how things work, not
which method is better.

  cta demo
  cta demo --seeds 3 --steps 10000
"""
DATASET = "desk-play-v0"
BASELINE = "hiql-analogy"


@dataclass(frozen=True)
class Settings:
    """How much to train, and where."""

    seeds: str = "1"
    """Seeds of each agent: a count or a list, as in `cta train`."""
    steps: int = 6_000
    """Optimiser steps of each agent."""
    pairs: int = 5_000
    """Points of the analogy map."""
    out: Path | None = None
    """Folder for data, runs and the page (default: runs/demo-TIME)."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta demo", description=DESCRIPTION)
    out = settings.out or Path("runs") / f"demo-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    if out.exists() and any(out.iterdir()):
        raise CtaError(f"{out} is not empty: choose another --out")
    check(settings)
    began = time.monotonic()
    for command in commands(settings, out):
        print(f"\n$ cta {' '.join(command)}", flush=True)
        code = run(command)
        if code != DONE:
            return code
    print(f"\nThe page opens in any browser, without a network: {(out / 'page' / 'index.html').resolve()}")
    print(f"seeds {settings.seeds}, {settings.steps:,} steps, {(time.monotonic() - began) / 60:.1f} minutes")
    return DONE


def check(settings: Settings) -> None:
    """Complain before the first command about what a later one would refuse."""
    from cta.cli.train import parse_seeds

    parse_seeds(settings.seeds)
    if settings.steps < 1:
        raise CtaError(f"--steps must be at least 1, not {settings.steps}")
    if settings.pairs < 5:
        raise CtaError(f"--pairs: a map needs at least 5 pairs, not {settings.pairs}")
    if find_spec("openTSNE") is None:
        raise CtaError("the map needs openTSNE: pip install 'cta[report]'")


def commands(settings: Settings, out: Path) -> list[list[str]]:
    """What the demo does, as command lines."""
    agents = ("cta", BASELINE)
    length = ["--seeds", settings.seeds, "--steps", str(settings.steps)]
    data = str(out / "data" / f"{DATASET}.npz")
    runs = [str(out / agent) for agent in agents]
    return [
        ["ooc", "cut", DATASET, "--out", str(out / "data")],
        *(
            ["train", "--agent", agent, "--dataset", data, *length, "--run-dir", path]
            for agent, path in zip(agents, runs, strict=True)
        ),
        *(["ooc", "evaluate", path, "--step", "last3"] for path in runs),
        ["analogies", runs[0], "--pairs", str(settings.pairs), "--frames", "0"],
        ["report", *runs, "--out", str(out / "page")],
    ]
