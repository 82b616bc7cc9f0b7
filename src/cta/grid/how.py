"""How a plan is carried out: the options of `cta reproduce`, of which other commands set some."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cta.errors import CtaError


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


def seconds(text: str, flag: str) -> float:
    """28m → 1680; 1h30m, 90s and plain seconds too."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not text.strip() or match is None:
        raise CtaError(f"{flag} {text}: give a time such as 28m, 1h30m or 90s")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = 3600 * hours + 60 * minutes + rest
    if total <= 0:
        raise CtaError(f"{flag} {text}: no time at all")
    return total
