"""The dual representation learner: a temporal distance as an inner product, learned by implicit Q-learning.

`Ṽ_m(s,g) = φ_m(s)ᵀψ_m(g)/√d` approximates −(1−γ^{d*(s,g)})/(1−γ). The representation of an observation is the member
mean ψ̄(x); the dual analogy of a pair is α∨(s,g) = ψ̄(g) − ψ̄(s).
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term
from cta.agents.network_builders import OBSERVATION, mlp
from cta.config import DualConfig
from cta.goals import Batch
from cta.losses import expectile_loss

FEW_ROWS = 64
"""Up to so many, reading the weights takes longer than using them: a policy had better read them once."""


@dataclass(frozen=True)
class DualLearner:
    """Networks `phi`, `psi`, `critic` and the loss that alone trains them."""

    config: DualConfig
    discount: float
    layer_norm: bool = True
    term: ClassVar[str] = "dual"
    """Its term of the loss."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("phi", "psi", "critic")

    @property
    def targets(self) -> tuple[str, ...]:
        """The critic always has an EMA target; φ and ψ only under `value_target = "ema"`."""
        return ("critic",) if self.config.value_target == "online" else self.names

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        c = self.config
        keys = jax.random.split(key, 3)
        options = {"hidden": c.hidden, "layer_norm": self.layer_norm, "members": c.ensemble}
        return {
            "phi": mlp(keys[0], spec, [OBSERVATION], c.dim, **options),
            "psi": mlp(keys[1], spec, [OBSERVATION], c.dim, **options),
            "critic": mlp(keys[2], spec, [OBSERVATION, OBSERVATION, spec.action_dim], 1, **options),
        }

    def value(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "members batch"]:
        """Ṽ_m(s,g)."""
        products = jnp.sum(networks["phi"](states) * networks["psi"](goals), axis=-1)
        return products / self.config.dim**0.5 if self.config.scale == "sqrt_d" else products

    def represent(self, networks: Networks, observations: Array) -> Float[Array, "batch dim"]:
        """ψ̄(x), the mean over members, not normalised."""
        return jnp.mean(networks["psi"](observations), axis=0)

    def analogy(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch dim"]:
        """α∨(s,g) = ψ̄(g) − ψ̄(s)."""
        rows = states.shape[0]  # in an exported policy a symbol, of which nothing is known
        if states.shape != goals.shape or not isinstance(rows, int) or rows > FEW_ROWS:
            return self.represent(networks, goals) - self.represent(networks, states)
        both = self.represent(networks, jnp.concatenate([goals, states]))
        return both[:rows] - both[rows:]

    def loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray | None = None) -> Term:
        """`L_dual = L_Ṽ + L_Q`.

        L_Ṽ = mean over (m, batch) of ℓ_ι(δ_m, δ_m), δ_m = min_j Q̄_j(s,g,a) − Ṽ_m(s,g);
        L_Q = mean over (m, batch) of Σ_j (Q_j(s,g,a) − y_m)², y_m = r + γc·Ṽ_m(s',g).
        """
        s, goals = batch["observations"], batch["value_goals"]
        inputs = (s, goals, batch["actions"])

        # Only the EMA copy of the critic judges the value: bootstrapping from the online one would chase itself.
        q_target = jax.lax.stop_gradient(jnp.min(targets["critic"](*inputs)[..., 0], axis=0))
        value = self.value(networks, s, goals)
        delta = q_target - value
        value_loss = jnp.mean(expectile_loss(delta, delta, self.config.expectile))

        # The bootstrap value is frozen: the critic's error must not move φ and ψ.
        source = targets if self.config.value_target == "ema" else networks
        next_value = jax.lax.stop_gradient(self.value(source, batch["next_observations"], goals))
        y = batch["rewards"] + self.discount * batch["masks"] * next_value
        q = networks["critic"](*inputs)[..., 0]
        critic_loss = jnp.mean(jnp.sum((q[:, None] - y[None]) ** 2, axis=0))

        metrics = {
            "dual/value_loss": value_loss,
            "dual/critic_loss": critic_loss,
            "dual/value_mean": jnp.mean(value),
            "dual/critic_mean": jnp.mean(q),
        }
        return value_loss + critic_loss, metrics
