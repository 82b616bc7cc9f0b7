"""What can be scored: one seed at one step, from a run's checkpoint or from a file of weights."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.agents import Agent, Networks
from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.experiment import Run
from cta.ooc.components import find_layout
from cta.ooc.cut import RECORD_KEY
from cta.ooc.pairs_file import HeldOut, parse_held_out
from cta.results.facts import training_facts
from cta.results.pairs import HELD_OUT
from cta.results.store import Results
from cta.results.weights import open_weights


@dataclass(frozen=True)
class Candidate:
    """One seed at one step that can be scored."""

    dataset: str
    agent_name: str
    agent: Agent
    seed: int
    step: int
    precision: str
    training: dict[str, Any]
    load: Callable[[], Networks]

    @property
    def label(self) -> str:
        return f"{self.agent_name} on {self.dataset}, seed {self.seed}, step {self.step:,}"

    @property
    def held_out(self) -> HeldOut | None:
        """The pairs that were cut out of its data: it is asked for these instead of the world's five tasks."""
        return held_out_of(self.dataset, self.training)

    def home(self, results: Results) -> Results:
        """Where its score belongs."""
        return results if self.held_out is None else results.held_out()


def held_out_of(dataset: str, training: dict[str, Any]) -> HeldOut | None:
    """The pairs that the record of a training says were cut out of its data."""
    record = ((training.get("data") or {}).get("provenance") or {}).get(RECORD_KEY)
    if record is None:
        return None
    if record.get("kind") != HELD_OUT or record.get("first_pair", 1) != 1:
        raise CtaError(
            f"{dataset}: trained on a control or without one pair alone; `cta ooc evaluate` scores such runs"
        )
    kept = {key: record[key] for key in ("pair", "thresholds", "event_thresholds") if key in record}
    return parse_held_out(kept, layout=find_layout(dataset), where=f"the record of {dataset}")


def candidates(path: Path, steps: Sequence[int] = (), seeds: Sequence[int] = ()) -> list[Candidate]:
    """Everything in a file of weights, or the checkpoints of a run (default: the newest), at these steps and seeds."""
    found = _of_file(path, steps) if path.suffix == ".safetensors" else _of_run(Run(path), steps)
    return [item for item in found if not seeds or item.seed in seeds]


def _of_file(path: Path, steps: Sequence[int]) -> list[Candidate]:
    file = open_weights(path)
    names = (file.dataset, file.agent_name, file.agent, file.seed)
    return [
        Candidate(*names, step, file.precision, file.training, lambda step=step: file.networks(step))
        for step in file.steps
        if not steps or step in steps
    ]


def _of_run(run: Run, steps: Sequence[int]) -> list[Candidate]:
    names = (run.config.dataset_name, run.config.agent_name, run.agent)
    if run.config.dataset_name not in KNOWN:
        raise CtaError(f"{run.config.dataset_name} belongs to no known environment, so there is nothing to roll out in")
    found = []
    for step in steps or run.steps()[-1:]:
        facts, good = training_facts(run, step), run.good_seeds(step)
        for seed, weights in zip(run.config.seeds, run.networks(step)[1], strict=True):
            if seed in good:
                found.append(Candidate(*names, seed, step, "float32", facts, lambda weights=weights: weights))
            else:
                text = f"notice: {run.path}: seed {seed} had diverged by step {step:,} and is not scored"
                print(text, file=sys.stderr)
    return found
