"""The record of a benchmark: a JSON file with the device and a list of entries, and the same as tables."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from cta import provenance
from cta.data.files import write_whole

Entry = dict[str, Any]

SPEED = ("agent", "dataset", "batch_size", "seeds")
COLUMNS: dict[str, tuple[str, ...]] = {
    "train": (*SPEED, "parameters", "steps_per_s", "seed_steps_per_s", "cpu_ms_per_seed_step", "seconds"),
    "sampler": (*SPEED, "steps_per_s", "seed_steps_per_s", "cpu_ms_per_seed_step"),
    "update": (*SPEED, "steps_per_s", "seed_steps_per_s", "cpu_ms_per_seed_step"),
    "compile": (
        *SPEED,
        "cold_start_s",
        "cold_compile_s",
        "warm_start_s",
        "warm_trace_s",
        "warm_lower_s",
        "warm_compile_s",
    ),
    "memory": (*SPEED, "host_peak_bytes", "device_peak_bytes", "data_bytes", "device_beside_data_bytes"),
}
"""Columns shown of the known kinds; other kinds show all they have. The file always holds everything."""


def free_path(path: Path) -> Path:
    """The path, or with -2, -3, … the first that nothing has: a record may be the evidence of something."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def write(path: Path, entries: list[Entry], hardware: dict[str, Any]) -> None:
    """Write a record, all of it or nothing."""
    record = {
        "device": hardware["device"]
        if hardware["backend"] != "cpu"
        else f"{hardware['cpu']}, {hardware['cores']} cores",
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": provenance.command(),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": hardware,
        "entries": entries,
    }
    write_whole(path, json.dumps(record, indent=1) + "\n")


def tables(entries: list[Entry]) -> list[Table]:
    """One table for each kind of entry, in order of first appearance."""
    kinds = dict.fromkeys(entry["what"] for entry in entries)
    return [_table(kind, [entry for entry in entries if entry["what"] == kind]) for kind in kinds]


def _table(kind: str, entries: list[Entry]) -> Table:
    columns = COLUMNS.get(kind) or tuple(dict.fromkeys(name for entry in entries for name in entry if name != "what"))
    table = Table(title=kind, title_justify="left", title_style="bold")
    for name in columns:
        words = isinstance(entries[0].get(name), str)
        heading = name.removesuffix("_bytes").replace("_", " ") + (" GiB" if name.endswith("_bytes") else "")
        table.add_column(heading, justify="left" if words else "right")
    for entry in entries:
        table.add_row(*(_shown(name, entry.get(name)) for name in columns))
    return table


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name.endswith("_bytes"):
        return f"{value / 2**30:.2f}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
