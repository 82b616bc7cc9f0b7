"""The jobs of a plan, ordinary `cta` commands in processes of their own: on this machine, or on a Ray cluster."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from cta.envs.names import KNOWN
from cta.errors import CtaError, need_extra
from cta.exit_codes import INTERRUPTED
from cta.grid.cells import Cell, Pending, Unit, listed
from cta.grid.workspace import Workspace
from cta.io.files import lock
from cta.plugins import PYTHON
from cta.scores.schema import RANDOM, WHOLE

TRAIN, DATA, SCORE, PACK = "train", "data", "score", "pack"
CPU_ONLY = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}  # the accelerator's memory is the trained run's
SCORERS = 2  # processes fill the cores better than one, whose last long episodes leave most of them idle
MOST_CORES = 8  # of a scoring or generating job on a cluster


@dataclass(frozen=True)
class Job:
    """A command, and what it is for."""

    kind: str
    name: str
    words: tuple[str, ...]
    log: Path
    unit: Unit  # the run that it trains, scores, keeps the weights of or makes the data for
    items: tuple[Pending, ...] = ()  # what it scores or keeps

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


class Process:
    """A job under way on this machine, never longer than who started it. On the CPU it yields to training's loop."""

    def __init__(self, job: Job, *, path: str, keep_open: Sequence[int] = (), threads: int | None = None):
        training = job.kind == TRAIN
        own = {"PJRT_NPROC": str(threads)} if threads else {}  # of XLA, which else takes every core of the machine
        first = ["--clock", str(job.unit.path)] if training else ["--nice"]
        self._log = job.log
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as file:
            self._process = subprocess.Popen(
                [*PYTHON, "-m", "cta.cli.child", str(os.getpid()), *first, *job.words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"PYTHONPATH": path} | (own if training else CPU_ONLY),
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
        self._process.terminate()

    def wait(self, seconds: float) -> int:
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
    return next(filter(None, map(str.strip, reversed(lines))), nothing)


def python_path() -> str:
    """Where processes look for modules: where this one does."""
    return os.pathsep.join(path for path in sys.path if path)


@dataclass
class LocalEngine:
    """One training process on this machine, and two jobs on the cores beside it, of which one is left to training."""

    cpu_count: int
    lock: int | None = None  # of the work folder; every process holds it, so it is taken until the last has gone

    def room(self, kind: str, running: list[str]) -> int:  # how many of a kind may run beside those that run
        if kind == SCORE:
            return SCORERS - running.count(SCORE) - running.count(DATA)
        return 1 - running.count(kind)

    def cores(self, kind: str, running: list[str]) -> int:  # the worker processes of a job
        if kind in (TRAIN, PACK):
            return 1
        alone = kind == DATA and TRAIN not in running and SCORE not in running
        return self.cpu_count if alone else max(1, (self.cpu_count - 1) // SCORERS)

    def start(self, job: Job) -> Process:
        return Process(job, path=python_path(), keep_open=() if self.lock is None else (self.lock,))


class RayEngine:
    """Each job is a task of a Ray cluster whose machines share the work folder; the cluster may grow and shrink."""

    def __init__(self, gpus_per_unit: float | None, cores: int | None):
        need_extra("cluster", "ray", "--engine ray")
        import ray

        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                ray.init(address="auto", log_to_driver=False)
            except ConnectionError:
                ray.init(include_dashboard=False, log_to_driver=False)
        has = ray.cluster_resources()
        self._gpus = gpus_per_unit if gpus_per_unit is not None else float(has.get("GPU", 0) > 0)
        if self._gpus and not has.get("GPU"):
            raise CtaError("the Ray cluster has no GPU: give --gpus-per-unit 0 to train on processors")
        smallest = min((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=1)
        self._cores = cores or int(max(1, min(MOST_CORES, smallest)))
        # Scoring that wants more processors than a training leaves would wait until all trainings of a machine end.
        self._scoring = self._cores if self._gpus or cores else 1
        self._task = ray.remote(max_retries=0)(run_job)

    def room(self, kind: str, running: list[str]) -> int:
        has = self._ray.cluster_resources()
        places = max(1, has.get("CPU", 0) // self.cores(kind, []))
        if kind == TRAIN:  # what waits for processors to be scored goes before what is not begun
            places = has.get("CPU", 0) - sum(self.cores(other, []) for other in running if other != TRAIN)
        if kind == TRAIN and self._gpus:
            places = has.get("GPU", 0) / self._gpus
        return int(places) - running.count(kind)

    def cores(self, kind: str, running: list[str]) -> int:
        return {DATA: self._cores, SCORE: self._scoring}.get(kind, 1)

    def start(self, job: Job) -> "RayHandle":
        gpus = self._gpus if job.kind == TRAIN else 0
        # A job that trains on a GPU must not wait for scoring; one that trains on processors takes one of them.
        cores = 0 if gpus else self.cores(job.kind, [])
        task = self._task.options(num_gpus=gpus, num_cpus=cores, name=job.title)
        return RayHandle(self._ray, task.remote(job, str(Path.cwd()), python_path(), cores))


class RayHandle:
    """A task: what `Process` is on this machine."""

    def __init__(self, ray: Any, ref: Any):
        self._ray, self._ref = ray, ref

    def poll(self) -> int | None:
        return self._end[0] if self._ray.wait([self._ref], timeout=0)[0] else None

    @cached_property
    def _end(self) -> tuple[int, str]:
        try:
            return self._ray.get(self._ref)
        except self._ray.exceptions.RayTaskError as error:
            return 1, str(error.cause)
        except self._ray.exceptions.RayError as error:
            return -1, f"lost ({type(error).__name__})"

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # a task that has just ended cannot be cancelled
            self._ray.cancel(self._ref, force=False)

    def wait(self, seconds: float) -> None:
        self._ray.wait([self._ref], timeout=seconds)

    def last_words(self) -> str:
        return self._end[1]


def run_job(job: Job, folder: str, path: str, threads: int) -> tuple[int, str]:
    """A job in a process of its own on a machine of the cluster; (exit code, last line). Cancelled, it ends orderly."""
    if Path(folder).is_dir():
        os.chdir(folder)
    if job.kind == TRAIN:
        # The run's last process, which may be the twin of this one, must have let go of it.
        with contextlib.suppress(FileNotFoundError), (job.unit.path / "lock").open("r+") as file:
            lock(file.fileno(), patience=60.0)
    process = Process(job, path=path, threads=threads)
    try:
        while (code := process.poll()) is None:
            time.sleep(0.2)
    except KeyboardInterrupt:
        process.stop()
        process.wait(60)
        return INTERRUPTED, "stopped"
    return code, process.last_words()


def command(*words: object, **options: object) -> list[str]:
    """The words of a `cta` command; an option that is None is left out."""
    flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    return [*map(str, words), *chain.from_iterable(flags)]


def train_words(space: Workspace, unit: Unit) -> list[str]:
    """The command that begins or continues a unit. Its checkpoints are scored beside it, so training never waits."""
    cell = unit.cell
    if unit.begun:
        return command("resume", unit.path, steps=unit.target)
    # Other cells may ask the same training something else, at other steps. A run keeps its last step anyway.
    points = {point for other in space.plan.cells if other.folder == cell.folder for point in other.all_points}
    every = math.gcd(*(point for point in points if point < cell.steps)) or cell.steps
    data, folder = space.data_file(cell), space.source_file(cell).parent
    named = data.stem == cell.dataset and data.parent == folder
    where = {"dataset": cell.dataset, "dataset_dir": folder} if named else {"dataset": data}
    seeds = listed(unit.seeds) + ("," if len(unit.seeds) == 1 else "")
    # All checkpoints: `Workspace.tidy` removes those that nobody waits for.
    saved = {"eval_interval": 0, "checkpoint_interval": every, "log_interval": min(10_000, every), "keep": 0}
    asked = {"steps": cell.steps, "seeds": seeds, "size": None if cell.size == "paper" else cell.size}
    words = command("train", agent=cell.agent, **where, **asked, **saved, run_dir=unit.path)
    for name, value in cell.settings:
        flag = f"--agent.{name.replace('_', '-')}"
        parts = map(str, value) if isinstance(value, tuple) else [str(value)]
        words += [f"{flag}={value}"] if isinstance(value, bool) else [flag, *parts]
    return words


def data_words(space: Workspace, cell: Cell, workers: int) -> list[str]:
    """The command that brings a cell's data a step nearer: generate or download them, then cut pairs or windows out."""
    source, target = space.source_file(cell), space.data_file(cell)
    if source.exists():
        out = target.parent if cell.cut.only is None else target.parent.parent
        return [*command("ooc", "cut", source, out=out), *cell.cut.flags, *["--control"] * (cell.condition == RANDOM)]
    if cell.dataset not in KNOWN:
        raise CtaError(f"{source}: no such file")
    if KNOWN[cell.dataset].needs_expert:
        return command("data", "download", cell.dataset, dataset_dir=source.parent)
    return command("data", "generate", cell.dataset, workers=workers, out=source.parent, **vars(cell.data))


def score_words(space: Workspace, items: Sequence[Pending], workers: int) -> list[str]:
    """The command that scores checkpoints of a run into the cell's scores."""
    unit, cell = items[0].unit, items[0].unit.cell
    steps, seeds = (listed(sorted(numbers)) for numbers in ({item.step for item in items}, {i.seed for i in items}))
    how = {"episodes": cell.episodes_at(items[0].step), "workers": workers, "temperature": cell.temperature or None}
    # Of cut data the record says which pairs.
    own = cell.ask == "pairs" and cell.condition == WHOLE and "--pairs" in cell.cut.flags[:1]
    asked = {"ask": cell.ask, "pairs": cell.cut.flags[1] if own else None, "results": space.home(cell).folder}
    return command("evaluate", unit.path, step=steps, seeds=seeds, **how, **asked)


def pack_words(space: Workspace, item: Pending, precision: str) -> list[str]:
    """The command that keeps inference weights for scoring elsewhere."""
    kept = {"weights": precision, "episodes": item.unit.cell.episodes, "results": space.out.folder}
    return command("results", "pack", item.unit.path, step=item.step, **kept)
