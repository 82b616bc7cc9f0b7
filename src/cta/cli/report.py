"""cta report"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli import DONE
from cta.errors import CtaError

DESCRIPTION = """\
Write one self-contained HTML page about runs. It begins with the question and the answer: how the agents did on
held-out pairs, where they were asked for them, and both playing the same pair. Then come learning curves, the analogy
map, tables (ours beside the paper's, each also as CSV), settings and versions.

It opens from disk, without a network, and stays under 15 MB. It shows what is there: `cta analogies RUN` adds the map,
`cta ooc evaluate RUN` the out-of-combination table, `cta evaluate RUN --videos 1` videos of OGBench's worlds (the
embedded worlds need none).

  cta report runs/desk-play-v0/*
  cta report runs/scene-play-v0/* --out pages/scene
"""


@dataclass(frozen=True)
class Settings:
    """What to show, and where to write it."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN…")]
    """Run directories."""
    out: Path | None = None
    """Folder of the page, OUT/index.html (default: RUN/report of a single run, else `report`)."""
    agent: Annotated[str | None, arg(metavar="MODULE:CLASS")] = None
    """An agent of the runs that is code of your own."""
    results: Path | None = None
    """Also show the tables of this results folder (`cta table`)."""
    rollouts: int = 4
    """Rollouts per task, held-out pair and run on the embedded worlds (0: no rollouts)."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta report", description=DESCRIPTION)
    if not settings.runs:
        raise CtaError("name at least one run directory")
    if settings.rollouts < 0:
        raise CtaError("--rollouts must not be negative")
    from cta.agents import find
    from cta.report import build

    if settings.agent:
        find(settings.agent)

    out = settings.out or (settings.runs[0] / "report" if len(settings.runs) == 1 else Path("report"))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with console.status("reading") as status:
        report = build(
            settings.runs,
            out=out,
            episodes=settings.rollouts,
            results=settings.results,
            say=lambda text: status.update(text),
        )
    for line in report.left_out:
        print(line)
    print(f"page: {report.path} ({report.size / 1e6:.1f} MB)")
    return DONE
