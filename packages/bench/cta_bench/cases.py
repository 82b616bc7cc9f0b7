"""What is measured: an agent, how many seeds, which batch, on which data.

Every case has a process of its own (`cta_bench.child`), so that peaks of memory are the case's, and what is compiled is
compiled afresh.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cta.agents import Agent, find
from cta.data import TrajectoryDataset
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.plugins import PYTHON
from cta.presets import agent_preset
from cta.training.fast import make_learner
from cta.training.learner import spec_of
from cta.training.seeds import SeedGroup, open_source
from cta_bench import Data, Entry
from cta_bench.clock import BLOCK

Measured = tuple[list[Entry], dict[str, Any]]
"""Entries, and the hardware they were measured on."""
EPISODE_ROWS = 1001
"""Rows of a synthetic episode, those of OGBench's manipulation data."""
READY = "ready"
"""What a process says when it is warm, and what it waits for then."""


@dataclass(frozen=True)
class Case(Data):
    """One training program, on a named dataset or on random rows of a shape. `batch_size` 0 takes the agent's own."""

    agent: str = "cta"
    seeds: int = 1
    batch_size: int = 0

    def __str__(self) -> str:
        return f"{self.agent}, seeds {self.seeds}, batch {self.batch_size or 'default'}"

    def open_data(self) -> TrajectoryDataset:
        """The rows themselves. Random ones are normal vectors or images and uniform actions, in whole episodes."""
        if self.dataset is not None:
            return open_dataset(self.dataset, dataset_dir=self.dataset_dir)[1]
        rng = np.random.default_rng(0)
        if self.image_size:
            observations = rng.integers(0, 256, (self.rows, self.image_size, self.image_size, 3), dtype=np.uint8)
        else:
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
        columns = f"{self.image_size}x{self.image_size}x3" if self.image_size else f"{self.observation_dim}"
        shape = f"random {self.rows}x{columns}, {self.action_dim} actions"
        facts = {"agent": self.agent, "dataset": self.dataset or shape}
        facts |= {"batch_size": self.build().config.batch_size, "seeds": self.seeds, "kernels": self.kernels}
        return {"what": what, **facts, **measured}


def measure_case(case: Case, kinds: Sequence[str]) -> Iterator[Measured]:
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


def measure_together(cases: Sequence[Case], kind: str) -> Iterator[tuple[Case, Measured]]:
    """Each case with its entries: all are started and compiled side by side, and then measured one after the other.

    Warm starts are not measured. What is compiled at the same time waits for the same cores: compile times are longer.
    """
    with tempfile.TemporaryDirectory(prefix="cta-bench-xla-") as cache, contextlib.ExitStack() as children:
        # Else the first process takes the accelerator's memory.
        apart = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        started = [
            (case, children.enter_context(_Child(case, kind, f"{cache}/{i}", wait=True, **apart)))
            for i, case in enumerate(cases)
        ]
        for _, child in started:
            child.until_ready()
        failed = []
        for case, child in started:
            try:
                yield case, child.result(case)
            except CtaError as error:
                failed.append(str(error))
        if failed:
            raise CtaError("; ".join(failed))


class _Child(subprocess.Popen):
    """A process that measures one case."""

    def __init__(self, case: Case, kind: str, cache: str, *, wait: bool = False, **variables: str):
        path = os.pathsep.join(filter(None, sys.path))  # it finds what this process has found
        environment = {**os.environ, **variables, "PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": cache}
        call = [*PYTHON, "-m", "cta_bench.child"]
        super().__init__(call, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._last = ""
        self._tell(json.dumps({"case": asdict(case), "do": kind, "wait": wait}))

    def __exit__(self, *reason: Any) -> None:
        self.kill()  # an interruption does not leave it training
        if self.stdin:
            with contextlib.suppress(BrokenPipeError):  # what a process that failed has not read
                self.stdin.close()
        super().__exit__(*reason)

    def _tell(self, line: str) -> None:
        assert self.stdin
        with contextlib.suppress(BrokenPipeError):  # it has failed, and said why
            print(line, file=self.stdin, flush=True)

    def until_ready(self) -> None:
        """Wait until it is warm, or has failed."""
        assert self.stdout
        for line in self.stdout:
            self._last = line
            if line.strip() == READY:
                return

    def result(self, case: Case) -> Measured:
        """Let it measure."""
        assert self.stdout
        self._tell(READY)
        for line in self.stdout:
            self._last = line
        if code := self.wait():
            raise CtaError(f"measuring {case.agent} failed: {self._last.strip() or f'exit code {code}'}")
        found = json.loads(self._last)
        return found["entries"], found["hardware"]


def _ask(case: Case, kind: str, cache: str) -> Measured:
    with _Child(case, kind, cache) as child:
        return child.result(case)
