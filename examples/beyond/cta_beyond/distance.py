"""Analogies in distance space: the dual learner's inner product is a distance, or nearly one.

    d(s,g) = softplus(φ(s)ᵀψ(g)/√dim),  Ṽ(s,g) = −(1 − γ_d^d(s,g))/(1 − γ_d)          (`beyond-distance`)
    γ_d → 1:  Ṽ(s,g) = −d(s,g) + O((1 − γ_d)·d²)                                     (`beyond-far`)

Why: fields of d* do not depend on the context in additive worlds, those of Ṽ do (theory T11), and on a board of full
rank d* has rank n + 1 where γ^d has full rank (T12): at six steps a press, 95% of the energy of a centred γ^d on 4x5
lie in 210 dimensions at γ = 0.95 and in 20 at 0.999. The agent's value keeps its γ; what stands for a goal changes.
Prediction: on lights-4x5 at least 10 points of mean success above CTA, and a rank correlation of −Ṽ with the presses
(`cta presses order`, dual, up to 10) at least 0.1 above CTA's.
Refuted if the correlation rises and success does not: then the rank of the field was not what limits CTA.
"""

from dataclasses import dataclass, replace
from typing import Literal

import jax
from jaxtyping import Array, Float

from cta.agents.base import Networks, register
from cta.agents.conditioning import Conditioning, conditioning_of
from cta.agents.dual import DualLearner
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.errors import CtaError
from cta.validation import Inside


@dataclass(frozen=True)
class DistanceConfig(TwoLevelConfig):
    """CTA's settings, and the dual learner's own discount."""

    dual_discount: Inside = 0.99
    """γ_d."""
    dual_space: Literal["distance", "return"] = "distance"
    """What the inner product of φ and ψ is: a distance, or as in CTA a return."""

    def check(self) -> None:
        super().check()
        if self.conditioning not in ("dual", "analogy"):
            raise CtaError("--agent.conditioning: dual or analogy, which have a dual learner")


@dataclass(frozen=True)
class DistanceLearner(DualLearner):
    """`DualLearner` whose inner product is a distance. Losses and targets stay in the space of returns."""

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "members batch"]:
        """Ṽ of the distance."""
        distance = jax.nn.softplus(super().value(networks, states, goals))
        return -(1 - self.discount**distance) / (1 - self.discount)


@dataclass(frozen=True)
class Distance(TwoLevel):
    """`TwoLevel` with another dual learner."""

    config: DistanceConfig

    @property
    def goal(self) -> Conditioning:
        c = self.config
        kind = DistanceLearner if c.dual_space == "distance" else DualLearner
        return replace(conditioning_of(c), learner=kind(c.dual, c.dual_discount, c.layer_norm))


register("beyond-distance", config=DistanceConfig(), build=Distance)
register("beyond-far", config=DistanceConfig(), build=Distance, dual_discount=0.999, dual_space="return")
