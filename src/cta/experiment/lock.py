"""One process a run directory: a lock that says who holds it, and that a dead process cannot keep.

The kernel's file lock decides wherever the file system has one: it goes with the process that took it, so a stale file
or a process number used again mean nothing. What the file says is for people, and for file systems that do not pass
locks on to other machines: there its owner touches the file, and who wants it watches whether it is still touched.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.file_lock import NO_LOCKS, open_claimed

BEAT_SECONDS = 5.0
"""How often the owner touches the file."""
WATCH_SECONDS = 20.0
"""How long a file of another machine is watched before its owner counts as gone."""


class RunLock:
    """`RUN/lock`, held until `release` or the end of the process. `say` hears when a dead owner is succeeded."""

    def __init__(self, run: Path, *, say: Callable[[str], None] = lambda text: None):
        self.path, self._run, self._say = run / "lock", run, say
        try:
            self._file = open_claimed(self.path, self._claim)
        except OSError as error:
            raise CtaError(f"{run}: this run directory cannot be written ({error.strerror})") from error
        self._released = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="lock", daemon=True)
        self._beats.start()

    def release(self) -> None:
        if self._released.is_set():
            return
        self._released.set()
        self._beats.join()
        # While the lock is still held: nobody else can have put a file of theirs here.
        self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _claim(self, file: int) -> None:
        """Lock the file and write our name into it, or say who has it."""
        locked = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            locked = False
            if error.errno not in NO_LOCKS:
                raise self._in_use(_read(file)) from error
        owner = _read(file)
        if owner and owner.get("boot") != _boot():
            self._watch(owner)
        elif owner and not locked and _started(owner.get("pid")) == owner.get("started"):
            raise self._in_use(owner)
        if owner:
            self._say(f"taking over from process {owner.get('pid')} on {owner.get('host')}, which is gone")
        me = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "started": _started(os.getpid())}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(me).encode(), 0)

    def _watch(self, owner: dict[str, Any]) -> None:
        """The owner was on another machine (or before a restart of this one): is the file still touched?"""
        first = self._touched()
        self._say(f"{self.path}: held on {owner.get('host')}; watching for {WATCH_SECONDS:.0f} s whether it is alive")
        until = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < until:
            time.sleep(min(1.0, WATCH_SECONDS / 4))
            if self._touched() != first:
                raise self._in_use(owner)

    def _touched(self) -> int:
        # Opening makes a network file system ask its server; the clocks of the machines are never compared.
        try:
            with self.path.open() as file:
                return os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _in_use(self, owner: dict[str, Any]) -> CtaError:
        who = f"process {owner['pid']} on {owner.get('host')}" if "pid" in owner else "another process"
        return CtaError(f"{self._run} is in use by {who}; wait for it, stop it, or choose another --run-dir")

    def _beat(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            with suppress(OSError):  # the disk is gone or read-only: whoever writes numbers notices and says so
                os.utime(self._file)


def _read(file: int) -> dict[str, Any]:
    try:
        values = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _boot() -> str:
    """This machine since it was last started; host names are given twice more often than one thinks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _started(pid: Any) -> str | None:
    """When a process began, in ticks since the start of the machine: tells it from a later one of the same number."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, ValueError, TypeError, IndexError):
        return None
