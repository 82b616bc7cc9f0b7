"""Best of N subgoals: a high critic chooses among goal-free proposals.

    Q_h(ζ(s,g), s, y) ← −(1−γᵏ)/(1−γ) + γᵏ·V̄(ζ(w,g), w),  y = ζ(s,w),  w = s_{t+k}
    y* = arg max over y₁ … y_N ~ π₀(y|s) of Q_h(ζ(s,g), s, y),  π₀ a flow: ẏ = v(y_τ, τ, s), y_τ = (1−τ)·ε + τ·ζ(s,w)

Why: a policy of goals over-fits the goals it saw, while what can be reached in k steps does not depend on the goal.
Prediction: on lights-4x5 at least 10 points of mean success above CTA, and N = 32 at least 20 points above N = 1.
Refuted if N = 32 is less than 5 points above N = 1 on the same weights (`python -m cta_beyond.replay RUN proposals=1`),
or if the mean is not above CTA's.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from cta.agents.base import Networks, Spec, Term, register
from cta.agents.network_builders import OBSERVATION, bilinear, mlp
from cta.agents.two_level import TwoLevel
from cta.config import TwoLevelConfig
from cta.goals import Batch
from cta.nn import scale_to_length
from cta.validation import Count, Sizes


@dataclass(frozen=True)
class BestOfConfig(TwoLevelConfig):
    """CTA's settings; there is no high policy, so β_h is not read."""

    proposals: Count = 32
    """N, subgoals among which the critic chooses; only acting reads it."""
    flow_hidden: Sizes = (256, 256)
    """Hidden sizes of the flow, which acting calls N times for each of its steps."""
    flow_steps: Count = 4
    """Euler steps from noise to a proposal."""

    def check(self) -> None:
        super().check()
        self.refuse_unread("without a high policy nothing reads", {"bilinear_high_actor": True})


@dataclass(frozen=True)
class BestOf(TwoLevel):
    """Networks `value`, `low`, `proposal`, `high_critic` and those of the conditioning."""

    config: BestOfConfig
    own_routes: ClassVar = {name: (name,) for name in ("value", "low", "proposal", "high_critic")}

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        c, networks = self.config, super().init(key, spec)
        del networks["high"]
        flow, critic = jax.random.split(jax.random.fold_in(key, 1))
        size = spec.observation_dim if self.goal.part is None else self.goal.part
        parts, members = [self.goal.part, OBSERVATION, size], c.value_ensemble
        if c.networks == "bilinear":
            networks["high_critic"] = bilinear(critic, spec, parts, 1, config=c, members=members)
        else:
            options = {"hidden": c.hidden, "layer_norm": c.layer_norm, "members": members}
            networks["high_critic"] = mlp(critic, spec, parts, 1, **options)
        options = {"hidden": c.flow_hidden, "layer_norm": c.layer_norm}
        return networks | {"proposal": mlp(flow, spec, [size, 1, OBSERVATION], size, **options)}

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        return {
            **self.goal.terms(networks, targets, batch, key),
            "value": self.value_loss(networks, targets, batch),
            "low": self.low_loss(networks, batch),
            "proposal": self.flow_loss(networks, batch, jax.random.fold_in(key, 1)),
            "high_critic": self.critic_loss(networks, targets, batch),
        }

    def flow_loss(self, networks: Networks, batch: Batch, key: PRNGKeyArray) -> Term:
        """`E ‖v(y_τ, τ, s) − (ζ(s,w) − ε)‖²`, ε standard normal, τ uniform."""
        s, y = batch["observations"], self.reached(networks, batch)
        noise_key, time_key = jax.random.split(key)
        noise, time = jax.random.normal(noise_key, y.shape), jax.random.uniform(time_key, (len(y), 1))
        speed = networks["proposal"]((1 - time) * noise + time * y, time, s)
        loss = jnp.mean(jnp.sum((speed - (y - noise)) ** 2, axis=-1))
        return loss, {"proposal/flow_loss": loss}

    def critic_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        """`Σ_m E (Q_h − target)²`, the target the mean over members of V̄ at w, k steps on."""
        s, w, goals = batch["observations"], batch["low_actor_goals"], batch["value_goals"]
        source = {**networks, "eta": targets["eta"]} if "eta" in targets else networks
        # Targets and inputs are made by networks that have losses of their own.
        ahead = jnp.mean(targets["value"](self.goal_embedding(source, w, goals), w)[..., 0], axis=0)
        z = stop_gradient(self.goal_embedding(networks, s, goals))
        q = networks["high_critic"](z, s, self.reached(networks, batch))[..., 0]
        fade = self.config.discount**self.config.subgoal_steps
        y = stop_gradient(-(1 - fade) / (1 - self.config.discount) + fade * ahead)
        loss = jnp.sum(jnp.mean((q - y) ** 2, axis=-1))
        return loss, {"high_critic/critic_loss": loss, "high_critic/q_mean": jnp.mean(q)}

    def reached(self, networks: Networks, batch: Batch) -> Array:
        """ζ(s,w), a label."""
        return stop_gradient(self.goal_embedding(networks, batch["observations"], batch["low_actor_goals"]))

    def subgoal(self, networks: Networks, observations: Array, goals: Array, key: PRNGKeyArray, temperature: float):
        """The best of N proposals; at temperature 0 from the same N draws of noise at every step."""
        count, rows = self.config.proposals, len(observations)
        states = jnp.repeat(observations, count, axis=0)
        z = jnp.repeat(self.goal_embedding(networks, observations, goals), count, axis=0)
        size = self.goal.part or observations.shape[-1]
        noise = jnp.where(temperature > 0, draws(key, count, size), draws(jax.random.key(0), count, size))
        y, steps = jnp.tile(noise, (rows, 1)), self.config.flow_steps
        for step in range(steps):
            y = y + networks["proposal"](y, jnp.full((len(y), 1), step / steps), states) / steps
        if self.config.eta.use and self.config.eta.normalise:
            y = scale_to_length(y)
        q = jnp.mean(networks["high_critic"](z, states, y)[..., 0], axis=0).reshape(rows, count)
        return y.reshape(rows, count, -1)[jnp.arange(rows), jnp.argmax(q, axis=1)]


def draws(key: PRNGKeyArray, count: int, size: int) -> Array:
    """(count, size) of standard noise; fewer draws are the first of more."""
    return jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (size,)))(jnp.arange(count))


register("beyond-best-of", config=BestOfConfig(), build=BestOf)
