"""Trajectories: plain arrays with episode bounds, in OGBench's files; where these lie and what they are called."""

import os
from pathlib import Path
from typing import NamedTuple

from cta.data.dataset import TrajectoryDataset as TrajectoryDataset
from cta.errors import CtaError
from cta.io.files import user_path

DATA_DIR_VARIABLE = "OGBENCH_DATA_DIR"


class DatasetFiles(NamedTuple):
    """A dataset's name and its two files, whether or not they exist."""

    name: str
    train: Path
    validation: Path


def dataset_folder(dataset_dir: str | Path | None = None) -> Path:
    """The argument, else the variable OGBENCH_DATA_DIR, else ~/.ogbench/data."""
    return Path(dataset_dir or os.environ.get(DATA_DIR_VARIABLE) or "~/.ogbench/data").expanduser()


def is_path(name_or_path: str | Path) -> bool:
    """Whether this is a FILE rather than a NAME: it has a folder, ends in .npz or .npy, or is a folder itself."""
    text = str(name_or_path)
    return isinstance(name_or_path, Path) or text.endswith((".npz", ".npy")) or os.sep in text or text in (".", "..")


def resolve(name_or_path: str | Path, *, dataset_dir: str | Path | None = None) -> DatasetFiles:
    """NAME is NAME.npz and NAME-val.npz in the data folder; a FILE has its own `-val` beside it."""
    if is_path(name_or_path):
        train = user_path(name_or_path)
        if train.is_dir():
            raise CtaError(f"{name_or_path} is a folder: name a file in it, FILE.npz, or lerobot:DIR for LeRobot's")
        if train.suffix != ".npz":
            raise CtaError(f"{name_or_path}: a dataset file ends in .npz")
    else:
        train = dataset_folder(dataset_dir) / f"{name_or_path}.npz"
    return DatasetFiles(train.stem, train, train.with_name(f"{train.stem}-val.npz"))


def environment_name(dataset_name: str) -> str:
    """The environment of a dataset name: `scene-play-v0` → `scene-v0`."""
    parts = dataset_name.split("-")
    if len(parts) < 3:
        raise CtaError(f"'{dataset_name}' is not a dataset name such as scene-play-v0: environment, data type, version")
    return "-".join([*parts[:-2], parts[-1]])
