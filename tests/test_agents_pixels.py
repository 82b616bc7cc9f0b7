"""Agents on images: every module that reads observations has encoders of its own, fused as the paper's code does."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from cta.agents import REGISTRY, Spec
from cta.errors import CtaError
from cta.nn import Encoded
from tiny_agents import batch_of, tiny, with_targets

PIXELS = Spec.of((16, 16, 3), 3)
EARLY = "early"
FUSION = {  # per network: early fusion, or how many encoders
    "gcbc": {"actor": EARLY},
    "gcivl": {"value": EARLY, "actor": EARLY},
    "gciql": {"value": EARLY, "q": EARLY, "actor": EARLY},
    "qrl": {"phi": 1, "actor": EARLY},
    "crl": {"critic_phi": 1, "critic_psi": 1, "actor": EARLY},
    "hiql": {"eta": EARLY, "value": 1, "low": 1, "high": EARLY},
    "gcivl-dual": {"phi": 1, "psi": 1, "critic": 2, "value": 1, "actor": 1},
    "cta": {"phi": 1, "psi": 1, "critic": 2, "value": 1, "low": 1, "high": 1},
    "cta-gcb": {"pair": 2, "state": 1, "value": 1, "low": 1, "high": 1},
}


def shapes_of(agent):
    return jax.eval_shape(lambda key: agent.init(key, PIXELS), jax.random.key(0))


@pytest.mark.parametrize("name", FUSION)
def test_fusion(name):
    networks = shapes_of(tiny(name))
    seen = {}
    for network, module in networks.items():
        if isinstance(module, Encoded):
            count = sum(encoder is not None for encoder in module.encoders)
            seen[network] = EARLY if module.early else count
    assert seen == FUSION[name]


def test_a_high_policy_that_would_propose_images_is_refused():
    agent = tiny("hiql")
    agent = replace(agent, config=replace(agent.config, eta=replace(agent.config.eta, use=False)))
    with pytest.raises(CtaError, match=r"--agent\.eta\.use must stay on"):
        shapes_of(agent)


@pytest.mark.parametrize("name", REGISTRY)
def test_losses_and_actions_have_the_right_shapes_on_images(name):
    agent = tiny(name)
    networks = shapes_of(agent)
    targets = {target: networks[target] for target in agent.targets()}
    batch = batch_of(4, PIXELS, agent)

    def program(networks, targets):
        grads, _ = jax.grad(agent.loss, has_aux=True)(networks, targets, batch, jax.random.key(0))
        actions, _ = agent.act(networks, batch["observations"], batch["actor_goals"], jax.random.key(0), 0.0)
        return grads, actions

    grads, actions = jax.eval_shape(program, networks, targets)
    assert jax.tree.map(jnp.shape, grads) == jax.tree.map(jnp.shape, networks)
    assert actions.shape == (4, 3)


def shared():
    return tiny("gcivl-dual", share_encoders=True)


@pytest.mark.usefixtures("quick_compilation")
def test_shared_encoders_are_two_and_every_term_trains_what_it_says():
    """GCIVL∨ with one encoder of states and one of goals: all losses train them, as far as they see them."""
    agent = shared()
    networks, targets = with_targets(agent, PIXELS)
    assert not any(isinstance(module, Encoded) for module in networks.values()) and "state_encoder" not in targets
    batch = batch_of(4, PIXELS, agent)

    @jax.jit
    def norms(networks):
        def terms(networks):
            found = agent.terms(networks, targets, batch, jax.random.key(0))
            return {name: loss for name, (loss, _) in found.items()}

        return jax.tree.map(lambda x: jnp.abs(x).sum(), jax.jacrev(terms)(networks))

    moved = {
        term: {name for name, sums in parts.items() if any(x > 0 for x in jax.tree.leaves(sums))}
        for term, parts in norms(networks).items()
    }
    assert moved == agent.routes()
    assert moved["dual"] >= {"state_encoder", "goal_encoder"} and "state_encoder" in moved["value"] & moved["actor"]


@pytest.mark.usefixtures("quick_compilation")
def test_shared_encoders_see_the_same_features_when_acting_and_when_learning():
    agent = shared()
    networks, _ = with_targets(agent, PIXELS)
    batch = batch_of(4, PIXELS, agent)
    states, goals = batch["observations"], batch["actor_goals"]
    actions, _ = agent.act(networks, states, goals, jax.random.key(0), 0.0)
    s, g = networks["state_encoder"](states), networks["goal_encoder"](goals)
    psi = jnp.mean(networks["psi"](g), axis=0)
    assert jnp.allclose(actions, jnp.clip(networks["actor"](psi, s), -1, 1), atol=1e-6)
    assert jnp.allclose(agent.value(networks, states, goals), networks["value"](psi, s)[..., 0].mean(0), atol=1e-5)
    assert agent.dual_value(networks, states, goals).shape == (4,)
    assert agent.analogy(networks, states, states).shape == (4, 4) and not agent.analogy(networks, states, states).any()


def test_encoders_that_cannot_be_shared_are_refused():
    with pytest.raises(CtaError, match="share-encoders is for images"):
        shared().init(jax.random.key(0), Spec(6, 3))
    with pytest.raises(CtaError, match="share-encoders is for gcivl-dual"):
        replace(tiny("gcivl").config, share_encoders=True).check()
