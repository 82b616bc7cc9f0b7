"""What can be said about an agent without a world to act in: does its value know how far there is still to go?

Along a trajectory nobody trained on, the time to its end falls step by step. A value of (state, last state) that knows
the distance rises just as steadily. The order is Spearman's rank correlation of value and time, one per trajectory:
1 if the value rises at every step, 0 if it knows nothing, −1 if it falls at every step. On a board of lights the number
of presses that are left is known exactly, and −value is correlated with that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from cta.agents import Agent, Networks
from cta.agents.policy import answer
from cta.data import TrajectoryDataset
from cta.envs.lights import board_of
from cta.evaluation.presses import draw_boards, with_lights

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


def press_order(
    agent: Agent,
    networks: Networks,
    dataset_name: str,
    data: TrajectoryDataset,
    *,
    pairs: int,
    most: int | None = None,
) -> list[dict[str, Any]]:
    """One row for each value that the agent has and each number n of presses, from `pairs` pairs of data.

    `mean` is the mean value; `order` is Spearman's ρ of −value and presses over distances 0 … n, `step_order` over
    n − 1 and n alone; of n = 0 there is neither.
    """
    hardest = board_of(dataset_name).hardest
    asked = [_press_pairs(dataset_name, data, n, pairs) for n in range(min(hardest, most or hardest) + 1)]
    found = []
    for measure, question in MEASURES.items():
        ask = answer(agent, question)
        try:
            values = [-np.asarray(ask(networks, *two), np.float64) for two in asked]
        except NotImplementedError:
            continue
        for n, mine in enumerate(values):
            row = {"measure": measure, "presses": n, "pairs": pairs, "mean": -float(np.mean(mine))}
            row["order"] = _order(values[: n + 1]) if n else ""
            row["step_order"] = _order(values[n - 1 : n + 1]) if n else ""
            found.append(row)
    return found


def _press_pairs(dataset_name: str, data: TrajectoryDataset, presses: int, count: int) -> list[np.ndarray]:
    """States and goals exactly so many presses apart: rows of data with other lights, whatever else is in them."""
    rng = np.random.default_rng((0, presses, 3))
    rows = [data.observations[rng.integers(0, len(data.observations), count)] for _ in range(2)]
    boards = draw_boards(dataset_name, presses, count, seed=0)
    return [with_lights(dataset_name, *both) for both in zip(rows, boards, strict=True)]


def _order(values: list[np.ndarray]) -> float:
    return rank_correlation(np.concatenate(values), np.repeat(np.arange(len(values)), [len(part) for part in values]))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's ρ, ties given their mean rank; 0 where one does not vary, NaN where a value is not finite."""
    from scipy.stats import spearmanr  # a second to import

    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    found: Any = spearmanr(a, b)
    return float(found.statistic)
