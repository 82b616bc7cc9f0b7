"""What produced a file: command, versions, commit and hardware, as plain data."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cta import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "ogbench", "mujoco", "dm-control", "gymnasium")


def record(packages: Sequence[str] = PACKAGES, *, machine: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What every record of a result begins with; `machine`: the hardware of another process."""
    made = {"command": command(), "commit": commit(), "versions": versions(packages)}
    return {**made, "hardware": hardware() if machine is None else machine}


def command() -> str:
    """The command line, ready to be typed again, without the folder the program lives in."""
    program = Path(sys.argv[0]).name
    return shlex.join(["cta" if program == "__main__.py" else program, *sys.argv[1:]])


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python, of this package and of those whose version can change a number."""
    found = {"python": platform.python_version(), "cta": __version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def commit() -> str | None:
    """The commit of the source tree this package runs from, with `+changes` if the tree differs from it."""

    def git(*words: str) -> str | None:
        call = ["git", "-C", str(Path(__file__).parent), *words]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if told := os.environ.get("CTA_COMMIT"):  # of a tree that is a copy without its history
        return told
    # A checkout of some other project that merely contains an installed copy does not count.
    tracked = git("ls-files", "--error-unmatch", Path(__file__).name)
    revision = git("rev-parse", "HEAD") if tracked else None
    if revision is None:
        return None
    return revision + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def hardware() -> dict[str, str | int | None]:
    import jax

    devices, names = jax.devices(), []
    with suppress(OSError):  # only Linux has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "backend": jax.default_backend(),
        "device": devices[0].device_kind,
        "devices": len(devices),
    }
