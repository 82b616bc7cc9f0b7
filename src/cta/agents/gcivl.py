"""GCIVL: goal-conditioned implicit value learning; with dual representations, and in transduction form."""

from dataclasses import dataclass
from typing import ClassVar

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents import extraction
from cta.agents.base import Networks, Spec, Term, register
from cta.agents.flat import Flat
from cta.agents.implicit_value import advantage, value_loss
from cta.agents.network_builders import value
from cta.config import EtaConfig, GcivlConfig
from cta.errors import CtaError
from cta.goals import Batch
from cta.nn import Impala

ENCODERS = STATES, GOALS = "state_encoder", "goal_encoder"


@dataclass(frozen=True)
class Gcivl(Flat):
    """Networks `value`, `actor` and the conditioning's."""

    config: GcivlConfig
    own_routes: ClassVar = {"value": ("value",), "actor": ("actor",)}
    own_targets = ("value",)

    def critics(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        return {"value": value(key, spec, self.goal.part, config=self.config, members=self.config.value_ensemble)}

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`L_IVL(s, g_V) − E[W(V(s',g_A) − V(s,g_A); α) log π(a | s, g_A)]`."""
        return {
            **self.goal.terms(networks, targets, batch, key),
            "value": value_loss(self.goal, self.config, networks, targets, batch),
            "actor": self.actor_loss(networks, batch),
        }

    def actor_loss(self, networks: Networks, batch: Batch) -> Term:
        c, s, goals = self.config, batch["observations"], batch["actor_goals"]
        adv = advantage(self.goal, networks, s, batch["next_observations"], goals)
        mean = self.mean(networks, s, goals)
        options = {"alpha": c.alpha, "std": c.actor_std, "clip": c.awr_clip}
        return extraction.awr("actor", adv, mean, batch["actions"], **options)


@dataclass(frozen=True)
class SharedEncoders(Gcivl):
    """GCIVL∨ on images with one encoder of states and one of goals, which all networks read and all losses train.

    Targets are EMA copies of what comes after the encoders, and read the same features, frozen.
    """

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        if spec.image_shape is None:
            raise CtaError("--agent.share-encoders is for images; these observations are vectors")
        keys = jax.random.split(key, 3)
        *size, channels = spec.image_shape
        encoders = {name: Impala(keys[i], channels, size=tuple(size)) for i, name in enumerate(ENCODERS)}
        return encoders | super().init(keys[2], spec._replace(image_shape=None))

    def routes(self) -> dict[str, set[str]]:
        read = {"dual": set(ENCODERS)}  # ψ̄(g) is frozen elsewhere, so that only states are seen there
        return {term: names | read.get(term, {STATES}) for term, names in super().routes().items()}

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        def seen(name: str, field: Array) -> Array:
            return networks[GOALS if name.endswith("goals") else STATES](field) if field.ndim > 3 else field

        return super().terms(networks, targets, {name: seen(name, field) for name, field in batch.items()}, key)

    def mean(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch act"]:
        return super().mean(networks, *_seen(networks, states, goals))

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        return super().value(networks, *_seen(networks, states, goals))

    def dual_value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        return super().dual_value(networks, *_seen(networks, states, goals))

    def analogy(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch dim"]:
        """Of a state as if it were a goal."""
        return super().analogy(networks, networks[GOALS](states), networks[GOALS](goals))


def _seen(networks: Networks, states: Array, goals: Array) -> tuple[Array, Array]:
    """Features of images; what has been encoded already stays as it is."""
    return (networks[STATES](states), networks[GOALS](goals)) if states.ndim > 2 else (states, goals)


def _gcivl(config: GcivlConfig) -> Gcivl:
    return SharedEncoders(config) if config.share_encoders else Gcivl(config)


register("gcivl", paper_name="GCIVL", config=GcivlConfig(), build=Gcivl)
register("gcivl-dual", paper_name="GCIVL^v", config=GcivlConfig(), build=_gcivl, conditioning="dual")
register(
    "gcivl-analogy", paper_name="GCIVL^v+alpha", config=GcivlConfig(), build=Gcivl,
    conditioning="analogy", networks="bilinear", eta=EtaConfig(),
)  # fmt: skip
