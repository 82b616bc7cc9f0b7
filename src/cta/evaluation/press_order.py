"""Does a value know how many presses are left? Rank correlation of −V with the exact number, without a rollout.

States and goals are rows of data whose lights are changed so that the goal is exactly n presses away: what else is in
a row, such as the arm, is as likely at one distance as at another.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cta.agents import Agent, Networks
from cta.agents.policy import answer
from cta.data import TrajectoryDataset
from cta.envs.lights import board_of
from cta.evaluation.offline import MEASURES, rank_correlation
from cta.evaluation.presses import draw_boards, with_lights

PAIRS = 256


@dataclass(frozen=True)
class PressOrder:
    """One measure at one distance: its mean value, and Spearman's ρ of −value and presses over distances 0 … n
    (`order`) and over n − 1 and n alone (`step_order`); of n = 0 there is neither."""

    measure: str
    presses: int
    pairs: int
    mean: float
    order: float | None
    step_order: float | None

    def row(self) -> dict[str, Any]:
        return {name: "" if value is None else value for name, value in asdict(self).items()}


def press_order(
    agent: Agent,
    networks: Networks,
    dataset_name: str,
    data: TrajectoryDataset,
    *,
    pairs: int = PAIRS,
    most: int | None = None,
    seed: int = 0,
) -> list[PressOrder]:
    """The order of each value that the agent has, by distance; `pairs` pairs for each number of presses."""
    hardest = board_of(dataset_name).hardest
    asked = [_pairs(dataset_name, data, n, pairs, seed) for n in range(min(hardest, most or hardest) + 1)]
    found = []
    for measure, question in MEASURES.items():
        ask = answer(agent, question)
        try:
            values = [-np.asarray(ask(networks, *two), np.float64) for two in asked]
        except NotImplementedError:
            continue
        for n, mine in enumerate(values):
            orders = (_order(values, 0, n), _order(values, n - 1, n)) if n else (None, None)
            found.append(PressOrder(measure, n, pairs, -float(np.mean(mine)), *orders))
    return found


def _pairs(
    dataset_name: str, data: TrajectoryDataset, presses: int, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """States and goals so many presses apart, each with the rest of a row of the data."""
    rng = np.random.default_rng((seed, presses, 3))
    rows = [data.observations[rng.integers(0, len(data.observations), count)] for _ in range(2)]
    start, goal = draw_boards(dataset_name, presses, count, seed)
    return with_lights(dataset_name, rows[0], start), with_lights(dataset_name, rows[1], goal)


def _order(values: list[np.ndarray], first: int, last: int) -> float:
    these = values[first : last + 1]
    distances = np.concatenate([np.full(len(part), n) for n, part in enumerate(these)])
    return rank_correlation(np.concatenate(these), distances)
