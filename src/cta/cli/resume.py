from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from cta.cli.options import OpenedRun


@dataclass(frozen=True, kw_only=True)
class Command(OpenedRun):
    """Continue a run that was stopped, killed or cut off, from its newest checkpoint (or from the beginning).

    On a CPU the result is bit for bit that of a run that was never stopped, or with --steps, which trains a finished
    run further, too, of one that was started with so many steps.

      cta resume runs/desk-play-v0/cta-20260101-120000 --steps 20000
    """

    steps: Annotated[int | None, arg(aliases=["--train-steps"])] = None
    """Train to this step (default: what the run's config says)."""

    def __call__(self) -> int:
        from cta import experiment
        from cta.cli.train import conclude

        options = {"steps": self.steps, "agent": self.agent, "unverified": self.unverified}
        return conclude("resume", lambda: experiment.resume(self.run, **options))
