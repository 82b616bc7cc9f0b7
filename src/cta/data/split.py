"""Holding whole episodes out of a dataset that comes without validation data."""

from dataclasses import replace

import numpy as np

from cta.data.dataset import TrajectoryDataset
from cta.data.mapped import is_mapped

SPLIT_SEED = 0
"""Fixed: which episodes are held out depends on how many there are, and on nothing else."""


def hold_out(dataset: TrajectoryDataset, fraction: float) -> tuple[TrajectoryDataset, TrajectoryDataset | None]:
    """(what is left, the held-out episodes): `fraction` of the episodes, drawn at random, at least one.

    Nothing is held out of a single episode, and nothing of observations that stay in a mapped file: taking rows out of
    those would read all of it into memory.
    """
    if fraction <= 0 or dataset.num_episodes < 2 or is_mapped(dataset.observations):
        return dataset, None
    count = min(max(1, int(fraction * dataset.num_episodes)), dataset.num_episodes - 1)
    chosen = np.random.default_rng(SPLIT_SEED).permutation(dataset.num_episodes)[:count]
    held = np.zeros(dataset.num_episodes, bool)
    held[chosen] = True
    rows = np.repeat(held, dataset.episode_ends - dataset.episode_starts + 1)
    return _rows(dataset, ~rows), _rows(dataset, rows)


def _rows(dataset: TrajectoryDataset, wanted: np.ndarray) -> TrajectoryDataset:
    return replace(
        dataset,
        observations=dataset.observations[wanted],
        actions=dataset.actions[wanted],
        terminals=dataset.terminals[wanted],
        info={key: values[wanted] for key, values in dataset.info.items()},
    )
