"""What can be scored, at steps and of seeds as a person names them; and packing it into files of weights."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cta.agents import Networks
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.facts import training_facts
from cta.experiment.weights import Candidate, Precision, open_weights, pack
from cta.io.files import write_whole
from cta.ooc.pairs import HeldOut
from cta.scores.protocol import TASKS
from cta.scores.statistics import LAST_EVALUATIONS
from cta.scores.store import Scores


def pair_names(held_out: HeldOut | None) -> tuple[str, ...]:
    return TASKS if held_out is None else tuple(f"pair{number}" for number, _ in held_out.numbered())


def candidates(source: Path | Run, step: str = "", seeds: Sequence[int] = ()) -> Iterator[Candidate]:
    """Everything in a file of weights, or checkpoints of a run, at these steps and seeds.

    `step`: numbers with commas, or of a run the words of `choose_steps`; by default all of a file, the last of a run.
    A path at which there is nothing is an error at once; networks are read one checkpoint after the other.
    """
    if isinstance(source, Path) and source.suffix == ".safetensors":
        found, steps = open_weights(source), numbers(step, "--step")
        return (item for item in found if item.step in (steps or [item.step]) and item.seed in (seeds or [item.seed]))
    run = Run(source) if isinstance(source, Path) else source
    return _of_run(run, choose_steps(run, step or "last"), seeds)


def _of_run(run: Run, steps: Sequence[int], seeds: Sequence[int]) -> Iterator[Candidate]:
    for step, networks in chosen_networks(run, steps):
        facts, good = training_facts(run, step), run.good_seeds(step)
        for seed, mine in zip(run.config.seeds, networks, strict=True):
            if seeds and seed not in seeds:
                continue
            if seed in good:
                shown = "float32", facts, lambda mine=mine: mine, run.spec, run.units
                yield Candidate(run.cell, run.agent, seed, step, *shown)
            else:
                text = f"notice: {run.path}: seed {seed} had diverged by step {step:,} and is not scored"
                print(text, file=sys.stderr)


def choose_steps(run: Run, choice: str) -> list[int]:
    """Checkpoints that are there: `last`, `last3` (without those that a signal left), `all`, or steps with commas."""
    steps = run.steps()
    if not steps:
        raise CtaError(f"{run.path} has no checkpoint yet")
    planned = [step for step in steps if run.config.planned(step)] or steps
    words = {"last": steps[-1:], "last3": planned[-LAST_EVALUATIONS:], "all": steps}
    if choice in words:
        return words[choice]
    chosen = numbers(choice, "--step", "`last`, `last3`, `all`, or ")
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


def numbers(text: str, flag: str, words: str = "") -> list[int]:
    """Numbers separated by commas; `words` could have been given instead."""
    try:
        return sorted(int(number) for number in text.replace("_", "").split(",") if number)
    except ValueError as error:
        raise CtaError(f"{flag} {text}: give {words}numbers separated by commas") from error


def pack_run(
    run: Run, steps: Sequence[int], *, scores: Scores, episodes: int, precision: Precision = "float32"
) -> list[Path]:
    """Write the weights of the seeds that are not scored at these steps, each file in one piece, to the results folder.

    The folder also learns how far these seeds are trained, so that no other machine trains them again.
    """
    files = []
    for item in candidates(run, ",".join(map(str, sorted(steps)))):
        scored = scores.cell(item.key).scored(episodes=episodes, tasks=pair_names(item.held_out()))
        if (item.seed, item.step) not in scored:
            files.append(scores.weights_file(item.key, item.seed, item.step))
            write_whole(files[-1], pack(item, precision))
    scores.add(run.cell, {"training": [{"seeds": list(run.config.seeds), **training_facts(run, max(steps))}]})
    return files
