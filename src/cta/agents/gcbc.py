"""GCBC: goal-conditioned behavioural cloning."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from cta.agents.base import Networks, Term, register
from cta.agents.flat import Flat
from cta.config import ActorConfig
from cta.goals import Batch, Rows, RowTable
from cta.losses import gaussian_log_prob


@dataclass(frozen=True)
class Gcbc(Flat):
    """Networks `actor`."""

    own_routes: ClassVar = {"actor": ("actor",)}

    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        rows = super().draw(key, table)
        return {name: index for name, index in rows.items() if name != "value_goals"}

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`−E log π(a | s, g_A)`."""
        mean = self.mean(networks, batch["observations"], batch["actor_goals"])
        log_prob = gaussian_log_prob(mean, batch["actions"], self.config.actor_std)
        loss = -jnp.mean(log_prob)
        mse = jnp.mean((mean - batch["actions"]) ** 2)
        return {"actor": (loss, {"actor/actor_loss": loss, "actor/bc_log_prob": -loss, "actor/mse": mse})}


register("gcbc", paper_name="GCBC", config=ActorConfig(), build=Gcbc)
