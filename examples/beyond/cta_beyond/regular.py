"""A high policy that cannot learn its data by heart.

    L_h = −E[W(A; β_h)·log π_h(ζ(s,w) | m∘ζ(s,g)/(1−p), s)] + ½λ·Σ‖K‖²,  K the kernels of π_h
    m_i ~ Bernoulli(1−p), one mask for each row; acting has no mask

Why: goals of the data are few beside those of the board, and a policy of goals can learn its answers by heart.
Prediction: on lights-4x5 at 220k steps the held-out log likelihood of π_h ends within 1% of its best (`cta presses
order`), where CTA's falls further, and at least 5 points of mean success are gained.
Refuted if the held-out likelihood stays at its best and success does not rise: then over-fitting does not limit CTA.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from cta.agents import extraction
from cta.agents.base import Networks, Term, register
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch
from cta.validation import Inside, NotNegative


@dataclass(frozen=True)
class RegularConfig(TwoLevelConfig):
    """CTA's settings, and what holds its high policy back."""

    high_decay: NotNegative = 1e-2
    """λ."""
    high_dropout: Inside = 0.1
    """p."""


@dataclass(frozen=True)
class Regular(TwoLevel):
    """`TwoLevel` with a regularised high policy."""

    config: RegularConfig

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        high = self.regular_loss(networks, batch, jax.random.fold_in(key, 1))
        return super().terms(networks, targets, batch, key) | {"high": high}

    def regular_loss(self, networks: Networks, batch: Batch, key: PRNGKeyArray) -> Term:
        """`L_h` with masks and decay."""
        c, s = self.config, batch["observations"]
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        condition = goals if self.plain_high else self.goal_embedding(networks, s, goals)
        kept = jax.random.bernoulli(key, 1 - c.high_dropout, condition.shape) / (1 - c.high_dropout)
        # The goal is an input and the subgoal a label, as in CTA.
        condition, subgoal = stop_gradient((condition * kept, self.goal_embedding(networks, s, w)))
        adv = self.advantage(networks, s, w, goals)
        options = {"alpha": c.high_alpha, "std": c.actor_std, "clip": c.awr_clip}
        loss, logged = extraction.awr("high_actor", adv, networks["high"](condition, s), subgoal, **options)
        size = sum((jnp.sum(kernel**2) for kernel in kernels(networks["high"])), jnp.zeros(()))
        return loss + 0.5 * c.high_decay * size, logged | {"high_actor/size": size}


def kernels(network: object) -> list[Array]:
    """The kernels of a network, also of a fused one, which has its weights beside rounded copies of them."""
    leaves = jax.tree_util.tree_leaves_with_path(getattr(network, "network", network))
    return [leaf for path, leaf in leaves if getattr(path[-1], "name", "") == "kernel"]


register("beyond-regular", config=RegularConfig(), build=Regular)
