"""The shared losses on numbers worked by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.losses import awr_loss, awr_weight, expectile_loss, gaussian_log_prob, ivl_loss, ivl_terms


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
