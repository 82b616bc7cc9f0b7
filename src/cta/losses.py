"""The losses all agents share: pure functions of numbers, each with its equation."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def expectile_loss(adv: Float[Array, "..."], diff: Float[Array, "..."], expectile: float) -> Float[Array, "..."]:
    """`ℓ_κ(adv, diff) = w·diff²`, w = κ if adv ≥ 0 else 1−κ; the weight is a constant for differentiation."""
    weight = jnp.where(jax.lax.stop_gradient(adv) >= 0, expectile, 1 - expectile)
    return weight * diff**2


class ImplicitValueTerms(NamedTuple):
    """`adv`: (batch,) advantage that sets the weight; `targets`: (members, batch) regression targets."""

    adv: Array
    targets: Array


def ivl_terms(
    next_values: Float[Array, "members batch"],
    values: Float[Array, "members batch"],
    rewards: Float[Array, " batch"],
    masks: Float[Array, " batch"],
    discount: float,
) -> ImplicitValueTerms:
    """Weight and targets of the implicit value loss, from target networks V̄ at (s',g) and (s,g).

    `adv = r + γc·min_m V̄_m(s',g) − mean_m V̄_m(s,g)`; member m regresses on its own `r + γc·V̄_m(s',g)`.
    """
    adv = rewards + discount * masks * jnp.min(next_values, axis=0) - jnp.mean(values, axis=0)
    return ImplicitValueTerms(adv, rewards + discount * masks * next_values)


def ivl_loss(values: Float[Array, "members batch"], terms: ImplicitValueTerms, expectile: float) -> Float[Array, ""]:
    """`L_IVL = Σ_m E ℓ_κ(adv, q_m − V_m(s,g))`: sum over members, mean over the batch."""
    return jnp.sum(jnp.mean(expectile_loss(terms.adv, terms.targets - values, expectile), axis=-1))


def awr_weight(adv: Float[Array, " batch"], temperature: float, clip: float = 100.0) -> Float[Array, " batch"]:
    """`W(a;β) = min(exp(β·a), clip)`."""
    return jnp.minimum(jnp.exp(temperature * adv), clip)


def gaussian_log_prob(
    mean: Float[Array, "batch dim"], value: Float[Array, "batch dim"], std: float = 1.0
) -> Float[Array, " batch"]:
    """`log N(y; μ, σ²I) = −½‖(y−μ)/σ‖² − dim·(log σ + ½ log 2π)`, summed over coordinates."""
    dim = mean.shape[-1]
    return -0.5 * jnp.sum(((value - mean) / std) ** 2, axis=-1) - dim * (math.log(std) + 0.5 * math.log(2 * math.pi))


def awr_loss(
    adv: Float[Array, " batch"],
    log_prob: Float[Array, " batch"],
    temperature: float,
    clip: float = 100.0,
) -> Float[Array, ""]:
    """`L = −E[W(adv; β)·log π]`; the weight never carries a gradient."""
    return -jnp.mean(jax.lax.stop_gradient(awr_weight(adv, temperature, clip)) * log_prob)
