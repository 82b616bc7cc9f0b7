"""cta theory"""

import sys
from dataclasses import dataclass
from pathlib import Path

from cta.io.files import check_suffix, check_writable
from cta.validation import Count, Inside


@dataclass(frozen=True)
class Command:
    """Check the paper's theory on small exact worlds, and print a report.

    cta theory                        about a minute on a CPU, most of it for the dual learner
    cta theory --no-bridge            without the dual learner: two seconds
    cta theory --figure fields.svg    also draw the fields of one task in two contexts
    """

    figure: Path | None = None
    """File (.png, .pdf or .svg) for a figure of fields."""
    gamma: float = 0.9
    """γ of the exact tables (the learner keeps its own, 0.9)."""
    bridge: bool = True
    """Also train the dual learner on additive and locked sliders."""
    steps: Count = 2000
    """Optimiser steps of the dual learner."""
    seeds: Count = 1
    """Seeds of the dual learner."""
    expectile: Inside = 0.7
    """ι of the dual learner."""

    def __call__(self) -> None:
        from cta_theory.mdp import check_gamma
        from cta_theory.report import run_report

        check_gamma(self.gamma)
        if self.figure is not None:
            check_suffix(self.figure)
            check_writable(self.figure.parent)
        if self.bridge:
            told = f"the exact worlds first, then a small learner: {self.steps:,} steps, about a minute on a CPU"
            print(told, file=sys.stderr, flush=True)
        run_report(**vars(self))
