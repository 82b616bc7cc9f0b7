"""What can be scored: one seed at one step, from a run's checkpoint or from a file of weights; and such files."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.agents import Agent, Networks
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.facts import training_facts
from cta.experiment.run_dir import cell_key, cut_of
from cta.experiment.weights import Precision, Weights, open_weights, pack, read_by_act
from cta.io.files import write_whole
from cta.ooc.components import find_layout
from cta.ooc.pairs import HeldOut, held_out_of, parse_held_out
from cta.scores.protocol import TASKS
from cta.scores.records import PAIRS
from cta.scores.schema import CellKey
from cta.scores.statistics import LAST_EVALUATIONS
from cta.scores.store import DEFAULT, Scores
from cta.units import Units

MOST_PAIRS = 1000
RULES = ("pair", "thresholds", "event_thresholds")
"""What a record of a cut says of its pairs."""


@dataclass(frozen=True)
class Candidate:
    """One seed at one step that can be scored. `home`: the results folder it lies in."""

    key: CellKey
    agent: Agent
    seed: int
    step: int
    precision: str
    training: dict[str, Any]
    load: Callable[[], Networks]
    units: Units
    home: Path = DEFAULT

    @property
    def label(self) -> str:
        return f"{self.key.name}, seed {self.seed}, step {self.step:,}"

    def held_out(self, ask: str | None = None, pairs: str | Path | None = None) -> HeldOut | None:
        """The pairs that it is asked for; None: the world's tasks.

        By default those that were cut out of its data, if any were; `ask` says tasks or pairs, `pairs` which file.
        """
        cut = cut_of(self.training.get("data") or {})
        if ask == PAIRS or pairs is not None or (ask is None and cut is not None):
            return held_out_pairs(self.key.dataset, cut, pairs)
        return None


def held_out_pairs(dataset: str, cut: dict[str, Any] | None, pairs: str | Path | None = None) -> HeldOut:
    """The pairs of a file, or those that were cut out, or those that come with the dataset's world."""
    layout = find_layout(dataset)
    if pairs is not None or cut is None:
        return held_out_of(layout, pairs)
    kept = {key: cut[key] for key in RULES if key in cut}
    found = parse_held_out(kept, layout=layout, where=f"the record of {dataset}")
    first = cut.get("first_pair", 1)
    if not 0 < first + len(found.pairs) <= MOST_PAIRS or first < 1:
        raise CtaError(f"the record of {dataset}: first_pair cannot be {first}")
    return HeldOut(layout, found.pairs, found.rule, first)


def pair_names(held_out: HeldOut | None) -> tuple[str, ...]:
    return TASKS if held_out is None else tuple(f"pair{number}" for number, _ in held_out.numbered())


def candidates(source: Path | Run, step: str = "", seeds: Sequence[int] = ()) -> Iterator[Candidate]:
    """Everything in a file of weights, or checkpoints of a run, at these steps and seeds.

    `step`: numbers with commas, or of a run the words of `choose_steps`; by default all of a file, the last of a run.
    A path at which there is nothing is an error at once; networks are read one checkpoint after the other.
    """
    if isinstance(source, Path) and source.suffix == ".safetensors":
        return _of_file(open_weights(source), numbers(step, "--step"), seeds)
    run = Run(source) if isinstance(source, Path) else source
    return _of_run(run, choose_steps(run, step or "last"), seeds)


def _of_file(file: Weights, steps: Sequence[int], seeds: Sequence[int]) -> Iterator[Candidate]:
    data = file.training.get("data") or {}
    folder = file.path.expanduser().absolute().parent
    home = folder.parent if folder.name == "weights" else DEFAULT
    # Earlier versions kept what belongs to held-out pairs in a folder `ooc` of the results.
    if home.name == "ooc" and cut_of(data) is not None:
        home = home.parent
    key = cell_key(file.dataset, file.agent_name, file.agent.config, data).check(str(file.path))
    for step in file.steps:
        if (not steps or step in steps) and (not seeds or file.seed in seeds):
            facts = (file.precision, file.training, lambda step=step: file.networks(step), file.units, home)
            yield Candidate(key, file.agent, file.seed, step, *facts)


def _of_run(run: Run, steps: Sequence[int], seeds: Sequence[int]) -> Iterator[Candidate]:
    for step, networks in chosen_networks(run, steps):
        facts, good = training_facts(run, step), run.good_seeds(step)
        for place, seed in enumerate(run.config.seeds):
            if seeds and seed not in seeds:
                continue
            if seed in good:
                load = lambda place=place, networks=networks: networks[place]  # noqa: E731
                yield Candidate(run.cell, run.agent, seed, step, "float32", facts, load, run.units)
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
    key, files = run.cell, []
    needed = read_by_act(run.agent, run.spec)
    for item in candidates(run, ",".join(map(str, sorted(steps)))):
        tasks = pair_names(item.held_out())
        if (item.seed, item.step) not in scores.cell(key).scored(episodes=episodes, tasks=tasks):
            content = pack(
                {item.step: item.load()}, dataset=key.dataset, agent_name=key.agent, agent=run.agent, spec=run.spec,
                units=run.units, seed=item.seed, training=item.training, needed=needed, precision=precision,
            )  # fmt: skip
            files.append(scores.weights_file(key, item.seed, item.step))
            write_whole(files[-1], content)
    scores.add(key, {"training": [{"seeds": list(run.config.seeds), **training_facts(run, max(steps))}]})
    return files
