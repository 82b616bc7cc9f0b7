"""cta export"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from cta.cli.options import OpenedRun
from cta.io.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Command(OpenedRun):
    """Write a run's policy into a folder that needs neither the run nor this package.

    The folder holds the weights (safetensors), StableHLO programs for CPU and CUDA and any batch size, policy.json
    (inputs, outputs, where it comes from) and load.py, a loader that needs only jax, numpy and safetensors.

      cta export RUN --out policy                     the newest checkpoint of the first seed that has not diverged
      cta export RUN --out policy --seed 3            seed 3's
      cta export RUN --out policy --step 800000       of this checkpoint
      cd policy && python -c "from load import load; print(load('.').about['observation'])"
    """

    out: Annotated[Path, arg(metavar="DIR")]
    """New folder for the policy."""
    seed: int | None = None
    """Seed of a run with several (default: the first that has not diverged)."""
    step: int | None = None
    """Checkpoint (default: the newest)."""

    def __call__(self) -> None:
        from cta.export import export_policy

        check_writable(self.out)
        print("compiling the policy for CPU and CUDA, and checking it against the run", file=sys.stderr, flush=True)
        opened = self.open()
        out = export_policy(opened, self.out, seed=self.seed, step=self.step)
        size = sum(path.stat().st_size for path in out.iterdir())
        if opened.units.bounds is None:
            told = "`cta train --action-bounds`, or action_low and action_high in the data, state them"
            print(f"the bounds of actions are not known, so they are in [-1, 1]: {told}", file=sys.stderr)
        print(f"{out}: {size / 2**20:.1f} MB, checked against the run")
