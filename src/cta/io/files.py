"""Files in one piece, figures among them; paths and names as people give them; streams that may go away."""

import os
import re
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast, get_args

from cta.errors import CtaError

UNFINISHED = ".tmp"
"""The end of the name of a file that is being written; before it stands the number of its process."""
LONGEST = 120
"""Of a file name that is made from a name from outside."""
FigureFormat = Literal["png", "pdf", "svg"]


def user_path(text: str | Path) -> Path:
    """A path as a person gives it, where ~ is a home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # the home of nobody
        raise CtaError(f"{text}: {error}") from None


def safe_name(text: str) -> str:
    """A file name that says what `text` says: no separator, no dot in front, nothing a shell or terminal acts on, never
    empty or too long for a file system.
    """
    name = re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip(".-")
    return name[:LONGEST].rstrip(".-") or "unnamed"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all of a file or, whatever happens, nothing of it; its folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CtaError(f"{path}: cannot be written ({error.strerror})") from error
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name when it is complete and on the disk, or never exists."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise CtaError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        with suppress(OSError):
            fresh.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename in it survive a power cut."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def check_suffix(path: Path) -> str:
    """The format that the suffix of a figure's file names; complains about any other."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in get_args(FigureFormat):
        raise CtaError(f"{path}: figures are written as {', '.join(f'.{known}' for known in get_args(FigureFormat))}")
    return kind


def save_figure(figure: Any, path: Path, **options: Any) -> Path:
    """Write all of a Matplotlib figure or nothing, in the format that the suffix of `path` names; returns the path."""
    content = BytesIO()
    figure.savefig(content, format=check_suffix(path), **options)
    write_whole(path, content.getvalue())
    return path


def read_content(path: Path) -> bytes:
    """All of a file; whatever is in the way is one line that names it."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device would be read without end
            raise CtaError(f"{path} is not a file")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: of a name that can be none
        raise CtaError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; whatever is wrong with it is one line that names it."""
    try:
        return tomllib.loads(read_content(path).decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CtaError(f"{path}: not valid TOML ({reason})") from None


def check_writable(folder: Path) -> None:
    """Complain if no file can be made in a folder, or the folder itself not: better before the work than after it."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise CtaError(f"{folder}: cannot be written ({error.strerror})") from error


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


class SafeStream:
    """A stream whose end may go away (a terminal, a pipe, a full disk); what speaks goes on without it."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def safe_stream(stream: TextIO) -> TextIO:
    return cast(TextIO, SafeStream(stream))
