"""How long things take, by records, by what this start has measured or by the plan; and what a person sees of it."""

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console as RichConsole
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from cta.envs.names import DESK_DATASETS, is_visual
from cta.grid.plan import SLOWEST
from cta.io.files import safe_stream
from cta.io.text_tables import clock
from cta.scores.paper import CellScores
from cta.scores.store import by_score, by_seed

START_S = 60.0  # starting, reading data and compiling, where only the speed of the steps is known
SLOWER = 1.05  # a speed measured early is that of training alone; scoring beside it will cost a little
# Per second, measured on the manipulation worlds, and on the embedded ones, which need no simulator.
ROWS_PER_CORE = {False: 230.0, True: 50_000.0}
EPISODES_PER_CORE = {False: 0.21, True: 50.0}
SILENCE_S = 20.0  # off a terminal, how often a line says how far jobs are


def device_name() -> str:
    """The accelerator training will use, named as JAX names it, found without starting JAX."""
    if os.environ.get("JAX_PLATFORMS") != "cpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # there is no such program, or no GPU
            found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
            return found.stdout.partition("\n")[0].strip() or "cpu"
    return "cpu"


class Speed(NamedTuple):
    """Seed-steps per second of some seeds together."""

    agent: str
    dataset: str
    seeds: int
    rate: float
    source: str
    device: str

    def __str__(self) -> str:
        return f"{self.rate:,.0f} seed-steps/s of {self.seeds} seeds on {self.dataset}, {self.source}, {self.device}"


@dataclass
class Rates:
    """Everything known of speed, the latest last."""

    device: str
    guesses: Mapping[str, float] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)
    scoring: list[tuple[str, float]] = field(default_factory=list)
    """(dataset, episodes per second and core)."""

    @classmethod
    def of(cls, cells: Iterable[CellScores], device: str, guesses: Mapping[str, float]) -> "Rates":
        rates = cls(device, guesses)
        for cell in cells:
            for facts in by_seed(cell.record).values():
                seeds, rate = facts.get("seeds_together"), facts.get("seed_steps_per_s")
                where = (facts.get("hardware") or {}).get("device")
                if where and seeds and seeds >= 1 and rate and SLOWEST < rate < 1 / SLOWEST:
                    rates.speeds.append(Speed(cell.key.agent, cell.key.dataset, seeds, rate, "recorded", where))
            for (*_, asked), (facts, seconds) in by_score(cell.record).items():
                tasks = len({row.task for row in cell.rows if row.asked == asked})
                episodes, workers = facts.get("episodes", 0), facts.get("workers", 0)
                speed = tasks * episodes / seconds / workers if min(seconds, workers) > 0 else 0.0
                rates.scoring += [(cell.key.dataset, speed)] if SLOWEST < speed < 1 / SLOWEST else []
        return rates

    def measured(self, agent: str, dataset: str, seeds: int, rate: float) -> None:
        """A run in progress makes so many seed-steps per second."""
        speed = Speed(agent, dataset, seeds, rate, "measured", self.device)
        self.speeds = [*(old for old in self.speeds if old._replace(rate=rate) != speed), speed]

    def speed(self, agent: str, dataset: str, seeds: int) -> Speed | None:
        """The nearest that is known: of this device, then of this dataset, then of as many seeds; else the plan's."""
        # Images take a time of their own.
        mine = [s for s in reversed(self.speeds) if s.agent == agent and is_visual(s.dataset) == is_visual(dataset)]
        if not mine and (guess := self.guesses.get(agent)):
            return Speed(agent, dataset, 4, guess, "given in the plan", "another machine")
        far = [(s.device != self.device, s.dataset != dataset, abs(s.seeds - seeds)) for s in mine]
        return mine[far.index(min(far))] if mine else None

    def known(self, agent: str) -> bool:
        """Whether this agent's speed was recorded or measured on such a device."""
        return any(speed.agent == agent and speed.device == self.device for speed in self.speeds)

    def train_seconds(self, agent: str, dataset: str, seeds: int, steps: int) -> float | None:
        """Time for `steps` steps of `seeds` seeds together; None if nothing is known."""
        if (known := self.speed(agent, dataset, seeds)) is None:
            return None
        # As if one came after the other, more seeds cost all of their share, but fewer save only half of it.
        share = seeds / known.seeds
        step_s = known.seeds / known.rate * (share if share > 1 else 0.5 + 0.5 * share)
        seconds = steps * step_s * (SLOWER if known.source == "measured" else 1.0)
        return seconds if known.source == "recorded" else seconds + START_S  # records include it

    def generate_seconds(self, dataset: str, rows: int, cores: int) -> float:
        return rows / (cores * self.guesses.get("rows_per_core", ROWS_PER_CORE[dataset in DESK_DATASETS]))

    def score_rate(self, dataset: str) -> tuple[float, str]:
        """Episodes per second and core, and who says so: the plan before records of such worlds, the median of them."""
        if given := self.guesses.get("episodes_per_core"):
            return given, "given in the plan"
        embedded = dataset in DESK_DATASETS
        seen = sorted(speed for other, speed in self.scoring if (other in DESK_DATASETS) == embedded)
        return (seen[len(seen) // 2], "recorded") if seen else (EPISODES_PER_CORE[embedded], "assumed")


class Budget:
    """The time of a start; without `seconds` there is no end of it. The last of it is kept for ending."""

    def __init__(self, seconds: float | None = None):
        self.seconds = seconds
        self._reserve = min(30.0, (seconds or 0.0) / 10)
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds in which something may still be done."""
        return self._end - self._reserve - time.monotonic()

    @property
    def last_moment(self) -> float:
        """When whatever is still ending is killed."""
        now = time.monotonic()
        return now + 60 if self.seconds is None else max(self._end, now + 20)


class Console:
    """Says what happens, and shows how far the jobs under way are, inside of `bars`. Call `tick` often."""

    def __init__(self) -> None:
        self.console = RichConsole(file=safe_stream(sys.stderr), highlight=False)
        # No refreshing thread: the runner starts processes.
        self.bars = Live(console=self.console, auto_refresh=False, transient=True)
        self._began = self._spoke = time.monotonic()

    def say(self, text: str) -> None:
        """A line that stays, with the time since the start."""
        self.console.print(f"[{clock(time.monotonic() - self._began)}] {text}", soft_wrap=True, markup=False)

    def tick(self, jobs: dict[str, tuple[float, str]]) -> None:
        """{job: (share done, note)} of everything that runs."""
        if self.console.is_terminal:
            table = Table.grid(Column(no_wrap=True), Column(), Column(no_wrap=True), padding=(0, 1))
            for name, (share, note) in jobs.items():
                table.add_row(Text(name), ProgressBar(1.0, share, width=24), Text(note))
            self.bars.update(table, refresh=True)
        elif jobs and time.monotonic() - self._spoke > SILENCE_S:
            self._spoke = time.monotonic()
            self.say(" | ".join(f"{name}: {note}" for name, (_, note) in jobs.items()))
