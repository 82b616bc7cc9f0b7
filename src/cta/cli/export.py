"""cta export"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli import DONE

DESCRIPTION = """\
Write a run's policy into a folder that needs neither the run nor this package.

The folder holds the weights (safetensors), StableHLO programs for CPU and CUDA and any batch size, policy.json (inputs,
outputs, where it comes from) and load.py, a loader that needs only jax, numpy and safetensors.

  cta export RUN --out policy                     the newest checkpoint of the first seed that is well
  cta export RUN --out policy --seed 3            seed 3's
  cta export RUN --out policy --step 800000       of this checkpoint
  cd policy && python -c "from load import load; print(load('.').about['observation'])"
"""


@dataclass(frozen=True)
class Settings:
    """What to export."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory."""
    out: Annotated[Path, arg(metavar="DIR")]
    """New folder for the policy."""
    seed: int | None = None
    """Seed of a run with several (default: the first that is well)."""
    step: int | None = None
    """Checkpoint (default: the newest)."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta export", description=DESCRIPTION)
    from cta.export import export_policy

    out = export_policy(settings.run, settings.out, seed=settings.seed, step=settings.step)
    size = sum(path.stat().st_size for path in out.iterdir())
    Console(highlight=False, soft_wrap=True).print(f"{out}: {size / 2**20:.1f} MB, checked against the run")
    return DONE
