"""One process at a time."""

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}
"""What a file system says that has no locks."""


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
    if _lock_at_once(file):
        return True
    if waiting:
        print(waiting, file=sys.stderr, flush=True)
    if patience is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return True
    until = time.monotonic() + patience
    while time.monotonic() < until:
        time.sleep(min(0.5, patience))
        if _lock_at_once(file):
            return True
    return False


def _lock_at_once(file: int) -> bool:
    """Whether nobody else has it; where there are no locks, nobody has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
