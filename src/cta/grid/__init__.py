"""Plans of cells, and the one runner that makes them: on this machine, or on the machines of a Ray cluster.

    plan ─► cells ─► workspace (what is there) ─► runner (what is next) ─► engine ─► processes, ordinary `cta` commands

Files are the only state: a second start, after whatever ended the first one, continues with the rest.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class How:
    """How to carry it out."""

    out: Path = Path("results")
    """Results folder: what is there is not done again."""
    work: Path | None = None
    """Folder of runs, logs and small data, shared by all plans (default: runs/grid)."""
    dataset_dir: str | None = None
    """Folder of full-size datasets (default: OGBench's)."""
    engine: Literal["local", "ray"] = "local"
    """Where jobs run: on this machine, or on a Ray cluster (one is started here if there is none)."""
    gpus_per_unit: float | None = None
    """GPUs of a training process with --engine ray (default: 1, or 0 in a cluster without GPUs)."""
    workers: int | None = None
    """Processes for generation and for scoring (default: the number of cores; of a Ray job: at most 8)."""
    budget: str = ""
    """Wall-clock time, such as 28m, 1h30m or 90s (default: as long as it takes)."""
    evaluate: Literal["here", "later"] = "here"
    """Score beside training, or only keep inference weights (in OUT/weights) for `cta evaluate`."""
    weights: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of kept weights; 16 bits halve the files and round every weight, and the record says so."""
    dry_run: bool = False
    """Print cells, runs, hours and rates, and stop."""

    @property
    def packs(self) -> bool:
        """Whether weights of unscored checkpoints are kept: a machine that is lent for a while keeps nothing else."""
        return self.evaluate == "later" or bool(self.budget)
