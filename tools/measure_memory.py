"""Peaks of memory of commands, as the system counts them: a JSON record.

    python tools/measure_memory.py RECORD COMMAND… [-- COMMAND…]…

A process and its children are looked at fifty times a second (Linux only). Private memory is what they allocated.
Resident memory has mapped files too, which the system takes back when it needs the room.
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from cta.io.provenance import commit, hardware
from cta_bench.command import write

INTERVAL = 0.02


def processes(first: int) -> list[int]:
    """A process and those that it started."""
    found = [first]
    for process in found:
        try:
            found += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
        except OSError:  # it has ended
            continue
    return found


def sizes(process: int) -> tuple[int, int]:
    """Private and resident bytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return found.get("RssAnon", 0), found.get("VmRSS", 0)


def measure(command: list[str]) -> dict:
    started, private, resident = time.monotonic(), 0, 0
    running = subprocess.Popen(command)
    while running.poll() is None:
        now = [sum(part) for part in zip(*map(sizes, processes(running.pid)), strict=True)]
        private, resident = max(private, now[0]), max(resident, now[1])
        time.sleep(INTERVAL)
    if running.returncode:
        sys.exit(f"{shlex.join(command)} ended with {running.returncode}")
    peaks = {"private_peak_bytes": private, "resident_peak_bytes": resident}
    return {"what": "memory", "measured": shlex.join(command), "seconds": round(time.monotonic() - started, 1), **peaks}


def main() -> None:
    record, *words = sys.argv[1:]
    os.environ["CTA_COMMIT"] = commit() or ""  # as it is now: the commands may take long
    commands: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    entries = []
    for command in commands:
        entries.append(measure(command))
        write(Path(record), entries, hardware())  # each time: a later failure loses nothing


if __name__ == "__main__":
    main()
