"""Generating OGBench's datasets: seeded episode by episode, on several processes, continued after an interruption.

Every episode has its own seed, so the number of workers, the order and interruptions leave no trace in the files. A
finished episode is kept as a small file in a hidden folder beside the target; at the end they are streamed into the two
files of the dataset, which never are in memory as a whole.
"""

import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from cta.data.npz import Column, NpzReader, column, write_npz
from cta.data.progress import Advance, progress
from cta.envs import gl
from cta.envs.datasets import provenance, write_desk
from cta.envs.names import DESK_DATASETS, DatasetSpec, is_visual, known_spec, validation_count
from cta.errors import CtaError
from cta.io.file_lock import file_lock

SPLITS: tuple[str, str] = ("train", "validation")


@dataclass(frozen=True)
class Job:
    """A dataset to be made: the file of each split is `folder / NAME.npz` and `folder / NAME-val.npz`."""

    spec: DatasetSpec
    folder: Path
    episodes: int
    episode_steps: int
    seed: int

    @property
    def full_size(self) -> bool:
        return (self.episodes, self.episode_steps) == (self.spec.episodes, self.spec.episode_steps)

    def count(self, split: str) -> int:
        return self.episodes if split == "train" else validation_count(self.episodes)

    def target(self, split: str) -> Path:
        return self.folder / f"{self.spec.name}{'' if split == 'train' else '-val'}.npz"

    @property
    def size(self) -> dict[str, int]:
        return {"episodes": self.episodes, "episode_steps": self.episode_steps, "seed": self.seed}

    def record(self, split: str) -> dict[str, Any]:
        return provenance(self.spec.name, split=split, **self.size)

    def workshop(self) -> Path:
        """The hidden folder of finished episodes, named after everything an episode depends on."""
        fixed = self.record("") | {"command": "", "episodes": 0}
        key = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f".{self.spec.name}.{key}.parts"


def plan_job(
    name: str, *, folder: Path, episodes: int | None = None, episode_steps: int | None = None, seed: int = 0
) -> Job:
    """Check a request; sizes not given are those of the published dataset."""
    spec = known_spec(name)
    if spec.needs_expert:
        raise CtaError(
            f"{name} needs a trained {spec.family.removesuffix('maze')} expert and cannot be generated here; "
            f"OGBench publishes it: `cta data download {name}`"
        )
    episodes = spec.episodes if episodes is None else episodes
    job = Job(spec, folder, episodes, spec.episode_steps if episode_steps is None else episode_steps, seed)
    if min(job.episodes, job.episode_steps) < 1 or seed < 0:
        raise CtaError("--episodes and --episode-steps are at least 1, and --seed is not negative")
    if job.episodes * (job.episode_steps + 1) > np.iinfo(np.int32).max:
        raise CtaError(f"{job.episodes} episodes of {job.episode_steps} steps are more rows than a dataset can have")
    return job


def generate(job: Job, *, workers: int = 1) -> list[Path]:
    """Make the dataset's two files, or find them there already, made by the same request; returns their paths."""
    if _missing(job):
        job.folder.mkdir(parents=True, exist_ok=True)
        if not os.access(job.folder, os.W_OK):
            raise CtaError(f"cannot write into {job.folder}: choose another folder with --out")
        train = job.target(SPLITS[0])
        with file_lock(train, waiting=f"waiting for another process that generates {train}"):
            missing = _missing(job)  # whoever we waited for may have made it
            if missing and job.spec.name in DESK_DATASETS:
                write_desk(job.spec.name, {split: job.target(split) for split in missing}, **job.size)
            elif missing:
                _generate_simulated(job, missing, workers=workers)
    return [job.target(split) for split in SPLITS]


def _missing(job: Job) -> list[str]:
    """Validation first: a training file always has its other half. What others made is never overwritten."""
    missing = [split for split in reversed(SPLITS) if not job.target(split).exists()]
    for split in set(SPLITS) - set(missing):
        with NpzReader(job.target(split)) as file:
            if file.provenance() != job.record(split):
                raise CtaError(f"{file.path} is not what this command makes and is never overwritten: give --out")
    return missing


def _generate_simulated(job: Job, missing: list[str], *, workers: int) -> None:
    if is_visual(job.spec.name):
        gl.enable_rendering()
    workshop = job.workshop()
    workshop.mkdir(exist_ok=True)
    wanted = [(split, index) for split in reversed(missing) for index in range(job.count(split))]
    todo = [(split, index) for split, index in wanted if not _part(workshop, split, index).exists()]
    rows = job.episode_steps + 1
    done = (len(wanted) - len(todo)) * rows
    with progress(job.spec.name, total=len(wanted) * rows, unit="steps", done=done) as advance:
        make_parts(job, todo, workers=workers, advance=advance)
    for split in missing:
        _assemble(job, workshop, split)
    shutil.rmtree(workshop, ignore_errors=True)


def _part(workshop: Path, split: str, index: int) -> Path:
    return workshop / f"{split}-{index:06d}.npz"


def make_parts(job: Job, todo: list[tuple[str, int]], *, workers: int, advance: Advance) -> None:
    """Make the episodes (split, index) of `todo` as part files; `advance` is told the rows of each."""
    rows = job.episode_steps + 1
    if workers <= 1 or len(todo) <= 1:
        with closing(_source(job.spec)) as source:
            for item in todo:
                make_episode(job, source, *item)
                advance(rows)
        return
    pool = ProcessPoolExecutor(min(workers, len(todo)), get_context("spawn"), initializer=_begin)
    try:
        for future in as_completed([pool.submit(_make, job, *item) for item in todo]):
            future.result()
            advance(rows)
    except BrokenProcessPool:
        raise CtaError(
            "a worker process died (out of memory?): finished episodes are kept; run the same command again, "
            "perhaps with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _source(spec: DatasetSpec) -> Any:
    """What makes the episodes of a dataset, one after the other."""
    from cta.envs.simulated_data import ManipulationEpisodes, PointMazeEpisodes

    maze = spec.family == "pointmaze"
    return PointMazeEpisodes(spec.env_name) if maze else ManipulationEpisodes(spec.env_name, spec.kind)


def make_episode(job: Job, source: Any, split: str, index: int) -> None:
    """One episode, fixed by (seed, split, index), as a part file."""
    arrays = source.episode((job.seed, SPLITS.index(split), index), job.episode_steps)
    for key, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise CtaError(f"{job.spec.name}: {key} of episode {index} has NaN or inf")
    first = {key: arrays[key] for key in ("observations", "actions")}
    first["terminals"] = np.arange(job.episode_steps + 1) == job.episode_steps
    columns = {key: column(values) for key, values in (first | arrays).items()}
    write_npz(_part(job.workshop(), split, index), columns, None)


_source_of_worker = cache(_source)


def _make(job: Job, split: str, index: int) -> None:
    make_episode(job, _source_of_worker(job.spec), split, index)


def _begin() -> None:
    """In a worker process: Ctrl-C is the parent's business, which lets the episodes under way finish."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent must not leave workers waiting for it forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _assemble(job: Job, workshop: Path, split: str) -> None:
    """Stream the episodes of a split into its file, one array after the other."""
    parts = [_part(workshop, split, index) for index in range(job.count(split))]
    with NpzReader(parts[0]) as first:
        headers = {key: first.header(key) for key in first.keys}

    def pieces(key: str) -> Iterator[np.ndarray]:
        for part in parts:
            with NpzReader(part) as file:
                yield file[key]

    columns = {
        key: Column(dtype, (len(parts) * shape[0], *shape[1:]), pieces(key)) for key, (shape, dtype) in headers.items()
    }
    if job.target(split).exists():
        raise CtaError(f"{job.target(split)} appeared meanwhile and is never overwritten")
    write_npz(job.target(split), columns, job.record(split))
