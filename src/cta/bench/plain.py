"""The two-level agents in textbook form: every term computed where it stands, ensembles by `vmap`, nothing shared.

This is what the fast paths are measured against. It reads the weights of the product's networks and nothing else of
them, so it stays as it is when the product's way of computing changes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from cta.agents import Agent, Networks
from cta.agents.two_level import TwoLevel
from cta.goals import Batch
from cta.losses import awr_loss, expectile_loss, gaussian_log_prob, ivl_loss, ivl_terms
from cta.nn import BilinearTrunk, Ensemble, Mlp, Projection, scale_to_length


def plain_weights(networks: Networks) -> Networks:
    """The same weights with the members of each ensemble stacked along a leading axis."""

    def stacked(network: Any) -> Any:
        if not isinstance(network, Ensemble):
            return network
        return Members(jax.tree.map(lambda *leaves: jnp.stack(leaves), *network.members))

    return {name: stacked(network) for name, network in networks.items()}


@jax.tree_util.register_pytree_node_class
class Members:
    """Stacked members of an ensemble."""

    def __init__(self, network: Any):
        self.network = network

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.network,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> "Members":
        return cls(*children)


def layer_norm(norm: Any, x: Array) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(x * x, axis=-1, keepdims=True) - mean * mean
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-6) * norm.scale) + norm.offset


def mlp(network: Mlp, *inputs: Array) -> Array:
    x = jnp.concatenate(inputs, axis=-1)
    for i, layer in enumerate(network.layers):
        x = x @ layer.kernel + layer.bias
        if i + 1 < len(network.layers) or network.activate_final:
            x = jax.nn.gelu(x, approximate=True)
            if network.norms:
                x = layer_norm(network.norms[i], x)
    return x


def apply(network: Any, *inputs: Array) -> Array:
    """The network at these inputs; an ensemble's outputs on a leading axis."""
    if isinstance(network, Members):
        return jax.vmap(apply, in_axes=(0, *(None for _ in inputs)))(network.network, *inputs)
    if isinstance(network, Mlp):
        return mlp(network, *inputs)
    if isinstance(network, Projection):
        u = mlp(network.mlp, *inputs)
        return scale_to_length(u) if network.normalise else u
    if isinstance(network, BilinearTrunk):
        f, g = mlp(network.displacement, inputs[0]), mlp(network.anchor, *inputs[1:])
        h = jnp.sum((f * g).reshape(len(f), -1, network.rank), axis=-1)
        h = h if network.backbone is None else mlp(network.backbone, h)
        return h if network.head is None else h @ network.head.kernel + network.head.bias
    raise TypeError(f"no plain form of {type(network).__name__}")


class PlainTwoLevel:
    """Loss of HIQL, HIQL∨, HIQL∨+α∨ and CTA as the papers write it."""

    def __init__(self, agent: TwoLevel):
        self.config = agent.config
        self.kind = agent.config.conditioning

    def represent(self, networks: Networks, x: Array) -> Array:
        return stop_gradient(jnp.mean(apply(networks["psi"], x), axis=0))

    def code(self, networks: Networks, states: Array, goals: Array) -> Array:
        if self.kind == "raw":
            return apply(networks["eta"], states, goals)
        if self.kind == "dual":
            return apply(networks["eta"], self.represent(networks, goals))
        return apply(networks["eta"], self.represent(networks, goals) - self.represent(networks, states))

    def value(self, networks: Networks, value: Any, states: Array, goals: Array) -> Array:
        return apply(value, self.code(networks, states, goals), states)[..., 0]

    def loss(self, networks: Networks, targets: Networks, batch: Batch) -> Array:
        total = self.value_loss(networks, targets, batch) + self.low_loss(networks, batch)
        total = total + self.high_loss(networks, batch)
        return total if self.kind == "raw" else total + self.dual_loss(networks, targets, batch)

    def dual_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Array:
        s, goals, actions = batch["observations"], batch["value_goals"], batch["actions"]
        scale = self.config.dual.dim**0.5 if self.config.dual.scale == "sqrt_d" else 1.0

        def temporal(states: Array) -> Array:
            return jnp.sum(apply(networks["phi"], states) * apply(networks["psi"], goals), axis=-1) / scale

        q_target = stop_gradient(jnp.min(apply(targets["critic"], s, goals, actions)[..., 0], axis=0))
        delta = q_target - temporal(s)
        next_value = stop_gradient(temporal(batch["next_observations"]))
        y = batch["rewards"] + self.config.discount * batch["masks"] * next_value
        q = apply(networks["critic"], s, goals, actions)[..., 0]
        critic = jnp.mean(jnp.sum((q[:, None] - y[None]) ** 2, axis=0))
        return jnp.mean(expectile_loss(delta, delta, self.config.dual.expectile)) + critic

    def value_loss(self, networks: Networks, targets: Networks, batch: Batch) -> Array:
        s, s_next, goals = batch["observations"], batch["next_observations"], batch["value_goals"]
        v_next = stop_gradient(self.value(networks, targets["value"], s_next, goals))
        v_here = stop_gradient(self.value(networks, targets["value"], s, goals))
        terms = ivl_terms(v_next, v_here, batch["rewards"], batch["masks"], self.config.discount)
        return ivl_loss(self.value(networks, networks["value"], s, goals), terms, self.config.expectile)

    def advantage(self, networks: Networks, states: Array, later: Array, goals: Array) -> Array:
        ahead = jnp.mean(self.value(networks, networks["value"], later, goals), axis=0)
        return stop_gradient(ahead - jnp.mean(self.value(networks, networks["value"], states, goals), axis=0))

    def low_loss(self, networks: Networks, batch: Batch) -> Array:
        c, s, w = self.config, batch["observations"], batch["low_actor_goals"]
        adv = self.advantage(networks, s, batch["next_observations"], w)
        mean = apply(networks["low"], stop_gradient(self.code(networks, s, w)), s)
        return awr_loss(adv, gaussian_log_prob(mean, batch["actions"], c.actor_std), c.low_alpha, c.awr_clip)

    def high_loss(self, networks: Networks, batch: Batch) -> Array:
        c, s = self.config, batch["observations"]
        w, goals = batch["high_actor_targets"], batch["high_actor_goals"]
        adv = self.advantage(networks, s, w, goals)
        condition = goals if self.kind == "raw" else stop_gradient(self.code(networks, s, goals))
        mean = apply(networks["high"], condition, s)
        label = stop_gradient(self.code(networks, s, w))
        return awr_loss(adv, gaussian_log_prob(mean, label, c.actor_std), c.high_alpha, c.awr_clip)


def has_plain_form(agent: Agent) -> bool:
    """Whether this agent's loss is written out here, with the settings it has."""
    if not isinstance(agent, TwoLevel):
        return False
    c = agent.config
    usual = c.policy_rep_grad_stop and not c.value_rep_grad_stop and c.subgoal_repr_type == "dual"
    dual = c.dual.value_target == "online" and c.dual.pretrain_steps == 0
    return usual and dual and c.conditioning != "gcb" and c.eta.use and not c.eta.ema and c.bilinear_high_actor


class PlainUpdate:
    """One step: gradient of the whole loss, Adam, then the targets. Agents without a plain form use their own loss."""

    def __init__(self, agent: Agent):
        self.agent = agent
        self.adam = optax.adam(agent.config.lr)
        self.plain = PlainTwoLevel(agent) if isinstance(agent, TwoLevel) and has_plain_form(agent) else None

    def init(self, networks: Networks) -> tuple[Networks, Networks, Any]:
        """(weights, targets, Adam's state)."""
        networks = plain_weights(networks) if self.plain else networks
        targets = jax.tree.map(jnp.array, {name: networks[name] for name in self.agent.targets()})
        return networks, targets, self.adam.init(networks)

    def loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> Array:
        if self.plain is not None:
            return self.plain.loss(networks, targets, batch)
        return self.agent.loss(networks, targets, batch, key)[0]

    def __call__(self, state: tuple[Networks, Networks, Any], batch: Batch, key: PRNGKeyArray) -> tuple[Any, Array]:
        networks, targets, slots = state
        loss, grads = jax.value_and_grad(self.loss)(networks, targets, batch, key)
        updates, slots = self.adam.update(grads, slots, networks)
        before = {name: networks[name] for name in targets}
        targets = optax.incremental_update(before, targets, self.agent.config.tau)
        return (optax.apply_updates(networks, updates), targets, slots), loss
