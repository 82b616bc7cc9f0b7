"""GCIVL: goal-conditioned implicit value learning; with dual representations, and in transduction form."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from cta.agents import extraction
from cta.agents.base import Networks, Spec, Term, register
from cta.agents.flat import Flat
from cta.agents.implicit_value import advantage, value_loss
from cta.agents.network_builders import value
from cta.config import EtaConfig, GcivlConfig
from cta.goals import Batch


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


register("gcivl", paper_name="GCIVL", config=GcivlConfig(), build=Gcivl)
register("gcivl-dual", paper_name="GCIVL^v", config=GcivlConfig(), build=Gcivl, conditioning="dual")
register(
    "gcivl-analogy", paper_name="GCIVL^v+alpha", config=GcivlConfig(), build=Gcivl,
    conditioning="analogy", networks="bilinear", eta=EtaConfig(),
)  # fmt: skip
