"""The image encoder: sizes worked by hand, uint8 in, and a stack on numbers small enough to follow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.nn.impala import Conv, Impala, Stack, max_pool

ENCODER = Impala(jax.random.key(0), 3)
SMALL = Impala(jax.random.key(0), 3, size=(8, 8))


def images(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_parameter_count_by_hand():
    """A 3×3 convolution has 9·in·out + out numbers; a stack is one in→out and two out→out."""
    first = (9 * 3 * 16 + 16) + 2 * (9 * 16 * 16 + 16)
    second = (9 * 16 * 32 + 32) + 2 * (9 * 32 * 32 + 32)
    third = 3 * (9 * 32 * 32 + 32)
    last = (8 * 8 * 32) * 512 + 512
    assert [size(stack) for stack in ENCODER.stacks] == [first, second, third] == [5_088, 23_136, 27_744]
    assert size(ENCODER.output) == last == 1_049_088
    assert size(ENCODER) == 1_105_056
    assert size(Impala(jax.random.key(0), 6)) == 1_105_056 + 9 * 3 * 16


@pytest.mark.parametrize(("height", "width", "flat"), [(64, 64, 2048), (16, 16, 128), (17, 9, 3 * 2 * 32), (8, 1, 32)])
def test_other_sizes(height, width, flat):
    encoder = Impala(jax.random.key(1), 2, size=(height, width))
    assert encoder.output.layers[0].kernel.shape == (flat, 512)
    assert jax.eval_shape(encoder, images(2, height, width, 2)).shape == (2, 512)


def test_uint8_and_the_same_floats_agree():
    encoder, x = jax.jit(lambda x: SMALL(x)), images(4, 8, 8, 3)
    unit = x.astype(jnp.float32) / 255
    np.testing.assert_array_equal(encoder(x), encoder(x.astype(jnp.float32)))
    np.testing.assert_allclose(encoder(x), encoder(unit * 255), rtol=1e-5, atol=1e-6)
    assert not np.allclose(encoder(x), encoder(unit))


def test_any_number_of_leading_axes():
    encoder, x = jax.jit(lambda x: SMALL(x)), images(2, 3, 8, 8, 3)
    flat = encoder(x.reshape(6, 8, 8, 3))
    np.testing.assert_allclose(encoder(x), flat.reshape(2, 3, 512), rtol=1e-5, atol=1e-6)
    assert jax.eval_shape(SMALL, x[0, 0]).shape == (512,)


def test_kernels_are_xavier_uniform_and_biases_zero():
    conv = ENCODER.stacks[1].residual[0]
    limit = (6 / (9 * 32 + 9 * 32)) ** 0.5
    assert 0.99 * limit < jnp.abs(conv.kernel).max() <= limit
    assert conv.kernel.std() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert not conv.bias.any()


def test_a_stack_by_hand():
    """One channel, identity kernels: pooling takes the maximum of each window, the residual branch adds relu(x)."""
    identity = jnp.zeros((3, 3, 1, 1)).at[1, 1, 0, 0].set(1.0)
    stack = Stack(jax.random.key(0), 1, 1)
    stack = eqx.tree_at(lambda s: [s.first.kernel, *(c.kernel for c in s.residual)], stack, [identity] * 3)
    x = jnp.full((1, 4, 4, 1), -1.0).at[0, 1, 1, 0].set(5.0).at[0, 3, 3, 0].set(2.0)
    # SAME with stride 2 on 4 pads one row below and one column right, so windows start at 0 and 2; their maxima are
    # 5, −1, −1 and 2 (padding never wins), and x + relu(x) doubles what is positive.
    np.testing.assert_array_equal(stack(x)[0, :, :, 0], [[10, -1], [-1, 4]])


def test_a_convolution_by_hand():
    """All-ones kernel on ones: the sum counts the pixels inside the image, 4 at a corner, 6 at an edge, 9 within."""
    conv = eqx.tree_at(
        lambda c: (c.kernel, c.bias), Conv(jax.random.key(0), 1, 1), (jnp.ones((3, 3, 1, 1)), jnp.ones(1))
    )
    np.testing.assert_array_equal(conv(jnp.ones((1, 3, 3, 1)))[0, :, :, 0] - 1, [[4, 6, 4], [6, 9, 6], [4, 6, 4]])


def test_every_parameter_gets_a_gradient():
    grads = jax.jit(jax.grad(lambda e: (e(images(4, 8, 8, 3)) ** 2).sum()))(SMALL)
    assert all(jnp.abs(g).max() > 0 for g in jax.tree.leaves(grads))


@pytest.mark.parametrize("size", [(64, 64), (7, 10), (2, 1), (8, 8)])
def test_the_gradient_of_pooling_is_that_of_the_compiler(size):
    """Rounded to whole numbers, so that many are equal; (8, 8) holds zeros alone."""
    x = jnp.round(2 * jax.random.normal(jax.random.key(0), (3, *size, 4))) * (size != (8, 8))
    weights = jax.random.normal(jax.random.key(1), max_pool(x).shape)

    def plain(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    ours, theirs = (jax.grad(lambda x, f=f: jnp.sum(weights * f(x)))(x) for f in (max_pool, plain))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert np.count_nonzero(np.asarray(ours)) > 0
