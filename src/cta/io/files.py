"""Files in one piece, figures among them; one process at a time; paths and names as people give them; safe streams."""

import errno
import fcntl
import os
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast, get_args

from cta.errors import CtaError

UNFINISHED = ".tmp"  # the end of the name of a file that is being written; before it stands the number of its process
LONGEST = 120  # of a file name that is made from a name from outside
FigureFormat = Literal["png", "pdf", "svg"]


def user_path(text: str | Path) -> Path:
    """A path as a person gives it, where ~ is a home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # the home of nobody
        raise CtaError(f"{text}: {error}") from None


def cache_folder() -> Path:
    """`cta` in the user's cache folder."""
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "cta"


def safe_name(text: str) -> str:
    """A file name that says what `text` says, which no shell, terminal or file system minds; never empty or hidden."""
    name = re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip(".-")
    return name[:LONGEST].rstrip(".-") or "unnamed"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write all of a file or, whatever happens, nothing of it; its folder is made."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Whatever is in the way of writing is one line that names the path."""
    try:
        yield
    except OSError as error:
        raise CtaError(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that gets its name when it is complete and on the disk, or never exists."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with write_errors(path):
            with fresh.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
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
    content, kind = BytesIO(), check_suffix(path)
    print_quality = {} if kind == "png" else {"dpi": 300}  # of what stays pixels: photographs, thousands of dots
    figure.savefig(content, format=kind, **print_quality | options)
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
    with write_errors(folder):
        tempfile.TemporaryFile(dir=there).close()


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left of their `write_whole`; a living one is about to rename its file."""
    for file in folder.glob(f".*{UNFINISHED}"):
        owner = file.name.removesuffix(UNFINISHED).rpartition(".")[2]
        try:
            os.kill(int(owner), 0)
        except (ValueError, ProcessLookupError, OverflowError):
            file.unlink(missing_ok=True)
        except PermissionError:
            pass  # alive, and somebody else's


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


@contextmanager
def file_lock(what: Path, *, waiting: str = "") -> Iterator[None]:
    """Work on a file or folder while nobody else does who asks here; others wait, and say `waiting` if it is given.

    The lock is a hidden file beside `what`, gone when nobody needs it (a file, not a folder: network file systems lock
    only what is open for writing). A process that dies gives its lock back. Where there are no locks, nobody waits.
    """
    path = what.with_name(f".{what.name.removeprefix('.')}.lock")
    file = open_claimed(path, lambda file: lock(file, waiting=waiting))
    try:
        yield
    finally:
        # While it is still locked: nobody else's file can have its name.
        path.unlink(missing_ok=True)
        os.close(file)


def open_claimed(path: Path, claim: Callable[[int], object]) -> int:
    """A file opened and claimed (`claim` locks it, or raises), which is still the one of this name."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            claim(file)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(file)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its last owner removed it between our opening and our locking


def lock(file: int, *, waiting: str = "", patience: float | None = None) -> bool:
    """Lock an open file, saying `waiting` if somebody has it; False if they still have it after `patience` seconds."""
    if lock_at_once(file) is not False:
        return True
    if waiting:
        print(waiting, file=sys.stderr, flush=True)
    if patience is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return True
    until = time.monotonic() + patience
    while time.monotonic() < until:
        time.sleep(min(0.5, patience))
        if lock_at_once(file) is not False:
            return True
    return False


def lock_at_once(file: int) -> bool | None:
    """Whether nobody else has it; None where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}:
            raise
        return None
    return True
