"""The losses all agents share: pure functions of numbers, each with its equation."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
    adv: Float[Array, " batch"], log_prob: Float[Array, " batch"], temperature: float, clip: float = 100.0
) -> Float[Array, ""]:
    """`L = −E[W(adv; β)·log π]`; the weight never carries a gradient."""
    return -jnp.mean(jax.lax.stop_gradient(awr_weight(adv, temperature, clip)) * log_prob)


def ddpgbc_loss(q: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: float) -> Float[Array, ""]:
    """`L = −mean(Q)/sg(mean|Q| + 1e-6) − α·E log π`: climb Q at the policy's own action, stay near the data."""
    scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q)) + 1e-6)
    return -jnp.mean(q) / scale - alpha * jnp.mean(log_prob)


def contrastive_loss(logits: Float[Array, "members batch batch"]) -> Float[Array, ""]:
    """Binary cross-entropy with labels 1[i=j], mean over members and the whole matrix."""
    labels = jnp.eye(logits.shape[-1], dtype=logits.dtype)
    return jnp.mean(jax.nn.softplus(logits) - labels * logits)


def quasimetric_push(distances: Float[Array, " batch"]) -> Float[Array, ""]:
    """`E[100·softplus(5 − d/100)]`: random pairs want to be far apart, less so beyond 500 steps."""
    return jnp.mean(100.0 * jax.nn.softplus(5.0 - distances / 100.0))


def step_constraint(
    step_distances: Float[Array, " batch"], log_lambda: Float[Array, ""], eps: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`sg(λ)·ρ + λ·(ε − sg(ρ))` with ρ = E[ReLU(d(s,s') − 1)²], λ = exp(log λ); and ρ itself.

    Descent lowers ρ, and raises λ while ρ > ε.
    """
    rho = jnp.mean(jax.nn.relu(step_distances - 1.0) ** 2)
    multiplier = jnp.exp(log_lambda)
    # The latents must not lower the loss by way of λ, nor λ by way of the latents.
    held_multiplier = jax.lax.stop_gradient(multiplier)
    held_rho = jax.lax.stop_gradient(rho)
    return held_multiplier * rho + multiplier * (eps - held_rho), rho


def reward_distance(gap: Float[Array, " batch"], kind: str) -> Float[Array, " batch"]:
    """Huber `½x²` for |x| < 1, else `|x| − ½`; or the absolute difference."""
    size = jnp.abs(gap)
    return size if kind == "abs" else jnp.where(size < 1, 0.5 * gap**2, size - 0.5)


def bisimulation_loss(
    pairs: Float[Array, "batch dim"],
    next_pairs: Float[Array, "batch dim"],
    rewards: Float[Array, " batch"],
    order: Int[Array, " batch"],
    discount: float,
    kind: str,
) -> Float[Array, ""]:
    """`mean (D_i − R_i − γN_i)²` with i compared with order[i].

    D = ‖F_i − F_j‖₁ of the pairs, N = ‖F'_i − F'_j‖₂ of the next pairs, R the distance of the rewards.
    """
    gap = jnp.sum(jnp.abs(pairs - pairs[order]), axis=-1)
    next_gap = jnp.linalg.norm(next_pairs - next_pairs[order], axis=-1)
    return jnp.mean((gap - reward_distance(rewards - rewards[order], kind) - discount * next_gap) ** 2)
