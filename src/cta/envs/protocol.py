"""What a world owes to whoever rolls a policy out in it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np


class Episode(NamedTuple):
    """One evaluation episode: the task (1-based, as in OGBench), the seed of its start, goal and settling, its number.

    `own` is another start and goal than the task's: OGBench's `task_info` or, on the embedded worlds, a `DeskTask`.
    """

    task: int
    seed: int
    own: Any = None
    episode: int = 0

    @property
    def begin(self) -> Any:
        return self.task if self.own is None else self.own


class Step(NamedTuple):
    """What all slots look like after a step or a start: arrays with a leading axis of slots."""

    observations: np.ndarray
    goals: np.ndarray
    success: np.ndarray
    done: np.ndarray


class VectorWorld(Protocol):
    """A fixed number of slots, each with one episode, stepped together; others may act between `send` and `receive`."""

    task_names: tuple[str, ...]
    max_episode_steps: int
    slots: int
    action_dim: int

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        """Begin one round: slots in `start` begin that episode (their action is ignored), the others step."""
        ...

    def receive(self) -> Step:
        """Finish the round begun by `send`."""
        ...
