"""Generating OGBench's datasets: seeded episode by episode, on several processes, continued after an interruption.

Every episode has its own seed, so the number of workers, the order and interruptions leave no trace. A finished episode
is kept in a hidden folder beside the target; at the end they are streamed into the two files of the dataset.
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
from dataclasses import dataclass, replace
from functools import cache, cached_property
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from cta.data import TrajectoryDataset
from cta.data.npz import Column, NpzReader, column, write_npz
from cta.data.progress import Advance, progress
from cta.envs import worlds
from cta.envs.names import DESK_DATASETS, DatasetSpec, family, is_visual, known_spec, validation_count
from cta.errors import CtaError
from cta.io.files import check_writable, file_lock
from cta.io.provenance import versions

SPLITS: tuple[str, str] = ("train", "validation")
SIMULATOR = ("mujoco", "dm-control", "ogbench", "gymnasium", "numpy", "scipy")
EMBEDDED = ("jax", "jaxlib", "numpy")


@dataclass(frozen=True)
class Job:
    """A dataset to be made: the file of each split is `folder / NAME.npz` and `folder / NAME-val.npz`."""

    spec: DatasetSpec
    folder: Path
    episodes: int
    episode_steps: int
    seed: int

    def count(self, split: str) -> int:
        return self.episodes if split == "train" else validation_count(self.episodes)

    def target(self, split: str) -> Path:
        return self.folder / f"{self.spec.name}{'' if split == 'train' else '-val'}.npz"

    def record(self, split: str) -> dict[str, Any]:
        """What fixes the bytes of a file, and nothing else: no clock, no machine, no number of workers."""
        name, embedded = self.spec.name, self.spec.name in DESK_DATASETS
        size = {"episodes": self.episodes, "episode_steps": self.episode_steps, "seed": self.seed}
        words = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in size.items())
        record = {"created_by": "cta", "command": f"cta data generate {name} {words}", "dataset": name, "split": split}
        record |= size | {"versions": versions(EMBEDDED if embedded else SIMULATOR)}
        return record | ({"rendering": worlds.find_backend()} if is_visual(name) and not embedded else {})

    @cached_property
    def workshop(self) -> Path:
        """The hidden folder of finished episodes, named after everything an episode depends on."""
        fixed = self.record("") | {"command": "", "episodes": 0}
        key = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f".{self.spec.name}.{key}.parts"

    def part(self, split: str, index: int) -> Path:
        return self.workshop / f"{split}-{index:06d}.npz"


def plan_job(
    name: str, *, folder: Path, episodes: int | None = None, episode_steps: int | None = None, seed: int = 0
) -> Job:
    """Check a request; sizes not given are those of the published dataset."""
    spec = known_spec(name)
    if spec.needs_expert:
        needs = f"{name} needs a trained {family(name).removesuffix('maze')} expert and cannot be generated here"
        raise CtaError(f"{needs}; OGBench publishes it: `cta data download {name}`")
    episodes = spec.episodes if episodes is None else episodes
    steps = spec.episode_steps if episode_steps is None else episode_steps
    if min(episodes, steps) < 1 or seed < 0:
        raise CtaError("--episodes and --episode-steps are at least 1, and --seed is not negative")
    if episodes * (steps + 1) > np.iinfo(np.int32).max:
        raise CtaError(f"{episodes} episodes of {steps} steps are more rows than a dataset can have")
    return Job(spec, folder, episodes, steps, seed)


def generate(job: Job, *, workers: int = 1) -> list[Path]:
    """Make the dataset's two files, or find them there already, made by the same request; returns their paths."""
    if _missing(job):
        check_writable(job.folder)
        job.folder.mkdir(parents=True, exist_ok=True)
        train = job.target("train")
        with file_lock(train, waiting=f"waiting for another process that generates {train}"):
            missing = _missing(job)  # whoever we waited for may have made it
            if missing and job.spec.name in DESK_DATASETS:
                played = _play(job)
                for split in missing:  # frames are drawn while they are written
                    part, target = played[split], job.target(split)
                    with progress(f"writing {target.name}", total=len(part.ends), unit="rows") as advance:
                        write_npz(target, part.columns(advance), job.record(split))
            elif missing:
                _generate_simulated(job, missing, workers=workers)
    return [job.target(split) for split in SPLITS]


def generate_desk(name: str, **size: int) -> tuple[TrajectoryDataset, TrajectoryDataset]:
    """The same of an embedded world, as datasets in memory; `episodes`, `episode_steps` and `seed` as in `plan_job`."""
    job = plan_job(name, folder=Path(), **size)
    train, validation = (replace(part.dataset(), provenance=job.record(split)) for split, part in _play(job).items())
    return train, validation


def _play(job: Job) -> dict[str, Any]:
    from cta.envs.desk_play import play_both  # the desk runs on JAX, which readers of files do without

    counts = {"episodes": job.count("train"), "validation_episodes": job.count("validation")}
    played = play_both(job.spec.name, **counts, episode_steps=job.episode_steps + 1, seed=job.seed)
    return dict(zip(SPLITS, played, strict=True))


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
        worlds.enable_rendering()
    job.workshop.mkdir(exist_ok=True)
    wanted = [(split, index) for split in reversed(missing) for index in range(job.count(split))]
    todo = [item for item in wanted if not job.part(*item).exists()]
    rows = job.episode_steps + 1
    done = (len(wanted) - len(todo)) * rows
    with progress(job.spec.name, total=len(wanted) * rows, unit="steps", done=done) as advance:
        make_parts(job, todo, workers=workers, advance=advance)
    for split in missing:
        _assemble(job, split)
    shutil.rmtree(job.workshop, ignore_errors=True)


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
        again = "finished episodes are kept; run the same command again, perhaps with fewer --workers"
        raise CtaError(f"a worker process died (out of memory?): {again}") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _source(spec: DatasetSpec) -> Any:
    from cta.envs.simulated_data import ManipulationEpisodes, PointMazeEpisodes

    if family(spec.name) == "pointmaze":
        return PointMazeEpisodes(spec.env_name)
    return ManipulationEpisodes(spec.env_name, kind=spec.name.split("-")[-2])


def make_episode(job: Job, source: Any, split: str, index: int) -> None:
    """One episode, fixed by (seed, split, index), as a part file."""
    arrays = source.episode((job.seed, SPLITS.index(split), index), job.episode_steps)
    for key, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise CtaError(f"{job.spec.name}: {key} of episode {index} has NaN or inf")
    first = {"observations": None, "actions": None, "terminals": np.arange(job.episode_steps + 1) == job.episode_steps}
    columns = {key: column(values) for key, values in (first | arrays).items()}
    write_npz(job.part(split, index), columns, None)


_source_of_worker = cache(_source)


def _make(job: Job, split: str, index: int) -> None:
    make_episode(job, _source_of_worker(job.spec), split, index)


def _begin() -> None:
    """In a worker process: Ctrl-C is the parent's business, which lets the episodes under way finish."""

    def end_with_parent(parent: Any) -> None:
        parent.join()
        os._exit(1)  # a killed parent must not leave workers waiting for it forever

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, args=(parent_process(),), daemon=True).start()


def _assemble(job: Job, split: str) -> None:
    """Stream the episodes of a split into its file, one array after the other."""
    parts = [job.part(split, index) for index in range(job.count(split))]
    with NpzReader(parts[0]) as first:
        headers = {key: first.header(key) for key in first.keys}

    def pieces(key: str) -> Iterator[np.ndarray]:
        for part in parts:
            with NpzReader(part) as file:
                yield file[key]

    count = len(parts)
    columns = {key: Column(kind, (count * rows, *rest), pieces(key)) for key, ((rows, *rest), kind) in headers.items()}
    if job.target(split).exists():
        raise CtaError(f"{job.target(split)} appeared meanwhile and is never overwritten")
    write_npz(job.target(split), columns, job.record(split))
