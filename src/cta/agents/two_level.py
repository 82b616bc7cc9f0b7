"""HIQL∨, HIQL∨+α∨ and CTA: one two-level algorithm, told apart by what stands for a goal and by the network form.

ζ(s,g) = η(ψ̄(g)) or η(ψ̄(g) − ψ̄(s)) stands for "reach g from s". A value V(ζ,s) is learned by implicit value learning;
the high policy proposes ζ(s,w) of a state w k steps ahead, the low policy acts towards it; both learn by
advantage-weighted regression.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cta.agents.base import Agent, Metrics, Networks, Spec, action, register
from cta.agents.dual import DualLearner
from cta.config import EtaConfig, TwoLevelConfig
from cta.goals import Batch, Rows, RowTable, two_level_rows
from cta.losses import awr_loss, gaussian_log_prob, ivl_loss, ivl_terms
from cta.nn import BilinearTrunk, Ensemble, JointMlp, Projection, scale_to_length

SMALL = 0.01  # scale of heads that should start near zero


@dataclass(frozen=True)
class TwoLevel(Agent):
    """Networks `eta`, `value`, `high`, `low` and those of the dual learner."""

    config: TwoLevelConfig

    @property
    def dual(self) -> DualLearner:
        return DualLearner(self.config.dual, self.config.discount, self.config.layer_norm)

    def targets(self) -> tuple[str, ...]:
        return (*self.dual.targets, "value", *(["eta"] if self.config.eta.ema else []))

    def trainable(self, step: Int[Array, ""]) -> dict[str, Bool[Array, ""]]:
        """Pretraining: the dual learner trains for the first n steps only, everything else only after them."""
        n = self.config.dual.pretrain_steps
        if n == 0:
            return {}
        agent = dict.fromkeys(("eta", "value", "high", "low"), step >= n)
        return dict.fromkeys(self.dual.names, step < n) | agent

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        c = self.config
        keys = jax.random.split(key, 5)

        def value(k: PRNGKeyArray) -> BilinearTrunk | JointMlp:
            return self._network(k, spec.observation_dim, 1, head_scale=SMALL if c.networks == "bilinear" else 1.0)

        return {
            **self.dual.init(keys[0], spec),
            "eta": Projection(
                keys[1],
                c.dual.dim,
                c.eta.dim,
                hidden=c.eta.hidden,
                layer_norm=c.layer_norm,
                normalise=c.eta.normalise,
            ),
            "value": Ensemble(keys[2], c.value_ensemble, value),
            "high": self._high(keys[3], spec),
            "low": self._network(keys[4], spec.observation_dim, spec.action_dim, head_scale=SMALL, actor=True),
        }

    def _network(self, key: PRNGKeyArray, anchor: int, outputs: int, *, head_scale: float, actor: bool = False) -> Any:
        """A network of (ζ, anchor) in the configured form."""
        c, t = self.config, self.config.trunk
        if c.networks == "mlp":
            norm = c.actor_layer_norm if actor else c.layer_norm
            return JointMlp(key, c.eta.dim, anchor, outputs, hidden=c.hidden, layer_norm=norm, head_scale=head_scale)
        return BilinearTrunk(
            key,
            c.eta.dim,
            anchor,
            outputs,
            hidden=t.hidden,
            features=t.features,
            rank=t.rank,
            backbone=t.backbone,
            form=t.form,
            activate_final=t.activate_final,
            layer_norm=c.layer_norm,
            head_scale=head_scale,
        )

    @property
    def _plain_high(self) -> bool:
        return self.config.networks == "bilinear" and not self.config.bilinear_high_actor

    def _high(self, key: PRNGKeyArray, spec: Spec) -> Any:
        c, obs = self.config, spec.observation_dim
        if self._plain_high:
            sizes = c.trunk.backbone
            return JointMlp(key, obs, obs, c.eta.dim, hidden=sizes, layer_norm=c.actor_layer_norm, head_scale=SMALL)
        return self._network(key, obs, c.eta.dim, head_scale=SMALL, actor=True)

    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        return two_level_rows(key, table, self.config, self.config.subgoal_steps)

    def code(
        self, networks: Networks, states: Float[Array, "batch obs"], goals: Float[Array, "batch obs"]
    ) -> Float[Array, "batch e"]:
        """ζ(s,g). Representations are frozen here: only the dual loss trains ψ."""
        return networks["eta"](self.displacement(networks, states, goals))

    def displacement(
        self, networks: Networks, states: Float[Array, "batch obs"], goals: Float[Array, "batch obs"]
    ) -> Float[Array, "batch dim"]:
        """ψ̄(g), or the dual analogy ψ̄(g) − ψ̄(s), with no gradient."""
        target = self.dual.represent(networks, goals)
        if self.config.conditioning == "analogy":
            target = target - self.dual.represent(networks, states)
        return stop_gradient(target)

    def loss(
        self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        """`L = L_dual + L_IVL + L_ℓ + L_h`: one batch, one sum."""
        dual_loss, dual_metrics = self.dual.loss(networks, targets, batch)
        value_loss, value_metrics = self.value_loss(networks, targets, batch)
        low_loss, low_metrics = self.low_loss(networks, batch)
        high_loss, high_metrics = self.high_loss(networks, batch)
        metrics = {**dual_metrics, **value_metrics, **low_metrics, **high_metrics}
        return dual_loss + value_loss + low_loss + high_loss, metrics

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
        """`L_IVL` on (s, g_V). η learns here and only here, through V_m(ζ(s,g),s)."""
        c = self.config
        s, s_next, goals = batch["observations"], batch["next_observations"], batch["value_goals"]
        # The target value reads the online η (or its EMA copy), frozen either way.
        source = {**networks, "eta": targets["eta"]} if c.eta.ema else networks
        z_target = stop_gradient(self.code(source, s, goals))
        z_next = stop_gradient(self.code(source, s_next, goals))
        v_next = stop_gradient(targets["value"](z_next, s_next)[..., 0])
        v_here = stop_gradient(targets["value"](z_target, s)[..., 0])
        terms = ivl_terms(v_next, v_here, batch["rewards"], batch["masks"], c.discount)

        z = self.code(networks, s, goals)
        if c.value_rep_grad_stop:
            z = stop_gradient(z)
        value = networks["value"](z, s)[..., 0]
        loss = ivl_loss(value, terms, c.expectile)
        return loss, {"value/value_loss": loss, "value/v_mean": jnp.mean(value), "value/adv": jnp.mean(terms.adv)}

    def advantage(self, networks: Networks, states: Array, later: Array, goals: Array) -> Float[Array, " batch"]:
        """`V(ζ(s⁺,g),s⁺) − V(ζ(s,g),s)`, mean over members. Frozen: an advantage only weighs a policy's data."""
        ahead = jnp.mean(networks["value"](self.code(networks, later, goals), later)[..., 0], axis=0)
        here = jnp.mean(networks["value"](self.code(networks, states, goals), states)[..., 0], axis=0)
        return stop_gradient(ahead - here)

    def low_loss(self, networks: Networks, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
        """`L_ℓ = −E[W(V(s',w) − V(s,w); β_ℓ) log π_ℓ(a | ζ(s,w), s)]`."""
        c, s, w = self.config, batch["observations"], batch["low_actor_goals"]
        adv = self.advantage(networks, s, batch["next_observations"], w)
        z = self.code(networks, s, w)
        if c.policy_rep_grad_stop:
            z = stop_gradient(z)
        log_prob = gaussian_log_prob(networks["low"](z, s), batch["actions"], c.actor_std)
        loss = awr_loss(adv, log_prob, c.low_alpha, c.awr_clip)
        return loss, _policy_metrics("low_actor", loss, adv, log_prob)

    def high_loss(self, networks: Networks, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
        """`L_h = −E[W(V(w_H,g_H) − V(s,g_H); β_h) log π_h(ζ(s,w_H) | ζ(s,g_H), s)]`."""
        c, s = self.config, batch["observations"]
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        adv = self.advantage(networks, s, w, goals)
        # The subgoal is a label and the goal an input: neither may reshape η to be easier to predict.
        subgoal = stop_gradient(self.code(networks, s, w))
        log_prob = gaussian_log_prob(self._high_mean(networks, s, goals), subgoal, c.actor_std)
        loss = awr_loss(adv, log_prob, c.high_alpha, c.awr_clip)
        return loss, _policy_metrics("high_actor", loss, adv, log_prob)

    def _high_mean(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch e"]:
        condition = goals if self._plain_high else stop_gradient(self.code(networks, states, goals))
        return networks["high"](condition, states)

    def subgoal(
        self, networks: Networks, observations: Array, goals: Array, key: PRNGKeyArray, temperature: float
    ) -> Float[Array, "batch e"]:
        """The high policy's proposal, of length √e like every ζ."""
        mean = self._high_mean(networks, observations, goals)
        proposal = mean + temperature * self.config.actor_std * jax.random.normal(key, mean.shape)
        return scale_to_length(proposal) if self.config.eta.normalise else proposal

    def act(
        self,
        networks: Networks,
        observations: Float[Array, "batch obs"],
        goals: Float[Array, "batch obs"],
        key: PRNGKeyArray,
        temperature: float,
        memory: Any = None,
    ) -> tuple[Float[Array, "batch act"], Any]:
        """Propose a subgoal (kept for `high_hold` steps), act towards it. memory: (subgoal, its age)."""
        high_key, low_key = jax.random.split(key)
        y = self.subgoal(networks, observations, goals, high_key, temperature)
        if self.config.high_hold > 1:
            age = jnp.zeros(y.shape[0], jnp.int32)
            if memory is not None:
                held, age = memory
                y = jnp.where((age % self.config.high_hold > 0)[:, None], held, y)
            memory = (y, age + 1)
        mean = networks["low"](y, observations)
        return action(mean, low_key, temperature * self.config.actor_std), memory


def _policy_metrics(name: str, loss: Array, adv: Array, log_prob: Array) -> Metrics:
    return {
        f"{name}/actor_loss": loss,
        f"{name}/adv": jnp.mean(adv),
        f"{name}/bc_log_prob": jnp.mean(log_prob),
    }


HIQL_ETA = EtaConfig(hidden=(512, 512, 512))

register("cta", paper_name="CTA", config=TwoLevelConfig(), build=TwoLevel)
register(
    "hiql-dual", paper_name="HIQL^v", config=TwoLevelConfig(), build=TwoLevel,
    conditioning="dual", networks="mlp", eta=HIQL_ETA,
)  # fmt: skip
register(
    "hiql-analogy", paper_name="HIQL^v+alpha", config=TwoLevelConfig(), build=TwoLevel,
    conditioning="analogy", networks="mlp", eta=HIQL_ETA,
)  # fmt: skip
