"""Agents with networks of a few units, for tests: what they compute is the same, and it compiles quickly."""

from dataclasses import replace
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from cta.agents import Agent, Networks, Spec, find
from cta.config import ActorConfig, ConditionedConfig, CrlConfig, QrlConfig, TwoLevelConfig
from cta.goals import RowTable

SPEC = Spec(6, 3)
SIZES = {
    ActorConfig: {"hidden": (8,), "batch_size": 8, "discount": 0.9},
    ConditionedConfig: {},
    TwoLevelConfig: {"subgoal_steps": 3},
    CrlConfig: {"latent_dim": 8},
    QrlConfig: {"latent_dim": 16},
}


def tiny(name: str, **changes) -> Agent:
    """A registered agent in its own configuration, only small."""
    entry = find(name)
    config = entry.config
    for kind, values in SIZES.items():
        if isinstance(config, kind):
            config = replace(config, **values)
    if isinstance(config, ConditionedConfig):
        config = replace(
            config,
            dual=replace(config.dual, hidden=(8,), dim=4),
            gcb=replace(config.gcb, hidden=(8,), dim=4),
            eta=replace(config.eta, hidden=(8,), dim=4),
            trunk=replace(config.trunk, hidden=(8,), features=4, rank=2, backbone=(8,)),
        )
    return entry.build(replace(config, **changes))


def with_targets(agent: Agent, spec: Spec = SPEC, key: int = 1) -> tuple[Networks, Networks]:
    """Random networks, and targets unlike them, so that a confusion of the two shows.

    Not `agent.init`: a program full of random generators takes longer to compile than all the rest of an agent.
    """
    shapes = jax.eval_shape(lambda k: agent.init(k, spec), jax.random.key(0))

    def fill(name, stream):
        # By name: what a network holds does not depend on which others there are.
        rng = np.random.default_rng([key, stream, crc32(name.encode())])
        return jax.tree.map(lambda x: jnp.asarray(0.4 * rng.standard_normal(x.shape), x.dtype), shapes[name])

    return {name: fill(name, 0) for name in shapes}, {name: fill(name, 1) for name in agent.targets()}


def batch_of(rows: int = 8, spec: Spec = SPEC, agent: Agent | None = None) -> dict[str, jax.Array]:
    """Random numbers in every field that our agents read, or this agent draws; every fourth value goal is reached."""
    names = ["observations", "next_observations", "value_goals", "actor_goals", "contrastive_goals"]
    names += ["low_actor_goals", "high_actor_goals", "high_actor_targets"]
    rng, more = np.random.default_rng(3), np.random.default_rng(5)
    batch = {name: rng.standard_normal((rows, *spec.observation_shape)) for name in names}
    table = RowTable(jnp.arange(50), jnp.full(51, 49))
    drawn = jax.eval_shape(lambda key: agent.draw(key, table), jax.random.key(0)) if agent else {}
    batch |= {name: more.standard_normal((rows, *spec.observation_shape)) for name in drawn if name not in names}
    success = np.arange(rows) % 4 == 0
    actions = np.clip(rng.standard_normal((rows, spec.action_dim)), -1, 1)
    batch |= {"actions": actions, "rewards": success - 1.0, "masks": 1.0 - success}
    return {name: jnp.asarray(value, jnp.float32) for name, value in batch.items()}
