"""The shared losses on numbers worked by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.losses import (
    awr_loss,
    awr_weight,
    bisimulation_loss,
    contrastive_loss,
    ddpgbc_loss,
    expectile_loss,
    gaussian_log_prob,
    ivl_loss,
    ivl_terms,
    quasimetric_push,
    reward_distance,
    step_constraint,
)
from cta.nn.quasimetric import Quasimetric, union_length


def test_expectile_weighs_by_the_sign_of_the_advantage():
    # adv ≥ 0 → 0.7·2² = 2.8 (zero counts as positive); adv < 0 → 0.3·2² = 1.2
    out = expectile_loss(jnp.array([1.0, 0.0, -1.0]), jnp.array([2.0, 2.0, 2.0]), 0.7)
    np.testing.assert_allclose(out, [2.8, 2.8, 1.2], rtol=1e-6)


def test_expectile_is_an_upper_one():
    # Usual IQL sign: a value below its target (positive residual) costs more than one above it.
    residual = jnp.array([1.0, -1.0])
    below, above = expectile_loss(residual, residual, 0.7)
    assert below > above


def test_expectile_weight_carries_no_gradient():
    assert jax.grad(lambda a: expectile_loss(a, 2.0 * jnp.ones(()), 0.7))(jnp.ones(())) == 0


def test_ivl_terms_and_loss():
    # V̄(s') = (−2, −4), V̄(s) = (−1, −3), r = −1, c = 1, γ = ½:
    # q = −1 + ½·min(−2,−4) = −3; adv = −3 − (−2) = −1; targets −1 + ½·(−2, −4) = (−2, −3)
    terms = ivl_terms(jnp.array([[-2.0], [-4.0]]), jnp.array([[-1.0], [-3.0]]), -jnp.ones(1), jnp.ones(1), 0.5)
    np.testing.assert_allclose(terms.adv, [-1.0])
    np.testing.assert_allclose(terms.targets, [[-2.0], [-3.0]])
    # V = (0, −1): residuals −2, −2, weight 0.3 each, summed over members: 0.3·4 + 0.3·4 = 2.4
    np.testing.assert_allclose(ivl_loss(jnp.array([[0.0], [-1.0]]), terms, 0.7), 2.4, rtol=1e-6)


def test_ivl_sums_members_and_averages_the_batch():
    # Two rows of which one has residual 0 in both members: half of the 2.4 above.
    nexts, here = jnp.array([[-2.0, -2.0], [-4.0, -4.0]]), jnp.array([[-1.0, -1.0], [-3.0, -3.0]])
    terms = ivl_terms(nexts, here, -jnp.ones(2), jnp.ones(2), 0.5)
    np.testing.assert_allclose(ivl_loss(jnp.array([[0.0, -2.0], [-1.0, -3.0]]), terms, 0.7), 1.2, rtol=1e-6)


def test_ivl_target_is_zero_at_the_goal():
    terms = ivl_terms(jnp.full((2, 1), -50.0), jnp.zeros((2, 1)), jnp.zeros(1), jnp.zeros(1), 0.99)
    np.testing.assert_array_equal(terms.targets, 0.0)


def test_awr_weight_is_clipped():
    np.testing.assert_allclose(awr_weight(jnp.array([0.0, 1.0, 10.0]), 3.0), [1.0, math.exp(3.0), 100.0], rtol=1e-6)
    np.testing.assert_allclose(awr_weight(jnp.array([10.0]), 3.0, math.inf), [math.exp(30.0)], rtol=1e-5)


def test_awr_loss_by_hand_and_its_gradient():
    # W = (e⁰, e³) = (1, 20.0855), log π = (−1, −2): −½(−1 − 40.171) = 20.5855
    adv, log_prob = jnp.array([0.0, 1.0]), jnp.array([-1.0, -2.0])
    np.testing.assert_allclose(awr_loss(adv, log_prob, 3.0), 0.5 * (1 + 2 * math.exp(3.0)), rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(awr_loss)(adv, log_prob, 3.0), 0.0)


@pytest.mark.parametrize("std", [1.0, 0.5])
def test_gaussian_log_prob_sums_over_coordinates(std):
    # −½(1² + 2²)/σ² − 2·(log σ + ½ log 2π)
    expected = -2.5 / std**2 - 2 * (math.log(std) + 0.5 * math.log(2 * math.pi))
    np.testing.assert_allclose(
        gaussian_log_prob(jnp.zeros((1, 2)), jnp.array([[1.0, 2.0]]), std), [expected], rtol=1e-6
    )


def test_ddpgbc_scales_q_by_its_own_size_and_adds_cloning():
    # Q = (−1, −3): −mean/mean|Q| = 2/2 = 1; log π = (−1, −2): −½·(−1.5) = 0.75; together 1.75
    q, log_prob = jnp.array([-1.0, -3.0]), jnp.array([-1.0, -2.0])
    np.testing.assert_allclose(ddpgbc_loss(q, log_prob, 0.5), 1.75, rtol=1e-5)
    # The divisor is a constant: d/dQ_i = −1/(2·2)
    np.testing.assert_allclose(jax.grad(ddpgbc_loss)(q, log_prob, 0.5), [-0.25, -0.25], rtol=1e-5)


def test_contrastive_loss_is_the_mean_binary_cross_entropy():
    # logits [[0, log 3], [0, log 3]]: −log ½, −log(1−¾) | −log(1−½), −log ¾ → (ln2 + ln4 + ln2 + ln 4/3)/4
    logits = jnp.array([[[0.0, math.log(3)], [0.0, math.log(3)]]])
    np.testing.assert_allclose(
        contrastive_loss(logits), (2 * math.log(2) + math.log(4) + math.log(4 / 3)) / 4, rtol=1e-6
    )


def test_quasimetric_push_by_hand():
    # d = 500 → 100·softplus(0) = 100·ln 2; the further apart the lower, with slope −σ(0) = −½
    np.testing.assert_allclose(quasimetric_push(jnp.array([500.0])), 100 * math.log(2), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(quasimetric_push)(jnp.array([500.0])), [-0.5], rtol=1e-6)


def test_step_constraint_by_hand():
    # d = (0.5, 3): ρ = ½(0 + 4) = 2; λ = e⁰ = 1: 1·2 + 1·(0.05 − 2) = 0.05
    steps, log_lambda = jnp.array([0.5, 3.0]), jnp.zeros(())
    loss, rho = step_constraint(steps, log_lambda, 0.05)
    np.testing.assert_allclose([loss, rho], [0.05, 2.0], rtol=1e-5)
    # dρ/dd = 2·2/2 at the second row only; dL/dlog λ = λ(ε − ρ) = −1.95 < 0, so descent raises λ
    to_steps, to_lambda = jax.grad(lambda d, m: step_constraint(d, m, 0.05)[0], argnums=(0, 1))(steps, log_lambda)
    np.testing.assert_allclose(to_steps, [0.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(to_lambda, -1.95, rtol=1e-6)


def test_reward_distance_is_zero_or_a_half_for_goal_rewards():
    gaps = jnp.array([0.0, 1.0, -1.0, 0.5])
    # Huber: ½·0.5² = 0.125 inside, |x| − ½ outside
    np.testing.assert_allclose(reward_distance(gaps, "huber"), [0.0, 0.5, 0.5, 0.125])
    np.testing.assert_allclose(reward_distance(gaps, "abs"), [0.0, 1.0, 1.0, 0.5])


def test_bisimulation_loss_by_hand():
    # Rows 0 and 1 compared with each other: D = |1|+|2| = 3, N = ‖(3,4)‖ = 5, R = ½, γ = ½: (3 − ½ − 2½)² = 0
    pairs, nexts = jnp.array([[0.0, 0.0], [1.0, 2.0]]), jnp.array([[0.0, 0.0], [3.0, 4.0]])
    rewards, order = jnp.array([-1.0, 0.0]), jnp.array([1, 0])
    np.testing.assert_allclose(bisimulation_loss(pairs, nexts, rewards, order, 0.5, "huber"), 0.0, atol=1e-6)
    # With |R| = 1: (3 − 1 − 2½)² = ¼
    np.testing.assert_allclose(bisimulation_loss(pairs, nexts, rewards, order, 0.5, "abs"), 0.25, rtol=1e-5)


def test_union_length_counts_overlaps_once():
    # [0,2] ∪ [1,3] ∪ [5,6] = 3 + 1 = 4; an empty interval adds nothing
    starts, ends = jnp.array([[5.0, 1.0, 0.0, 2.5]]), jnp.array([[6.0, 3.0, 2.0, 2.5]])
    np.testing.assert_allclose(union_length(starts, ends), [4.0])


def test_quasimetrics_by_hand():
    # IQE, one group of 8: x = 0, y = (1, 3, −2, 0…): union [0,1] ∪ [0,3] = 3 one way; back from y: [−2,0] = 2
    x, y = jnp.zeros((1, 8)), jnp.array([[1.0, 3.0, -2.0, 0, 0, 0, 0, 0]])
    np.testing.assert_allclose([Quasimetric("iqe")(x, y)[0], Quasimetric("iqe")(y, x)[0]], [3.0, 2.0])
    # Two groups, lengths 3 and 1, ω = 0: ½·mean 2 + ½·max 3 = 2.5
    x, y = jnp.zeros((1, 16)), jnp.zeros((1, 16)).at[0, 0].set(3.0).at[0, 8].set(1.0)
    np.testing.assert_allclose(Quasimetric("iqe")(x, y), [2.5])
    # MRN: ‖(3,4)‖ + max(−1, −2)⁺ = 5 one way, 5 + 2 = 7 back
    x, y = jnp.zeros((1, 4)), jnp.array([[3.0, 4.0, 1.0, 2.0]])
    np.testing.assert_allclose([Quasimetric("mrn")(x, y)[0], Quasimetric("mrn")(y, x)[0]], [5.0, 7.0], rtol=1e-6)
