"""Worlds in which different rows hold the same state, as grids have them: displacements of exactly zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import REGISTRY
from cta.goals import RowTable
from cta.training.learner import DeviceData, Learner, seed_keys
from cta.training.seeds import SeedGroup, all_finite
from tiny_agents import SPEC, tiny

ROWS, EPISODE, STATES = 400, 20, 4


def data():
    """Walks between four states: a quarter of all pairs of rows are pairs of equal states."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((STATES, SPEC.observation_dim), np.float32)
    index = jnp.arange(ROWS)
    table = RowTable(index[index % EPISODE < EPISODE - 1], (index // EPISODE) * EPISODE + EPISODE - 2)
    actions = rng.uniform(-1, 1, (ROWS, SPEC.action_dim)).astype(np.float32)
    return DeviceData(jnp.asarray(states[rng.integers(0, STATES, ROWS)]), jnp.asarray(actions), table)


@pytest.mark.parametrize("name", [name for name in REGISTRY if ":" not in name])
def test_first_steps_leave_numbers(name):
    """New networks make exactly nothing of a displacement of zero, where a direction has no derivative."""
    learner = Learner(tiny(name, batch_size=32), SPEC, block=2)
    keys = seed_keys(0)
    state = jax.jit(learner.run, static_argnums=3)(learner.init(keys), keys, data(), 2)
    assert not state.bad.any()
    assert all_finite(state.networks) and all_finite({"moments": state.optimizer})


def test_with_a_policy_that_trains_the_projection_too():
    learner = Learner(tiny("cta", batch_size=32, policy_rep_grad_stop=False), SPEC, block=2)
    keys = seed_keys(0)
    state = jax.jit(learner.run, static_argnums=3)(learner.init(keys), keys, data(), 2)
    assert all_finite(state.networks) and all_finite({"moments": state.optimizer})


def test_weights_that_losses_do_not_show_count_as_bad():
    """η brings whatever it makes to a length, and what is no number counts as zero there."""
    group = SeedGroup(Learner(tiny("cta"), SPEC, block=2), [0, 3], data())
    group.run(2)
    assert group.bad() == [{}, {}]
    spoilt = dict(group._states[1].networks)
    spoilt["eta"] = jax.tree.map(lambda x: x * jnp.nan, spoilt["eta"])
    group._states[1] = group._states[1]._replace(networks=spoilt)
    assert group.bad() == [{}, {"weights": 3}]
