"""CTA's losses, gradients and actions at weights given by a formula, against numbers computed elsewhere in 64 bits."""

import json
import zlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import Spec, find
from cta.nn import BilinearTrunk, Ensemble, Linear, Mlp

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_cta.json").read_text())
OBS, ACT, BATCH = GOLDEN["observation_dim"], GOLDEN["action_dim"], GOLDEN["batch"]


def wave(name, shape):
    k = np.arange(np.prod(shape, dtype=int))
    return np.sin(0.618 * k + zlib.crc32(name.encode("ascii")) % 997).reshape(shape)


def affine(layer, role):
    i, o = layer.kernel.shape
    kernel = wave(f"{role}.kernel", (i, o)) * np.sqrt(3 / (i + o))
    return eqx.tree_at(lambda n: (n.kernel, n.bias), layer, (kernel, 0.1 * wave(f"{role}.bias", (o,))))


def norm(layer, role):
    dim = layer.scale.shape
    values = (1 + 0.1 * wave(f"{role}.scale", dim), 0.1 * wave(f"{role}.offset", dim))
    return eqx.tree_at(lambda n: (n.scale, n.offset), layer, values)


def fill(module, role):
    """The module with the formula's weights; `role` is its name in the formula."""
    if isinstance(module, Ensemble):
        members = tuple(fill(member, f"{role}.{m}") for m, member in enumerate(module.members))
        return eqx.tree_at(lambda n: n.members, module, members)
    if isinstance(module, Mlp):
        layers = tuple(affine(layer, f"{role}.{i}") for i, layer in enumerate(module.layers))
        norms = tuple(norm(layer, f"{role}.{i}") for i, layer in enumerate(module.norms))
        return eqx.tree_at(lambda n: (n.layers, n.norms), module, (layers, norms))
    if isinstance(module, BilinearTrunk):
        assert isinstance(module.head, Linear)
        parts = [fill(getattr(module, part), f"{role}.{part}") for part in ("displacement", "anchor", "backbone")]
        parts.append(affine(module.head, f"{role}.head"))
        return eqx.tree_at(lambda n: (n.displacement, n.anchor, n.backbone, n.head), module, tuple(parts))
    return eqx.tree_at(lambda n: n.mlp, module, fill(module.mlp, role))


@pytest.fixture(scope="module", autouse=True)
def sixty_four_bits():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def agent():
    entry = find("cta")
    return entry.build(entry.config)


@pytest.fixture(scope="module")
def networks(agent):
    fresh = agent.init(jax.random.key(0), Spec(OBS, ACT))
    return {name: jax.tree.map(jnp.asarray, fill(module, name)) for name, module in fresh.items()}


@pytest.fixture(scope="module")
def targets(agent, networks):
    filled = {name: fill(networks[name], f"{name}_target") for name in agent.targets()}
    return jax.tree.map(jnp.asarray, filled)


@pytest.fixture(scope="module")
def batch():
    fields = ["observations", "next_observations", "value_goals"]
    fields += ["low_actor_goals", "high_actor_goals", "high_actor_targets"]
    success = (np.arange(BATCH) % 4 == 0).astype(float)
    values = {name: 1.5 * wave(name, (BATCH, OBS)) for name in fields}
    values |= {"actions": wave("actions", (BATCH, ACT)), "rewards": success - 1, "masks": 1 - success}
    return {name: jnp.asarray(value) for name, value in values.items()}


def close(actual, expected):
    assert np.asarray(actual).dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_losses(agent, networks, targets, batch):
    expected = GOLDEN["losses"]
    close(agent.goal.learner.loss(networks, targets, batch)[0], expected["dual"])
    close(agent.value_loss(networks, targets, batch)[0], expected["value"])
    close(agent.low_loss(networks, batch)[0], expected["low_actor"])
    close(agent.high_loss(networks, batch)[0], expected["high_actor"])
    close(agent.loss(networks, targets, batch, jax.random.key(0))[0], GOLDEN["total"])


def test_gradient_norms(agent, networks, targets, batch):
    def total(pair):
        return agent.loss(*pair, batch, jax.random.key(0))[0]

    online, frozen = jax.grad(total)((networks, targets))

    def length(tree):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))

    for name, expected in GOLDEN["gradient_norms"].items():
        tree = frozen[name.removesuffix("_target")] if name.endswith("_target") else online[name]
        close(length(tree), expected)


def test_forward(agent, networks, batch):
    s, g = batch["observations"][:4], batch["value_goals"][:4]
    close(agent.goal.learner.value(networks, s, g), GOLDEN["dual_value_first_rows"])
    z = agent.goal_embedding(networks, s, g)
    close(z[0], GOLDEN["eta_first_row"])
    close(networks["value"](z, s)[..., 0], GOLDEN["value_first_rows"])
    subgoal = agent.subgoal(networks, s, g, jax.random.key(0), 0.0)
    close(subgoal[0], GOLDEN["subgoal_first_row"])
    close(agent.act(networks, s, g, jax.random.key(0), 0.0)[0], GOLDEN["actions_first_rows"])
