"""How much memory this process has taken at most."""

import resource
import sys

import jax


def peak_host_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_device_bytes() -> int | None:
    """Most bytes in use on the device so far; None where the device does not count (a CPU shares the host's)."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def describe_peaks() -> str:
    """Both peaks in words."""
    device = peak_device_bytes()
    text = f"peak memory: host {peak_host_bytes() / 2**30:.2f} GiB"
    return text if device is None else f"{text}, device {device / 2**30:.2f} GiB"
