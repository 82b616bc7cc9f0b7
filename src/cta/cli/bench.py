"""cta bench"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from cta.bench import Data
from cta.errors import CtaError
from cta.io.files import check_writable

Measured = Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]
"""Entries as they come, and the hardware."""


@dataclass(frozen=True, kw_only=True)
class Command(Data):
    """Measure speed and memory on this machine; print tables and write a JSON record.

      cta bench                                          CTA, one seed, a million random rows of puzzle-4x4's shape
      cta bench train --agents cta,hiql --seeds 1,8      several agents and numbers of seeds
      cta bench --reference --observation-dim 40         beside the plain per-step loop, in turns, in one process
      cta bench --rows 5000000 --observation-dim 115 --batch 1024 --seeds 8      memory of a large dataset
      cta bench simulate                                 the simulator's lean step beside OGBench's own

    Rates are of whole steps (sampling, all losses, Adam, EMA) after warm-up and up to a blocking read. Every training
    case has a process and a compilation cache of its own, so that its compile times and memory peaks are its own.
    """

    what: Annotated[Positional[tuple[Literal["train", "profile", "simulate"], ...]], arg(metavar="WHAT…")] = ("train",)
    """train, profile (where the device's time goes, alone), simulate."""
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
    worlds: str = ""
    """Simulated worlds, with commas between them (default: all)."""
    out: Path | None = None
    """The record; an existing file is replaced (default: benchmarks/WHAT-DEVICE.json, or -2, -3, … if that exists)."""

    def __call__(self) -> None:
        from cta.bench import record

        check_writable((self.out or Path("benchmarks") / "x").expanduser().parent)
        also = [kind for kind in ("profile", "reference") if getattr(self, kind) and "train" in self.what]
        kinds = [kind for kind in ("train", "profile", "reference") if kind in (*self.what, *also)]
        entries: list[dict[str, Any]] = []
        path = self.out
        for measure in (self._training(kinds) if kinds else (), self._simulation() if "simulate" in self.what else ()):
            for found, hardware in measure:
                entries += found
                device = str(hardware["device"]).lower().replace(" ", "-")
                path = path or record.free_path(Path("benchmarks") / f"{'-'.join(self.what)}-{device}.json")
                record.write(path, entries, hardware)  # each time: a later failure loses nothing
        record.show(entries)
        print(f"record: {path}")

    def _training(self, kinds: list[str]) -> Measured:
        from cta.bench.cases import measure_case

        console = Console(stderr=True, highlight=False)
        for case in self._cases():
            name = f"{case.agent}, seeds {case.seeds}, batch {case.batch_size or 'default'}"
            doing = f"{name}: compiling and measuring {', '.join(kinds)}, {self.seconds:g} s each"
            with console.status(doing):
                for found, hardware in measure_case(case, kinds):
                    if found[0]["what"] == "train":
                        console.print(f"{name}: {found[0]['seed_steps_per_s']:,.0f} seed-steps/s")
                    yield found, hardware

    def _cases(self) -> list[Any]:
        from cta.agents import REGISTRY
        from cta.bench.cases import Case

        if self.rows < 2:
            raise CtaError("--rows must be at least 2: one row is no transition")
        agents = list(REGISTRY) if self.agents == "all" else self.agents.split(",")
        shared = {field.name: getattr(self, field.name) for field in fields(Data)}
        cases = [
            Case(agent.strip(), seeds, batch, **shared)
            for agent in agents
            for batch in _numbers("--batch", self.batch, least=0)
            for seeds in _numbers("--seeds", self.seeds, least=1)
        ]
        for case in cases:
            case.build()  # complains about unknown names before anything is measured
        return cases

    def _simulation(self) -> Measured:
        from cta.bench.simulation import measure_worlds
        from cta.io.provenance import hardware

        for entry in measure_worlds(self.worlds.split(",") if self.worlds else (), seconds=self.seconds):
            yield [entry], hardware()


def _numbers(flag: str, text: str, *, least: int) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= least for word in words):
        raise CtaError(f"{flag} {text}: give whole numbers of at least {least}, with commas between them")
    return [int(word) for word in words]
