"""The loss of the two-level agents with a dual learner, every network called once.

The same numbers as `TwoLevel.loss`, but all rows that meet a network pass it together: those that learn first, then
those whose outputs are frozen. Rounding aside, nothing differs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from cta.agents import Agent, Networks, Spec
from cta.agents.base import Term
from cta.agents.extraction import awr
from cta.agents.two_level import TwoLevel
from cta.fast.networks import Layout, Trunk, head, hidden_layers, mlp, output_layer, trunk
from cta.fast.packing import Part, Weights, packable, spread_input
from cta.goals import Batch
from cta.losses import expectile_loss, ivl_loss, ivl_terms
from cta.nn import scale_to_length

ROLES = (
    "value_goals", "low_actor_goals", "high_actor_goals", "observations", "next_observations", "high_actor_targets",
)  # fmt: skip
"""Fields of a batch in the order in which their rows are laid: what shares a network lies side by side."""

POLICIES = ("low", "high")
"""Networks of one shape but for their last layers, which are packed together."""


def supports(agent: Agent, networks: Networks) -> bool:
    """Whether this agent, configured so, with networks of such shapes, has this form."""
    if type(agent) is not TwoLevel:
        return False
    c = agent.config
    usual = (
        c.conditioning in ("dual", "analogy")
        and c.subgoal_repr_type == "dual"
        and c.eta.use
        and not c.eta.ema
        and not c.value_rep_grad_stop
        and c.policy_rep_grad_stop
        and c.dual.value_target == "online"
        and not agent.plain_high
    )
    return usual and all(packable(network) for network in networks.values())


class Body(NamedTuple):
    """A value's or the policies' network without its head: features of (ζ, state)."""

    agent: TwoLevel
    spec: Spec
    net: Any
    low: Any
    dtype: Any

    def features(self, live: Array, frozen: Array | None, anchors: Array, *, shared: int) -> tuple[Array, Any]:
        """Live and frozen features of ζ and spread anchors, which come in parts as `Layout` says.

        ζ is (rows, e), or (groups, rows, e) where every group has its own.
        """
        code, state = Part(live.shape[-1], exact=False), Part(self.spec.observation_dim)
        live = spread_input(live, code, self.dtype)
        frozen = None if frozen is None else spread_input(frozen, code, self.dtype)
        if self.agent.config.networks == "bilinear":
            net = Trunk(
                hidden_layers(self.net.displacement, self.low.displacement, (code,), fan=live.ndim == 2),
                hidden_layers(self.net.anchor, self.low.anchor, (state,), fan=True),
                hidden_layers(self.net.backbone, self.low.backbone),
            )
            return trunk(live, frozen, anchors, net, Layout(self.agent.config.trunk.rank, shared))
        layers = hidden_layers(self.net, self.low, (code, state), fan=live.ndim == 2)
        first = anchors[: live.shape[-2]]
        live = jnp.concatenate([live, jnp.broadcast_to(first, (*live.shape[:-1], first.shape[-1]))], axis=-1)
        if frozen is not None:
            others = jnp.concatenate([first] * (shared - 1) + [anchors[first.shape[0] :]])
            frozen = jnp.concatenate([frozen, others], axis=-1)
        return mlp(live, frozen, layers, None)


def loss(agent: TwoLevel, spec: Spec, weights: Weights, targets: Weights, batch: Batch) -> Term:
    """`TwoLevel.loss`."""
    c, networks, low = agent.config, weights.networks, weights.low
    roles: Float[Array, "roles batch obs"] = jnp.stack([batch[name] for name in ROLES])
    size, dtype = roles.shape[1], weights.dtype
    state = Part(spec.observation_dim)
    rows = spread_input(roles, state, dtype).reshape(len(ROLES) * size, -1)
    goal_x, state_x, next_x = rows[:size], rows[3 * size : 4 * size], rows[4 * size : 5 * size]
    # The high target is the low goal or the high goal: what is known of these is known of it.
    early = jnp.all(batch["high_actor_targets"] == batch["low_actor_goals"], axis=-1, keepdims=True)

    # φ at s learns, at s' is frozen; ψ learns at the value goal alone.
    def encode(name: str, live: Array, frozen: Array) -> tuple[Array, Array]:
        layers = hidden_layers(networks[name], low[name], (state,), fan=True)
        return mlp(live, frozen, layers, output_layer(networks[name], low[name]))

    phi, phi_next = encode("phi", state_x, next_x)
    psi_goal, psi_rest = encode("psi", goal_x, rows[size : 5 * size])
    scale = c.dual.dim**0.5 if c.dual.scale == "sqrt_d" else 1.0
    value = jnp.sum(phi * psi_goal, axis=-1) / scale
    next_value = jnp.sum(phi_next * stop_gradient(psi_goal), axis=-1) / scale

    seen = jnp.concatenate([batch["observations"], batch["value_goals"], batch["actions"]], axis=-1)
    whole = Part(seen.shape[-1])
    critic_x = spread_input(seen, whole, dtype)

    def critic(source: Weights) -> Array:
        net, copy = source.networks["critic"], source.low["critic"]
        layers = hidden_layers(net, copy, (whole,), fan=True)
        features: Any = mlp(critic_x, None, layers, None)
        return head(features[0], net.out)[..., 0]

    q_target = jnp.min(stop_gradient(critic(targets)), axis=0)
    q = critic(weights)
    delta = q_target - value
    dual_value_loss = jnp.mean(expectile_loss(delta, delta, c.dual.expectile))
    y = batch["rewards"] + c.discount * batch["masks"] * stop_gradient(next_value)
    critic_loss = jnp.mean(jnp.sum((q[:, None] - y[None]) ** 2, axis=0))

    # ζ of (s,g) learns; then (s',g), (s,w), (s,g_H), (s',w), (w_H,g_H), frozen.
    g, w, g_high, s, s_next = stop_gradient(
        jnp.concatenate([psi_goal, psi_rest], axis=1).mean(axis=0).reshape(5, size, -1)
    )
    ends = jnp.stack([g, w, g_high, w, g_high])
    starts = jnp.stack([s_next, s, s, s_next, jnp.where(early, w, g_high)])
    analogy = c.conditioning == "analogy"
    dim = Part(c.dual.dim, exact=False)
    eta, eta_low = networks["eta"], low["eta"]
    codes: Any = mlp(
        spread_input(g - s if analogy else g, dim, dtype)[None],
        spread_input(ends - starts if analogy else ends, dim, dtype).reshape(1, -1, dim.padded),
        hidden_layers(eta, eta_low, (dim,)), output_layer(eta, eta_low),
    )  # fmt: skip
    code, rest = (scale_to_length(u[0]) if c.eta.normalise else u[0] for u in codes)
    # Written out, lest what reads them be fused with the way back of η, and wait for it.
    rest = jax.lax.optimization_barrier(stop_gradient(rest)).reshape(5, size, -1)
    subgoal = jnp.where(early, rest[1], rest[2])  # ζ(s,w_H)

    def body(source: Weights, name: str) -> Body:
        return Body(agent, spec, source.networks[name], source.low[name], dtype)

    # V at (ζ,s) learns; then (s,w), (s,g_H), (s',w), (w_H,g_H), frozen.
    anchors = rows[3 * size :]
    met = rest[1:5].reshape(4 * size, -1)
    learning, frozen = body(weights, "value").features(code, met, anchors, shared=3)
    out = networks["value"].out
    v = head(learning, out)[..., 0]
    low_here, high_here, low_ahead, high_ahead = stop_gradient(head(frozen, out)[..., 0]).mean(axis=0).reshape(4, size)
    held = stop_gradient(code)
    target_body = body(targets, "value")
    here, ahead = target_body.features(held, rest[0], anchors[: 2 * size], shared=1)
    target_out = targets.networks["value"].out
    v_here, v_next = (stop_gradient(head(x, target_out)[..., 0]) for x in (here, ahead))
    terms = ivl_terms(v_next, v_here, batch["rewards"], batch["masks"], c.discount)
    value_loss = ivl_loss(v, terms, c.expectile)

    bodies, _ = body(weights, "+".join(POLICIES)).features(rest[1:3], None, anchors[:size], shared=1)
    means = head(bodies, networks["+".join(POLICIES)].out)
    action_mean, subgoal_mean = means[0, :, : spec.action_dim], means[1, :, : code.shape[-1]]
    options = {"std": c.actor_std, "clip": c.awr_clip}
    low_term = awr("low_actor", low_ahead - low_here, action_mean, batch["actions"], alpha=c.low_alpha, **options)
    high_term = awr("high_actor", high_ahead - high_here, subgoal_mean, subgoal, alpha=c.high_alpha, **options)

    metrics = {
        "dual/value_loss": dual_value_loss,
        "dual/critic_loss": critic_loss,
        "dual/value_mean": jnp.mean(value),
        "dual/critic_mean": jnp.mean(q),
        "value/value_loss": value_loss,
        "value/v_mean": jnp.mean(v),
        "value/adv": jnp.mean(terms.adv),
        **low_term[1],
        **high_term[1],
    }
    return dual_value_loss + critic_loss + value_loss + low_term[0] + high_term[0], metrics
