"""Cells: one agent with one set of settings on one kind of data. Their units: seeds that train together."""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

from cta.config import AgentConfig, settings_key, to_dict
from cta.data import is_path, resolve
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.evaluation.evaluator import press_names
from cta.experiment import run_config
from cta.io.csv_log import CsvLog
from cta.io.files import safe_name
from cta.io.json_files import read_json
from cta.ooc import find_layout, held_out_of
from cta.scores.paper import EPISODES, TASKS, CellScores
from cta.scores.schema import TRAINED_ON, WHOLE, CellKey, Score
from cta.validation import Count, Natural

SETTLE_S = 5.0  # how long a new checkpoint waits: the next may come while a process starts


@dataclass(frozen=True)
class DataSize:
    """Which data to generate; sizes not given are the published ones."""

    seed: Natural = 0
    episodes: Count | None = None
    episode_steps: Count | None = None


@dataclass(frozen=True)
class Cut:
    """Pairs other than the world's own: the flags of `cta ooc cut` that name them, and what they come to."""

    flags: tuple[str, ...] = ()
    pairs: str = ""
    numbers: tuple[int, ...] = ()
    only: int | None = None  # the one pair that is cut out, where each has data of its own


@dataclass(frozen=True)
class Cell:
    """`seeds` × `steps` of one agent on one dataset, scored at `points` with `episodes` episodes per task."""

    dataset: str  # its name, or an npz file
    agent: str
    seeds: tuple[int, ...]
    steps: int
    points: tuple[int, ...]
    episodes: int = EPISODES
    curve_points: tuple[int, ...] = ()  # further ones, for curves, when nothing more urgent is waiting
    curve_episodes: int = 10
    settings: tuple[tuple[str, Any], ...] = ()  # changes to the agent's: (dotted name, value)
    size: str = "paper"  # of the networks, or small
    temperature: float = 0.0  # of the policy that is scored
    data: DataSize = DataSize()
    condition: str = WHOLE
    ask: str = "tasks"  # or pairs, those held out, or presses, goals by their number of presses
    cut: Cut = Cut()

    @cached_property
    def config(self) -> AgentConfig:
        config = run_config(self.agent, self.dataset, size=self.size, agent_settings=dict(self.settings)).agent
        config.check()
        return config

    @cached_property
    def dataset_name(self) -> str:
        return resolve(self.dataset).name

    @cached_property
    def run_key(self) -> CellKey:
        """The key that `cta evaluate` gives to the scores of its runs."""
        changes = settings_key(self.config, run_config(self.agent, self.dataset).agent)
        return CellKey(self.dataset_name, self.agent, changes, self.condition)

    @cached_property
    def manner(self) -> str:
        """What is unusual about its scores, beside the agent's settings: the temperature, pairs of one's own."""
        changes = [f"eval_temperature={self.temperature:g}"] if self.temperature else []
        changes += [f"pairs={_digest([self.cut.pairs, self.cut.only])}"] if self.cut != Cut() else []
        return ";".join(changes)

    @cached_property
    def key(self) -> CellKey:
        """Under which its scores are published."""
        return self.run_key._replace(settings=";".join(filter(None, (self.run_key.settings, self.manner))))

    @cached_property
    def data_identity(self) -> list[Any]:
        """What decides the rows it is trained on."""
        if is_path(self.dataset):
            origin: Any = open_dataset(self.dataset)[1].fingerprint()
        else:
            origin = [self.data.seed, self.data.episodes, self.data.episode_steps]
        return [self.dataset_name, origin, self.condition, "" if self.condition == WHOLE else self.cut.pairs]

    @cached_property
    def data_name(self) -> str:
        """Of the folder of data that are made for it."""
        words = [self.dataset_name, *([] if self.condition == WHOLE else [self.condition])]
        return f"{safe_name('.'.join(words))}-{_digest(self.data_identity)}"

    @cached_property
    def digest(self) -> str:
        """Of all that decides its weights, but for seeds and steps, of which more may be asked later."""
        only = None if self.condition == WHOLE else self.cut.only
        return _digest([self.agent, to_dict(self.config), self.data_identity, only])

    @cached_property
    def folder(self) -> str:
        """The name of its folder: another plan with the same content finds it, a changed one does not."""
        trained = filter(None, [self.dataset_name, self.agent, self.condition, self.run_key.settings])
        return f"{safe_name('.'.join(trained))[:100]}-{self.digest}"

    @cached_property
    def name(self) -> str:
        changes = ["small"] * (self.size == "small") + [f"{name} {value}" for name, value in self.settings]
        changes += [f"temperature {self.temperature:g}"] if self.temperature else []
        agent = self.agent + (f" ({', '.join(changes)})" if changes else "")
        only = "" if self.cut.only is None else f" (pair {self.cut.only})"
        asked = "" if self.ask == ("tasks" if self.condition == WHOLE else "pairs") else f", asked for {self.ask}"
        return f"{agent} on {self.dataset_name}{TRAINED_ON[self.condition]}{only}{asked}"

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks or pairs of a score."""
        if self.ask == "tasks":
            return TASKS
        if self.ask == "presses":
            return press_names(self.dataset_name)
        return tuple(f"pair{number}" for number in self.cut.numbers or range(1, 1 + own_pairs(self.dataset_name)))

    def wants(self, row: Score) -> bool:
        """Whether it asked for this score."""
        return row.seed in self.seeds and row.step in self.all_points and row.task in self.tasks

    def scored(self, known: CellScores) -> set[tuple[int, int]]:
        """(seed, step) that it asked for and that are known with enough episodes."""
        asked = (self.points, self.episodes), (self.curve_points, self.curve_episodes)
        done = [(points, known.scored(episodes=episodes, tasks=self.tasks)) for points, episodes in asked]
        return {(seed, step) for points, found in done for seed, step in found if seed in self.seeds and step in points}

    def episodes_at(self, step: int) -> int:
        return self.episodes if step in self.points else self.curve_episodes

    @property
    def all_points(self) -> tuple[int, ...]:
        return tuple(sorted({*self.points, *self.curve_points}))


@dataclass(frozen=True)
class Unit:
    """A seed block of a cell: one run directory, one training process."""

    cell: Cell
    seeds: tuple[int, ...]
    path: Path

    @property
    def name(self) -> str:
        return f"{self.cell.name}, seed{'s' if len(self.seeds) > 1 else ''} {listed(self.seeds)}"

    @property
    def begun(self) -> bool:
        return (self.path / "config.json").is_file()

    def checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / str(step)

    def checkpoints(self) -> list[int]:
        """Steps with a complete checkpoint (one being written has another name)."""
        try:
            return sorted(int(name) for name in os.listdir(self.path / "checkpoints") if name.isdigit())
        except FileNotFoundError:
            return []

    @property
    def step(self) -> int:
        """Steps that need not be repeated."""
        return max(self.checkpoints(), default=0)

    @property
    def left(self) -> int:
        return self.target - self.step

    @property
    def finished(self) -> bool:
        """Trained as far as the cell wants it, or as far as any of its seeds could be."""
        return self.reached(self.cell.steps)

    def reached(self, step: int) -> bool:
        return self.step >= step or set(self.seeds) <= set(self.diverged)

    @property
    def diverged(self) -> dict[int, int]:
        """Seeds whose numbers were NaN or inf, with the step."""
        stopped = self._read("provenance.json", {"stopped": {...: {"step!": int}}}).get("stopped", {})
        return {int(seed): why["step"] for seed, why in stopped.items() if seed.isdecimal()}

    def good(self, step: int) -> list[int]:
        """The cell's seeds that had not diverged at a step."""
        bad = self.diverged
        return [seed for seed in self.seeds if seed in self.cell.seeds and step < bad.get(seed, step + 1)]

    @property
    def target(self) -> int:
        """The step to train to next: the last, or before it a point that the run itself would not keep."""
        every = self._read("config.json", {"checkpoint_interval": int}).get("checkpoint_interval", 0)
        points = [point for point in self.cell.all_points if self.step < point < self.cell.steps]
        odd = [point for point in points if self.begun and (every < 1 or point % every)]
        return min(odd, default=self.cell.steps)

    def _read(self, name: str, shape: dict[str, Any]) -> dict[str, Any]:
        """Nothing of what is not there yet, or damaged: the job that reads it says what is wrong."""
        try:
            return read_json(self.path / name, shape)
        except CtaError:
            return {}

    def progress(self) -> tuple[int, float]:
        """(last logged step, steps per second: the median of the last logged blocks, 0 before the first)."""
        try:
            rows = CsvLog(self.path / "train.csv").read()
            rate = median_high(float(row["steps_per_s"]) for row in rows[-5 * len(self.seeds) :])
            return int(rows[-1]["step"]), rate
        # Not begun, a run that has just removed it, or a damaged file, of which the job itself will speak.
        except (FileNotFoundError, CtaError, KeyError, ValueError):
            return self.step, 0.0


class Pending(NamedTuple):
    """A seed at a checkpoint, not scored yet."""

    unit: Unit
    step: int
    seed: int

    @property
    def settled(self) -> bool:
        try:
            return time.time() - self.unit.checkpoint(self.step).stat().st_mtime > SETTLE_S
        except OSError:
            return False

    @property
    def urgent(self) -> bool:
        """Part of a result, not only of a curve."""
        return self.step in self.unit.cell.points


def listed(numbers: Iterable[int]) -> str:
    """As commands take and names have them."""
    return ",".join(map(str, numbers))


def own_pairs(dataset: str) -> int:
    """How many pairs come with a dataset's world; an error where there are none."""
    return len(held_out_of(find_layout(dataset)).pairs)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
