"""How many processes pay."""

import os
from math import ceil
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cpu_count(cgroup: Path = CGROUP) -> int:
    """Processor cores this process may keep busy: what it may run on, within what its container is granted."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        granted = ceil(int(quota) / int(period)) if int(quota) > 0 else allowed
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        granted = allowed
    return max(1, min(allowed, granted))
