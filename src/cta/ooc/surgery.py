"""Taking transitions out of trajectories, so that what remains is an ordinary dataset.

Row i of a dataset stands for the transition i → i + 1, unless it is the last of its episode. Removing a run of
transitions splits an episode: the part before keeps the state in which the run began as its last row, the part after
begins with the state in which the run ended. Nothing else changes, and no row is used twice.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cta.data import TrajectoryDataset
from cta.errors import CtaError

TRIES = 10_000
"""Draws after which a random window is given up."""


def windows_before(events: np.ndarray, window: int, dataset: TrajectoryDataset) -> np.ndarray:
    """(N,) bool: the transitions t − K + 1 … t of all events t, none beyond the start of the event's episode."""
    gone = np.zeros(dataset.num_rows, bool)
    starts = dataset.episode_starts
    firsts = starts[np.searchsorted(starts, events, side="right") - 1]
    for event, first in zip(events.tolist(), firsts.tolist(), strict=True):
        gone[max(first, event - window + 1) : event + 1] = True
    return gone


def random_windows(lengths: Sequence[int], dataset: TrajectoryDataset, *, seed: int | Sequence[int]) -> np.ndarray:
    """(N,) bool: runs of transitions of these lengths at random places, none across an episode's end or overlapping.

    The end of each is uniform over the transitions where it fits.
    """
    rng = np.random.default_rng(seed)
    gone = np.zeros(dataset.num_rows, bool)
    blocked = dataset.terminals.copy()
    # The longest first: the short ones fit into what they leave.
    for length in sorted(lengths, reverse=True):
        for _ in range(TRIES):
            end = int(rng.integers(length - 1, dataset.num_rows)) if length <= dataset.num_rows else -1
            run = slice(end - length + 1, end + 1)
            if end >= 0 and not blocked[run].any():
                gone[run] = blocked[run] = True
                break
        else:
            raise CtaError(f"{dataset.name}: no room for {len(lengths)} random windows of up to {max(lengths)}")
    return gone


def run_lengths(gone: np.ndarray, dataset: TrajectoryDataset) -> list[int]:
    """The lengths of the maximal runs of removed transitions; a run ends with its episode."""
    bounded = np.append(gone & ~dataset.terminals, False)
    starts = np.flatnonzero(bounded & ~np.append(False, bounded[:-1]))
    ends = np.flatnonzero(~bounded & np.append(False, bounded[:-1]))
    return (ends - starts).tolist()


def remaining_rows(gone: np.ndarray, dataset: TrajectoryDataset) -> tuple[np.ndarray, np.ndarray]:
    """(rows that remain, whether each is the last of its episode) once these transitions are gone.

    A row remains if the transition into it or out of it does.
    """
    kept = ~gone & ~dataset.terminals
    arrives = np.append(False, kept[:-1])
    rows = np.flatnonzero(kept | arrives)
    if not rows.size:
        raise CtaError(f"{dataset.name}: nothing would be left: every transition lies in a removed window")
    return rows, ~kept[rows]


def without(dataset: TrajectoryDataset, gone: np.ndarray) -> TrajectoryDataset:
    """The dataset without these transitions, in memory; every array is kept."""
    rows, terminals = remaining_rows(gone, dataset)
    return replace(
        dataset,
        observations=np.ascontiguousarray(dataset.observations[rows]),
        actions=np.ascontiguousarray(dataset.actions[rows]),
        terminals=terminals,
        info={key: values[rows] for key, values in dataset.info.items()},
    )
