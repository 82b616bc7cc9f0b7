"""`cta theory`: the paper's claims on small worlds, exactly, and what the dual learner makes of them."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cta.errors import CtaError
from cta.theory.mdp import check_gamma


@dataclass(frozen=True)
class TheoryOptions:
    """Check the theory on small worlds: print a report, write figures."""

    out: Path | None = None
    """Folder for the figures (made if missing); none are drawn without it."""
    gamma: float = 0.9
    """γ of the exact tables (the learner keeps its own, 0.9)."""
    bridge: bool = True
    """Also train the dual learner on additive and locked sliders."""
    steps: int = 2000
    """Optimiser steps of the dual learner."""
    seeds: int = 1
    """Seeds of the dual learner."""
    expectile: float = 0.7
    """ι of the dual learner."""
    run: Path | None = None
    """Instead of the report: measure the analogies of this run, trained on the desk."""


def main(argv: list[str]) -> int:
    """Run with command-line arguments; returns the exit status."""
    options = tyro.cli(TheoryOptions, args=argv, prog="cta theory")
    check_gamma(options.gamma)
    if not 0 < options.expectile < 1:
        raise CtaError(f"--expectile must lie in (0, 1), not {options.expectile}")
    if min(options.steps, options.seeds) < 1:
        raise CtaError("--steps and --seeds must be at least 1")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise CtaError(f"--out {options.out} is a file, give a folder")
    if options.run is not None:
        return measure_run(options.run, gamma=options.gamma)
    from cta.theory.report import run_report

    run_report(
        options.out,
        gamma=options.gamma,
        expectile=options.expectile,
        steps=options.steps,
        seeds=options.seeds,
        bridge=options.bridge,
    )
    return 0


def measure_run(path: Path, *, gamma: float) -> int:
    """Print how context-invariant the analogies of each seed of a desk run are."""
    from rich.console import Console

    from cta.agents.conditioning import GoalConditioned
    from cta.agents.dual import DualLearner
    from cta.experiment import Run
    from cta.theory.report import desk_table

    run = Run(path)
    dual = run.agent.goal.learner if isinstance(run.agent, GoalConditioned) else None
    if not isinstance(dual, DualLearner):
        raise CtaError(f"{path}: agent '{run.config.agent_name}' has no dual representation to measure")
    if not run.config.dataset_name.startswith("desk"):
        raise CtaError(f"{path} was trained on {run.config.dataset_name}; contexts are known for the desk only")
    step, networks = run.networks()
    for seed, weights in zip(run.config.seeds, networks, strict=True):
        label = f"{run.config.agent_name}, seed {seed}, step {step}"
        Console().print(desk_table(dual, weights, label=label, gamma=gamma))
    return 0
