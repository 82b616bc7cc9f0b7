"""Random crops: edge padding, one offset an element for all its images, once a batch with the given probability."""

import jax
import jax.numpy as jnp
import numpy as np

from cta.training.learner import crop, random_crop

SIDE, BATCH = 8, 64
RNG = np.random.default_rng(0)
IMAGES = {
    name: jnp.asarray(RNG.integers(0, 256, (BATCH, SIDE, SIDE, 3), np.uint8))
    for name in ("observations", "value_goals")
}
VECTORS = {"actions": jnp.ones((BATCH, 5)), "rewards": jnp.zeros(BATCH)}


def offset_of(before, after):
    """The offsets (down, right) whose crop of `before` gives `after`, by trying all 49."""
    padded = np.pad(np.asarray(before), ((3, 3), (3, 3), (0, 0)), mode="edge")
    at = [(i, j) for i in range(7) for j in range(7)]
    return [(i, j) for i, j in at if (padded[i : i + SIDE, j : j + SIDE] == np.asarray(after)).all()]


def test_crops_by_hand():
    """A 2×2 image: offset 3 is the image itself, 0 sees only the corner's value, 4 moves one pixel down."""
    image = jnp.asarray([[[1], [2]], [[3], [4]]], jnp.uint8)
    found = crop(jnp.stack([image] * 4), jnp.asarray([[3, 3], [0, 0], [4, 3], [3, 6]]))
    np.testing.assert_array_equal(
        found[..., 0], [[[1, 2], [3, 4]], [[1, 1], [1, 1]], [[3, 4], [3, 4]], [[2, 2], [4, 4]]]
    )
    assert found.dtype == jnp.uint8


def test_one_offset_an_element_shared_by_its_images():
    made = random_crop(jax.random.key(0), IMAGES | VECTORS, 1.0)
    seen = []
    for i in range(BATCH):
        (first,), (second,) = (offset_of(IMAGES[name][i], made[name][i]) for name in IMAGES)
        assert first == second
        seen.append(first)
    assert len(set(seen)) > 20  # elements differ
    assert {i for i, _ in seen} == {j for _, j in seen} == set(range(7))


def test_all_offsets_are_equally_likely():
    """49 offsets, 3000 images: 61 ± 8 each; the identity is one of them."""
    image = IMAGES["observations"][0]
    many = jnp.broadcast_to(image, (3000, *image.shape))
    made = np.asarray(random_crop(jax.random.key(1), {"observations": many}, 1.0)["observations"])
    shifts = np.asarray(crop(many[:49], jnp.stack(jnp.divmod(jnp.arange(49), 7), axis=1)))
    counts = np.array([(made == shift).all(axis=(1, 2, 3)).sum() for shift in shifts])
    assert counts.sum() == 3000
    assert counts.min() > 25 and counts.max() < 105
    assert (shifts[24] == np.asarray(image)).all() and counts[24] > 0


def test_the_coin_is_thrown_once_a_batch():
    batch = {"observations": IMAGES["observations"]}

    def same(key):
        made = random_crop(key, batch, 0.3)["observations"]
        return (made == batch["observations"]).all(axis=(1, 2, 3))

    untouched = np.asarray(jax.vmap(same)(jax.random.split(jax.random.key(2), 400)))
    whole = untouched.all(axis=1)
    assert abs(whole.mean() - 0.7) < 0.07  # three standard errors
    assert untouched[~whole].mean() < 0.05  # in a cropped batch only the identity offset (1 of 49) leaves an element


def test_dtypes_and_other_fields_stay():
    made = random_crop(jax.random.key(0), IMAGES | VECTORS, 1.0)
    assert all(made[name] is VECTORS[name] for name in VECTORS)
    assert all(made[name].dtype == jnp.uint8 and made[name].shape == IMAGES[name].shape for name in IMAGES)
    assert made.keys() == (IMAGES | VECTORS).keys()


def test_nothing_is_computed_for_vectors_or_probability_zero():
    for batch, probability in ((VECTORS, 0.5), (IMAGES | VECTORS, 0.0)):
        assert not jax.make_jaxpr(random_crop, static_argnums=2)(jax.random.key(0), batch, probability).eqns
