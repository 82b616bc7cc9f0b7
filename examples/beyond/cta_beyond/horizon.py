"""A longer horizon for the value alone.

    V(s,g) ← −(1−γⁿ)/(1−γ) + γⁿ·V̄(s_{t+n}, g)  where neither g nor the end lies before s_{t+n}, else one step
    W_h = exp(β·(A − mean A)/std A),  A = V(w,g) − V(s,g);  the low advantage is V(s',w) − V(s,w), of one step

Why: one-step targets need as many correct backups as there are steps. In the low advantage longer returns would blur
which action was good, and at γ near 1 β = 3 only clips. Value goals are uniform in the future.
Prediction: with n = 5 and γ = 0.99 on lights-4x5 a rank correlation of −V with the presses (`cta presses order`, up to
10) at least 0.1 above CTA's, and at least 5 points of mean success.
Refuted if the correlation rises and success does not: then the value's horizon is not what limits CTA.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.lax import stop_gradient

from cta.agents import extraction
from cta.agents.base import Key, Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch, Rows, RowTable
from cta.validation import Count, NotNegative


@dataclass(frozen=True)
class HorizonConfig(TwoLevelConfig):
    """CTA's settings, and how far a value target looks."""

    value_steps: Count = 5
    """n."""
    value_geom_sample: bool = False
    high_alpha: NotNegative = 1.0
    scale_beta: bool = True
    """Weigh the high policy's data by the advantage in standard deviations of the batch."""


@dataclass(frozen=True)
class Horizon(TwoLevel):
    """`TwoLevel` with n-step targets of the value."""

    config: HorizonConfig

    def draw(self, key: Key, table: RowTable) -> dict[str, Rows]:
        """And `ahead_observations`: n steps ahead where that is before the end and the goal, else one."""
        rows, n = super().draw(key, table), self.config.value_steps
        here, goal = rows["observations"], rows["value_goals"]
        last = table.goal_limits[here] + 1
        far = (last - here >= n) & ~((goal >= here) & (goal - here < n))
        return rows | {"ahead_observations": jnp.where(far, here + jnp.minimum(n, last - here), here + 1)}

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        """`L_IVL`, with the n-step reward and discount in the place of those of a step."""
        c, ahead = self.config, batch["ahead_observations"]
        far = jnp.any((ahead != batch["next_observations"]).reshape(len(ahead), -1), axis=-1)
        steps = jnp.where(far, c.value_steps, 1)
        rewards = batch["masks"] * -(1 - c.discount**steps) / (1 - c.discount)
        further = {"rewards": rewards, "masks": batch["masks"] * c.discount ** (steps - 1), "next_observations": ahead}
        loss, logged = super().value_loss(networks, targets, batch | further)
        return loss, logged | {"value/far": jnp.mean(far)}

    def high_loss(self, networks: Networks, batch: Batch) -> Term:
        c, s = self.config, batch["observations"]
        if not c.scale_beta:
            return super().high_loss(networks, batch)
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        adv = self.advantage(networks, s, w, goals)
        scaled = (adv - jnp.mean(adv)) / (jnp.std(adv) + 1e-6)
        subgoal = stop_gradient(self.goal_embedding(networks, s, w))
        options = {"alpha": c.high_alpha, "std": c.actor_std, "clip": c.awr_clip}
        loss, logged = extraction.awr("high_actor", scaled, self.high_mean(networks, s, goals), subgoal, **options)
        return loss, logged | {"high_actor/adv": jnp.mean(adv)}


register("beyond-horizon", config=HorizonConfig(), build=Horizon)
