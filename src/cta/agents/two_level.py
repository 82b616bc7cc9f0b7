"""HIQL, HIQL∨, HIQL∨+α∨ and CTA: one two-level algorithm, told apart by what stands for a goal and by the network form.

ζ(s,g) stands for "reach g from s": ρ(s,g), η(ψ̄(g)), η(ψ̄(g) − ψ̄(s)), or η of the bisimulation analogy. A value V(ζ,s)
is learned by implicit value learning; the high policy proposes ζ(s,w) of a state w k steps ahead, the low policy acts
towards it; both learn by advantage-weighted regression.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from cta.agents import extraction, implicit_value
from cta.agents.base import Acted, Key, Networks, Spec, Term, action, register
from cta.agents.conditioning import GoalConditioned
from cta.agents.network_builders import OBSERVATION, policy, value
from cta.config import EtaConfig, TwoLevelConfig
from cta.errors import CtaError
from cta.goals import Batch, Rows, RowTable, two_level_rows
from cta.nn import scale_to_length


@dataclass(frozen=True)
class TwoLevel(GoalConditioned):
    """Networks `value`, `high`, `low` and those of the conditioning."""

    config: TwoLevelConfig
    own_routes: ClassVar = {"value": ("value",), "low": ("low",), "high": ("high",)}
    own_targets = ("value",)

    @property
    def plain_high(self) -> bool:
        """The high policy reads the goal itself, in a plain MLP."""
        c = self.config
        return c.conditioning == "raw" or (c.networks == "bilinear" and not c.bilinear_high_actor)

    def init(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        c, part = self.config, self.goal.part
        if part is OBSERVATION and spec.image_shape is not None:
            raise CtaError("--agent.eta.use must stay on where raw goals are images: the high policy proposes no image")
        keys = jax.random.split(key, 4)
        length = spec.observation_dim if part is None else part
        plain = c.hidden if c.networks == "mlp" else c.trunk.backbone
        condition, hidden = (OBSERVATION, plain) if self.plain_high else (part, None)
        return {
            **self.goal.init(keys[0], spec),
            "value": value(keys[1], spec, part, config=c, members=c.value_ensemble),
            "high": policy(keys[2], spec, condition, length, config=c, hidden=hidden),
            "low": policy(keys[3], spec, part, spec.action_dim, config=c),
        }

    def routes(self) -> dict[str, set[str]]:
        eta = set() if self.config.policy_rep_grad_stop or not self.config.eta.use else {"eta"}
        routes = super().routes()
        return routes | {"low": routes["low"] | eta}

    def draw(self, key: PRNGKeyArray, table: RowTable) -> dict[str, Rows]:
        return two_level_rows(key, table, self.config, self.config.subgoal_steps)

    def terms(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> dict[str, Term]:
        """`L = L_dual (or L_GCB, or nothing) + L_IVL + L_ℓ + L_h`."""
        return {
            **self.goal.terms(networks, targets, batch, key),
            "value": self.value_loss(networks, targets, batch),
            "low": self.low_loss(networks, batch),
            "high": self.high_loss(networks, batch),
        }

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Term:
        """`L_IVL` on (s, g_V)."""
        return implicit_value.value_loss(self.goal, self.config, networks, targets, batch)

    def advantage(self, networks: Networks, states: Array, later: Array, goals: Array) -> Float[Array, " batch"]:
        """`V(ζ(s⁺,g),s⁺) − V(ζ(s,g),s)`, frozen."""
        return implicit_value.advantage(self.goal, networks, states, later, goals)

    def low_loss(self, networks: Networks, batch: Batch) -> Term:
        """`L_ℓ = −E[W(V(s',w) − V(s,w); β_ℓ) log π_ℓ(a | ζ(s,w), s)]`."""
        c, s, w = self.config, batch["observations"], batch["low_actor_goals"]
        adv = self.advantage(networks, s, batch["next_observations"], w)
        z = self.goal_embedding(networks, s, w)
        # η belongs to the value; the policy takes it as it is.
        if c.policy_rep_grad_stop:
            z = stop_gradient(z)
        options = {"alpha": c.low_alpha, "std": c.actor_std, "clip": c.awr_clip}
        return extraction.awr("low_actor", adv, networks["low"](z, s), batch["actions"], **options)

    def high_loss(self, networks: Networks, batch: Batch) -> Term:
        """`L_h = −E[W(V(w_H,g_H) − V(s,g_H); β_h) log π_h(ζ(s,w_H) | ζ(s,g_H), s)]`."""
        c, s = self.config, batch["observations"]
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        adv = self.advantage(networks, s, w, goals)
        # The subgoal is a label: it may not reshape η to be easier to predict.
        subgoal = stop_gradient(self.goal_embedding(networks, s, w))
        options = {"alpha": c.high_alpha, "std": c.actor_std, "clip": c.awr_clip}
        return extraction.awr("high_actor", adv, self.high_mean(networks, s, goals), subgoal, **options)

    def high_mean(self, networks: Networks, states: Array, goals: Array) -> Float[Array, "batch e"]:
        """μ_h. The goal is an input: it may not reshape η either."""
        condition = goals if self.plain_high else stop_gradient(self.goal_embedding(networks, states, goals))
        return networks["high"](condition, states)

    def subgoal(
        self, networks: Networks, observations: Array, goals: Array, key: PRNGKeyArray, temperature: float
    ) -> Float[Array, "batch e"]:
        """The high policy's proposal, of length √e like every ζ."""
        mean = self.high_mean(networks, observations, goals)
        proposal = mean + temperature * self.config.actor_std * jax.random.normal(key, mean.shape)
        return scale_to_length(proposal) if self.config.eta.use and self.config.eta.normalise else proposal

    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
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


WIDE = EtaConfig(hidden=(512, 512, 512))

register(
    "hiql", paper_name="HIQL", config=TwoLevelConfig(), build=TwoLevel,
    conditioning="raw", networks="mlp", eta=EtaConfig(hidden=(512, 512, 512), dim=10), batch_size=1024,
)  # fmt: skip
register(
    "hiql-dual", paper_name="HIQL^v", config=TwoLevelConfig(), build=TwoLevel,
    conditioning="dual", networks="mlp", eta=WIDE,
)  # fmt: skip
register(
    "hiql-analogy", paper_name="HIQL^v+alpha", config=TwoLevelConfig(), build=TwoLevel,
    conditioning="analogy", networks="mlp", eta=WIDE,
)  # fmt: skip
register("cta", paper_name="CTA", config=TwoLevelConfig(), build=TwoLevel)
register("cta-gcb", paper_name="CTA_gcb_psi", config=TwoLevelConfig(), build=TwoLevel, conditioning="gcb")
