"""CTA and its two-level relatives: sizes, gradient routing, targets, acting, and every switch."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import REGISTRY, Spec, find
from cta.agents.policy import GoalPolicy, Policy
from cta.agents.two_level import TwoLevel
from cta.envs.names import STATE_DIMS
from cta.presets import agent_preset

SPEC = Spec(8, 3)
SIZES = {  # CTA, HIQL∨ and HIQL∨+α∨
    "scene-v0": (5_395_913, 6_821_961),
    "cube-single-v0": (5_340_617, 6_748_233),
    "cube-double-v0": (5_382_089, 6_803_529),
    "cube-triple-v0": (5_423_561, 6_858_825),
    "puzzle-3x3-v0": (5_465_033, 6_914_121),
    "puzzle-4x4-v0": (5_594_057, 7_086_153),
    "puzzle-4x5-v0": (5_667_785, 7_184_457),
    "puzzle-4x6-v0": (5_741_513, 7_282_761),
}
PARTS = {"eta": 140_832, "critic": 1_233_922, "value": 701_954, "low": 351_493, "high": 354_976}


pytestmark = pytest.mark.usefixtures("quick_compilation")


def shapes(name, spec):
    entry = find(name)
    return jax.eval_shape(lambda key: entry.build(entry.config).init(key, spec), jax.random.key(0))


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("env", SIZES)
def test_parameter_counts(env):
    spec = Spec(STATE_DIMS[env], 5)
    assert count(shapes("cta", spec)) == SIZES[env][0]
    assert count(shapes("hiql-dual", spec)) == count(shapes("hiql-analogy", spec)) == SIZES[env][1]


def test_parameter_counts_by_part():
    networks = shapes("cta", Spec(83, 5))
    assert {name: count(networks[name]) for name in PARTS} == PARTS
    assert count([networks["phi"], networks["psi"]]) == 2_810_880


def test_desk_size():
    entry = find("cta")
    agent = entry.build(agent_preset(entry.config, "desk-play-v0"))
    assert count(jax.eval_shape(lambda key: agent.init(key, SPEC), jax.random.key(0))) == 181_351


def small(name="cta", **changes) -> TwoLevel:
    entry = find(name)
    return entry.build(replace(agent_preset(entry.config, "desk-play-v0"), **changes))


def networks_of(agent):
    networks = agent.init(jax.random.key(1), SPEC)
    # Targets unlike the online weights, so that a confusion of the two shows.
    targets = agent.init(jax.random.key(2), SPEC)
    return networks, {name: targets[name] for name in agent.targets()}


def batch_of(rows=32):
    keys = iter(jax.random.split(jax.random.key(3), 8))
    names = ["observations", "next_observations", "value_goals"]
    names += ["low_actor_goals", "high_actor_goals", "high_actor_targets"]
    batch = {name: jax.random.normal(next(keys), (rows, SPEC.observation_dim)) for name in names}
    success = (jnp.arange(rows) % 4 == 0).astype(jnp.float32)
    actions = jnp.clip(jax.random.normal(next(keys), (rows, SPEC.action_dim)), -1, 1)
    return batch | {"actions": actions, "rewards": success - 1, "masks": 1 - success}


def moved(grads):
    """Networks that a loss moves."""
    return {name for name, tree in grads.items() if any(np.any(leaf) for leaf in jax.tree.leaves(tree))}


DUAL = {"phi", "psi", "critic"}


def test_targets_never_receive_a_gradient():
    agent = small()
    networks, targets = networks_of(agent)
    grads = jax.grad(lambda t: agent.loss(networks, t, batch_of(), jax.random.key(0))[0])(targets)
    assert moved(grads) == set()


def test_target_value_sets_the_loss_but_eta_learns_through_the_online_value():
    agent = small()
    networks, targets = networks_of(agent)
    batch = batch_of()

    def eta_gradient(value):
        nets = {**networks, "value": value}
        return jax.grad(lambda eta: agent.value_loss({**nets, "eta": eta}, targets, batch)[0])(networks["eta"])

    other = {**targets, "value": networks["value"]}
    assert agent.value_loss(networks, targets, batch)[0] != agent.value_loss(networks, other, batch)[0]
    flat = jax.tree.map(jnp.zeros_like, networks["value"])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(eta_gradient(flat)))


def test_terminal_rows_have_target_zero():
    agent = small()
    networks, targets = networks_of(agent)
    batch = batch_of() | {"rewards": jnp.zeros(32), "masks": jnp.zeros(32)}
    zero = jax.tree.map(jnp.zeros_like, networks["value"])
    # V ≡ 0 and every target 0: nothing to regress.
    assert agent.value_loss({**networks, "value": zero}, targets, batch)[0] == 0


def test_no_displacement_is_finite_and_of_full_length():
    agent = small()
    networks, _ = networks_of(agent)
    # Biases start at zero, and an untrained η(0) with them; a single step of training moves it off the origin.
    networks["eta"] = jax.tree.map(lambda x: x + 0.1, networks["eta"])
    s = batch_of()["observations"]
    code = agent.goal_embedding(networks, s, s)
    still = jnp.broadcast_to(networks["eta"](jnp.zeros((1, 32))), code.shape)
    np.testing.assert_allclose(code, still, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(code, axis=-1), 4.0, rtol=1e-5)


def test_acting_is_deterministic_bounded_and_through_a_subgoal_of_full_length():
    agent = small()
    networks, _ = networks_of(agent)
    s, g = batch_of()["observations"], batch_of()["value_goals"]
    first, _ = agent.act(networks, s, g, jax.random.key(0), 0.0)
    again, _ = agent.act(networks, s, g, jax.random.key(9), 0.0)
    np.testing.assert_array_equal(first, again)
    noisy, _ = agent.act(networks, s, g, jax.random.key(0), 1.0)
    assert not np.allclose(first, noisy)
    assert np.abs(noisy).max() <= 1
    subgoal = agent.subgoal(networks, s, g, jax.random.key(0), 0.0)
    np.testing.assert_allclose(np.linalg.norm(subgoal, axis=-1), 4.0, rtol=1e-5)


@cache
def loss_of(agent):
    networks, targets = networks_of(agent)
    return float(jax.jit(agent.loss)(networks, targets, batch_of(), jax.random.key(0))[0])


BASE = small().config
SWITCHES = {
    "dual.value_target": replace(BASE, dual=replace(BASE.dual, value_target="ema")),
    "dual.ensemble": replace(BASE, dual=replace(BASE.dual, ensemble=1)),
    "dual.scale": replace(BASE, dual=replace(BASE.dual, scale="none")),
    "dual.expectile": replace(BASE, dual=replace(BASE.dual, expectile=0.9)),
    "eta.normalise": replace(BASE, eta=replace(BASE.eta, normalise=False)),
    "eta.ema": replace(BASE, eta=replace(BASE.eta, ema=True)),
    "trunk.form head": replace(BASE, trunk=replace(BASE.trunk, form="head")),
    "trunk.form pure": replace(BASE, trunk=replace(BASE.trunk, form="pure")),
    "trunk.activate_final": replace(BASE, trunk=replace(BASE.trunk, activate_final=False)),
    "value_ensemble": replace(BASE, value_ensemble=1),
    "bilinear_high_actor": replace(BASE, bilinear_high_actor=False),
    "awr_clip": replace(BASE, awr_clip=0.5),
    "actor_std": replace(BASE, actor_std=0.5),
    "layer_norm": replace(BASE, layer_norm=False),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_change_the_loss_and_stay_finite(switch):
    value = loss_of(TwoLevel(SWITCHES[switch]))
    assert np.isfinite(value)
    assert value != pytest.approx(loss_of(TwoLevel(BASE)), rel=1e-6)


def test_actor_layer_norm_switch():
    plain, normed = small("hiql-analogy"), small("hiql-analogy", actor_layer_norm=True)
    assert not plain.init(jax.random.key(0), SPEC)["low"].norms
    assert normed.init(jax.random.key(0), SPEC)["low"].norms


def test_pretraining_freezes_one_side_at_a_time():
    agent = small(dual=replace(BASE.dual, pretrain_steps=5))
    early, late = agent.trainable(jnp.asarray(4)), agent.trainable(jnp.asarray(5))
    assert {name for name, on in early.items() if on} == DUAL
    assert {name for name, on in late.items() if on} == {"eta", "value", "high", "low"}
    assert set(early) == set(agent.init(jax.random.key(0), SPEC))


def test_a_held_subgoal_is_renewed_every_n_steps_and_at_a_new_episode():
    agent = small(high_hold=3)
    networks, _ = networks_of(agent)
    policy = Policy(agent, networks)
    observations = np.asarray(jax.random.normal(jax.random.key(5), (7, 2, SPEC.observation_dim)))
    goals = np.ones((2, SPEC.observation_dim), np.float32)
    held = []
    for t, observation in enumerate(observations):
        policy(observation, goals, np.array([t == 0, t in (0, 4)]))
        held.append(np.asarray(policy._memory[0]))
    same = [[np.array_equal(a[slot], b[slot]) for a, b in pairwise(held)] for slot in (0, 1)]
    assert same[0] == [True, True, False, True, True, False]  # 0 1 2 | 3 4 5 | 6
    assert same[1] == [True, True, False, False, True, True]  # 0 1 2 | 3 | 4 5 6


def test_goal_policy_takes_single_vectors_and_batches():
    agent = small()
    networks, _ = networks_of(agent)
    policy = GoalPolicy(agent, networks, SPEC)
    s, g = np.asarray(batch_of()["observations"]), np.asarray(batch_of()["value_goals"])
    np.testing.assert_allclose(policy(s, g)[3], policy(s[3], g[3]), rtol=1e-4, atol=1e-5)


def test_names_and_suggestions():
    assert find("agents/cta.py") is REGISTRY["cta"]
    with pytest.raises(Exception, match="did you mean 'hiql-dual'"):
        find("hiql-dua")


def test_weights_are_all_arrays():
    networks, _ = networks_of(small())
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(networks))
