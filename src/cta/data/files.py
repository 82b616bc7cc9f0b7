"""Where datasets live and what they are called: OGBench's folder, OGBench's names. And writing a file in one piece."""

import os
from dataclasses import dataclass
from pathlib import Path

from cta.errors import CtaError

DATA_DIR_VARIABLE = "OGBENCH_DATA_DIR"
DEFAULT_DATA_DIR = "~/.ogbench/data"
UNFINISHED = ".tmp"
"""The end of the name of a file that is being written; before it stands the number of its process."""


@dataclass(frozen=True)
class DatasetFiles:
    """A dataset's name and its two files, whether or not they exist."""

    name: str
    train: Path
    validation: Path


def dataset_folder(dataset_dir: str | Path | None = None) -> Path:
    """The argument, else the variable OGBENCH_DATA_DIR, else ~/.ogbench/data."""
    return Path(dataset_dir or os.environ.get(DATA_DIR_VARIABLE) or DEFAULT_DATA_DIR).expanduser()


def user_path(text: str | Path) -> Path:
    """A path as a person gives it, where ~ is a home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # the home of nobody
        raise CtaError(f"{text}: {error}") from None


def is_path(name_or_path: str | Path) -> bool:
    """Whether this is a FILE rather than a NAME: it has a folder, ends in .npz or .npy, or is a folder itself."""
    text = str(name_or_path)
    return isinstance(name_or_path, Path) or text.endswith((".npz", ".npy")) or os.sep in text or text in (".", "..")


def resolve(name_or_path: str | Path, *, dataset_dir: str | Path | None = None) -> DatasetFiles:
    """NAME is NAME.npz and NAME-val.npz in the data folder; a FILE has its own `-val` beside it."""
    if is_path(name_or_path):
        train = user_path(name_or_path)
        if train.is_dir():
            raise CtaError(f"{name_or_path} is a folder: name a dataset file in it, FILE.npz")
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


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all of a file or, whatever happens, nothing of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise CtaError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        fresh.unlink(missing_ok=True)


def set_usual_mode(path: str | Path) -> None:
    """Give a file of `tempfile.mkstemp`, which its owner alone may read, the mode that `open` would have given it."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left of their `write_whole`; a living one is about to rename its file."""
    for file in folder.glob(f".*{UNFINISHED}"):
        owner = file.name.removesuffix(UNFINISHED).rpartition(".")[2]
        if not (owner.isdecimal() and _alive(int(owner))):
            file.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # alive, and somebody else's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
