"""Values stitched over trajectories: goals that no trajectory reaches get the value of a way through a third state.

    w(s,g) = arg max over the W least of d(s,w)² + d(w,g)² of T_w,  d by Ṽ,  T_w = V̄(s,w) + (1 + (1−γ)·V̄(s,w))·V̄(w,g)
    L_V += λ·Σ_m E ℓ_κ(min_m T_m − V̄(s,g), T_m − V_m(s,g)),  g from another trajectory, w any row of the batch

Why: the triangle inequality again (theory T1, T2), where one-step backups have least to go by: a board is asked for
pairs of states that no trajectory joins, and their V knows no order beyond three presses. An inner product compares
all pairs with all rows of a batch for the price of one product; of 4 · batch rows some lie on the way.
Prediction: with 40% random high goals, on lights-4x4 at least 5 points of mean success above CTA with the same goals,
and the rank correlation of 4 and 3 presses (`cta presses order`) at least 0.1 above CTA's.
Refuted if the correlation does not rise, or rises and success does not: then far values are not what limits CTA.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from cta.agents.base import Networks, Term, register
from cta.agents.dual import DualLearner
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.errors import CtaError
from cta.goals import Batch
from cta.losses import expectile_loss
from cta.validation import Count, Inside, NotNegative
from cta_beyond.halfway import steps
from cta_beyond.transitive import through

ROWS = ("observations", "value_goals", "low_actor_goals", "high_actor_goals")
"""The fields of a batch among which w is looked for: first the states, then where the goals come from."""


@dataclass(frozen=True)
class StitchedConfig(TwoLevelConfig):
    """CTA's settings, and those of the second target."""

    stitched: NotNegative = 1.0
    """λ."""
    stitched_expectile: Inside = 0.9
    """κ of the second target, which is a lower bound whatever w is."""
    stitched_shortlist: Count = 4
    """W, the rows that V judges."""

    def check(self) -> None:
        super().check()
        if self.conditioning not in ("dual", "analogy"):
            raise CtaError("--agent.conditioning: only a dual learner compares all rows at once: dual or analogy")


@dataclass(frozen=True)
class Stitched(TwoLevel):
    """`TwoLevel` with a second target of the value, at goals of other trajectories."""

    config: StitchedConfig

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        loss, logged = super().value_loss(networks, targets, batch)
        c, s, goals = self.config, batch["observations"], jnp.roll(batch["value_goals"], 1, axis=0)
        source = {**networks, "eta": targets["eta"]} if "eta" in targets else networks

        def held(states: Array, ends: Array) -> Float[Array, "members rows"]:
            return stop_gradient(targets["value"](self.goal_embedding(source, states, ends), states)[..., 0])

        w = self.between(networks, batch)
        count = w.shape[1]
        ways = w.reshape(-1, *s.shape[1:])
        both = held(jnp.repeat(s, count, axis=0), ways), held(ways, jnp.repeat(goals, count, axis=0))
        bounds = through(*both, c.discount).reshape(-1, *w.shape[:2])
        best = jnp.argmax(jnp.min(bounds, axis=0), axis=1)
        bound = jnp.take_along_axis(bounds, best[None, :, None], axis=2)[..., 0]
        adv = jnp.min(bound, axis=0) - jnp.mean(held(s, goals), axis=0)
        z = self.goal_embedding(networks, s, goals)
        v = networks["value"](stop_gradient(z) if c.value_rep_grad_stop else z, s)[..., 0]
        more = jnp.sum(jnp.mean(expectile_loss(adv, bound - v, c.stitched_expectile), axis=-1))
        return loss + c.stitched * more, logged | {"value/stitched_loss": more, "value/shorter": jnp.mean(adv > 0)}

    def between(self, networks: Networks, batch: Batch) -> Float[Array, "batch shortlist ..."]:
        """The rows that are most nearly in the middle of the way from s to g, by Ṽ."""
        learner = self.goal.learner
        assert isinstance(learner, DualLearner)  # the settings are checked
        rows, size = jnp.concatenate([batch[name] for name in ROWS]), len(batch["observations"])
        scale = learner.config.dim**0.5 if learner.config.scale == "sqrt_d" else 1.0
        phi, psi = (stop_gradient(networks[name](rows)) / scale**0.5 for name in ("phi", "psi"))
        goals = jnp.roll(psi[:, size : 2 * size], 1, axis=1)
        pairs = ("mid,mjd->mij", phi[:, :size], psi), ("mjd,mid->mij", phi, goals)
        to, onward = (steps(jnp.einsum(*pair), learner.discount) for pair in pairs)
        _, found = jax.lax.top_k(-(to**2) - onward**2, min(self.config.stitched_shortlist, len(rows)))
        return rows[found]


register("beyond-stitched", config=StitchedConfig(), build=Stitched)
