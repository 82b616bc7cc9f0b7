"""What an agent makes of a pair: the difference of the observations, ψ(g), the analogy, and its code η."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from cta.agents import Agent, Networks, Spec
from cta.agents.conditioning import GoalConditioned
from cta.agents.dual import DualLearner
from cta.agents.gcb import GcbLearner
from cta.analysis.pairs import Pairs
from cta.data import TrajectoryDataset
from cta.errors import CtaError

BATCH = 1024
POOLED = 16
"""Side to which images are averaged before they are subtracted from each other."""

DIFFERENCE = "g − s"


def names(agent: Agent) -> tuple[str, ...]:
    """Representations of an agent, the mapped one (an analogy, or what stands in its place) marked by `mapped`."""
    if not isinstance(agent, GoalConditioned) or not agent.goal.names:
        raise CtaError(
            f"{type(agent).__name__} learns no representation of state–goal pairs to map; "
            "use an agent with one: cta, cta-gcb, hiql, hiql-dual, hiql-analogy, gcivl-dual, gcivl-analogy, …"
        )
    goal = agent.goal
    found: list[str] = []
    if goal.learner is not None:
        analogy = "α∨" if isinstance(goal.learner, DualLearner) else "α(GCB)"
        pairwise = isinstance(goal.learner, GcbLearner) and goal.learner.config.use == "pair"
        found += [analogy] if pairwise else ["ψ(g)", analogy]
    if goal.eta.use:
        inside = {"raw": "ρ(s,g)", "dual": "η(ψ(g))", "analogy": "η(α∨)", "gcb": "η(α(GCB))"}
        found.append(inside[goal.kind])
    return tuple(found)


def mapped(agent: Agent) -> str:
    """The representation whose map is drawn: the analogy if there is one, else the code."""
    found = names(agent)
    return next((name for name in found if name.startswith("α")), found[-1])


def untrained(agent: Agent, spec: Spec, seed: int) -> Networks:
    """Networks as they are before the first step, for comparison."""
    assert isinstance(agent, GoalConditioned)
    return jax.jit(lambda key: agent.goal.init(key, spec))(jax.random.key(seed))


def represent(agent: Agent, networks: Networks, data: TrajectoryDataset, pairs: Pairs) -> dict[str, np.ndarray]:
    """{name: (N, dim) float32} for the names of `names`."""
    wanted = names(agent)
    assert isinstance(agent, GoalConditioned)
    goal = agent.goal

    @jax.jit
    def of(networks: Networks, states: Any, goals: Any) -> dict[str, Any]:
        values: list[Any] = []
        if isinstance(goal.learner, DualLearner):
            values += [goal.learner.represent(networks, goals), goal.learner.analogy(networks, states, goals)]
        elif goal.learner is not None:
            values += [networks["state"](goals)] if goal.learner.config.use == "psi" else []
            values += [goal.learner.analogy(networks, states, goals)]
        if goal.eta.use:
            values += [goal.code(networks, states, goals)]
        return dict(zip(wanted, values, strict=True))

    parts = [jax.tree.map(np.asarray, of(networks, *batch)) for batch in _batches(data, pairs)]
    return {name: np.concatenate([part[name] for part in parts])[: len(pairs)] for name in wanted}


def difference(data: TrajectoryDataset, pairs: Pairs) -> np.ndarray:
    """g − s itself, (N, dim); of images averaged to 16 × 16, or as they are where they are smaller."""
    blocks = [_plain(goals) - _plain(states) for states, goals in _batches(data, pairs)]
    return np.concatenate(blocks)[: len(pairs)]


def _plain(observations: np.ndarray) -> np.ndarray:
    if observations.ndim == 2:
        return np.asarray(observations, np.float32)
    return _pool(_pool(observations, axis=1), axis=2).reshape(len(observations), -1)


def _pool(images: np.ndarray, *, axis: int) -> np.ndarray:
    """Averages over blocks along an axis, 16 of them, as equal as its length allows."""
    side = images.shape[axis]
    blocks = min(POOLED, side)
    edges = side * np.arange(blocks + 1) // blocks
    sums = np.add.reduceat(images, edges[:-1], axis=axis, dtype=np.float32)
    shape = [1] * images.ndim
    shape[axis] = blocks
    return sums / np.diff(edges).astype(np.float32).reshape(shape)


def _batches(data: TrajectoryDataset, pairs: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(states, goals) in batches of one size, so that one program serves them all; the last is filled up."""
    size = min(BATCH, len(pairs))
    for begin in range(0, len(pairs), size):
        rows = np.arange(begin, begin + size) % len(pairs)
        yield tuple(np.asarray(data.observations[index[rows]]) for index in (pairs.states, pairs.goals))  # type: ignore[misc]
