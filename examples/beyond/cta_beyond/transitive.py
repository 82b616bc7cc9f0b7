"""Values put together from two shorter ones: the triangle inequality as a target.

    d*(s,g) ≤ d*(s,w) + d*(w,g)   ⇔   V(s,g) ≥ V(s,w) + (1 + (1−γ)·V(s,w))·V(w,g)
    L_V += λ·Σ_m E ℓ_κ(T_m − V̄(s,g), T_m − V_m(s,g)),  T_m the right side with V̄_m, w between s and g

Why: d* is a quasimetric (theory T1), and V is a monotone map of it (T2), so the inequality holds in every world,
however the two halves were learned. One-step backups reach d steps after d rounds, halves after log d.
w: a row between the state and a goal of the same trajectory, for other goals the row k steps ahead.
Prediction: on lights-4x5 a rank correlation of −V with the presses (`cta presses order`, up to 10) at least 0.15 above
CTA's, and the number of presses with at least 50% success rises by one.
Refuted if values of far pairs (10 presses) become larger than those of near ones (4): maxima over noise, not distances.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array

from cta.agents.base import Key, Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch, Rows, RowTable
from cta.losses import expectile_loss
from cta.validation import Inside, NotNegative


@dataclass(frozen=True)
class TransitiveConfig(TwoLevelConfig):
    """CTA's settings, and those of the second target."""

    transitive: NotNegative = 1.0
    """λ."""
    transitive_expectile: Inside = 0.9
    """κ of the second target, which is a lower bound whatever w is."""


@dataclass(frozen=True)
class Transitive(TwoLevel):
    """`TwoLevel` with a second target of the value."""

    config: TransitiveConfig

    def draw(self, key: Key, table: RowTable) -> dict[str, Rows]:
        """And `middles`."""
        rows = super().draw(key, table)
        here, goal = rows["observations"], rows["value_goals"]
        span = goal - here
        part = jax.random.uniform(jax.random.fold_in(key, 1), here.shape)
        within = here + jnp.round(part * span).astype(here.dtype)
        same = (span > 0) & (goal <= table.goal_limits[here])
        return rows | {"middles": jnp.where(same, within, rows["low_actor_goals"])}

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        loss, logged = super().value_loss(networks, targets, batch)
        c, s, w, goals = self.config, batch["observations"], batch["middles"], batch["value_goals"]
        source = {**networks, "eta": targets["eta"]} if "eta" in targets else networks

        def held(states: Array, ends: Array) -> Array:
            return stop_gradient(targets["value"](self.goal_embedding(source, states, ends), states)[..., 0])

        whole, bound = held(s, goals), through(held(s, w), held(w, goals), c.discount)
        z = self.goal_embedding(networks, s, goals)
        v = networks["value"](stop_gradient(z) if c.value_rep_grad_stop else z, s)[..., 0]
        adv = jnp.min(bound, axis=0) - jnp.mean(whole, axis=0)
        # A state that is its own goal has the value 0 and nothing between.
        errors = batch["masks"] * expectile_loss(adv, bound - v, c.transitive_expectile)
        more = jnp.sum(jnp.mean(errors, axis=-1))
        return loss + c.transitive * more, logged | {"value/transitive_loss": more, "value/shorter": jnp.mean(adv > 0)}


def through(first: Array, second: Array, discount: float) -> Array:
    """V of a way of two parts: `V₁ + γ^{d₁}·V₂`, γ^d = 1 + (1−γ)·V, which for values below their range is 0."""
    return first + jnp.clip(1 + (1 - discount) * first, 0, 1) * second


register("beyond-transitive", config=TransitiveConfig(), build=Transitive)
