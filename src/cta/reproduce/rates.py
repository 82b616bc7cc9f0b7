"""How long things take: from the records of a results folder, from what this start has measured, else from the plan."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from cta.results.records import by_score, by_seed
from cta.results.store import Results

START_S = 60.0
"""Starting a training process, reading the data and compiling, when only the speed of the steps is known."""
WARM_START_S = 25.0
"""The same of a program that was compiled before."""
SLOWER = 1.05
"""A speed measured early is that of training alone; scoring beside it will cost a little."""
FALLBACKS = {"rows_per_core": 230.0, "episodes_per_core": 0.21}
"""Measured on the manipulation worlds; per core and second."""


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
    start: float
    """Seconds for starting and compiling; 0 if the rate includes them."""


@dataclass
class Rates:
    """Everything known of speed, the latest last."""

    guesses: Mapping[str, float] = field(default_factory=dict)
    speeds: list[Speed] = field(default_factory=list)
    episodes_per_core: list[float] = field(default_factory=list)
    rows_per_core: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, results: Results, device: str, guesses: Mapping[str, float]) -> "Rates":
        """What the records say of this device."""
        rates = cls(guesses)
        for cell in [*results.cells(), *results.held_out().cells()]:
            for facts in by_seed(cell.record).values():
                same = (facts.get("hardware") or {}).get("device") == device
                seeds, rate = facts.get("seeds_together"), facts.get("seed_steps_per_s")
                if same and seeds and rate:
                    rates.speeds.append(Speed(cell.agent, cell.dataset, seeds, rate, "recorded", start=0.0))
            for facts, seconds in by_score(cell.record).values():
                if seconds and facts.get("workers"):
                    episodes = cell.protocol.tasks * facts["episodes"]
                    rates.episodes_per_core.append(episodes / seconds / facts["workers"])
        return rates

    def measured(self, agent: str, dataset: str, seeds: int, rate: float, start: float = START_S) -> None:
        """A run in progress makes so many seed-steps per second."""
        old = (agent, dataset, seeds, "measured")
        self.speeds = [s for s in self.speeds if (s.agent, s.dataset, s.seeds, s.source) != old]
        self.speeds.append(Speed(agent, dataset, seeds, rate, "measured", start))

    def speed(self, agent: str, dataset: str, seeds: int) -> Speed | None:
        """The best knowledge: same dataset and seeds, then same dataset, then same agent, then the plan's guess."""

        def nearness(speed: Speed) -> tuple[bool, bool, float]:
            return speed.dataset != dataset, speed.seeds != seeds, abs(speed.seeds - seeds)

        mine = [speed for speed in reversed(self.speeds) if speed.agent == agent]
        if mine:
            return min(mine, key=nearness)
        guess = self.guesses.get(agent)
        return Speed(agent, dataset, 4, guess, "plan", START_S) if guess else None

    def known(self, agent: str) -> bool:
        """Whether this agent's speed was recorded or measured on such a device, rather than guessed."""
        return any(speed.agent == agent for speed in self.speeds)

    def train_seconds(self, agent: str, dataset: str, seeds: int, steps: int) -> float | None:
        """Time for `steps` steps of `seeds` seeds together; None if nothing is known.

        Fewer seeds than were measured are taken to save half of what they would on a machine that does one after the
        other, more seeds to cost all of it.
        """
        known = self.speed(agent, dataset, seeds)
        if known is None:
            return None
        step_s = known.seeds / known.rate * (SLOWER if known.source == "measured" else 1.0)
        share = seeds / known.seeds
        step_s *= share if share > 1 else 0.5 + 0.5 * share
        return steps * step_s + known.start

    def generate_seconds(self, rows: int, cores: int) -> float:
        return rows / (cores * self._typical("rows_per_core", self.rows_per_core))

    def score_seconds(self, episodes: int, cores: int) -> float:
        """Time for so many episodes."""
        return episodes / (cores * self._typical("episodes_per_core", self.episodes_per_core))

    def _typical(self, name: str, seen: list[float]) -> float:
        if seen:
            return sorted(seen)[len(seen) // 2]
        return self.guesses.get(name, FALLBACKS[name])
