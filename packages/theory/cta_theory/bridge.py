"""The bridge to the learned thing: the project's own dual learner, trained on a tabular world.

Networks and loss are `cta.agents.dual.DualLearner`, the optimiser step is `cta.training`'s; this file only makes the
data, picks the settings and reads the result off as tables that `cta_theory.invariance` measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cta.agents.base import Agent, Metrics, Networks, Spec
from cta.agents.dual import DualLearner
from cta.config import AgentConfig, DualConfig
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.goals import Batch, Rows, RowTable, mixed_rows, random_rows, transition_rows, value_mix
from cta.training.learner import Learner, seed_keys, spec_of, to_device
from cta_theory.distance import fields, surrogate_return, temporal_distance
from cta_theory.factorisation import dual_analogy, factorise, numerical_rank
from cta_theory.invariance import DualAccuracy, Invariance, context_invariance, context_pairs, dual_accuracy
from cta_theory.mdp import MDP


@dataclass(frozen=True)
class BridgeConfig(AgentConfig):
    """Settings of the dual learner on a tabular world: small networks and a short horizon."""

    lr: float = 1e-3
    batch_size: int = 128
    discount: float = 0.9
    tau: float = 0.02
    dual: DualConfig = field(default_factory=lambda: DualConfig(hidden=(64, 64), dim=32))


@dataclass(frozen=True)
class DualOnly(Agent):
    """The dual learner alone, as something `cta.training` can train."""

    config: BridgeConfig

    @property
    def dual(self) -> DualLearner:
        return DualLearner(self.config.dual, self.config.discount, self.config.layer_norm)

    def targets(self) -> tuple[str, ...]:
        return self.dual.targets

    def init(self, key: Any, spec: Spec) -> Networks:
        return self.dual.init(key, spec)

    def draw(self, key: Any, table: RowTable) -> dict[str, Rows]:
        first, second = jax.random.split(key)
        rows = random_rows(first, table, self.config.batch_size)
        goals = mixed_rows(second, table, rows, value_mix(self.config), self.config.discount)
        return {**transition_rows(rows), "value_goals": goals}

    def loss(self, networks: Networks, targets: Networks, batch: Batch, key: Any) -> tuple[Any, Metrics]:
        # The sampler calls a goal reached when it is the very row. In a table the same state is met in many rows: the
        # reward of the paper, −1[s ≠ g], compares states.
        success = jnp.all(batch["observations"] == batch["value_goals"], axis=-1).astype(jnp.float32)
        return self.dual.loss(networks, targets, {**batch, "rewards": success - 1.0, "masks": 1.0 - success})

    def act(self, *_: Any, **__: Any) -> Any:
        raise CtaError("the dual learner has no policy; train an agent such as cta to act")


def observe(mdp: MDP, width: int = 0) -> np.ndarray:
    """Observations (S, D) of all states: coordinates scaled to [−1, 1]; zeros up to `width` columns."""
    low, high = mdp.coordinates.min(axis=0), mdp.coordinates.max(axis=0)
    table = 2.0 * (mdp.coordinates - low) / np.maximum(high - low, 1) - 1.0
    return np.pad(table, ((0, 0), (0, max(width - table.shape[1], 0)))).astype(np.float32)


def play(mdp: MDP, observations: np.ndarray, *, action_dim: int, seed: int = 0) -> TrajectoryDataset:
    """Uniformly random play from uniform starts, 200 episodes of 51 rows.

    `observations` (S, D) is what each state looks like; actions are one-hot in [−1, 1]^action_dim.
    """
    episodes, steps = 200, 50
    rng = np.random.default_rng(seed)
    states = np.zeros((episodes, steps + 1), int)
    states[:, 0] = rng.integers(0, mdp.n_states, episodes)
    actions = rng.integers(0, mdp.n_actions, (episodes, steps + 1))
    cumulative = mdp.P.cumsum(axis=-1)
    for t in range(steps):
        draws = rng.random((episodes, 1))
        states[:, t + 1] = (cumulative[states[:, t], actions[:, t]] < draws).sum(axis=1).clip(max=mdp.n_states - 1)
    return TrajectoryDataset.from_arrays(
        observations[states.reshape(-1)],
        np.eye(action_dim, dtype=np.float32)[actions.reshape(-1)],
        episode_lengths=[steps + 1] * episodes,
        name=mdp.name,
    )


class Learned(NamedTuple):
    """What the dual learner made of a world: `values` (S, S), mean over members of φᵀψ/√d, and ψ̄ (S, d)."""

    values: np.ndarray
    psi: np.ndarray


def learn(
    worlds: Sequence[MDP], config: BridgeConfig, *, steps: int, seeds: int
) -> list[list[tuple[Learned, Learned]]]:
    """Train the dual learner on random play in each world: (untrained, learned) by world, then seed.

    Worlds are padded to one shape, so that all of them (and all seeds) run the same compiled program.
    """
    agent = DualOnly(config)
    agent.config.check()
    width = max(mdp.coordinates.shape[1] for mdp in worlds)
    action_dim = max(mdp.n_actions for mdp in worlds)
    tables = [observe(mdp, width) for mdp in worlds]
    datasets = [play(mdp, table, action_dim=action_dim) for mdp, table in zip(worlds, tables, strict=True)]
    learner = Learner(agent, spec_of(datasets[0]), block=500)
    init, run = jax.jit(learner.init), jax.jit(learner.run)

    value, represent = jax.jit(agent.dual.value), jax.jit(agent.dual.represent)

    def read(networks: Networks, table: np.ndarray) -> Learned:
        count = len(table)
        values = value(networks, np.repeat(table, count, axis=0), np.tile(table, (count, 1))).mean(axis=0)
        return Learned(np.asarray(values, float).reshape(count, count), np.asarray(represent(networks, table), float))

    def one(table: np.ndarray, dataset: TrajectoryDataset, seed: int) -> tuple[Learned, Learned]:
        keys, data = seed_keys(seed), to_device(dataset)
        state = init(keys)
        untrained = read(state.networks, table)
        for done in range(0, steps, learner.block):
            state = run(state, keys, data, min(learner.block, steps - done))
        return untrained, read(state.networks, table)

    return [[one(table, data, i) for i in range(seeds)] for table, data in zip(tables, datasets, strict=True)]


@dataclass(frozen=True)
class InvarianceRow:
    """One line of the table: context invariance of a quantity's fields and of its vectors α∨, in one world."""

    world: str
    quantity: str
    field: Invariance
    vector: Invariance
    accuracy: DualAccuracy


def invariance_rows(mdp: MDP, learned: dict[str, Learned], *, gamma: float) -> list[InvarianceRow]:
    """Exact d*, exact Ṽ (both factorised at their rank) and the `learned` tables by name, on the pairs of one world."""
    D = temporal_distance(mdp, gamma)
    V = surrogate_return(D, gamma)
    pairs, tasks, contexts = context_pairs(mdp)
    exact = {name: Learned(table, factorise(table, numerical_rank(table))[1]) for name, table in (("d*", D), ("Ṽ", V))}
    rows = []
    for name, (table, psi) in ({f"exact {name}": found for name, found in exact.items()} | learned).items():
        of_fields = context_invariance(fields(table, pairs), tasks, contexts)
        of_vectors = context_invariance(dual_analogy(psi, pairs), tasks, contexts)
        accuracy = dual_accuracy(V if table is D else table, D, gamma)
        rows.append(InvarianceRow(mdp.name, name, of_fields, of_vectors, accuracy))
    return rows
