from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from cta.cli.options import RunFolders
from cta.io.files import check_writable
from cta.validation import Natural


@dataclass(frozen=True)
class Command:
    """Write one HTML page about runs, under 15 MB, that opens without a network: held-out pairs and agents at them,
    learning curves, the analogy map, tables (ours beside the paper's, each also as CSV), settings and versions.

    It shows what is there: `cta analogies RUN` adds the map, `cta ooc evaluate RUN` the out-of-combination table,
    `cta evaluate RUN --videos 1` videos of OGBench's worlds.

      cta report runs/scene-play-v0/* --out pages/scene
    """

    runs: RunFolders
    out: Path | None = None
    """Folder of the page, OUT/index.html (default: RUN/report of a single run, else `report`)."""
    agent: Annotated[str | None, arg(metavar="MODULE:CLASS")] = None
    """An agent of the runs that is code of your own."""
    results: Path | None = None
    """Also show the tables of this results folder (`cta table`)."""
    rollouts: Natural = 4
    """Rollouts per task, held-out pair and run on the embedded worlds (0: no rollouts)."""

    def __call__(self) -> None:
        from cta.agents import find
        from cta.report import build

        if self.agent:
            find(self.agent)
        out = self.out or (self.runs[0] / "report" if len(self.runs) == 1 else Path("report"))
        check_writable(out)
        with Console(stderr=True, highlight=False, soft_wrap=True).status("reading") as status:
            report = build(self.runs, out=out, episodes=self.rollouts, results=self.results, say=status.update)
        for line in report.left_out:
            print(line)
        print(f"page: {report.path} ({report.size / 1e6:.1f} MB)")
