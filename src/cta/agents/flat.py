"""What all flat agents share: one policy that acts towards the goal itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents import extraction
from cta.agents.base import Acted, Key, Networks, Spec, Term, action
from cta.agents.conditioning import GoalConditioned
from cta.agents.network_builders import policy
from cta.config import CrlConfig, GciqlConfig, QrlConfig
from cta.goals import Batch, Rows, RowTable, flat_rows


@dataclass(frozen=True)
class Flat(GoalConditioned):
    """Networks of the conditioning, an `actor`, and those of `critics`."""

    def critics(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        """Networks beside the conditioning's and the actor."""
        return {}

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        keys = jax.random.split(key, 3)
        actor = policy(keys[1], spec, self.goal.part, spec.action_dim, config=self.config)
        return {**self.goal.init(keys[0], spec), **self.critics(keys[2], spec), "actor": actor}

    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        return flat_rows(key, table, self.config)

    def mean(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch act"]:
        """μ(s,g). The policy takes its condition as it is: η does not learn here."""
        return networks["actor"](stop_gradient(self.goal_embedding(networks, states, goals)), states)

    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
        return action(self.mean(networks, observations, goals), key, temperature * self.config.actor_std), memory


@dataclass(frozen=True)
class Extracting(Flat):
    """Flat agents with both extraction rules."""

    config: GciqlConfig | CrlConfig | QrlConfig

    def policy_loss(
        self,
        networks: Networks,
        batch: Batch,
        *,
        advantage: Callable[[Networks], Float[Array, " batch"]],
        q: Callable[[Networks, Array], Float[Array, " batch"]],
    ) -> Term:
        """AWR with `advantage(networks)` of the data's actions, or DDPG+BC with `q(networks, policy's actions)`."""
        c = self.config
        mean = self.mean(networks, batch["observations"], batch["actor_goals"])
        # Only the action carries a gradient: a policy must not improve by changing its critic.
        frozen = stop_gradient(networks)
        if c.actor_loss == "awr":
            options = {"alpha": c.alpha, "std": c.actor_std, "clip": c.awr_clip}
            return extraction.awr("actor", advantage(frozen), mean, batch["actions"], **options)
        climbed = q(frozen, jnp.clip(mean, -1.0, 1.0))
        return extraction.ddpgbc("actor", climbed, mean, batch["actions"], alpha=c.alpha, std=c.actor_std)
