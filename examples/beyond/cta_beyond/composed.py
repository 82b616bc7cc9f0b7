"""Composed goals: analogies add, so goals can be put together that no trajectory reaches.

    V(η(α∨(s,s') + α∨(x,y)), s) ← −1 + γ·V̄(η(α∨(x,y)), s'),  (x,y) from another trajectory
    π_h: reach ζ(s,w) given η(α∨(s,w) + α∨(x,y)), with the advantage V(η(α∨(x,y)), w) − V(η(α∨(s,w) + α∨(x,y)), s)

Why: in additive worlds the field of (x,y) is the same from every context (theory T8), so the sum is a goal, and its
value is that of what is left after the first part. Play never shows goals of many presses; sums do.
Prediction: on lights-4x5 the number of presses with at least 50% success rises by two.
Refuted if it does not rise, or if CTA with 40% random high goals, which have no such sums, gains as much. Lights of ±1
are additive only where (x,y) flips lights that stand in w as in x, so a failure may be the board's fault.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array

from cta.agents import extraction
from cta.agents.base import Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.errors import CtaError
from cta.goals import Batch
from cta.losses import ivl_loss, ivl_terms
from cta.validation import NotNegative


@dataclass(frozen=True)
class ComposedConfig(TwoLevelConfig):
    """CTA's settings, with analogies that can be added."""

    composed: NotNegative = 1.0
    """Weight of composed goals beside those of the data."""

    def check(self) -> None:
        super().check()
        if self.conditioning != "analogy":
            raise CtaError("--agent.conditioning: only analogies can be added, leave it at analogy")
        self.refuse_unread("a composed goal is no observation, which is what is read without", {"eta.use": True})
        self.refuse_unread("a composed goal is no observation, for", {"bilinear_high_actor": True})


@dataclass(frozen=True)
class Composed(TwoLevel):
    """`TwoLevel` with composed goals in the losses of the value and of the high policy."""

    config: ComposedConfig

    def between(self, networks: Networks, states: Array, goals: Array) -> Array:
        """α∨(s,g), frozen."""
        return self.goal.displacement(networks, states, goals)

    def rest(self, networks: Networks, batch: Batch) -> Array:
        """α∨(x,y): a row's state and high goal, moved to the next row."""
        return jnp.roll(self.between(networks, batch["observations"], batch["high_actor_goals"]), 1, axis=0)

    def code(self, networks: Networks, states: Array, displacement: Array) -> Array:
        """η."""
        inputs = (states, displacement) if self.goal.with_state else (displacement,)
        return networks["eta"](*inputs)

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        """`L_IVL` of the data's goals and of composed ones."""
        loss, logged = super().value_loss(networks, targets, batch)
        c, s, s_next = self.config, batch["observations"], batch["next_observations"]
        source = {**networks, "eta": targets["eta"]} if "eta" in targets else networks
        rest = self.rest(networks, batch)
        whole = self.between(networks, s, s_next) + rest
        v_next, v_here = (
            stop_gradient(targets["value"](self.code(source, at, left), at)[..., 0])
            for at, left in ((s_next, rest), (s, whole))
        )
        steps = jnp.ones(len(s))  # no composed goal is reached where it begins
        terms = ivl_terms(v_next, v_here, -steps, steps, c.discount)
        z = self.code(networks, s, whole)
        v = networks["value"](stop_gradient(z) if c.value_rep_grad_stop else z, s)[..., 0]
        more = ivl_loss(v, terms, c.expectile)
        return loss + c.composed * more, logged | {"value/composed_loss": more, "value/composed_mean": jnp.mean(v)}

    def high_loss(self, networks: Networks, batch: Batch) -> Term:
        """`L_h` of the data's goals and of composed ones."""
        loss, logged = super().high_loss(networks, batch)
        c, s, w = self.config, batch["observations"], batch["high_actor_targets"]
        rest = self.rest(networks, batch)
        z, z_next = self.code(networks, s, self.between(networks, s, w) + rest), self.code(networks, w, rest)
        v_next, v_here = (jnp.mean(networks["value"](x, at)[..., 0], axis=0) for x, at in ((z_next, w), (z, s)))
        # Inputs, labels and weights of a policy: nothing of them learns here.
        adv, condition, subgoal = stop_gradient((v_next - v_here, z, self.goal_embedding(networks, s, w)))
        options = {"alpha": c.high_alpha, "std": c.actor_std, "clip": c.awr_clip}
        more, seen = extraction.awr("composed", adv, networks["high"](condition, s), subgoal, **options)
        return loss + c.composed * more, logged | seen


register("beyond-composed", config=ComposedConfig(), build=Composed)
