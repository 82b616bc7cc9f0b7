"""What is measured: an agent, how many seeds, which batch, on which data.

Every case has a process of its own, so that peaks of memory are the case's, and what is compiled is compiled afresh:
`python -m cta.bench.cases` reads a request as JSON from standard input and prints its entries as the last line.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cta.agents import Agent, find
from cta.bench import Data
from cta.bench.clock import BLOCK
from cta.compilation import enable_cache, keep_programs
from cta.data import TrajectoryDataset
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.io.provenance import hardware
from cta.plugins import PYTHON
from cta.presets import agent_preset
from cta.training.fast import make_learner
from cta.training.learner import spec_of
from cta.training.seeds import SeedGroup
from cta.training.source import open_source

Entry = dict[str, Any]
"""One measurement of a record: `what`, the facts of its case, and numbers."""
EPISODE_ROWS = 1001
"""Rows of a synthetic episode, those of OGBench's manipulation data."""
MODULES = dict.fromkeys(("train", "start", "compare", "profile"), "training") | {"reference": "reference"}
"""Kinds of measurements of a case, and where the functions measure_KIND(case, dataset) → entries are."""


@dataclass(frozen=True)
class Case(Data):
    """One training program, on a named dataset or on random rows of a shape. `batch_size` 0 takes the agent's own."""

    agent: str = "cta"
    seeds: int = 1
    batch_size: int = 0

    def open_data(self) -> TrajectoryDataset:
        """The rows themselves. Random ones are normal observations and uniform actions, in whole episodes."""
        if self.dataset is not None:
            return open_dataset(self.dataset, dataset_dir=self.dataset_dir)[1]
        rng = np.random.default_rng(0)
        observations = rng.standard_normal((self.rows, self.observation_dim), dtype=np.float32)
        actions = 2 * rng.random((self.rows, self.action_dim), dtype=np.float32) - 1
        terminals = np.zeros(self.rows, bool)
        terminals[EPISODE_ROWS - 1 :: EPISODE_ROWS] = True
        terminals[-2:] = [False, True]  # a last episode of a single row would hold no transition
        return TrajectoryDataset(observations, actions, terminals, name="random")

    def build(self) -> Agent:
        """The agent, with the paper's settings for a named dataset and its defaults for random rows."""
        entry = find(self.agent)
        config = agent_preset(entry.config, self.dataset or "")
        return entry.build(replace(config, batch_size=self.batch_size) if self.batch_size else config)

    def group(self, dataset: TrajectoryDataset, source: Any = None, **options: Any) -> SeedGroup:
        """The seed group that training runs."""
        learner = make_learner(self.build(), spec_of(dataset), block=BLOCK, kernels=self.kernels)
        return SeedGroup(learner, range(self.seeds), source or open_source(dataset), **options)

    def entry(self, what: str, **measured: Any) -> Entry:
        """An entry of this case: its facts, and what was measured (`seeds` may differ from the case's)."""
        shape = f"random {self.rows}x{self.observation_dim}, {self.action_dim} actions"
        facts = {"agent": self.agent, "dataset": self.dataset or shape}
        facts |= {"batch_size": self.build().config.batch_size, "seeds": self.seeds, "kernels": self.kernels}
        return {"what": what, **facts, **measured}


def measure_case(case: Case, kinds: Sequence[str]) -> Iterator[tuple[list[Entry], dict[str, Any]]]:
    """Entries of each kind as they come, and the hardware they were measured on.

    Kinds share a compilation cache that begins empty, so a second start after training is a warm one.
    """
    with tempfile.TemporaryDirectory(prefix="cta-bench-xla-") as cache:
        for kind in kinds:
            entries, machine = _ask(case, kind, cache)
            if kind == "train":
                again = _ask(case, "start", cache)[0][0]
                compiled = next(entry for entry in entries if entry["what"] == "compile")
                compiled |= {f"cold_{name}": compiled.pop(name) for name in again}
                compiled |= {f"warm_{name}": value for name, value in again.items()}
            yield entries, machine


def _ask(case: Case, kind: str, cache: str) -> tuple[list[Entry], dict[str, Any]]:
    # The package may stand on PYTHONPATH only, and the folder we were started from must not hide it.
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": cache}
    call, request = [*PYTHON, "-m", "cta.bench.cases"], json.dumps({"case": asdict(case), "do": kind})
    # An interruption kills the child: `run` does not leave it training.
    done = subprocess.run(call, env=environment, input=request, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        reason = done.stdout.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CtaError(f"measuring {case.agent} failed: {reason[0]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["entries"], found["hardware"]


def main() -> int:
    """Entry point of the child process."""
    enable_cache()
    keep_programs()
    try:
        request = json.loads(sys.stdin.read())
        case = Case(**request["case"])
        measure = getattr(import_module(f"cta.bench.{MODULES[kind := request['do']]}"), f"measure_{kind}")
        entries = measure(case, case.open_data())
        print(json.dumps({"entries": entries, "hardware": hardware()}))
    except CtaError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
