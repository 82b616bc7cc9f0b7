"""The jobs of a plan: ordinary `cta` commands, each in a process of its own with a log, that never outlive who started
them.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.grid.cells import Cell
from cta.grid.units import Pending, Unit, listed
from cta.grid.workspace import Workspace
from cta.io.file_lock import lock
from cta.plugins import PYTHON
from cta.scores.schema import RANDOM, WHOLE

TRAIN, DATA, SCORE, PACK = "train", "data", "score", "pack"
CPU_ONLY = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
"""For everything but training: the accelerator's memory belongs to the run on it."""


@dataclass(frozen=True)
class Job:
    """A command, what it is for, and how many cores it fills."""

    kind: str
    name: str
    words: tuple[str, ...]
    log: Path
    unit: Unit
    """The run that it trains, scores, keeps the weights of or makes the data for."""
    items: tuple[Pending, ...] = ()
    """What it scores or keeps."""
    cores: int = 1

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


class Process:
    """A job under way on this machine. A job on the CPU yields to training, whose loop must not wait for a core."""

    def __init__(self, job: Job, *, path: str, keep_open: Sequence[int] = ()):
        training = job.kind == TRAIN
        first = ["--clock", str(job.unit.path)] if training else ["--nice"]
        self._log = job.log
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as file:
            self._process = subprocess.Popen(
                [*PYTHON, "-m", "cta.cli.child", str(os.getpid()), *first, *job.words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"PYTHONPATH": path} | ({} if training else CPU_ONLY),
                pass_fds=keep_open,
                # Ctrl-C is the runner's to handle: it stops each process in its own way.
                start_new_session=True,
            )

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None:
            self._kill()  # what it may have left behind
        return code

    def stop(self) -> None:
        """Ask it to end: training checkpoints first, generation keeps whole episodes, scoring keeps whole seeds."""
        if self._process.poll() is None:
            self._process.terminate()

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code; killed, with all it has started, if it takes longer."""
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        finally:
            self._kill()
        return self._process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        return last_line(self._log)


def last_line(log: Path, nothing: str = "no message") -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), nothing)


def python_path() -> str:
    """Where processes look for modules: where this one does."""
    return os.pathsep.join(path for path in sys.path if path)


def wait_for_run(run: Path, patience: float = 60.0) -> None:
    """Wait until a run's last process, which may be the twin of one that is about to begin, has let go of it."""
    with contextlib.suppress(FileNotFoundError):
        file = os.open(run / "lock", os.O_RDWR)
        try:
            lock(file, patience=patience)
        finally:
            os.close(file)


def train_words(space: Workspace, unit: Unit) -> list[str]:
    """The command that begins or continues a unit. Its checkpoints are scored beside it, so training never waits."""
    cell = unit.cell
    # Other cells may ask the same training something else, at other steps. A run keeps its last step anyway.
    points = {point for other in space.plan.cells if other.folder == cell.folder for point in other.all_points}
    every = math.gcd(*(point for point in points if point < cell.steps)) or cell.steps
    if unit.begun:
        return ["resume", str(unit.path), "--steps", str(unit.target)]
    data, folder = space.data_file(cell), space.source_file(cell).parent
    named = data.stem == cell.dataset and data.parent == folder
    words = ["train", "--agent", cell.agent, "--dataset", cell.dataset if named else str(data)]
    words += ["--dataset-dir", str(folder)] if named else []
    words += ["--steps", str(cell.steps), "--seeds", listed(unit.seeds) + ("," if len(unit.seeds) == 1 else "")]
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


def data_words(space: Workspace, cell: Cell, workers: int) -> list[str]:
    """The command that brings a cell's data a step nearer: generate or download them, then cut pairs or windows out."""
    source, target = space.source_file(cell), space.data_file(cell)
    if source.exists():
        out = target.parent if cell.cut.only is None else target.parent.parent
        words = ["ooc", "cut", str(source), "--out", str(out), *cell.cut.flags]
        return [*words, *(["--control"] if cell.condition == RANDOM else [])]
    if cell.dataset not in KNOWN:
        raise CtaError(f"{source}: no such file")
    if KNOWN[cell.dataset].needs_expert:
        return ["data", "download", cell.dataset, "--dataset-dir", str(source.parent)]
    words = ["data", "generate", cell.dataset, "--workers", str(workers), "--out", str(source.parent)]
    sizes = {"--seed": cell.data.seed, "--episodes": cell.data.episodes, "--episode-steps": cell.data.episode_steps}
    return [*words, *(word for flag, size in sizes.items() if size is not None for word in (flag, str(size)))]


def score_words(space: Workspace, items: Sequence[Pending], workers: int) -> list[str]:
    """The command that scores checkpoints of a run into the cell's scores."""
    unit, steps, seeds = items[0].unit, {item.step for item in items}, {item.seed for item in items}
    cell = unit.cell
    words = ["evaluate", str(unit.path), "--step", listed(sorted(steps)), "--seeds", listed(sorted(seeds))]
    words += ["--episodes", str(cell.episodes_at(items[0].step)), "--workers", str(workers)]
    words += ["--temperature", str(cell.temperature)] if cell.temperature else []
    # Of cut data the record says which pairs.
    own = cell.ask == "pairs" and cell.condition == WHOLE and "--pairs" in cell.cut.flags[:1]
    return [*words, "--ask", cell.ask, *(cell.cut.flags[:2] if own else ()), "--results", str(space.home(cell).folder)]


def pack_words(space: Workspace, item: Pending, precision: str) -> list[str]:
    """The command that keeps inference weights for scoring elsewhere."""
    words = ["results", "pack", str(item.unit.path), "--step", str(item.step), "--weights", precision]
    return [*words, "--episodes", str(item.unit.cell.episodes), "--results", str(space.out.folder)]
