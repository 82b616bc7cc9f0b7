"""Every agent in fused kernels against its plain self."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import REGISTRY, Spec, find
from cta.errors import CtaError
from cta.fast import kernels
from cta.fast.modules import Fused, FusedQuasimetric, fused, shapes
from cta.fast.packing import Weights, pack, unpack
from cta.nn.quasimetric import Quasimetric, union_length
from cta.training.fast import FastLearner, ImageLearner, make_learner, product_precision, unfused
from cta.training.learner import Learner, seed_keys
from test_fast import SPEC, check, check_steps, losses_and_gradients, small

pytestmark = pytest.mark.usefixtures("quick_compilation")
AGENTS = sorted(REGISTRY)
MERGED = ("cta", "hiql-analogy", "hiql-dual")


@pytest.fixture
def exact(monkeypatch):
    """Products of float32 as such, and no GPU's own tanh, whose errors tests/test_fast.py looks at."""
    monkeypatch.setattr(kernels, "_tanh", jnp.tanh)
    with jax.default_matmul_precision("highest"):
        yield


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_has_the_same_losses_and_gradients(name):
    check(losses_and_gradients(small(name), jnp.float32), 2e-4, 1e-5, 1e-4)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cta", {}),  # as fused layers, not merged
        ("gciql", {"networks": "bilinear"}),  # whose actor's gradient comes through the anchor
        ("crl", {"actor_loss": "awr"}),
        ("hiql-dual", {"policy_rep_grad_stop": False, "layer_norm": False}),
        ("gcivl", {"hidden": (32, 24)}),  # a width that kernels do not take: these networks stay plain
    ],
)
def test_fused_layers_are_the_plain_ones(name, changes):
    check(losses_and_gradients(small(name, **changes), jnp.float32, merged=False), 2e-4, 1e-5, 1e-4)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", ["cta", "crl-dual", "gciql", "hiql"])  # merged, and as fused layers
def test_steps_move_the_same_state_as_plain_steps(name):
    check_steps(small(name))


def test_lengths_of_unions_need_no_sorting():
    """Of real numbers, and of small whole ones, whose ends meet and whose intervals are empty now and then."""
    x, y = jax.random.normal(jax.random.key(0), (2, 500, 8))
    for a, b in ((x, y), (jnp.round(x), jnp.round(y))):
        ends = jnp.maximum(a, b)
        np.testing.assert_allclose(FusedQuasimetric(jnp.zeros(())).length(a, ends), union_length(a, ends), atol=1e-5)
    found, expected = (
        jax.grad(lambda x, q=q: q(x.ravel(), y.ravel()))(x)
        for q in (FusedQuasimetric(jnp.zeros(())), Quasimetric("iqe"))
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("name", "together"), [*((name, ()) for name in AGENTS), ("cta", ("low", "high"))])
def test_packing_loses_nothing(name, together):
    networks = small(name).init(jax.random.key(0), SPEC)
    again = unpack(pack(networks, together), jax.tree.map(jnp.zeros_like, networks), together)
    assert jax.tree.structure(again) == jax.tree.structure(networks)
    jax.tree.map(np.testing.assert_array_equal, again, networks)


@pytest.mark.parametrize("name", AGENTS)
def test_every_network_of_every_agent_is_fused(name):
    agent = find(name).build(find(name).config)
    like = shapes(agent, SPEC)
    found = jax.eval_shape(lambda key: fused(like, Weights.of(pack(agent.init(key, SPEC))), SPEC), jax.random.key(0))
    plain = {key for key, network in found.items() if not isinstance(getattr(network, "mlp", network), Fused)}
    assert plain == ({"quasimetric", "log_lambda"} if name == "qrl" else set())
    assert unfused(agent, SPEC) is None


@pytest.mark.parametrize(
    ("agent", "spec", "why"),
    [
        (small("gcivl", batch_size=40), SPEC, "the batch size, 40, is no multiple of 32"),
        (small("gcbc", hidden=(24, 24)), SPEC, "powers of two"),
        (small("cta", dual=dataclasses.replace(small("cta").config.dual, pretrain_steps=5)), SPEC, "at every step"),
    ],
)
def test_who_has_no_fused_form(agent, spec, why):
    assert why in unfused(agent, spec)
    assert type(make_learner(agent, spec, block=4)) is Learner
    with pytest.raises(CtaError, match=f"--kernels fused: .*{why}.*; use --kernels plain"):
        make_learner(agent, spec, block=4, kernels="fused")


@pytest.mark.parametrize("name", ["gcivl", "cta"])
def test_on_images_encoders_are_in_bfloat16_and_change_a_step_little(name):
    agent, spec = small(name, batch_size=8), Spec.of((16, 16, 3), 5)
    plain, low = (make_learner(agent, spec, block=4, kernels=kernels) for kernels in ("plain", "fused"))
    assert type(plain) is Learner and type(low) is ImageLearner
    assert type(make_learner(agent, spec, block=4)) is Learner  # on a CPU
    assert product_precision(low) == "bfloat16 in encoders"
    state = plain.init(seed_keys(0))
    batch = plain._blank_batch()
    images = {
        k: jax.random.randint(jax.random.key(i), v.shape, 0, 256).astype(v.dtype)
        for i, (k, v) in enumerate(batch.items())
        if v.dtype == jnp.uint8
    }
    gradients = [
        jax.grad(learner._loss, has_aux=True)(state.networks, state.targets, batch | images, jax.random.key(0))[0]
        for learner in (plain, low)
    ]
    one, other = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]) for found in gradients)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(gradients))
    assert 1e-4 < np.linalg.norm(one - other) / np.linalg.norm(one) < 0.05


class Foreign(type(small("gcivl"))):
    """Looks into its networks."""

    def terms(self, networks, targets, batch, key):
        networks["value"].members  # noqa: B018
        return super().terms(networks, targets, batch, key)


def test_an_agent_from_elsewhere_is_asked_first():
    config = small("gcivl").config
    assert unfused(type("Calling", (type(small("gcivl")),), {"__module__": "mine"})(config), SPEC) is None
    assert "does not take fused networks (AttributeError" in unfused(Foreign(config), SPEC)


def test_only_the_usual_two_level_loss_is_merged():
    assert {name for name in AGENTS if FastLearner(small(name), SPEC, block=4)._merged} == set(MERGED)
    assert not FastLearner(small("cta", policy_rep_grad_stop=False), SPEC, block=4)._merged

    class Other(type(small("cta"))):
        """Whatever it changes, it is not what was merged."""

    assert not FastLearner(Other(small("cta").config), SPEC, block=4)._merged
