import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from cta.cli.options import OpenedRun
from cta.io.files import check_writable
from cta.io.json_files import read_json


@dataclass(frozen=True, kw_only=True)
class Command(OpenedRun):
    """Write a run's policy into a folder that needs neither the run nor this package.

    It holds programs for any batch size (StableHLO for CPU and CUDA with weights in safetensors, or ONNX), policy.json
    (inputs, outputs, origin) and load.py, which needs only jax, numpy and safetensors, or onnxruntime and numpy. Its
    actions are compared with the run's on 1,000 inputs.

      cta export RUN --out policy --seed 3            the newest checkpoint of seed 3
      cta export RUN --out policy --format onnx       as ONNX (pip install 'cta[onnx]')
      cd policy && python -c "from load import load; print(load('.').about['observation'])"
    """

    out: Annotated[Path, arg(metavar="DIR")]
    """New folder for the policy."""
    format: Literal["stablehlo", "onnx"] = "stablehlo"
    """What the programs are written in."""
    seed: int | None = None
    """Seed of a run with several (default: the first that has not diverged)."""
    step: int | None = None
    """Checkpoint (default: the newest)."""

    def __call__(self) -> None:
        from cta.export import export_policy

        check_writable(self.out)
        doing = "compiling the policy for CPU and CUDA" if self.format == "stablehlo" else "writing the policy as ONNX"
        print(f"{doing}, and checking it against the run", file=sys.stderr, flush=True)
        opened = self.open_run(self.run)
        out = export_policy(opened, self.out, format=self.format, seed=self.seed, step=self.step)
        size = sum(path.stat().st_size for path in out.iterdir())
        if opened.units.bounds is None:
            told = "`cta train --action-bounds`, or action_low and action_high in the data, state them"
            print(f"the bounds of actions are not known, so they are in [-1, 1]: {told}", file=sys.stderr)
        compared = "not checked against the run, which needs onnxruntime: pip install 'cta[onnx]'"
        if check := read_json(out / "policy.json")["check"]:
            gap = f"largest difference {check['largest_difference']:.1g} of actions in [-1, 1]"
            compared = f"checked against the run on {check['inputs']:,} inputs: {gap}"
        print(f"{out}: {size / 2**20:.1f} MB, {compared}")
