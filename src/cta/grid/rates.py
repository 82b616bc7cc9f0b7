"""How long things take: from the records of scores, from what this start has measured, else from the plan. And how
much time there is.
"""

import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cta.envs.names import is_visual
from cta.scores.records import by_score, by_seed
from cta.scores.store import CellScores

START_S = 60.0
"""Starting a training process, reading the data and compiling, when only the speed of the steps is known."""
SLOWEST = 1e-6
"""A recorded rate below this, or above its inverse, is a mistake."""
SLOWER = 1.05
"""A speed measured early is that of training alone; scoring beside it will cost a little."""
ROWS_PER_CORE, EPISODES_PER_CORE = 230.0, 0.21
"""Measured on the manipulation worlds; per second."""


def device_name() -> str:
    """The accelerator training will use, named as JAX names it, found without starting JAX."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu" or not shutil.which("nvidia-smi"):
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return "cpu"
    return found[0].strip() if found else "cpu"


@dataclass(frozen=True)
class Speed:
    """Seed-steps per second of some seeds together."""

    agent: str
    dataset: str
    seeds: int
    rate: float
    source: str
    device: str
    start: float = 0.0
    """Seconds for starting and compiling; 0 if the rate includes them."""

    def __str__(self) -> str:
        return f"{self.rate:,.0f} seed-steps/s of {self.seeds} seeds on {self.dataset}, {self.source}, {self.device}"


@dataclass
class Rates:
    """Everything known of speed, the latest last."""

    device: str
    guesses: Mapping[str, float] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)
    episodes_per_core: list[float] = field(default_factory=list)

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
                if min(seconds, tasks, episodes, workers) > 0:
                    speed = tasks * episodes / seconds / workers
                    rates.episodes_per_core += [speed] if SLOWEST < speed < 1 / SLOWEST else []
        return rates

    def measured(self, agent: str, dataset: str, seeds: int, rate: float) -> None:
        """A run in progress makes so many seed-steps per second."""
        speed = Speed(agent, dataset, seeds, rate, "measured", self.device, START_S)
        self.speeds = [*(old for old in self.speeds if replace(old, rate=rate) != speed), speed]

    def speed(self, agent: str, dataset: str, seeds: int) -> Speed | None:
        """The nearest that is known: of this device, then of this dataset, then of as many seeds; else the plan's."""
        # Images take a time of their own.
        mine = [s for s in reversed(self.speeds) if s.agent == agent and is_visual(s.dataset) == is_visual(dataset)]
        if not mine and (guess := self.guesses.get(agent)):
            mine = [Speed(agent, dataset, 4, guess, "given in the plan", "another machine", START_S)]
        near = lambda s: (s.device != self.device, s.dataset != dataset, abs(s.seeds - seeds))  # noqa: E731
        return min(mine, key=near, default=None)

    def known(self, agent: str) -> bool:
        """Whether this agent's speed was recorded or measured on such a device."""
        return any(speed.agent == agent and speed.device == self.device for speed in self.speeds)

    def train_seconds(self, agent: str, dataset: str, seeds: int, steps: int) -> float | None:
        """Time for `steps` steps of `seeds` seeds together; None if nothing is known.

        Fewer seeds than were measured are taken to save half of what they would on a machine that does one after the
        other, more seeds to cost all of it.
        """
        if (known := self.speed(agent, dataset, seeds)) is None:
            return None
        share = seeds / known.seeds
        step_s = known.seeds / known.rate * (share if share > 1 else 0.5 + 0.5 * share)
        return steps * step_s * (SLOWER if known.source == "measured" else 1.0) + known.start

    def generate_seconds(self, rows: int, cores: int) -> float:
        return rows / (cores * self.guesses.get("rows_per_core", ROWS_PER_CORE))

    def score_seconds(self, episodes: int, cores: int) -> float:
        """What a plan says of it goes before records, which may be of slower worlds."""
        seen = sorted(self.episodes_per_core) or [EPISODES_PER_CORE]
        return episodes / (cores * self.guesses.get("episodes_per_core", seen[len(seen) // 2]))

    @property
    def score_source(self) -> str:
        """Where the rate of scoring comes from."""
        given = "episodes_per_core" in self.guesses
        return "given in the plan" if given else "recorded" if self.episodes_per_core else "assumed"


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
