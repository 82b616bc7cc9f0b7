from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cta.cli.options import words
from cta.grid import How


@dataclass(frozen=True, kw_only=True)
class Command(How):
    """Carry out a plan: get the data, train every seed, score it, and write scores as they come.

    A second start, after a signal, a crash or a spent budget, continues with the rest. All plans share what is finished
    in WORK: another --out only publishes it, and more seeds, steps or episodes continue what is there. A cell that
    fails stops no other. With --budget only what should end in time is begun, with fewer seeds if all do not fit, never
    fewer steps; every checkpoint of a result is kept as weights for `cta evaluate` until it is scored.

      cta reproduce plans/paper-core.toml --out mine              all of it, in a results folder of your own
      cta reproduce plans/paper-all.toml --dry-run                cells, runs, hours, and on which rates
      cta reproduce plans/paper-core.toml --budget 28m --evaluate later --weights float16
      cta reproduce plans/paper-all.toml --engine ray --work /shared/work --out /shared/results  docs/cluster.md
      cta reproduce plans/paper-core.toml --agents cta --work runs/cta  one of two machines, or of two processes

    exit codes: as `cta --help` says; 0 also if the budget is spent, 1 if a cell failed or could not be made
    """

    plan: Annotated[Positional[Path], arg(metavar="PLAN")]
    """TOML file: datasets, agents, seeds, steps, evaluation points, episodes."""
    datasets: str = ""
    """Only these of the plan's datasets, with commas between them (default: all)."""
    agents: str = ""
    """Only these of the plan's agents, with commas between them (default: all). So machines can share a plan."""

    def __call__(self) -> int:
        from cta.grid.plan import read_plan
        from cta.grid.run_plan import run_plan

        plan = read_plan(self.plan).only(datasets=words(self.datasets), agents=words(self.agents))
        return run_plan(plan, self)
