"""Agents on images: every module that reads observations has encoders of its own, fused as the paper's code does."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from cta.agents import REGISTRY, Spec
from cta.errors import CtaError
from cta.nn import Encoded
from tiny_agents import batch_of, tiny

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
    batch = batch_of(4, PIXELS)

    def program(networks, targets):
        grads, _ = jax.grad(agent.loss, has_aux=True)(networks, targets, batch, jax.random.key(0))
        actions, _ = agent.act(networks, batch["observations"], batch["actor_goals"], jax.random.key(0), 0.0)
        return grads, actions

    grads, actions = jax.eval_shape(program, networks, targets)
    assert jax.tree.map(jnp.shape, grads) == jax.tree.map(jnp.shape, networks)
    assert actions.shape == (4, 3)
