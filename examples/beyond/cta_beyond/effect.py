"""Subgoals judged by what they make the arm do.

    a(s,g) = μ_ℓ(μ_h(ζ(s,g), s), s),  a*(s,w) = μ_ℓ(ζ(s,w), s),  π_ℓ frozen in both
    L_h += λ·E[W(A; β_h)·‖a(s,g) − a*(s,w)‖²/2σ²]

Why: most directions of ζ mean nothing to the arm, and the squared error of a subgoal counts all of them alike. Methods
that match the action of the whole hierarchy do well on several cubes.
Prediction: on lights-4x4 at least 5 points of mean success above CTA, and more beyond the reach than within it.
Refuted if the mean does not rise while the two actions come nearer (`effect/apart` in train.csv): then it is not the
high policy's errors in the directions that the arm feels that limit CTA.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.lax import stop_gradient

from cta.agents.base import Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch
from cta.losses import awr_loss
from cta.nn import scale_to_length
from cta.validation import NotNegative


@dataclass(frozen=True)
class EffectConfig(TwoLevelConfig):
    """CTA's settings, and the weight of the actions."""

    effect: NotNegative = 10.0
    """λ; actions are in [−1, 1], while ζ has the length √e."""


@dataclass(frozen=True)
class Effect(TwoLevel):
    """`TwoLevel` whose high policy is also told by the low one what its errors do."""

    config: EffectConfig

    def high_loss(self, networks: Networks, batch: Batch) -> Term:
        loss, logged = super().high_loss(networks, batch)
        c, s = self.config, batch["observations"]
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        low = stop_gradient(networks["low"])
        proposed = self.high_mean(networks, s, goals)
        if c.eta.use and c.eta.normalise:  # as it is when acting
            proposed = scale_to_length(proposed)
        wanted = stop_gradient(low(self.goal_embedding(networks, s, w), s))
        apart = jnp.sum((low(proposed, s) - wanted) ** 2, axis=-1)
        adv = stop_gradient(self.advantage(networks, s, w, goals))
        more = awr_loss(adv, -apart / (2 * c.actor_std**2), c.high_alpha, c.awr_clip)
        return loss + c.effect * more, logged | {"effect/effect_loss": more, "effect/apart": jnp.mean(apart)}


register("beyond-effect", config=EffectConfig(), build=Effect)
