"""cta bench"""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli.options import words
from cta.errors import CtaError
from cta.io import provenance
from cta.io.files import check_writable, write_whole
from cta.io.text_tables import print_table
from cta_bench import Data, Entry

SPEED = ("agent", "dataset", "batch_size", "seeds")
STARTS = ("cold_start_s", "cold_compile_s", "warm_start_s", "warm_trace_s", "warm_lower_s", "warm_compile_s")
COLUMNS: dict[str, tuple[str, ...]] = {
    "train": (*SPEED, "parameters", "steps_per_s", "seed_steps_per_s", "cpu_ms_per_seed_step", "seconds"),
    "compare": (*SPEED, "plain_seed_steps_per_s", "fused_seed_steps_per_s", "ratio", "ratio_least", "ratio_most"),
    "compile": (*SPEED, *STARTS),
    "memory": (*SPEED, "host_peak_bytes", "device_peak_bytes", "data_bytes", "device_beside_data_bytes"),
}
"""Columns shown of the known kinds; other kinds show all they have. The file always holds everything."""
What = Literal["train", "compare", "profile", "simulate"]
Measured = Iterator[tuple[list[Entry], Entry]]
"""Entries as they come, and the hardware."""


@dataclass(frozen=True, kw_only=True)
class Command(Data):
    """Measure speed and memory on this machine; print tables and write a JSON record.

      cta bench                                          CTA, one seed, a million random rows of puzzle-4x4's shape
      cta bench train --agents cta,hiql --seeds 1,8      several agents and numbers of seeds
      cta bench --reference --observation-dim 40         beside the plain per-step loop, in turns, in one process
      cta bench compare --agents all --seeds 8 --batch 1024,256,512 --seconds 5    every agent, plain and fused kernels
      cta bench --rows 5000000 --observation-dim 115 --batch 1024 --seeds 8      memory of a large dataset
      cta bench simulate                                 the simulator's lean step beside OGBench's own

    Rates are of whole steps (sampling, all losses, Adam, EMA) after warm-up and up to a blocking read. Every training
    case has a process and a compilation cache of its own, so that its compile times and memory peaks are its own.
    """

    what: Annotated[Positional[tuple[What, ...]], arg(metavar="WHAT…")] = ("train",)
    """train, compare (fused over plain kernels, in turns), profile (where the device's time goes, alone), simulate."""
    agents: str = "cta"
    """Agents, with commas between them; `all` for every registered one."""
    seeds: str = "1"
    """Numbers of seeds trained together, with commas between them."""
    batch: str = "256"
    """Batch sizes, with commas between them; 0 takes the agent's own for the dataset."""
    reference: bool = False
    """Also measure the plain per-step loop: one jitted update per step, batches drawn on the host."""
    profile: bool = False
    """With train: also sum up the device's time by kind of kernel."""
    together: bool = False
    """Start and compile all cases side by side, then measure one after the other: less time for many agents."""
    worlds: str = ""
    """Simulated worlds, with commas between them (default: all)."""
    out: Path | None = None
    """The record; an existing file is replaced (default: benchmarks/WHAT-DEVICE.json, or -2, -3, … if that exists)."""

    def __call__(self) -> None:
        check_writable((self.out or Path("benchmarks") / "x").expanduser().parent)
        also = [kind for kind in ("profile", "reference") if getattr(self, kind) and "train" in self.what]
        kinds = [kind for kind in ("train", "compare", "profile", "reference") if kind in (*self.what, *also)]
        entries: list[Entry] = []
        path = self.out
        for measure in (self._training(kinds) if kinds else (), self._simulation() if "simulate" in self.what else ()):
            for found, hardware in measure:
                entries += found
                device = str(hardware["device"]).lower().replace(" ", "-")
                path = path or _free_path(Path("benchmarks") / f"{'-'.join(self.what)}-{device}.json")
                write(path, entries, hardware)  # each time: a later failure loses nothing
        show(entries)
        print(f"record: {path}")

    def _training(self, kinds: list[str]) -> Measured:
        from cta.agents import REGISTRY
        from cta_bench import cases

        if self.rows < 2:
            raise CtaError("--rows must be at least 2: one row is no transition")
        shared = {field.name: getattr(self, field.name) for field in fields(Data)}
        wanted = [
            cases.Case(agent.strip(), seeds, batch, **shared)
            for batch in _numbers("--batch", self.batch, least=0)
            for agent in (REGISTRY if self.agents == "all" else self.agents.split(","))
            for seeds in _numbers("--seeds", self.seeds, least=1)
        ]
        for case in wanted:
            case.build()  # complains about unknown names before anything is measured
        console = Console(stderr=True, highlight=False)
        if self.together:
            for kind in kinds:
                with console.status(f"{len(wanted)} cases: compiling, then measuring {kind}, {self.seconds:g} s each"):
                    for case, (found, hardware) in cases.measure_together(wanted, kind):
                        _tell(console, case, found[0])
                        yield found, hardware
            return
        for case in wanted:
            with console.status(f"{case}: compiling and measuring {', '.join(kinds)}, {self.seconds:g} s each"):
                for found, hardware in cases.measure_case(case, kinds):
                    _tell(console, case, found[0])
                    yield found, hardware

    def _simulation(self) -> Measured:
        from cta_bench.simulation import measure_worlds

        for entry in measure_worlds(words(self.worlds), seconds=self.seconds):
            yield [entry], provenance.hardware()


def _tell(console: Console, case: object, entry: Entry) -> None:
    """A line for a rate as it comes."""
    if entry["what"] == "train":
        console.print(f"{case}: {entry['seed_steps_per_s']:,.0f} seed-steps/s")
    if entry["what"] == "compare":
        console.print(f"{case}: fused kernels {entry['ratio']:.2f} times as fast as plain ones")


def _numbers(flag: str, text: str, *, least: int) -> list[int]:
    found = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= least for word in found):
        raise CtaError(f"{flag} {text}: give whole numbers of at least {least}, with commas between them")
    return [int(word) for word in found]


def _free_path(path: Path) -> Path:
    """The path, or with -2, -3, … the first that nothing has: a record may be the evidence of something."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def write(path: Path, entries: list[Entry], hardware: Entry) -> None:
    """Write a record, all of it or nothing."""
    on_cpu = hardware["backend"] == "cpu"
    record = {
        "device": f"{hardware['cpu']}, {hardware['cores']} cores" if on_cpu else hardware["device"],
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **provenance.record(machine=hardware),
        "entries": entries,
    }
    write_whole(path, json.dumps(record, indent=1) + "\n")


def show(entries: list[Entry]) -> None:
    """Print a table for each kind of entry, in order of first appearance."""
    for kind in dict.fromkeys(entry["what"] for entry in entries):
        found = [entry for entry in entries if entry["what"] == kind]
        columns = COLUMNS.get(kind) or [*dict.fromkeys(name for entry in found for name in entry if name != "what")]
        heads = [name.removesuffix("_bytes").replace("_", " ") + " GiB" * name.endswith("_bytes") for name in columns]
        rows = [[_cell(name, entry.get(name)) for name in columns] for entry in found]
        words = [*(isinstance(found[0].get(name), str) for name in columns), False]
        print_table([heads, *rows], left=words.index(False), title=kind)
        print()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name.endswith("_bytes"):
        return f"{value / 2**30:.2f}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
