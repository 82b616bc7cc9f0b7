"""The seam: what an agent is, and the registry that finds it by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cta.config import AgentConfig
from cta.goals import Batch, Rows, RowTable
from cta.nn import FEATURES

Networks = dict[str, Any]
"""Trainable networks by name."""
Metrics = dict[str, Float[Array, ""]]
Key = PRNGKeyArray
Acted = tuple[Float[Array, "batch act"], Any]
"""Actions, and what to remember until the next step."""


Term = tuple[Float[Array, ""], Metrics]
"""One term of a loss, and what to log of it."""


class Spec(NamedTuple):
    """What an agent must know of the data."""

    observation_dim: int
    """Length of an observation; of its encoding where observations are images."""
    action_dim: int
    image_shape: tuple[int, ...] | None = None
    """(height, width, channels) where observations are images."""

    @classmethod
    def of(cls, observation_shape: Sequence[int], action_dim: int) -> "Spec":
        """The spec of observations of this shape: one axis a vector, three an image."""
        if len(observation_shape) == 1:
            return cls(observation_shape[0], action_dim)
        return cls(FEATURES, action_dim, tuple(observation_shape))

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.image_shape or (self.observation_dim,)


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

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """The terms of the loss by name; all see one batch, and their sum is minimised."""
        raise NotImplementedError(f"{type(self).__name__} has neither terms nor a loss")

    def loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> Term:
        """The scalar to minimise, and what to log."""
        terms = self.terms(networks, targets, batch, key)
        metrics = {name: value for _, logged in terms.values() for name, value in logged.items()}
        return sum((loss for loss, _ in terms.values()), jnp.zeros(())), metrics

    @abstractmethod
    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
        """Actions in [-1,1] and what to remember until the next step (None for most agents)."""

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """V(s,g): higher is nearer. Not every agent learns one."""
        raise NotImplementedError("learns no value of a state and a goal")

    def dual_value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """φ(s)ᵀψ(g), for agents with a dual learner."""
        raise NotImplementedError("has no dual representation")

    def analogy(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch dim"]:
        """What has to change to reach g from s, for agents that learn analogies."""
        raise NotImplementedError("learns no analogies")

    def subgoal(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float
    ) -> Float[Array, "batch e"]:
        """What the high level asks of the low one, for agents with two levels."""
        raise NotImplementedError("has one level and proposes no subgoals")

    def targets(self) -> tuple[str, ...]:
        """Names of the networks with EMA targets."""
        return self.target_names

    def routes(self) -> dict[str, set[str]]:
        """The networks that each term of the loss trains; all others get no gradient from it."""
        raise NotImplementedError(f"{type(self).__name__} does not say which networks its terms train")

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


def register(
    name: str, *, config: AgentConfig, build: Callable[[Any], Agent], paper_name: str = "", **changes: Any
) -> None:
    """Make an agent known as `name`: `build(config)`, with `changes` to the default config.

    `paper_name` is what the paper's tables call it, if they have it.
    """
    if name in REGISTRY:
        raise ValueError(f"agent '{name}' is registered twice")
    REGISTRY[name] = Entry(name, paper_name, replace(config, **changes), build)


def action(mean: Float[Array, "batch act"], key: PRNGKeyArray, std: float) -> Float[Array, "batch act"]:
    """A sample of N(mean, std²) clipped to [-1,1]; std 0 gives the mean itself."""
    return jnp.clip(mean + std * jax.random.normal(key, mean.shape), -1.0, 1.0)
