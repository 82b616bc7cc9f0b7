"""Extracting a policy from a value: advantage-weighted regression (AWR), or DDPG with behavioural cloning (DDPG+BC)."""

import jax.numpy as jnp
from jaxtyping import Array

from cta.agents.base import Term
from cta.losses import awr_loss, ddpgbc_loss, gaussian_log_prob


def awr(name: str, adv: Array, mean: Array, label: Array, *, alpha: float, std: float, clip: float) -> Term:
    """`−E[W(adv; α) log π(label)]`; adv (batch,), mean and label (batch, dim)."""
    log_prob = gaussian_log_prob(mean, label, std)
    loss = awr_loss(adv, log_prob, alpha, clip)
    return loss, {f"{name}/actor_loss": loss, f"{name}/adv": jnp.mean(adv), f"{name}/bc_log_prob": jnp.mean(log_prob)}


def ddpgbc(name: str, q: Array, mean: Array, actions: Array, *, alpha: float, std: float) -> Term:
    """`−mean(Q)/sg(mean|Q|) − α·E log π(a)`; `q` is the frozen critic at the policy's own clipped mean."""
    log_prob = gaussian_log_prob(mean, actions, std)
    loss = ddpgbc_loss(q, log_prob, alpha)
    return loss, {
        f"{name}/actor_loss": loss,
        f"{name}/q_mean": jnp.mean(q),
        f"{name}/bc_log_prob": jnp.mean(log_prob),
        f"{name}/mse": jnp.mean((mean - actions) ** 2),
    }
