"""The processes the driver starts: ordinary `cta` commands, each with a log, that never outlive it."""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cta.reproduce.plan import PlannedCell
from cta.reproduce.units import Pending, Unit
from cta.reproduce.work import Workspace

SET_DEATH_SIGNAL = 1
"""Linux: prctl's option that asks for a signal when the parent is gone."""
TRAIN, REHEARSE, GENERATE, SCORE, PACK = "train", "rehearse", "generate", "score", "pack"
CPU_ONLY = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
"""For everything but training: the accelerator's memory belongs to the run on it."""


class Job:
    """One process. A process on the CPU yields to training, whose loop must not wait for a core."""

    def __init__(self, kind: str, name: str, subject: Any, words: Sequence[str], *, logs: Path, lock: int | None):
        self.kind = kind
        self.name = f"{kind} {name}"
        self.subject = subject
        self.words = list(words)
        self.stopping = False
        log = logs / (re.sub(r"[^\w.]+", "-", self.name) + ".log")
        cpu = kind not in (TRAIN, REHEARSE)
        self.log = log
        self.began = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | (CPU_ONLY if cpu else {})

        def prepare() -> None:
            if cpu:
                os.nice(10)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGTERM)

        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cta", *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                # The lock of the work folder stays taken until the last process has gone.
                pass_fds=[] if lock is None else [lock],
                # Ctrl-C is the driver's to handle: it stops each process in its own way.
                start_new_session=True,
                preexec_fn=prepare,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end: training checkpoints first, generation keeps whole episodes, scoring keeps whole seeds."""
        self.stopping = True
        if self.poll() is None:
            self._process.terminate()

    def wait(self, seconds: float) -> int:
        """Its exit code; killed, with all it has started, if it takes longer."""
        try:
            return self._process.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def last_words(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def train_words(space: Workspace, unit: Unit) -> list[str]:
    """The command that begins or continues a unit. Its checkpoints are scored beside it, so training never waits."""
    if unit.begun:
        return ["resume", str(unit.path)]
    if unit.cell.held_out:
        return fresh_words(unit, "--dataset", str(space.data_file(unit.cell)))
    return fresh_words(unit, "--dataset", unit.cell.dataset, "--dataset-dir", str(space.data_folder(unit.cell)))


def fresh_words(unit: Unit, *data: str) -> list[str]:
    """The command that trains a unit from its beginning on these data."""
    cell, every = unit.cell, math.gcd(*unit.cell.all_points)
    words = ["train", "--agent", cell.agent, *data, "--steps", str(cell.steps)]
    words += ["--seeds", _listed(unit.seeds) + ("," if len(unit.seeds) == 1 else "")]
    words += ["--eval-interval", "0", "--checkpoint-interval", str(every), "--log-interval", str(min(10_000, every))]
    # All checkpoints: `Workspace.tidy` removes those that nobody waits for.
    words += ["--keep", "0", "--run-dir", str(unit.path)]
    for name, value in cell.settings:
        flag = f"--agent.{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(f"{flag}={value}")
        else:
            words += [flag, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words


def data_words(space: Workspace, cell: PlannedCell, workers: int) -> list[str]:
    """The command that brings a cell's data a step nearer: generate them, then cut the held-out pairs out."""
    if space.generated_file(cell).exists():
        return ["ooc", "cut", str(space.generated_file(cell)), "--out", str(space.data_file(cell).parent)]
    words = ["data", "generate", cell.dataset, "--workers", str(workers), "--seed", str(cell.data.seed)]
    for name in ("episodes", "episode_steps"):
        value = getattr(cell.data, name)
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return [*words, "--out", str(space.data_folder(cell))]


def score_words(space: Workspace, items: Sequence[Pending], workers: int) -> list[str]:
    """The command that scores checkpoints of a run into the results folder."""
    unit, seeds = items[0].unit, sorted({seed for item in items for seed in item.seeds})
    words = ["evaluate", str(unit.path), "--step", _listed(item.step for item in items), "--seeds", _listed(seeds)]
    words += ["--episodes", str(unit.cell.episodes_at(items[0].step)), "--workers", str(workers)]
    return [*words, "--results", str(space.results.folder)]


def pack_words(space: Workspace, item: Pending, precision: str) -> list[str]:
    """The command that keeps inference weights for scoring elsewhere."""
    words = ["results", "pack", str(item.unit.path), "--step", str(item.step), "--weights", precision]
    words += ["--episodes", str(item.unit.cell.episodes)]
    return [*words, "--results", str(space.results.folder)]


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
