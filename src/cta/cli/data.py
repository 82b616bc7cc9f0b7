"""Generate, download, list and inspect datasets."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.text import Text
from tyro.conf import Positional, UseAppendAction, arg

from cta.cli.options import DataFolder, Workers
from cta.cpu_count import cpu_count
from cta.data import DatasetFiles, TrajectoryDataset, dataset_folder, environment_name, resolve
from cta.data.dataset import count_transitions
from cta.data.download import download, mirrors, read_record, sha256_of
from cta.data.npz import NpzReader, row_blocks
from cta.data.progress import human
from cta.envs.datasets import check_fits, folder_flag, open_dataset, simulator_notice
from cta.envs.generate import generate, plan_job
from cta.envs.names import DESK_DATASETS, KNOWN, DatasetSpec
from cta.errors import CtaError
from cta.exit_codes import DONE, ERROR, INTERRUPTED
from cta.io.json_files import printable
from cta.io.text_tables import print_table


@dataclass(frozen=True, kw_only=True)
class Made:
    name: Annotated[Positional[str], arg(metavar="NAME")]
    """A dataset; `cta data list` shows how to get it."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder for NAME.npz and NAME-val.npz (default: the data folder, where only full-size datasets go)."""
    dataset_dir: DataFolder = None


def _print_paths(make: Callable[[], list[Path]], interrupted: str) -> int:
    """Print the files that were made; `interrupted` says what becomes of an interrupted command."""
    try:
        print(*make(), sep="\n")
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        return INTERRUPTED
    return DONE


@dataclass(frozen=True, kw_only=True)
class Generate(Made):
    """Make a dataset with OGBench's own oracles and settings. After an interruption the same command continues.

    Every episode has its own seed, so the files do not depend on the number of workers.

      cta data generate puzzle-3x3-play-v0
      cta data generate scene-play-v0 --episodes 20 --workers 2 --out data
    """

    episodes: int | None = None
    """Training episodes; a tenth as many more, at least one, are made for validation (default: as published)."""
    episode_steps: int | None = None
    """Transitions per episode; an episode has one row more (default: as published)."""
    workers: Workers = None
    seed: int = 0
    """Root of all episodes' seeds."""

    def __call__(self) -> int:
        size = {"episodes": self.episodes, "episode_steps": self.episode_steps, "seed": self.seed}
        job = plan_job(self.name, folder=dataset_folder(self.out or self.dataset_dir), **size)
        if self.out is None and job.spec != DatasetSpec(self.name, job.episodes, job.episode_steps):
            full = f"{job.spec.episodes} episodes of {job.spec.episode_steps} steps"
            raise CtaError(f"only the full size ({full}) goes to {job.folder}: give --out DIR for another size")
        make = partial(generate, job, workers=self.workers or cpu_count())
        return _print_paths(make, "finished episodes are kept, the same command continues")


@dataclass(frozen=True, kw_only=True)
class Download(Made):
    """Fetch a dataset that OGBench publishes: NAME.npz and NAME-val.npz.

    A transfer that broke off is resumed. NAME.npz.json keeps the SHA-256, which is checked if it is there already.

      cta data download scene-play-v0 --mirror https://example.org/ogbench
    """

    mirror: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="URL")] = ()
    """An address to try first; more may be in CTA_DATA_MIRRORS, separated by spaces."""

    def __call__(self) -> int:
        name, spec = self.name, KNOWN.get(self.name)
        if name in DESK_DATASETS:
            raise CtaError(f"{name} is not published: it is generated on first use, or by `cta data generate {name}`")
        advice, where = "It needs a network", self.out or self.dataset_dir
        if spec is not None and not spec.needs_expert:
            advice = f"Without a network: `cta data generate {name}{folder_flag('--out', where)}` makes it here"
        options = {"extra_mirrors": self.mirror, "advice": advice}
        fetch = partial(download, name, dataset_folder(where), **options)
        return _print_paths(fetch, "the same command resumes the transfer")


@dataclass(frozen=True)
class List:
    """Show the known datasets, and whether they are here: generated, published or absent.

    The size is the file's own; of a dataset that is not here, what it has in full.

      cta data list --dataset-dir data
    """

    dataset_dir: DataFolder = None

    def __call__(self) -> None:
        folder = dataset_folder(self.dataset_dir)
        rows = [("dataset", "transitions", "here", "to get it")]
        for spec in KNOWN.values():
            ways = [] if spec.needs_expert else ["generate"]
            ways += [] if spec.name in DESK_DATASETS else ["download"]
            path = resolve(spec.name, dataset_dir=folder).train
            size = count_transitions(path) or spec.episodes * spec.episode_steps
            rows.append((spec.name, human(size), origin(path), ", ".join(ways)))
        print(f"datasets in {folder}")
        print_table(rows, left=4)
        print(f"download: {', '.join(mirrors())}")


@dataclass(frozen=True)
class Info:
    """Describe a dataset: shapes, episodes, ranges, where it comes from, and the problems found in it.

    Exits with 1 if there are problems.

      cta data info data/scene-play-v0.npz
      cta data info minari:D4RL/pointmaze/umaze-v2
    """

    file: Annotated[Positional[str], arg(metavar="NAME|FILE")]
    """A dataset name in the data folder, an npz file, minari:NAME, or lerobot:DIR."""
    dataset_dir: DataFolder = None

    def __call__(self) -> int:
        if not self.file.startswith(("minari:", "lerobot:")):
            return describe(resolve(self.file, dataset_dir=self.dataset_dir))
        _, dataset, _ = open_dataset(self.file)
        _say(f"{dataset!r}")
        if parts := (dataset.provenance or {}).get("observation_parts", {}):
            _say(f"observations: {', '.join(f'{part} ({size})' for part, size in parts.items())}")
        if dataset.bounds is not None:
            ends = (" ".join(f"{value:.6g}" for value in end) for end in dataset.bounds)
            _say(f"bounds of actions: {' to '.join(ends)}")
        _episodes(dataset)
        return DONE


def origin(path: Path) -> str:
    """generated (by cta), published (by OGBench) or absent."""
    if not path.exists():
        return "absent"
    try:
        with NpzReader(path) as file:
            record = file.provenance()
    except CtaError:
        return "damaged"
    return "generated" if (record or {}).get("created_by") == "cta" else "published"


def describe(files: DatasetFiles) -> int:
    """Print what both files of a dataset hold, and the problems found in them; the exit code says if there are any."""
    if not files.train.exists():
        raise CtaError(f"no such file: {files.train}; `cta data list` shows what is there")
    problems: list[str] = []
    train = _file(files.train, files.name, problems)
    if files.validation.exists():
        validation = _file(files.validation, files.name, problems)
        try:
            if train is not None and validation is not None:
                validation.check_like(train)
        except CtaError as error:
            problems.append(str(error))
    else:
        _say(f"no validation file: {files.validation.name} is not beside it")
    for problem in problems:
        _say(f"problem: {problem}", "red")
    _say(f"{len(problems)} problem(s) found" if problems else "no problems found")
    return ERROR if problems else DONE


def _say(text: str, style: str = "") -> None:
    """A line; names from files are shown, never taken for mark-up."""
    Console().print(Text(printable(text), style), soft_wrap=True)


def _file(path: Path, name: str, problems: list[str]) -> TrajectoryDataset | None:
    """Print one file and where it comes from; returns its data unless they are unreadable."""
    dataset, record, rows = None, None, [["array", "dtype", "shape", "lowest", "highest"]]
    try:
        with NpzReader(path) as file:
            record = file.provenance()
            for key in (key for key in file.keys if key != "provenance"):
                shape, dtype = file.header(key)
                ends = ["", ""]
                if dtype.kind in "iufb" and 0 not in shape:
                    blocks = [block for _, block in row_blocks(file[key].reshape(-1))]
                    ends = [f"{end([end(block) for block in blocks]):.6g}" for end in (np.min, np.max)]
                rows.append([printable(key), printable(str(dtype)), str(shape), *ends])
        print_table(rows, left=3, title=Text(printable(str(path))))
        dataset = TrajectoryDataset.from_npz(path, info=True)
        _episodes(dataset)
        if name.count("-") > 1:  # as names of datasets have it
            check_fits(dataset, environment_name(name))
    except CtaError as error:
        problems.append(str(error))
    if dataset is None:
        return None
    fetched = read_record(path) or {}
    if record is not None:
        _say("generated:")
        for key, value in record.items():
            _say(f"  {key}: {_in_words(value)}")
    elif fetched:
        _say(f"published: {fetched.get('url')}")
    else:
        _say("published, or made by other means: the file carries no record of its making")
    if name not in DESK_DATASETS and (notice := simulator_notice(record)):
        _say(f"note: {notice}")
    if fetched.get("sha256") not in (None, sha256_of(path)):
        problems.append(f"{path}: the SHA-256 is not the one recorded when it was downloaded")
    return dataset


def _episodes(dataset: TrajectoryDataset) -> None:
    lengths = dataset.episode_ends - dataset.episode_starts + 1
    spread = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    size = f"{dataset.num_episodes} episodes of {spread} rows, {dataset.num_transitions} transitions"
    _say(f"{size}, fingerprint {dataset.fingerprint()[:16]}")


def _in_words(value: Any) -> str:
    """A value of a record without brackets and quotes."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_in_words(part)}" for key, part in value.items())
    return ", ".join(map(_in_words, value)) if isinstance(value, list) else str(value)


COMMANDS = {"generate": Generate, "download": Download, "list": List, "info": Info}
