"""cta ooc study"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cta.cli.ooc_data import Rules
from cta.cli.options import Engine, Markdown, Seeds, Workers, WorkFolder
from cta.envs.names import KNOWN
from cta.io.text_tables import print_table


@dataclass(frozen=True, kw_only=True)
class Study(Rules):
    """Cut the pairs out, train, ask, and print the table beside the paper's.

    It is a plan like those of `cta reproduce`: runs lie in the work folder of all plans, scores and their records in
    DIR/results. Stopped anywhere, the same command continues; agents, controls, seeds and steps may be added later.

      cta ooc study desk --seeds 1 --steps 2000
      cta ooc study scene-play-v0 --agents cta,hiql-analogy --seeds 4
      cta ooc study desk --controls uncut,random
    """

    env: Annotated[Positional[str], arg(metavar="ENV")]
    """A dataset name (scene-play-v0), its world (scene, desk), or an npz file."""
    agents: str = "cta,hiql-analogy,hiql-dual,gciql-dual,hiql"
    """Separated by commas."""
    seeds: Seeds = "4"
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the paper's)")] = None
    """Optimiser steps."""
    controls: str = ""
    """Also train on data without a cut (`uncut`), with as many random windows cut (`random`), or both (default:
    neither)."""
    per_pair: bool = False
    """One training for each pair, on data without that pair alone."""
    episodes: int = 50
    """Episodes per pair."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/ooc/DATASET)")] = None
    """Folder of the scores."""
    work: WorkFolder = None
    engine: Engine = "local"
    workers: Workers = None
    markdown: Markdown = False

    def __call__(self) -> int:
        from cta.cli.train import parse_seeds
        from cta.grid import studies
        from cta.grid.how import How
        from cta.grid.run_plan import run_plan
        from cta.scores.pair_table import as_table, merge, pair_lines, paper_lines
        from cta.scores.store import Scores

        dataset = self.env if self.env in KNOWN or f"{self.env}-play-v0" not in KNOWN else f"{self.env}-play-v0"
        flags = () if self.pairs is None else ("--pairs", str(self.pairs.expanduser().absolute()))
        flags += tuple(word for level in self.threshold for word in ("--threshold", level))
        flags += tuple(word for level in self.event_threshold for word in ("--event-threshold", level))
        study = studies.Study(
            dataset,
            self.held_out(dataset),
            agents=tuple(self.agents.split(",")),
            seeds=parse_seeds(self.seeds),
            steps=self.steps,
            controls=tuple(control for control in self.controls.split(",") if control),
            per_pair=self.per_pair,
            episodes=self.episodes,
            flags=flags,
        )
        plan = study.plan()
        folder = (self.out or Path("runs") / "ooc" / Path(dataset).name.removesuffix(".npz")).expanduser()
        shared = {"work": self.work, "dataset_dir": self.dataset_dir, "engine": self.engine, "workers": self.workers}
        code = run_plan(plan, How(out=folder / "results", **shared))
        for number, pair in study.held_out.numbered():
            print(f"pair{number}: {pair.describe(study.held_out.layout)}")
        scores = Scores(folder / "results")
        ours = pair_lines(row for cell in plan.cells for row in scores.cell(cell.key).rows if cell.wants(row))
        table = as_table(merge(ours, [] if flags else paper_lines(dataset)))
        print_table(table, title="direct success (success), %", markdown=self.markdown)
        return code
