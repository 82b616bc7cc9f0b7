"""What can be said about an agent without a world to act in: does its value know how far there is still to go?

Along a trajectory nobody trained on, a value of (state, last state) that knows the distance rises at every step. The
order is Spearman's rank correlation of value and time, one per trajectory: 1 if it does, 0 if it knows nothing. On a
board of lights the number of presses that are left is known exactly, and −value is correlated with that.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from cta.agents import Agent, Networks
from cta.agents.policy import answer
from cta.data import TrajectoryDataset
from cta.envs.lights import board_of
from cta.envs.names import family
from cta.evaluation.evaluator import draw_boards, press_numbers

MEASURES = {"value_order": "value", "dual_order": "dual_value"}  # columns of offline.csv and the questions behind them
EPISODES = 64
SHORTEST = 3
CHUNK = {1: 2048, 3: 128}  # pairs looked at together, by the number of axes of an observation
T = TypeVar("T")


def trajectory_order(agent: Agent, networks: Networks, dataset: TrajectoryDataset) -> dict[str, np.ndarray]:
    """{measure: the order of each of the first `EPISODES` trajectories}, for the values this agent has."""
    spans = zip(dataset.episode_starts.tolist(), dataset.episode_ends.tolist(), strict=True)
    long = [(start, end) for start, end in spans if end - start + 1 >= SHORTEST][:EPISODES]

    def orders(ask: Callable) -> np.ndarray:
        values = [_values(ask, networks, dataset, *span) for span in long]
        return np.array([rank_correlation(value, np.arange(len(value))) for value in values])

    return _measured(agent, orders)


def _measured(agent: Agent, measure: Callable[[Callable], T]) -> dict[str, T]:
    """{column: what `measure` makes of the question behind it}, for every question that this agent answers."""
    found = {}
    for name, question in MEASURES.items():
        with suppress(NotImplementedError):
            found[name] = measure(answer(agent, question))
    return found


def _values(ask: Callable, networks: Networks, dataset: TrajectoryDataset, start: int, end: int) -> np.ndarray:
    """The value of every state of an episode with its last state as the goal."""
    rows, chunk, parts = np.arange(start, end + 1), CHUNK[len(dataset.observation_shape)], []
    for at in range(0, len(rows), chunk):
        # Repeating the last row keeps one shape, so that nothing is compiled twice.
        part = np.pad(rows[at : at + chunk], (0, max(0, at + chunk - len(rows))), mode="edge")
        goals = np.broadcast_to(dataset.observations[end], (chunk, *dataset.observation_shape))
        parts.append(np.asarray(ask(networks, dataset.observations[part], goals)))
    return np.concatenate(parts)[: len(rows)].astype(np.float64)


def press_order(
    agent: Agent, networks: Networks, dataset_name: str, data: TrajectoryDataset, *, pairs: int, most: int | None = None
) -> list[dict[str, Any]]:
    """One row for each value that the agent has and each number n of presses, from `pairs` pairs of data.

    `order` is Spearman's ρ of −value and presses over distances 0 … n, `step_order` over n − 1 and n; neither of n = 0.
    """
    asked = [_press_pairs(dataset_name, data, n, pairs) for n in (0, *press_numbers(dataset_name, most))]
    answers, found = _measured(agent, lambda ask: [-np.asarray(ask(networks, *two), float) for two in asked]), []
    for measure, values in answers.items():
        for n, mine in enumerate(values):
            row = {"measure": measure, "presses": n, "pairs": pairs, "mean": -float(np.mean(mine))}
            for order, least in (("order", 0), ("step_order", n - 1)):
                near = values[least : n + 1]
                presses = np.repeat(np.arange(len(near)), pairs)
                row[order] = rank_correlation(np.concatenate(near), presses) if n else ""
            found.append(row)
    return found


def _press_pairs(dataset_name: str, data: TrajectoryDataset, presses: int, count: int) -> list[np.ndarray]:
    """States and goals exactly so many presses apart: rows of data with other lights, whatever else is in them."""
    rng = np.random.default_rng((0, presses, 3))
    rows = [data.observations[rng.integers(0, len(data.observations), count)] for _ in range(2)]
    boards = draw_boards(dataset_name, presses, count, seed=0)
    return [with_lights(dataset_name, *both) for both in zip(rows, boards, strict=True)]


def with_lights(dataset_name: str, observations: np.ndarray, boards: np.ndarray) -> np.ndarray:
    """State observations (N, …) with other lights (N, lights) and all else as it was."""
    changed = np.array(observations, np.float32)
    count = board_of(dataset_name).lights
    if family(dataset_name) == "lights":
        changed[:, -count:] = 2.0 * boards - 1.0
    else:
        shown = changed[:, 19 : 19 + 4 * count]
        shown[:, 0::4], shown[:, 1::4] = 1.0 - boards, boards
    return changed


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's ρ, ties given their mean rank; 0 where one does not vary, NaN where a value is not finite."""
    from scipy.stats import spearmanr  # a second to import

    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    found: Any = spearmanr(a, b)
    return float(found.statistic)
