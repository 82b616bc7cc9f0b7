"""What stands for "reach g from s": the raw goal, ψ(g), the dual analogy ψ(g) − ψ(s), or the bisimulation analogy.

Each may pass through a projection η, and each but the first brings a learner whose loss alone trains it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cta.agents.base import Agent, Networks, Spec, Term
from cta.agents.dual import DualLearner
from cta.agents.gcb import GcbLearner
from cta.agents.network_builders import OBSERVATION, Part, encoded
from cta.config import ActorConfig, ConditionedConfig, EtaConfig, TwoLevelConfig
from cta.goals import Batch
from cta.nn import Projection

NO_ETA = EtaConfig(use=False)


@dataclass(frozen=True)
class Conditioning:
    """ζ(s,g), with its networks (the learner's, and `eta`) and its loss."""

    kind: str = "raw"
    eta: EtaConfig = NO_ETA
    layer_norm: bool = True
    learner: DualLearner | GcbLearner | None = None
    with_state: bool = False
    """η reads the state beside the representation."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*(self.learner.names if self.learner else ()), *(["eta"] if self.eta.use else []))

    @property
    def targets(self) -> tuple[str, ...]:
        ema = self.eta.use and self.eta.ema
        return (*(self.learner.targets if self.learner else ()), *(["eta"] if ema else []))

    @property
    def part(self) -> Part:
        """The length of ζ, or OBSERVATION if the goal itself stands for the goal."""
        if self.eta.use:
            return self.eta.dim
        return self.learner.config.dim if self.learner else OBSERVATION

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        learner_key, eta_key = jax.random.split(key)
        networks = self.learner.init(learner_key, spec) if self.learner else {}
        return networks | ({"eta": self._projection(eta_key, spec)} if self.eta.use else {})

    def _projection(self, key: PRNGKeyArray, spec: Spec) -> Projection:
        parts = [self.learner.config.dim] if self.learner else [OBSERVATION]
        if self.with_state or not self.learner:
            parts = [OBSERVATION, *parts]
        options = {"hidden": self.eta.hidden, "normalise": self.eta.normalise, "layer_norm": self.layer_norm}

        def make(k: PRNGKeyArray, sizes: list[int]) -> Projection:
            return Projection(k, sum(sizes), self.eta.dim, **options)

        return encoded(key, spec, parts, make, early=True)

    def displacement(self, networks: Networks, states: Array, goals: Array) -> Array:
        """ψ̄(g) or an analogy, with no gradient: only the learner's own loss trains it. Raw: the goal."""
        if self.learner is None:
            return goals
        if self.kind == "dual" and isinstance(self.learner, DualLearner):
            return stop_gradient(self.learner.represent(networks, goals))
        return stop_gradient(self.learner.analogy(networks, states, goals))

    def goal_embedding(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch ..."]:
        """ζ(s,g): η(displacement), ρ(s,g) = η(s,g) for raw goals, or the displacement itself without η."""
        x = self.displacement(networks, states, goals)
        if not self.eta.use:
            return x
        return networks["eta"](states, x) if self.with_state or not self.learner else networks["eta"](x)

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """The learner's term of the loss."""
        if self.learner is None:
            return {}
        return {self.learner.term: self.learner.loss(networks, targets, batch, key)}


def conditioning_of(config: ActorConfig) -> Conditioning:
    """The conditioning a config asks for; configs that leave no choice have raw goals."""
    if not isinstance(config, ConditionedConfig):
        return Conditioning(layer_norm=config.layer_norm)
    learner = None
    if config.conditioning in ("dual", "analogy"):
        learner = DualLearner(config.dual, config.discount, config.layer_norm)
    elif config.conditioning == "gcb":
        learner = GcbLearner(config.gcb, config.discount, config.layer_norm)
    with_state = isinstance(config, TwoLevelConfig) and config.subgoal_repr_type == "dual_state"
    return Conditioning(config.conditioning, config.eta, config.layer_norm, learner, with_state)


@dataclass(frozen=True)
class GoalConditioned(Agent):
    """An agent that knows goals through a `Conditioning`."""

    config: ActorConfig
    own_routes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The networks, beside the conditioning's, that each term of the loss trains."""
    own_targets: ClassVar[tuple[str, ...]] = ()
    """Those of them that have an EMA target."""

    @property
    def goal(self) -> Conditioning:
        return conditioning_of(self.config)

    def goal_embedding(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch ..."]:
        """ζ(s,g)."""
        return self.goal.goal_embedding(networks, states, goals)

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """V(ζ(s,g),s), mean over members, where there is a network of that name."""
        if "value" not in networks:
            return super().value(networks, states, goals)
        return jnp.mean(networks["value"](self.goal_embedding(networks, states, goals), states)[..., 0], axis=0)

    def dual_value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """Ṽ(s,g), mean over members."""
        learner = self.goal.learner
        if not isinstance(learner, DualLearner):
            return super().dual_value(networks, states, goals)
        return jnp.mean(learner.value(networks, states, goals), axis=0)

    def analogy(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch dim"]:
        """α(s,g) of the representation, whether or not the policy sees goals through it."""
        learner = self.goal.learner
        return super().analogy(networks, states, goals) if learner is None else learner.analogy(networks, states, goals)

    def targets(self) -> tuple[str, ...]:
        return (*self.goal.targets, *self.own_targets)

    def routes(self) -> dict[str, set[str]]:
        """The agent's own, the learner's, and η's, which the value trains."""
        routes = {term: set(names) for term, names in self.own_routes.items()}
        if self.goal.learner is not None:
            routes[self.goal.learner.term] = set(self.goal.learner.names)
        if self.goal.eta.use and not getattr(self.config, "value_rep_grad_stop", False):
            routes.setdefault("value", set()).add("eta")
        return routes

    def trainable(self, step: Int[Array, ""]) -> dict[str, Bool[Array, ""]]:
        """Pretraining: the dual learner trains for the first n steps only, everything else only after them."""
        learner = self.goal.learner
        n = learner.config.pretrain_steps if isinstance(learner, DualLearner) else 0
        if n == 0 or learner is None:
            return {}
        names = set(self.goal.names).union(*self.routes().values()) - {*learner.names}
        return dict.fromkeys(learner.names, step < n) | dict.fromkeys(sorted(names), step >= n)
