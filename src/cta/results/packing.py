"""Keeping what a run has learned in files small enough to carry: inference weights of some steps, seed by seed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cta.agents import Networks, Spec
from cta.data.files import write_whole
from cta.experiment import Run
from cta.results.facts import training_facts
from cta.results.protocol import TASKS, short_steps
from cta.results.records import empty
from cta.results.store import Results
from cta.results.weights import Precision, pack

PACKED = "packed.json"
"""In a run directory: which steps have been kept."""


@dataclass(frozen=True)
class Packed:
    """The files written, and their sizes in bytes."""

    files: tuple[Path, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        largest = max(self.sizes, default=0)
        return (
            f"{len(self.files)} files of weights, {sum(self.sizes) / 2**20:.1f} MiB, the largest {largest / 2**20:.1f}"
        )


def pack_run(
    run: Run,
    steps: Sequence[int],
    *,
    folder: Path,
    results: Results,
    episodes: int,
    precision: Precision = "float32",
    limit: int = 16 * 2**20,
) -> Packed:
    """Write weights of the seeds that are not scored at these steps, with as many steps in a file as `limit` allows.

    The results folder learns that these seeds are trained, so that no other machine trains them again.
    """
    done = results.cell(run.config.dataset_name, run.config.agent_name).scored(episodes=episodes, tasks=TASKS)
    facts = training_facts(run, max(steps))
    stored = {step: run.networks(step)[1] for step in steps}
    seen = run.files.provenance()["dataset"]
    spec = Spec.of(seen["observation_shape"], seen["action_dim"])
    files, sizes = [], []
    for index, seed in enumerate(run.config.seeds):
        wanted = [step for step in steps if (seed, step) not in done and seed in run.good_seeds(step)]
        missing = {step: stored[step][index] for step in wanted}

        def content(part: dict[int, Networks], seed: int = seed) -> bytes:
            names = {"dataset": run.config.dataset_name, "agent_name": run.config.agent_name, "agent": run.agent}
            return pack(part, **names, seed=seed, spec=spec, training=facts, precision=precision)

        for part in _groups(missing, content, limit):
            data = content(part)
            label = "-".join(short_steps(step) for step in sorted(part))
            name = f"{results.path(run.config.dataset_name, run.config.agent_name).stem}.seed{seed}.{label}.safetensors"
            write_whole(folder / name, data)
            files.append(folder / name)
            sizes.append(len(data))
    record = empty(run.config.dataset_name, run.config.agent_name)
    results.add(record | {"training": [{"seeds": list(run.config.seeds), **facts}]})
    write_whole(run.path / PACKED, json.dumps({"steps": sorted(steps), "weights": precision}) + "\n")
    return Packed(tuple(files), tuple(sizes))


def _groups(missing, content, limit: int) -> list[dict[int, Networks]]:
    """Steps in files of at most `limit` bytes; a single step goes into a file of its own however large it is."""
    groups: list[dict[int, Networks]] = []
    room = 0
    for step, networks in sorted(missing.items()):
        size = len(content({step: networks}))
        if groups and size <= room:
            groups[-1][step] = networks
            room -= size
        else:
            groups.append({step: networks})
            room = limit - size
    return groups
