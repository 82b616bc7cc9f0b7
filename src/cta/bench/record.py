"""The record of a benchmark: a JSON file with the device and a list of entries, and the same as tables."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

from cta.io import provenance
from cta.io.files import write_whole
from cta.io.text_tables import print_table

Entry = dict[str, Any]
SPEED = ("agent", "dataset", "batch_size", "seeds")
STARTS = ("cold_start_s", "cold_compile_s", "warm_start_s", "warm_trace_s", "warm_lower_s", "warm_compile_s")
COLUMNS: dict[str, tuple[str, ...]] = {
    "train": (*SPEED, "parameters", "steps_per_s", "seed_steps_per_s", "cpu_ms_per_seed_step", "seconds"),
    "compile": (*SPEED, *STARTS),
    "memory": (*SPEED, "host_peak_bytes", "device_peak_bytes", "data_bytes", "device_beside_data_bytes"),
}
"""Columns shown of the known kinds; other kinds show all they have. The file always holds everything."""


def free_path(path: Path) -> Path:
    """The path, or with -2, -3, … the first that nothing has: a record may be the evidence of something."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def write(path: Path, entries: list[Entry], hardware: dict[str, Any]) -> None:
    """Write a record, all of it or nothing."""
    on_cpu = hardware["backend"] == "cpu"
    record = {
        "device": f"{hardware['cpu']}, {hardware['cores']} cores" if on_cpu else hardware["device"],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": provenance.command(),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": hardware,
        "entries": entries,
    }
    write_whole(path, json.dumps(record, indent=1) + "\n")


def show(entries: list[Entry]) -> None:
    """Print a table for each kind of entry, in order of first appearance."""
    for kind in dict.fromkeys(entry["what"] for entry in entries):
        found = [entry for entry in entries if entry["what"] == kind]
        columns = COLUMNS.get(kind) or [*dict.fromkeys(name for entry in found for name in entry if name != "what")]
        heads = [name.removesuffix("_bytes").replace("_", " ") + " GiB" * name.endswith("_bytes") for name in columns]
        rows = [[_shown(name, entry.get(name)) for name in columns] for entry in found]
        words = [*(isinstance(found[0].get(name), str) for name in columns), False]
        print_table([heads, *rows], left=words.index(False), title=kind)
        print()


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name.endswith("_bytes"):
        return f"{value / 2**30:.2f}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
