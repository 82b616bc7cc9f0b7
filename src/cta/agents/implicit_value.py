"""Implicit value learning (IVL), shared by GCIVL and all two-level agents."""

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from cta.agents.base import Networks, Term
from cta.agents.conditioning import Conditioning
from cta.config import ImplicitValueConfig
from cta.goals import Batch
from cta.losses import ivl_loss, ivl_terms


def value_loss(
    goal: Conditioning, config: ImplicitValueConfig, networks: Networks, targets: Networks, batch: Batch
) -> Term:
    """`L_IVL` on (s, g_V). η learns here (and by default only here), through V_m(ζ(s,g),s)."""
    s, s_next, goals = batch["observations"], batch["next_observations"], batch["value_goals"]
    # The target value reads the online η (or its EMA copy), frozen either way.
    source = {**networks, "eta": targets["eta"]} if "eta" in targets else networks
    z_target = stop_gradient(goal.goal_embedding(source, s, goals))
    z_next = stop_gradient(goal.goal_embedding(source, s_next, goals))
    v_next = stop_gradient(targets["value"](z_next, s_next)[..., 0])
    v_here = stop_gradient(targets["value"](z_target, s)[..., 0])
    terms = ivl_terms(v_next, v_here, batch["rewards"], batch["masks"], config.discount)

    z = goal.goal_embedding(networks, s, goals)
    if config.value_rep_grad_stop:
        z = stop_gradient(z)
    value = networks["value"](z, s)[..., 0]
    loss = ivl_loss(value, terms, config.expectile)
    return loss, {"value/value_loss": loss, "value/v_mean": jnp.mean(value), "value/adv": jnp.mean(terms.adv)}


def advantage(
    goal: Conditioning, networks: Networks, states: Array, later: Array, goals: Array
) -> Float[Array, " batch"]:
    """`V(ζ(s⁺,g),s⁺) − V(ζ(s,g),s)`, mean over members. Frozen: an advantage only weighs a policy's data."""
    ahead = jnp.mean(networks["value"](goal.goal_embedding(networks, later, goals), later)[..., 0], axis=0)
    here = jnp.mean(networks["value"](goal.goal_embedding(networks, states, goals), states)[..., 0], axis=0)
    return stop_gradient(ahead - here)
