"""Which checkpoints of a run are meant, and their networks one after the other."""

import sys
from collections.abc import Iterator, Sequence

from cta.agents import Networks
from cta.errors import CtaError
from cta.evaluation.episodes import LAST_EVALUATIONS
from cta.experiment import Run


def choose_steps(run: Run, choice: str) -> list[int]:
    """Checkpoints that are there: `last`, `last3` (without those that a signal left), `all`, or steps with commas."""
    steps = run.steps()
    if not steps:
        raise CtaError(f"{run.path} has no checkpoint yet")
    planned = [step for step in steps if run.config.planned(step)] or steps
    words = {"last": steps[-1:], "last3": planned[-LAST_EVALUATIONS:], "all": steps}
    if choice in words:
        return words[choice]
    try:
        chosen = sorted(int(step) for step in choice.replace("_", "").split(","))
    except ValueError:
        raise CtaError(f"--step {choice}: give `last`, `last3`, `all`, or numbers separated by commas") from None
    missing = [step for step in chosen if step not in steps]
    if missing:
        raise CtaError(f"{run.path} has no checkpoint at step {missing[0]}; there are {', '.join(map(str, steps))}")
    return chosen


def chosen_networks(run: Run, steps: Sequence[int]) -> Iterator[tuple[int, list[Networks]]]:
    """(step, networks of each seed); a checkpoint that a training under way removes meanwhile is left out."""
    gone = []
    for step in steps:
        try:
            _, networks = run.networks(step)
        except CtaError:
            if step in run.steps():
                raise
            print(f"notice: the checkpoint at step {step:,} has gone meanwhile, and is left out", file=sys.stderr)
            gone.append(step)
            continue
        yield step, networks
    if gone and len(gone) == len(steps):
        raise CtaError(f"{run.path}: these checkpoints have all gone meanwhile (the training keeps --keep of them)")
