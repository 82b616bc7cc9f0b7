"""Keeping what a run has learned in files small enough to carry: inference weights, one file a seed and step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cta.agents import Spec
from cta.data.files import write_whole
from cta.experiment import Run
from cta.results.candidates import held_out_of
from cta.results.facts import training_facts
from cta.results.protocol import TASKS
from cta.results.records import empty
from cta.results.store import Results
from cta.results.weights import Precision, pack, read_by_act


@dataclass(frozen=True)
class Packed:
    """The files written, and their sizes in bytes."""

    files: tuple[Path, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        size, largest = (value / 2**20 for value in (sum(self.sizes), max(self.sizes, default=0)))
        return f"{len(self.files)} files of weights, {size:.1f} MiB, the largest {largest:.1f}"


def pack_run(
    run: Run, steps: Sequence[int], *, results: Results, episodes: int, precision: Precision = "float32"
) -> Packed:
    """Write the weights of the seeds that are not scored at these steps, each file in one piece, to the results folder.

    The folder also learns how far these seeds are trained, so that no other machine trains them again.
    """
    dataset, agent = run.config.dataset_name, run.config.agent_name
    facts = training_facts(run, max(steps))
    pairs = held_out_of(dataset, facts)
    home, tasks = (results, TASKS) if pairs is None else (results.held_out(), len(pairs.pairs))
    done = home.cell(dataset, agent).scored(episodes=episodes, tasks=tasks)
    seen = run.files.provenance()["dataset"]
    spec = Spec.of(seen["observation_shape"], seen["action_dim"])
    shared = {"dataset": dataset, "agent_name": agent, "agent": run.agent, "spec": spec, "precision": precision}
    needed = read_by_act(run.agent, spec)
    files, sizes = [], []
    for step in sorted(steps):
        good, networks = run.good_seeds(step), run.networks(step)[1]
        for seed, weights in zip(run.config.seeds, networks, strict=True):
            if seed in good and (seed, step) not in done:
                content = pack({step: weights}, **shared, seed=seed, training=training_facts(run, step), needed=needed)
                path = home.weights_file(dataset, agent, seed, step)
                write_whole(path, content)
                files.append(path)
                sizes.append(len(content))
    home.add(empty(dataset, agent) | {"training": [{"seeds": list(run.config.seeds), **facts}]})
    return Packed(tuple(files), tuple(sizes))
