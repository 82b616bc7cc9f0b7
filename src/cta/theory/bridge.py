"""The bridge to the learned thing: the project's own dual learner, trained on a tabular world.

Networks and loss are `cta.agents.dual.DualLearner`, the optimiser step is `cta.training`'s; this file only makes the
data, picks the settings and reads the result off as tables that `cta.theory.invariance` measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cta.agents.base import Agent, Metrics, Networks, Spec
from cta.agents.dual import DualLearner
from cta.config import AgentConfig, DualConfig
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.goals import Batch, Rows, RowTable, mixed_rows, random_rows, transition_rows, value_mix
from cta.theory.distance import fields, surrogate_return, temporal_distance
from cta.theory.factorisation import factorise, numerical_rank
from cta.theory.invariance import (
    DualAccuracy,
    Invariance,
    context_invariance,
    context_pairs,
    dual_accuracy,
    measure_embeddings,
)
from cta.theory.mdp import MDP
from cta.theory.worlds import desk_skeleton
from cta.training.learner import Learner, seed_keys, spec_of, to_device

Observations = Literal["coordinates", "one-hot"]


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


def observe(mdp: MDP, kind: Observations = "coordinates", width: int = 0) -> np.ndarray:
    """Observations (S, D) of all states: coordinates scaled to [−1, 1], or one-hot; zeros up to `width` columns."""
    if kind == "one-hot":
        table = np.eye(mdp.n_states)
    else:
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


@dataclass(frozen=True)
class Learned:
    """What the dual learner made of a world: `values` (S, S), mean over members of φᵀψ/√d, and ψ̄ (S, d)."""

    values: np.ndarray
    psi: np.ndarray


def value_table(dual: DualLearner, networks: Networks, states: np.ndarray, goals: np.ndarray) -> np.ndarray:
    """Ṽ(s,g), mean over members, for all `states` (N, D) × `goals` (M, D): (N, M)."""
    left, right = np.repeat(states, len(goals), axis=0), np.tile(goals, (len(states), 1))
    values = jax.jit(dual.value)(networks, jnp.asarray(left), jnp.asarray(right)).mean(axis=0)
    return np.asarray(values, float).reshape(len(states), len(goals))


def represent(dual: DualLearner, networks: Networks, observations: np.ndarray) -> np.ndarray:
    """ψ̄ of `observations` (N, D): (N, d)."""
    return np.asarray(jax.jit(dual.represent)(networks, jnp.asarray(observations)), float)


def learn(
    worlds: Sequence[MDP],
    *,
    config: BridgeConfig | None = None,
    checkpoints: Sequence[int] = (2000,),
    seeds: Sequence[int] = (0,),
    kind: Observations = "coordinates",
) -> list[list[dict[int, Learned]]]:
    """Train the dual learner on random play in each world: results by world, then seed, then step in `checkpoints`.

    Worlds are padded to one shape, so that all of them (and all seeds) run the same compiled program.
    """
    agent = DualOnly(config or BridgeConfig())
    agent.config.check()
    width = max(observe(mdp, kind).shape[1] for mdp in worlds)
    action_dim = max(mdp.n_actions for mdp in worlds)
    tables = [observe(mdp, kind, width) for mdp in worlds]
    datasets = [play(mdp, table, action_dim=action_dim) for mdp, table in zip(worlds, tables, strict=True)]
    learner = Learner(agent, spec_of(datasets[0]), block=500)
    init, run = jax.jit(learner.init), jax.jit(learner.run)

    def one(table: np.ndarray, dataset: TrajectoryDataset, seed: int) -> dict[int, Learned]:
        keys, data = seed_keys(seed), to_device(dataset)
        state, step, out = init(keys), 0, {}
        for goal in sorted(checkpoints):
            while step < goal:
                count = min(learner.block, goal - step)
                state, step = run(state, keys, data, count), step + count
            out[goal] = Learned(
                value_table(agent.dual, state.networks, table, table), represent(agent.dual, state.networks, table)
            )
        return out

    return [[one(table, data, seed) for seed in seeds] for table, data in zip(tables, datasets, strict=True)]


@dataclass(frozen=True)
class InvarianceRow:
    """One line of the table: context invariance of a quantity's fields and of its vectors α∨, in one world."""

    world: str
    quantity: str
    field: Invariance
    vector: Invariance
    accuracy: DualAccuracy


def invariance_rows(
    mdp: MDP, learned: dict[str, Learned], *, gamma: float, moved: tuple[int, ...] = (0,)
) -> list[InvarianceRow]:
    """Exact d*, exact Ṽ (both factorised at their rank) and the `learned` tables by name, on the pairs of one world."""
    D = temporal_distance(mdp, gamma)
    V = surrogate_return(D, gamma)
    pairs, tasks, contexts = context_pairs(mdp, moved)
    exact = {
        "exact d*": (D, factorise(D, numerical_rank(D))[1], V),
        "exact Ṽ": (V, factorise(V, numerical_rank(V))[1], V),
    }
    tables = exact | {name: (result.values, result.psi, result.values) for name, result in learned.items()}
    rows = []
    for name, (table, psi, values) in tables.items():
        vectors = measure_embeddings(
            psi_states=psi[pairs[:, 0]], psi_goals=psi[pairs[:, 1]], tasks=tasks, contexts=contexts
        )
        field_measure = context_invariance(fields(table, pairs), tasks, contexts)
        rows.append(InvarianceRow(mdp.name, name, field_measure, vectors["vector"], dual_accuracy(values, D, gamma)))
    return rows


def measure_agent(
    dual: DualLearner,
    networks: Networks,
    *,
    states: np.ndarray,
    goals: np.ndarray,
    tasks: np.ndarray,
    contexts: np.ndarray,
    probes: np.ndarray,
) -> dict[str, Invariance]:
    """Context invariance of any trained agent's dual analogies: "vector" for α∨, "field" for x ↦ Ṽ(x,g) − Ṽ(x,s).

    `states`, `goals` (N, D) are observations of the pairs, `tasks`, `contexts` (N,) their labels, `probes` (K, D).
    """
    out = measure_embeddings(
        psi_states=represent(dual, networks, states),
        psi_goals=represent(dual, networks, goals),
        tasks=tasks,
        contexts=contexts,
    )
    learned = value_table(dual, networks, probes, goals) - value_table(dual, networks, probes, states)
    return out | {"field": context_invariance(learned.T, tasks, contexts)}


def desk_observations(coordinates: np.ndarray, *, gripper: tuple[float, float] = (0.5, 0.5)) -> np.ndarray:
    """Observations (N, 8) of the desk for skeleton coordinates (N, 5), the open gripper at one place."""
    coordinates = np.asarray(coordinates, np.float32)
    place = np.broadcast_to(4.0 * (np.asarray(gripper, np.float32) - 0.5), (len(coordinates), 2))
    grip = np.full((len(coordinates), 1), -1.0, np.float32)
    parts, bits = 1.5 * (2.0 * coordinates[:, :3] - 1.0), 2.0 * coordinates[:, 3:] - 1.0
    return np.concatenate([place, grip, parts, bits], axis=1).astype(np.float32)


def measure_desk_agent(dual: DualLearner, networks: Networks, *, part: int) -> dict[str, Invariance]:
    """`measure_agent` on the desk: `part` (0 drawer, 1 window, 2 tray) opens or shuts, all else is context."""
    mdp = desk_skeleton()
    pairs, tasks, contexts = context_pairs(mdp, (part,))
    looks = desk_observations(mdp.coordinates)
    return measure_agent(
        dual,
        networks,
        states=looks[pairs[:, 0]],
        goals=looks[pairs[:, 1]],
        tasks=tasks,
        contexts=contexts,
        probes=looks,
    )
