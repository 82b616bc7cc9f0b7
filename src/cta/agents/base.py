"""The seam: what an agent is, and the registry that finds it by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cta.config import AgentConfig
from cta.goals import Batch, Rows, RowTable

Networks = dict[str, Any]
"""Trainable networks by name."""
Metrics = dict[str, Float[Array, ""]]


class Spec(NamedTuple):
    """What an agent must know of the data."""

    observation_dim: int
    action_dim: int


@dataclass(frozen=True)
class Agent(ABC):
    """An immutable description of a learning algorithm. All learned numbers live outside, in `Networks`."""

    config: AgentConfig
    target_names: ClassVar[tuple[str, ...]] = ()
    """Networks that have an EMA target."""

    @abstractmethod
    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        """Fresh networks."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        """Rows of one training batch, by field."""

    @abstractmethod
    def loss(
        self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        """The scalar to minimise, and what to log."""

    @abstractmethod
    def act(
        self,
        networks: Networks,
        observations: Float[Array, "batch obs"],
        goals: Float[Array, "batch obs"],
        key: PRNGKeyArray,
        temperature: float,
        memory: Any = None,
    ) -> tuple[Float[Array, "batch act"], Any]:
        """Actions in [-1,1] and what to remember until the next step (None for most agents)."""

    def targets(self) -> tuple[str, ...]:
        """Names of the networks with EMA targets."""
        return self.target_names

    def trainable(self, step: Int[Array, ""]) -> dict[str, Bool[Array, ""]]:
        """Networks that do not train at every step, with whether they do at this one. Missing names always train."""
        return {}


@dataclass(frozen=True)
class Entry:
    """A registered agent: its defaults, how to build it, and how the paper calls it."""

    name: str
    paper_name: str
    config: AgentConfig
    build: Callable[[Any], Agent]


REGISTRY: dict[str, Entry] = {}


def register(name: str, *, paper_name: str, config: AgentConfig, build: Callable[[Any], Agent], **changes: Any) -> None:
    """Make an agent known as `name`: `build(config)`, with `changes` to the default config."""
    if name in REGISTRY:
        raise ValueError(f"agent '{name}' is registered twice")
    REGISTRY[name] = Entry(name, paper_name, replace(config, **changes), build)


def action(mean: Float[Array, "batch act"], key: PRNGKeyArray, std: float) -> Float[Array, "batch act"]:
    """A sample of N(mean, std²) clipped to [-1,1]; std 0 gives the mean itself."""
    return jnp.clip(mean + std * jax.random.normal(key, mean.shape), -1.0, 1.0)
