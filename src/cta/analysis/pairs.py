"""State–goal pairs of a dataset: both in one episode, the goal a few steps later."""

from dataclasses import dataclass

import numpy as np

from cta.data import TrajectoryDataset
from cta.errors import CtaError

STEPS_APART = (5, 30)
"""How far a goal lies ahead of its state in OGBench's worlds: about one press, one pull or one lift."""
DESK_STEPS_APART = (3, 10)
"""The same on the embedded worlds, where a subtask takes about nine steps."""


@dataclass(frozen=True)
class Pairs:
    """(state row, goal row) of N pairs, and the episode each lies in; all (N,) int."""

    states: np.ndarray
    goals: np.ndarray
    episodes: np.ndarray

    def __len__(self) -> int:
        return len(self.states)


def draw_pairs(
    data: TrajectoryDataset, count: int, *, apart: tuple[int, int], seed: int = 0, first: np.ndarray | None = None
) -> Pairs:
    """`count` different pairs (t, t + δ), t and δ ∈ `apart` uniform over all that fit, or all pairs if there are fewer.

    `first`, (n, 2) rows, are pairs that must be among them; they come first, in their order.
    """
    least, most = apart
    if not 1 <= least <= most:
        raise CtaError(f"steps between state and goal: 1 ≤ least ≤ most, not {least} and {most}")
    if count < 1:
        raise CtaError(f"--pairs must be at least 1, not {count}")
    chosen = np.zeros((0, 2), np.int64) if first is None else np.asarray(first, np.int64).reshape(-1, 2)
    _check_rows(data, chosen)
    ends = np.repeat(data.episode_ends, data.episode_ends - data.episode_starts + 1).astype(np.int64)
    room = np.clip(np.minimum(ends - np.arange(data.num_rows), most) - least + 1, 0, None)
    total = int(room.sum())
    if total + len(chosen) == 0:
        longest = int((data.episode_ends - data.episode_starts).max())
        raise CtaError(f"{data.name}: no two rows of an episode are {least} apart; the longest has {longest} steps")
    # Pair number n belongs to the row whose share of the numbers 0 … total − 1 holds n.
    upto = np.cumsum(room)
    numbers = np.sort(np.random.default_rng(seed).choice(total, size=min(count, total), replace=False))
    states = np.searchsorted(upto, numbers, side="right")
    goals = states + least + numbers - (upto[states] - room[states])
    drawn = np.stack([states, goals], axis=1)
    if len(chosen):
        known = set(map(tuple, chosen.tolist()))
        fresh = np.array([tuple(pair) not in known for pair in drawn.tolist()], bool)
        drawn = np.concatenate([chosen, drawn[fresh]])[: max(count, len(chosen))]
    episodes = np.searchsorted(data.episode_ends, drawn[:, 0])
    return Pairs(drawn[:, 0], drawn[:, 1], episodes)


def _check_rows(data: TrajectoryDataset, chosen: np.ndarray) -> None:
    for state, goal in chosen.tolist():
        if not (0 <= state < data.num_rows and 0 <= goal < data.num_rows):
            raise CtaError(f"{data.name} has rows 0 to {data.num_rows - 1}; there is no pair {state}:{goal}")
