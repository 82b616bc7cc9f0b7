"""QRL: quasimetric RL, which stretches the distances of random pairs while single steps stay one long."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term, register
from cta.agents.flat import Extracting
from cta.agents.network_builders import OBSERVATION, mlp
from cta.config import QrlConfig
from cta.goals import Batch
from cta.losses import quasimetric_push, step_constraint
from cta.nn import Quasimetric


@dataclass(frozen=True)
class Qrl(Extracting):
    """Networks `phi` (latents), `quasimetric` (ω of IQE), `log_lambda`, `dynamics` (in latents) and `actor`."""

    config: QrlConfig
    own_routes: ClassVar = {
        "value": ("phi", "quasimetric", "log_lambda"),
        "dynamics": ("phi", "quasimetric", "dynamics"),
        "actor": ("actor",),
    }

    def routes(self) -> dict[str, set[str]]:
        weightless = {"quasimetric"} if self.config.quasimetric_type == "mrn" else set()
        return {term: names - weightless for term, names in super().routes().items()}

    def critics(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        c = self.config
        phi_key, dynamics_key = jax.random.split(key)
        options = {"hidden": c.hidden, "layer_norm": c.layer_norm}
        return {
            "phi": mlp(phi_key, spec, [OBSERVATION], c.latent_dim, **options),
            "quasimetric": Quasimetric(c.quasimetric_type),
            "log_lambda": jnp.zeros(()),
            "dynamics": mlp(dynamics_key, spec, [c.latent_dim, spec.action_dim], c.latent_dim, **options),
        }

    def distance(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """d(s,g)."""
        return networks["quasimetric"](networks["phi"](states), networks["phi"](goals))

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """−d(s,g)."""
        return -self.distance(networks, states, goals)

    def imagine(self, networks: Networks, states: Array, actions: Array) -> Float[Array, "batch latent"]:
        """ẑ = φ(s) + f(φ(s), a)."""
        z = networks["phi"](states)
        return z + networks["dynamics"](z, actions)

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`L_d + L_dyn + L_π`."""
        s, goals = batch["observations"], batch["actor_goals"]

        def climbed(nets: Networks, actions: Array) -> Float[Array, " batch"]:
            return -nets["quasimetric"](self.imagine(nets, s, actions), nets["phi"](goals))

        def advantage(nets: Networks) -> Float[Array, " batch"]:
            return self.distance(nets, s, goals) - self.distance(nets, batch["next_observations"], goals)

        return {
            "value": self.value_loss(networks, batch),
            "dynamics": self.dynamics_loss(networks, batch),
            "actor": self.policy_loss(networks, batch, advantage=advantage, q=climbed),
        }

    def value_loss(self, networks: Networks, batch: Batch) -> Term:
        """`E[100·softplus(5 − d(s,g_V)/100)] + sg(λ)·ρ + λ·(ε − sg(ρ))`, ρ = E[ReLU(d(s,s') − 1)²]."""
        far = self.distance(networks, batch["observations"], batch["value_goals"])
        step = self.distance(networks, batch["observations"], batch["next_observations"])
        constraint, rho = step_constraint(step, networks["log_lambda"], self.config.eps)
        loss = quasimetric_push(far) + constraint
        metrics = {"value/value_loss": loss, "value/step_excess": rho, "value/lambda": jnp.exp(networks["log_lambda"])}
        return loss, metrics | {"value/distance": jnp.mean(far)}

    def dynamics_loss(self, networks: Networks, batch: Batch) -> Term:
        """`½E[d(z',ẑ) + d(ẑ,z')]`, z' = φ(s')."""
        d, z = networks["quasimetric"], networks["phi"](batch["next_observations"])
        guess = self.imagine(networks, batch["observations"], batch["actions"])
        loss = 0.5 * jnp.mean(d(z, guess) + d(guess, z))
        return loss, {"dynamics/dynamics_loss": loss}


register("qrl", paper_name="QRL", config=QrlConfig(), build=Qrl)
