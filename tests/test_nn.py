"""The building blocks: initialisation, order of operations, the bilinear product, the guarded length."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from cta.nn import BilinearTrunk, Ensemble, LayerNorm, Linear, Mlp, Projection, scale_to_length
from cta.nn.bilinear import row_products
from cta.nn.layers import gelu_norm

KEY = jax.random.key(0)


def test_linear_starts_in_its_range_with_zero_bias():
    layer = Linear(KEY, 30, 20)
    limit = np.sqrt(6 / 50)
    assert 0.95 * limit < np.abs(layer.kernel).max() <= limit
    assert not np.any(layer.bias)
    small = Linear(KEY, 30, 20, scale=0.01)
    np.testing.assert_allclose(small.kernel, layer.kernel / 10, rtol=1e-5, atol=1e-8)


def test_layer_norm_by_hand():
    # (0, 2): mean 1, variance 1 → (−1, 1)
    np.testing.assert_allclose(LayerNorm(2)(jnp.array([[0.0, 2.0]])), [[-1.0, 1.0]], rtol=1e-5)


def test_mlp_is_affine_gelu_norm_and_ends_affine():
    mlp = Mlp(KEY, 3, [5, 2], layer_norm=True)
    x = jax.random.normal(KEY, (4, 3))
    hidden = mlp.norms[0](jax.nn.gelu(mlp.layers[0](x), approximate=True))
    np.testing.assert_allclose(mlp(x), mlp.layers[1](hidden), rtol=1e-5, atol=1e-6)
    assert len(mlp.norms) == 1
    ended = Mlp(KEY, 3, [5, 2], layer_norm=True, activate_final=True)
    np.testing.assert_allclose(np.mean(ended(x), axis=-1), 0, atol=1e-6)


def test_gelu_norm_and_its_derivative_are_those_of_its_parts():
    x, weights, dy = (
        jax.random.normal(KEY, (3, 8, 5)),
        jax.random.normal(KEY, (2, 5)),
        jax.random.normal(KEY, (3, 8, 5)),
    )
    x = 3 * x

    def parts(x, scale, offset):
        norm = eqx.tree_at(lambda n: (n.scale, n.offset), LayerNorm(5), (scale, offset))
        return norm(jax.nn.gelu(x, approximate=True))

    value, pull = jax.vjp(gelu_norm, x, *weights)
    expected, expected_pull = jax.vjp(parts, x, *weights)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(pull(dy), expected_pull(dy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_ensemble_members_differ_and_stack():
    pair = Ensemble(KEY, 2, lambda k: Linear(k, 3, 1))
    out = pair(jnp.ones((4, 3)))
    assert out.shape == (2, 4, 1)
    assert not np.allclose(out[0], out[1])


def test_row_products_by_hand():
    # f = [[1,2],[3,4]], g = [[5,6],[7,8]] read row-major: (1·5+2·6, 3·7+4·8) = (17, 53)
    f, g = jnp.array([[1.0, 2.0, 3.0, 4.0]]), jnp.array([[5.0, 6.0, 7.0, 8.0]])
    np.testing.assert_allclose(row_products(f, g, 2), [[17.0, 53.0]])


def test_row_products_scale_and_order():
    f, g = jax.random.normal(KEY, (2, 3, 12))
    h = row_products(f, g, 4)
    np.testing.assert_allclose(row_products(2.5 * f, g, 4), 2.5 * h, rtol=1e-5)
    swapped = row_products(f.reshape(3, 3, 4).swapaxes(1, 2).reshape(3, 12), g, 4)
    assert not np.allclose(swapped, h)


def trunk(form, **changes):
    options = {"hidden": (6, 6), "features": 4, "rank": 3, "backbone": (5,), "activate_final": True}
    return BilinearTrunk(KEY, 2, 7, 2, **(options | changes), form=form, layer_norm=True, head_scale=0.01)


def test_bilinear_forms():
    z, x = jnp.ones((3, 2)), jnp.ones((3, 7))
    for form in ("backbone", "head", "pure"):
        assert trunk(form)(z, x).shape == (3, 2)
    assert trunk("head").backbone is None
    pure = trunk("pure", activate_final=False)
    assert pure.head is None
    # Without the final activation the pure form really is bilinear in the two modules' last layers.
    np.testing.assert_allclose(pure(z, x), row_products(pure.displacement(z), pure.anchor(x), 3), rtol=1e-6)


def test_scale_to_length_survives_extremes():
    rows = jnp.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [1e30, 1e30], [jnp.nan, 1.0], [jnp.inf, 2.0]])
    out = np.asarray(scale_to_length(rows))
    assert np.all(np.isfinite(out))
    np.testing.assert_allclose(np.linalg.norm(out[[0, 3, 4, 5]], axis=-1), np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(out[0], np.sqrt(2) * np.array([0.6, 0.8]), rtol=1e-6)


def test_nothing_has_no_direction_and_gets_no_gradient():
    """Else a displacement of exactly zero, as between equal states, makes weights of η that are no numbers."""
    rows = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    pull = jnp.array([[1e30, 1.0], [1.0, 0.0]])
    found = jax.grad(lambda u: jnp.sum(pull * scale_to_length(u)))(rows)
    np.testing.assert_array_equal(found[0], 0.0)
    np.testing.assert_allclose(found[1], np.sqrt(2) * np.array([16.0, -12.0]) / 125, rtol=1e-5)


def test_projection_switch():
    x = jax.random.normal(KEY, (5, 4))
    options = {"hidden": (6,), "layer_norm": True}
    np.testing.assert_allclose(
        np.linalg.norm(Projection(KEY, 4, 9, **options, normalise=True)(x), axis=-1), 3.0, rtol=1e-5
    )
    free = Projection(KEY, 4, 9, **options, normalise=False)
    np.testing.assert_allclose(free(x), free.mlp(x))
