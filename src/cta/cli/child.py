"""`python -m cta.cli.child PARENT [--nice] [--clock RUN] COMMAND…`: a `cta` command that ends with PARENT."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from cta import cli
from cta.errors import CtaError
from cta.io.files import write_whole
from cta.scores.schema import CLOCK


def main() -> None:
    parent, *words = sys.argv[1:]
    # SIGTERM, which training answers with a checkpoint, when the parent ends in whatever way, perhaps already.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if parent != str(os.getppid()):
        os._exit(3)
    if words[0] == "--nice":
        os.nice(10)
        # Where Linux groups processes by session, their niceness counts within the session only; the group has its own.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("10")
        words = words[1:]
    if words[0] == "--clock":
        keep_clock(Path(words[1]))
        words = words[2:]
    sys.argv = ["cta", *words]
    cli.main()


def keep_clock(run: Path) -> None:
    """Note once a second how long the processes of a run have taken so far."""
    began, before = time.monotonic(), 0.0
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        before = float(json.loads((run / CLOCK).read_text())["wall_clock_s"])

    def beat() -> None:
        while True:
            time.sleep(1.0)
            # Nothing fails because a clock cannot be written: a run that withdraws, a full disk.
            with contextlib.suppress(CtaError, OSError):
                if (run / "config.json").exists():
                    seconds = round(before + time.monotonic() - began, 1)
                    write_whole(run / CLOCK, json.dumps({"wall_clock_s": seconds}) + "\n")

    threading.Thread(target=beat, daemon=True, name="clock").start()


if __name__ == "__main__":
    main()
