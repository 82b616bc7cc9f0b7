"""The goal-conditioned bisimulation (GCB) analogy: pairs (s,g) whose rewards and futures agree are encoded alike."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term
from cta.agents.network_builders import OBSERVATION, mlp
from cta.config import GcbConfig
from cta.goals import Batch
from cta.losses import bisimulation_loss


@dataclass(frozen=True)
class GcbLearner:
    """Networks `pair` (F) and `state` (Ψ), no ensembles, no targets, and the loss that alone trains them."""

    config: GcbConfig
    discount: float
    layer_norm: bool = True
    term: ClassVar[str] = "gcb"
    """Its term of the loss."""
    targets: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return ("pair", "state") if self.config.use == "psi" else ("pair",)

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        parts = {"pair": (OBSERVATION, OBSERVATION), "state": (OBSERVATION,)}
        options = {"hidden": self.config.hidden, "layer_norm": self.layer_norm}
        keys = jax.random.split(key, len(self.names))
        return {
            name: mlp(k, spec, parts[name], self.config.dim, **options)
            for k, name in zip(keys, self.names, strict=True)
        }

    def analogy(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch dim"]:
        """Ψ(g) − Ψ(s), or F(s,g) under `use = "pair"`."""
        if self.config.use == "pair":
            return networks["pair"](states, goals)
        return networks["state"](goals) - networks["state"](states)

    def loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> Term:
        """`L_F + L_Ψ`, rows compared along a random permutation of the batch.

        L_F makes ‖F_i − F_j‖₁ the distance of rewards plus γ‖F'_i − F'_j‖₂;
        L_Ψ = mean ‖ F(s,g) − F(g,g) − (Ψ(g) − Ψ(s)) ‖².
        """
        c, s, goals = self.config, batch["observations"], batch["value_goals"]
        order = jax.random.permutation(key, s.shape[0])
        pairs = networks["pair"](s, goals)
        # The next pairs are a bootstrap target, as in any Bellman equation.
        next_pairs = stop_gradient(networks["pair"](batch["next_observations"], goals))
        loss = bisimulation_loss(pairs, next_pairs, batch["rewards"], order, self.discount, c.reward_distance)
        metrics = {"gcb/pair_loss": loss}
        if c.use == "psi":
            # Ψ follows F; F must not bend to be easier to follow.
            wanted = stop_gradient(pairs - networks["pair"](goals, goals))
            gap = wanted - self.analogy(networks, s, goals)
            metrics["gcb/state_loss"] = jnp.mean(jnp.sum(gap**2, axis=-1))
            loss = loss + metrics["gcb/state_loss"]
        return loss, metrics
