"""Worlds in which different rows hold the same state, as grids have them: displacements of exactly zero."""

import jax
import numpy as np
import pytest

from cta.agents import REGISTRY
from cta.training.learner import Learner, to_device
from cta.training.seeds import SeedGroup, all_finite
from test_agents_contract import DATA_SPEC, TRAIN
from tiny_agents import tiny

STATES = 4
pytestmark = pytest.mark.usefixtures("quick_compilation")  # and the contract's shapes: programs are compiled once


def data():
    """Walks between four states: a quarter of all pairs of rows are pairs of equal states."""
    plain = to_device(TRAIN)
    chosen = np.random.default_rng(0).integers(0, STATES, len(plain.observations))
    return plain._replace(observations=plain.observations[chosen])


@pytest.mark.parametrize("name", [name for name in REGISTRY if ":" not in name])
def test_first_steps_leave_numbers(name):
    """New networks make exactly nothing of a displacement of zero, where a direction has no derivative."""
    group = SeedGroup(Learner(tiny(name), DATA_SPEC, block=2), [3], data())
    group.run(2)
    assert group.bad() == [{}]
    (state,) = group._states
    assert all_finite(state.networks) and all_finite({"moments": state.optimizer})


def test_with_a_policy_that_trains_the_projection_too():
    group = SeedGroup(Learner(tiny("cta", policy_rep_grad_stop=False), DATA_SPEC, block=2), [3], data())
    group.run(2)
    (state,) = group._states
    assert all_finite(state.networks) and all_finite({"moments": state.optimizer})


def test_weights_that_losses_do_not_show_count_as_bad():
    """η brings whatever it makes to a length, and what is no number counts as zero there."""
    group = SeedGroup(Learner(tiny("cta"), DATA_SPEC, block=2), [0, 3], data())
    group.run(2)
    assert group.bad() == [{}, {}]
    spoilt = dict(group._states[1].networks)
    spoilt["eta"] = jax.tree.map(lambda x: x * np.nan, spoilt["eta"])
    group._states[1] = group._states[1]._replace(networks=spoilt)
    assert group.bad() == [{}, {"weights": 3}]
