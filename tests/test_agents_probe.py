"""Worlds small enough to know every distance: what each value learns from random walks must order pairs by d*."""

from collections import deque
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

from cta.agents import Spec, find
from cta.goals import RowTable
from cta.training.learner import DeviceData, Learner, seed_keys

STATES, ACTIONS, ROWS, STEPS = 16, 4, 4000, 600
MARGINS = {"gcivl-dual": 0.85, "gcivl": 0.85, "gciql": 0.85, "qrl": 0.85, "crl": 0.5}
"""Least rank correlation with d* over all pairs of different states; an untrained value has about 0.

CRL's is lower: it learns how often the walk that made the data comes by, which d* orders only roughly.
"""


def move(world, state, action):
    if world == "chain":
        return int(np.clip(state + (1 if action in (0, 2) else -1), 0, STATES - 1))
    row, column = divmod(state, 4)
    down, right = [(0, 1), (0, -1), (1, 0), (-1, 0)][action]
    row, column = np.clip(row + down, 0, 3), np.clip(column + right, 0, 3)
    return int(4 * row + column)


def distances(world):
    """d* by breadth-first search."""
    d = np.full((STATES, STATES), -1)
    for start in range(STATES):
        d[start, start] = 0
        queue = deque([start])
        while queue:
            state = queue.popleft()
            for action in range(ACTIONS):
                after = move(world, state, action)
                if d[start, after] < 0:
                    d[start, after] = d[start, state] + 1
                    queue.append(after)
    return d


def walks(world):
    """Episodes of 40 rows of a walk that keeps its direction three times in four; actions are one-hot, in ±1."""
    rng = np.random.default_rng(0)
    states, actions, length = [], [], 40
    for _ in range(ROWS // length):
        state, action = int(rng.integers(STATES)), int(rng.integers(ACTIONS))
        for _ in range(length):
            action = action if rng.random() < 0.75 else int(rng.integers(ACTIONS))
            states.append(state)
            actions.append(action)
            state = move(world, state, action)
    index = np.arange(ROWS)
    last = index // length * length + length - 2
    table = RowTable(jnp.asarray(index[index <= last]), jnp.asarray(np.minimum(last, ROWS - 1)))
    observations = jnp.asarray(np.eye(STATES, dtype=np.float32)[states])
    return DeviceData(observations, jnp.asarray(2 * np.eye(ACTIONS, dtype=np.float32)[actions] - 1), table)


def closeness(name, agent, networks, s, g):
    """What the agent believes, larger for nearer goals; for Q the best action's."""
    actions = 2 * jnp.eye(ACTIONS) - 1

    def best(q):
        return jnp.max(jnp.stack([q(jnp.broadcast_to(a, (len(s), ACTIONS))) for a in actions]), axis=0)

    return {
        "gcivl": lambda: networks["value"](g, s)[..., 0].mean(axis=0),
        "gciql": lambda: best(lambda a: agent.q(networks, s, g, a).min(axis=0)),
        "crl": lambda: best(lambda a: agent.logits("critic", networks, g, s, a)),
        "qrl": lambda: -agent.distance(networks, s, g),
        "gcivl-dual": lambda: agent.goal.learner.value(networks, s, g).mean(axis=0),
    }[name]()


@pytest.mark.parametrize("name", ["gcivl-dual", "gcivl", "gciql", "qrl", "crl"])
def test_values_order_pairs_by_distance(name):
    entry = find(name)
    changes = {"hidden": (64, 64), "batch_size": 128, "lr": 3e-3, "tau": 0.05, "discount": 0.9, "alpha": 1.0}
    if name in ("qrl", "crl"):
        changes["latent_dim"] = 32
    else:
        changes["dual"] = replace(entry.config.dual, hidden=(64, 64), dim=16)
    agent = entry.build(replace(entry.config, **changes))
    learner, keys = Learner(agent, Spec(STATES, ACTIONS), block=STEPS), seed_keys(0)

    @jax.jit
    def learn(data):
        return learner.run(learner.init(keys), keys, data, STEPS).networks

    left, right = np.divmod(np.arange(STATES * STATES), STATES)
    one_hot = jnp.eye(STATES)
    for world in ("chain", "grid"):
        belief = jax.jit(lambda networks: closeness(name, agent, networks, one_hot[left], one_hot[right]))
        values = np.asarray(belief(learn(walks(world))))
        apart = left != right
        rank = spearmanr(-values[apart], distances(world)[left, right][apart]).statistic
        assert rank > MARGINS[name], (world, rank)
