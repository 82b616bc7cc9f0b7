"""What is measured: an agent, how many seeds, which batch, on which data."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cta.agents import Agent, find
from cta.data import TrajectoryDataset
from cta.presets import agent_preset
from cta.training.fast import make_learner
from cta.training.learner import Learner, spec_of

EPISODE_ROWS = 1001
"""Rows of a synthetic episode, those of OGBench's manipulation data."""


@dataclass(frozen=True)
class DataShape:
    """A dataset by name, or random rows of a shape."""

    dataset: str | None = None
    dataset_dir: str | None = None
    rows: int = 1_000_000
    observation_dim: int = 83
    action_dim: int = 5

    @property
    def label(self) -> str:
        """How entries call this data."""
        return self.dataset or f"random {self.rows}x{self.observation_dim}, {self.action_dim} actions"

    def open(self) -> TrajectoryDataset:
        """The rows themselves. Random ones are normal observations and uniform actions, in whole episodes."""
        if self.dataset is not None:
            from cta.envs.datasets import open_dataset

            return open_dataset(self.dataset, dataset_dir=self.dataset_dir)[1]
        rng = np.random.default_rng(0)
        observations = rng.standard_normal((self.rows, self.observation_dim), dtype=np.float32)
        actions = 2 * rng.random((self.rows, self.action_dim), dtype=np.float32) - 1
        terminals = np.zeros(self.rows, bool)
        terminals[EPISODE_ROWS - 1 :: EPISODE_ROWS] = True
        terminals[-1] = True
        if self.rows > 1:
            terminals[-2] = False  # a last episode of a single row would hold no transition
        return TrajectoryDataset(observations, actions, terminals, name="random")


@dataclass(frozen=True)
class Case:
    """One training program. `batch_size` 0 takes the agent's own for this data."""

    agent: str = "cta"
    seeds: int = 1
    batch_size: int = 0
    data: DataShape = DataShape()
    seconds: float = 20.0
    kernels: str = "auto"

    @property
    def name(self) -> str:
        """For people."""
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return f"{self.agent}, {seeds}, batch {self.batch_size or 'default'}"

    def build(self) -> Agent:
        """The agent, with the paper's settings for a named dataset and its defaults for random rows."""
        entry = find(self.agent)
        config = agent_preset(entry.config, self.data.dataset or "")
        return entry.build(replace(config, batch_size=self.batch_size) if self.batch_size else config)

    def learner(self, dataset: TrajectoryDataset, *, block: int) -> Learner:
        """The agent's learner, as training makes it."""
        return make_learner(self.build(), spec_of(dataset), block=block, kernels=self.kernels)

    def facts(self) -> dict[str, Any]:
        """What every entry of this case says."""
        return {
            "agent": self.agent,
            "dataset": self.data.label,
            "batch_size": self.build().config.batch_size,
            "seeds": self.seeds,
            "kernels": self.kernels,
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Case":
        return cls(**{**values, "data": DataShape(**values["data"])})
