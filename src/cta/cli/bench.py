"""cta bench"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from cta.cli import DONE
from cta.errors import CtaError

DESCRIPTION = """\
Measure speed and memory on this machine; print tables and write a JSON record.

  cta bench                                              CTA, one seed, a million random rows of puzzle-4x4's shape
  cta bench train --agents cta,hiql --seeds 1,8          several agents and numbers of seeds
  cta bench --reference --observation-dim 40             beside the plain per-step loop, in turns, in one process
  cta bench --rows 5000000 --observation-dim 115 --batch 1024 --seeds 8      memory of a large dataset
  cta bench beside --seeds 4 --dataset puzzle-4x4-play-v0       what evaluation on the same machine costs training
  cta bench simulate generate evaluate                   the simulator, data generation and evaluation

Rates are of whole steps (sampling, all losses, Adam, EMA) after warm-up and up to a blocking read. Every training case
has a process and a compilation cache of its own, so that its compile times and memory peaks are its own.
"""

What = Literal["train", "profile", "beside", "simulate", "generate", "evaluate"]


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    what: Annotated[Positional[tuple[What, ...]], arg(metavar="WHAT…")] = ("train",)
    """train, profile (where the device's time goes, alone), beside (training with evaluation on the same machine),
    simulate, generate, evaluate."""
    agents: str = "cta"
    """Agents, with commas between them; `all` for every registered one."""
    seeds: str = "1"
    """Numbers of seeds trained together, with commas between them."""
    batch: str = "256"
    """Batch sizes, with commas between them; 0 takes the agent's own for the dataset."""
    dataset: str | None = None
    """Measure on this dataset, with the paper's settings for it (default: random rows)."""
    dataset_dir: str | None = None
    """Folder of datasets."""
    rows: int = 1_000_000
    """Random rows, in episodes of 1,001."""
    observation_dim: int = 83
    """Columns of a random observation."""
    action_dim: int = 5
    """Columns of a random action."""
    seconds: float = 20.0
    """How long each rate is measured."""
    kernels: Literal["auto", "plain", "fused"] = "auto"
    """How the step is computed, as in `cta train`."""
    reference: bool = False
    """Also measure the plain per-step loop: one jitted update a step, NumPy sampling."""
    profile: bool = False
    """With train: also sum up the device's time by kind of kernel."""
    parts: bool = True
    """With train: also measure the sampler alone and the update alone."""
    worlds: str = "all"
    """Simulated worlds, with commas between them (simulate, generate, evaluate)."""
    workers: int | None = None
    """Processes of generate and evaluate (default: the number of cores)."""
    out: Path | None = None
    """The record; one that is there is replaced (default: benchmarks/WHAT-DEVICE.json, with -2, -3, … where there is
    one already)."""


def main(argv: list[str]) -> int:
    from cta.bench import record

    settings = tyro.cli(Settings, args=argv, prog="cta bench", description=DESCRIPTION)
    entries: list[dict[str, Any]] = []
    path = settings.out
    for found, hardware in _measured(settings, Console(file=sys.stderr, highlight=False)):
        entries += found
        device = str(hardware["device"]).lower().replace(" ", "-")
        path = path or record.free_path(Path("benchmarks") / f"{'-'.join(settings.what)}-{device}.json")
        record.write(path, entries, hardware)  # each time: what was measured outlives what goes wrong later
    console = Console(highlight=False, file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    for table in record.tables(entries):
        console.print(table)
    console.print(f"record: {path}")
    return DONE


def _measured(settings: Settings, console: Console) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Entries as they come, and the hardware."""
    if "train" in settings.what:
        yield from _training(settings, console)
    alone = {"profile": "tracing", "beside": f"measuring for {2 * settings.seconds:g} s"}
    for what, doing in alone.items():
        if what in settings.what and not (what == "profile" and "train" in settings.what):
            yield from _only(settings, console, what, doing)
    if simulated := [what for what in settings.what if what not in ("train", *alone)]:
        yield from _simulation(settings, simulated)


def _training(settings: Settings, console: Console) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    from cta.bench.child import measure_case

    profile = settings.profile or "profile" in settings.what
    wanted = {"parts": settings.parts, "profile": profile, "reference": settings.reference}
    for case in _cases(settings):
        with console.status(f"{case.name}: compiling and measuring for {settings.seconds:g} s"):
            for found, hardware in measure_case(case, also=[what for what, asked in wanted.items() if asked]):
                if found[0]["what"] == "train":
                    console.print(f"{case.name}: {found[0]['seed_steps_per_s']:,.0f} seed-steps/s")
                yield found, hardware


def _only(
    settings: Settings, console: Console, what: str, doing: str
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    from cta.bench.child import measure_only

    for case in _cases(settings):
        with console.status(f"{case.name}: compiling and {doing}"):
            yield measure_only(case, what)


def _cases(settings: Settings) -> list[Any]:
    from cta.agents import REGISTRY
    from cta.bench.cases import Case, DataShape

    if min(settings.rows - 1, settings.observation_dim, settings.action_dim) < 1 or settings.seconds <= 0:
        raise CtaError("--rows must be at least 2; --observation-dim, --action-dim and --seconds positive")
    agents = list(REGISTRY) if settings.agents == "all" else settings.agents.split(",")
    data = DataShape(
        settings.dataset, settings.dataset_dir, settings.rows, settings.observation_dim, settings.action_dim
    )
    cases = [
        Case(agent.strip(), seeds, batch, data, settings.seconds, settings.kernels)
        for agent in agents
        for batch in _numbers("--batch", settings.batch, least=0)
        for seeds in _numbers("--seeds", settings.seeds, least=1)
    ]
    for case in cases:
        case.build()  # complains about unknown names before anything is measured
    return cases


def _numbers(flag: str, text: str, *, least: int) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) >= least for word in words):
        raise CtaError(f"{flag} {text}: give whole numbers of at least {least}, with commas between them")
    return [int(word) for word in words]


def _simulation(settings: Settings, what: list[str]) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    # As in `cta evaluate --results`: the policy has one thread, the cores belong to the simulators.
    os.environ.setdefault("PJRT_NPROC", "1")
    from cta.bench import simulation
    from cta.provenance import hardware

    worlds = None if settings.worlds == "all" else settings.worlds.split(",")
    found = simulation.measure(what, worlds=worlds, workers=settings.workers, seconds=settings.seconds)
    machine = hardware()
    for entry in found:
        yield [entry], machine
