"""Where jobs run: on this machine, or on the machines of a Ray cluster. Neither holds anything that is in no file."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.exit_codes import INTERRUPTED
from cta.grid.processes import DATA, PACK, SCORE, TRAIN, Job, Process, python_path, wait_for_run

SCORERS = 2
"""Two scoring processes fill the cores better than one, whose last long episodes leave most of them idle."""
LOST = -1
"""The code of a job whose machine or process was lost."""
MOST_CORES = 8
"""Of a scoring or generating job on a cluster."""


@dataclass
class LocalEngine:
    """One training process on this machine, and two jobs on the cores beside it, of which one is left to training.

    `room` is how many of a kind may run beside those that run, `cores` the worker processes of a job.
    """

    cpu_count: int
    lock: int | None = None
    """The lock of the work folder, which every process holds: it stays taken until the last has gone."""
    shared = True
    """Whether jobs of all kinds share one machine."""

    def room(self, kind: str, running: list[str]) -> int:
        if kind == SCORE:
            return SCORERS - running.count(SCORE) - running.count(DATA)
        return 1 - running.count(kind)

    def cores(self, kind: str, running: list[str]) -> int:
        if kind in (TRAIN, PACK):
            return 1
        alone = kind == DATA and TRAIN not in running and SCORE not in running
        return self.cpu_count if alone else max(1, (self.cpu_count - 1) // SCORERS)

    def start(self, job: Job) -> Process:
        return Process(job, path=python_path(), keep_open=() if self.lock is None else (self.lock,))


class RayEngine:
    """Each job is a task of a Ray cluster whose machines share the work folder; the cluster may grow and shrink."""

    shared = False

    def __init__(self, *, gpus_per_unit: float | None, cores: int | None):
        try:
            import ray
        except ImportError:
            raise CtaError("--engine ray needs Ray: pip install 'cta[cluster]'") from None
        self._ray: Any = ray
        if not ray.is_initialized():
            try:
                ray.init(address="auto", log_to_driver=False)
            except ConnectionError:
                ray.init(include_dashboard=False, log_to_driver=False)
        has = ray.cluster_resources()
        self._gpus = gpus_per_unit if gpus_per_unit is not None else float(has.get("GPU", 0) > 0)
        smallest = min((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=1)
        self._cores = cores or int(max(1, min(MOST_CORES, smallest)))
        if self._gpus and not has.get("GPU"):
            raise CtaError("the Ray cluster has no GPU: give --gpus-per-unit 0 to train on processors")
        self._task = ray.remote(max_retries=0)(run_job)

    def room(self, kind: str, running: list[str]) -> int:
        has = self._ray.cluster_resources()
        if kind == TRAIN:
            places = has.get("GPU", 0) / self._gpus if self._gpus else has.get("CPU", 0)
            return int(places) - running.count(TRAIN)
        return max(1, int(has.get("CPU", 0)) // self._cores) - running.count(kind)

    def cores(self, kind: str, running: list[str]) -> int:
        return self._cores if kind in (DATA, SCORE) else 1

    def start(self, job: Job) -> "RayHandle":
        gpus = self._gpus if job.kind == TRAIN else 0
        # A job that trains on processors takes one of them; one that trains on a GPU must not wait for scoring.
        cpus = 1 if not gpus and job.kind == TRAIN else 0 if gpus else job.cores
        task = self._task.options(num_gpus=gpus, num_cpus=cpus, name=job.title)
        return RayHandle(self._ray, task.remote(job, str(Path.cwd()), python_path()), job)


class RayHandle:
    """A task: what `Process` is on this machine."""

    def __init__(self, ray: Any, ref: Any, job: Job):
        self._ray, self._ref, self._job = ray, ref, job
        self._words = "no message"
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and self._ray.wait([self._ref], timeout=0)[0]:
            try:
                self._code, self._words = self._ray.get(self._ref)
            except self._ray.exceptions.RayTaskError as error:
                self._code, self._words = 1, str(error.cause)
            except self._ray.exceptions.RayError as error:
                self._code, self._words = LOST, f"lost ({type(error).__name__})"
        return self._code

    def stop(self) -> None:
        with contextlib.suppress(Exception):  # a task that has just ended cannot be cancelled
            self._ray.cancel(self._ref, force=False)

    def wait(self, seconds: float) -> None:
        self._ray.wait([self._ref], timeout=seconds)

    def last_words(self) -> str:
        return self._words


def run_job(job: Job, folder: str, path: str) -> tuple[int, str]:
    """A job in a process of its own on a machine of the cluster; (exit code, last line). Cancelled, it ends orderly."""
    if Path(folder).is_dir():
        os.chdir(folder)
    if job.kind == TRAIN:
        wait_for_run(job.unit.path)
    process = Process(job, path=path)
    try:
        while (code := process.poll()) is None:
            time.sleep(0.2)
    except KeyboardInterrupt:
        process.stop()
        process.wait(60)
        return INTERRUPTED, "stopped"
    return code, process.last_words()


Handle = Process | RayHandle
Engine = LocalEngine | RayEngine
