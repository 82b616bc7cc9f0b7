"""Trajectories turned round: where every way can be gone back, value and high policy learn from both directions.

    V(s',g) ← −1 + γ·V̄(s,g)  for every transition s → s' of the data, g an earlier row
    π_h: reach ζ(s_j, s_{j−k}) given ζ(s_j, s_i), i < j, with the advantage V(s_{j−k}, s_i) − V(s_j, s_i)

Why: neither loss reads an action. On undirected graphs d*(s,g) = d*(g,s), and the field alone is a policy (theory T6);
a press undoes itself. So half of what the high level could learn from is thrown away, and goals are the scarce part.
Prediction: on lights-4x5 at least 10 points of mean success above CTA; the held-out log likelihood of π_h falls less.
Refuted if the mean does not rise. Where there are ways of no return (scene's locks) it must lose: V is not symmetric.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from cta.agents.base import Key, Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch, Rows, RowTable, random_rows, trajectory_rows
from cta.validation import NotNegative


@dataclass(frozen=True)
class TurnedConfig(TwoLevelConfig):
    """CTA's settings, and the weight of the way back."""

    turned: NotNegative = 1.0
    """Weight of turned trajectories beside the others."""


@dataclass(frozen=True)
class Turned(TwoLevel):
    """`TwoLevel` whose value and high policy also learn from the way back."""

    config: TurnedConfig

    def draw(self, key: Key, table: RowTable) -> dict[str, Rows]:
        """And rows of the way back from a later row j to i: j, j − 1, j − k, and a value goal mixed as usual."""
        c, rows = self.config, super().draw(key, table)
        keys = jax.random.split(jax.random.fold_in(key, 1), 3)
        first = rows["observations"]
        last = trajectory_rows(keys[0], table, first, c.actor_geom_sample, c.discount)
        anywhere, part = random_rows(keys[1], table, c.batch_size), jax.random.uniform(keys[2], first.shape)
        goals = jnp.where(part < c.value_p_curgoal + c.value_p_randomgoal, anywhere, first)
        return rows | {
            "back_observations": last,
            "back_next": jnp.maximum(last - 1, first),
            "back_targets": last - jnp.minimum(c.subgoal_steps, last - first),
            "back_goals": jnp.where(part < c.value_p_curgoal, last, goals),
        }

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        loss, logged = super().value_loss(networks, targets, batch)
        reached = batch["back_goals"] == batch["back_observations"]
        there = jnp.all(reached.reshape(len(reached), -1), axis=-1).astype(jnp.float32)
        fields = {"observations": "back_observations", "next_observations": "back_next", "value_goals": "back_goals"}
        back = {name: batch[field] for name, field in fields.items()}
        more, _ = super().value_loss(networks, targets, back | {"rewards": there - 1, "masks": 1 - there})
        return loss + self.config.turned * more, logged | {"value/turned_loss": more}

    def high_loss(self, networks: Networks, batch: Batch) -> Term:
        loss, logged = super().high_loss(networks, batch)
        back = {"observations": batch["back_observations"], "high_actor_targets": batch["back_targets"]}
        more, _ = super().high_loss(networks, back | {"high_actor_goals": batch["observations"]})
        return loss + self.config.turned * more, logged | {"high_actor/turned_loss": more}


register("beyond-turned", config=TurnedConfig(), build=Turned)
