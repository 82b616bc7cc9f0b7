from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from cta.cli.options import DataFolder, Engine, Seeds, WorkFolder, parse_seeds
from cta.io.files import FigureFormat


@dataclass(frozen=True)
class Command:
    """Train an agent over a grid of one setting: subgoal steps k, rank b of the bilinear features, or readings.

    A reading is what changes if the paper's text is followed where the released code does something else. Writes
    ablation.png (or .pdf, .svg: success over training, and the mean of the last three evaluations), summary.csv and the
    scores, in results/, to OUT. As with `cta reproduce` the same command continues, and finds what other plans trained.

      cta ablate k                                        k = 10, 20, 30, 40 on the desk
      cta ablate b --seeds 4 --steps 6000                 b = 4, 8, 16, 32
      cta ablate k --dataset scene-play-v0 --dataset puzzle-4x4-play-v0 --out runs/ablate-k-large
      cta ablate reading --seeds 4 --steps 3000           all readings on the desk
      cta ablate reading --values code unscaled --agent hiql-analogy --out runs/ablate-reading-hiql
    """

    what: Annotated[Positional[Literal["k", "b", "reading"]], arg(metavar="k|b|reading")]
    """The setting that varies."""
    values: tuple[str, ...] | None = None
    """Its values (default: the paper's, k 10 20 30 40, b 4 8 16 32; all readings that the agent has)."""
    dataset: Annotated[tuple[str, ...], UseAppendAction] = ()
    """Dataset name or file; may be repeated (default: desk-play-v0)."""
    agent: str = "cta"
    """Agent."""
    seeds: Seeds = "1"
    steps: int | None = None
    """Optimiser steps per run (default: the preset's)."""
    eval_interval: int | None = None
    """Steps between evaluations (default: a tenth of the steps)."""
    eval_episodes: int | None = None
    """Episodes per task (default: the preset's)."""
    dataset_dir: DataFolder = None
    out: Path | None = None
    """Folder of the scores and pictures (default: runs/ablate-k, -b or -reading)."""
    format: FigureFormat = "png"
    """Format of the picture."""
    work: WorkFolder = None
    engine: Engine = "local"

    def __call__(self) -> int:
        from cta.grid import How
        from cta.grid.run_plan import run_plan
        from cta.grid.studies import ablation_plan, write_ablation
        from cta.io.text_tables import print_table
        from cta.scores.store import Scores

        out = self.out or Path("runs") / f"ablate-{self.what}"
        size = {"steps": self.steps, "interval": self.eval_interval, "episodes": self.eval_episodes}
        seeds, data = parse_seeds(self.seeds), self.dataset or ("desk-play-v0",)
        plan, values = ablation_plan(self.what, self.values, datasets=data, agent=self.agent, seeds=seeds, **size)
        how = How(out=out / "results", work=self.work, dataset_dir=self.dataset_dir, engine=self.engine)
        code = run_plan(plan, how)
        lines = write_ablation(self.what, plan, values, out, Scores(how.out), format=self.format)
        rows = [["dataset", self.what, "steps", "seeds", "episodes", "success", "per seed"]]
        for line in lines:
            score = f"{line['success']} ± {line['sd']}" if line["seeds"] > 1 else str(line["success"])
            counts = (str(line[name]) for name in ("value", "steps", "seeds", "episodes"))
            rows.append([line["dataset"], *counts, score, line["per_seed"]])
        if lines:
            print_table(rows, left=1, title=f"success, %, mean of the last three evaluations, {self.agent}")
            print(f"picture: {out / f'ablation.{self.format}'}; tables and scores beside it")
        return code
