"""CRL: contrastive RL, where the critic tells goals that were reached from goals that were not; dual goals too."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term, register
from cta.agents.flat import Extracting
from cta.agents.network_builders import OBSERVATION, Part, mlp
from cta.config import AgentConfig, CrlConfig
from cta.goals import Batch, Rows, RowTable, flat_rows, mixed_rows, value_mix
from cta.losses import contrastive_loss


@dataclass(frozen=True)
class Crl(Extracting):
    """Networks `critic_phi`, `critic_psi`, `actor` and the conditioning's; AWR adds `value_phi`, `value_psi`."""

    config: CrlConfig
    own_routes: ClassVar = {"critic": ("critic_phi", "critic_psi"), "actor": ("actor",)}

    def routes(self) -> dict[str, set[str]]:
        value = {"value": {"value_phi", "value_psi"}} if self.config.actor_loss == "awr" else {}
        return super().routes() | value

    def critics(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        """logit_m = φ_m(s,a)ᵀψ_m(g)/√d with two members; the value has one and no action."""
        keys = jax.random.split(key, 4)

        def tower(k: PRNGKeyArray, parts: list[Part], members: int) -> Any:
            c = self.config
            options = {"hidden": c.hidden, "layer_norm": c.layer_norm}
            return mlp(k, spec, parts, c.latent_dim, **options, members=members)

        networks = {
            "critic_phi": tower(keys[0], [OBSERVATION, spec.action_dim], 2),
            "critic_psi": tower(keys[1], [self.goal.part], 2),
        }
        if self.config.actor_loss == "awr":
            networks["value_phi"] = tower(keys[2], [OBSERVATION], 1)
            networks["value_psi"] = tower(keys[3], [self.goal.part], 1)
        return networks

    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        """Contrastive goals by the config's value probabilities; a representation learner draws goals of its own.

        Those are `value_goals`, the ones rewards belong to, with the probabilities all other agents have.
        """
        flat_key, learner_key = jax.random.split(key)
        rows = flat_rows(flat_key, table, self.config)
        rows["contrastive_goals"] = rows.pop("value_goals")
        if self.goal.learner is not None:
            mix = value_mix(AgentConfig())
            goals = mixed_rows(learner_key, table, rows["observations"], mix, self.config.discount)
            rows["value_goals"] = goals
        return rows

    def towers(self, name: str, networks: Networks, goals: Array, *inputs: Array) -> tuple[Array, Array]:
        """φ_m(inputs)/√d and ψ_m(ζ(s,g)), each (members, batch, d)."""
        z = stop_gradient(self.goal_embedding(networks, inputs[0], goals))
        return networks[f"{name}_phi"](*inputs) / self.config.latent_dim**0.5, networks[f"{name}_psi"](z)

    def logits(self, name: str, networks: Networks, goals: Array, *inputs: Array) -> Float[Array, " batch"]:
        """min_m logit_m of each row with its own goal."""
        phi, psi = self.towers(name, networks, goals, *inputs)
        return jnp.min(jnp.sum(phi * psi, axis=-1), axis=0)

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, " batch"]:
        """The logit of (s,g); where only (s,a,g) is learned, with the policy's own action."""
        if "value_phi" in networks:
            return self.logits("value", networks, goals, states)
        actions = jnp.clip(self.mean(networks, states, goals), -1.0, 1.0)
        return self.logits("critic", networks, goals, states, actions)

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`L_Q + L_π`, with AWR also `L_V`."""
        s, goals, floor = batch["observations"], batch["actor_goals"], self.config.logit_floor

        def climbed(nets: Networks, actions: Array) -> Float[Array, " batch"]:
            q = self.logits("critic", nets, goals, s, actions)
            return q if floor is None else jnp.maximum(q, floor)

        def advantage(nets: Networks) -> Float[Array, " batch"]:
            return climbed(nets, batch["actions"]) - self.logits("value", nets, goals, s)

        terms = {
            **self.goal.terms(networks, targets, batch, key),
            "critic": self.contrast("critic", networks, batch, s, batch["actions"]),
            "actor": self.policy_loss(networks, batch, advantage=advantage, q=climbed),
        }
        if self.config.actor_loss == "awr":
            terms["value"] = self.contrast("value", networks, batch, s)
        return terms

    def contrast(self, name: str, networks: Networks, batch: Batch, *inputs: Array) -> Term:
        """Binary cross-entropy over all pairs of rows and goals of the batch."""
        phi, psi = self.towers(name, networks, batch["contrastive_goals"], *inputs)
        logits = jnp.einsum("mid,mjd->mij", phi, psi)
        loss = contrastive_loss(logits)
        right = jnp.mean(jnp.argmax(logits, axis=-1) == jnp.arange(logits.shape[-1]))
        return loss, {f"{name}/contrastive_loss": loss, f"{name}/categorical_accuracy": right}


register("crl", paper_name="CRL", config=CrlConfig(), build=Crl)
register("crl-dual", paper_name="CRL^v", config=CrlConfig(), build=Crl, conditioning="dual")
