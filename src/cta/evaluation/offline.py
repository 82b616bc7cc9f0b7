"""What can be said about an agent without a world to act in: does its value know how far a trajectory has still to go?

Along a trajectory nobody trained on, the time to its end falls step by step. A value of (state, last state) that knows
the distance rises just as steadily. The order is Spearman's rank correlation of value and time, one per trajectory:
1 if the value rises at every step, 0 if it knows nothing, −1 if it falls at every step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from cta.agents import Agent, Networks
from cta.agents.policy import answer
from cta.data import TrajectoryDataset

MEASURES = {"value_order": "value", "dual_order": "dual_value"}
"""Columns of offline.csv, and the question to the agent behind each."""
EPISODES = 64
SHORTEST = 3
CHUNK = {1: 2048, 3: 128}
"""Pairs looked at together, by the number of axes of an observation."""


def trajectory_order(agent: Agent, networks: Networks, dataset: TrajectoryDataset) -> dict[str, np.ndarray]:
    """{measure: the order of each of the first `EPISODES` trajectories}, for the values this agent has."""
    spans = [
        (start, end)
        for start, end in zip(dataset.episode_starts.tolist(), dataset.episode_ends.tolist(), strict=True)
        if end - start + 1 >= SHORTEST
    ][:EPISODES]
    found = {}
    for measure, question in MEASURES.items():
        try:
            values = [_values(answer(agent, question), networks, dataset, start, end) for start, end in spans]
        except NotImplementedError:
            continue
        found[measure] = np.array([rank_correlation(value, np.arange(len(value))) for value in values])
    return found


def _values(ask: Callable, networks: Networks, dataset: TrajectoryDataset, start: int, end: int) -> np.ndarray:
    """The value of every state of an episode with its last state as the goal."""
    rows = np.arange(start, end + 1)
    chunk = CHUNK[len(dataset.observation_shape)]
    parts = []
    for at in range(0, len(rows), chunk):
        # Repeating the last row keeps one shape, so that nothing is compiled twice.
        part = np.pad(rows[at : at + chunk], (0, max(0, at + chunk - len(rows))), mode="edge")
        goals = np.broadcast_to(dataset.observations[end], (chunk, *dataset.observation_shape))
        parts.append(np.asarray(ask(networks, dataset.observations[part], goals)))
    return np.concatenate(parts)[: len(rows)].astype(np.float64)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's ρ, ties given their mean rank; 0 where one does not vary, NaN where a value is not finite."""
    from scipy.stats import spearmanr  # a second to import

    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    found: Any = spearmanr(a, b) if np.ptp(a) > 0 and np.ptp(b) > 0 else None
    return 0.0 if found is None else float(found.statistic)
