"""GCIQL: goal-conditioned implicit Q-learning; with dual representations too."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term, register
from cta.agents.flat import Extracting
from cta.agents.network_builders import value
from cta.config import GciqlConfig
from cta.goals import Batch
from cta.losses import expectile_loss


@dataclass(frozen=True)
class Gciql(Extracting):
    """Networks `value` (a single member), `q` (two, with a target), `actor` and the conditioning's."""

    config: GciqlConfig
    own_routes: ClassVar = {"value": ("value",), "q": ("q",), "actor": ("actor",)}
    own_targets = ("q",)

    def critics(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        value_key, q_key = jax.random.split(key)
        return {
            "value": value(value_key, spec, self.goal.part, config=self.config, members=1),
            "q": value(q_key, spec, self.goal.part, config=self.config, members=2, actions=True),
        }

    def q(self, networks: Networks, states: Array, goals: Array, actions: Array) -> Float[Array, "members batch"]:
        """Q_m(s,g,a). η learns from the value only, so that both read goals the same way."""
        return networks["q"](stop_gradient(self.goal_embedding(networks, states, goals)), states, actions)[..., 0]

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """V(s,g)."""
        z = self.goal_embedding(networks, states, goals)
        return networks["value"](stop_gradient(z) if self.config.value_rep_grad_stop else z, states)[0, :, 0]

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`L_V + L_Q + L_π`."""
        s, goals = batch["observations"], batch["actor_goals"]

        def climbed(nets: Networks, actions: Array) -> Float[Array, " batch"]:
            return jnp.min(self.q(nets, s, goals, actions), axis=0)

        def advantage(nets: Networks) -> Float[Array, " batch"]:
            return climbed(nets, batch["actions"]) - self.value(nets, s, goals)

        return {
            **self.goal.terms(networks, targets, batch, key),
            "value": self.value_loss(networks, targets, batch),
            "q": self.q_loss(networks, batch),
            "actor": self.policy_loss(networks, batch, advantage=advantage, q=climbed),
        }

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        """`E ℓ_κ(δ,δ)`, δ = min_m Q̄_m(s,g_V,a) − V(s,g_V)."""
        s, goals = batch["observations"], batch["value_goals"]
        # Only the EMA copy of Q judges the value: bootstrapping from the online one would chase itself.
        source = {**networks, "q": targets["q"]}
        target = stop_gradient(jnp.min(self.q(source, s, goals, batch["actions"]), axis=0))
        v = self.value(networks, s, goals)
        loss = jnp.mean(expectile_loss(target - v, target - v, self.config.expectile))
        return loss, {"value/value_loss": loss, "value/v_mean": jnp.mean(v)}

    def q_loss(self, networks: Networks, batch: Batch) -> Term:
        """`E Σ_m (Q_m(s,g_V,a) − y)²`, y = r + γc·V(s',g_V)."""
        goals = batch["value_goals"]
        # The online value, frozen: the critic's error must not move it.
        v_next = stop_gradient(self.value(networks, batch["next_observations"], goals))
        y = batch["rewards"] + self.config.discount * batch["masks"] * v_next
        q = self.q(networks, batch["observations"], goals, batch["actions"])
        loss = jnp.mean(jnp.sum((q - y) ** 2, axis=0))
        return loss, {"q/critic_loss": loss, "q/q_mean": jnp.mean(q)}


register("gciql", paper_name="GCIQL", config=GciqlConfig(), build=Gciql)
register(
    "gciql-dual", paper_name="GCIQL^v", config=GciqlConfig(), build=Gciql,
    conditioning="dual", actor_loss="awr", alpha=10.0,
)  # fmt: skip
