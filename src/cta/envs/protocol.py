"""What a world owes to whoever rolls a policy out in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One evaluation episode: the task (1-based, as in OGBench), the seed of its start, goal and settling, its number.

    `own` is another start and goal than the task's, in the form of OGBench's `task_info` or, on the embedded worlds, as
    a `DeskTask`; the task is then only a number.
    """

    task: int
    seed: int
    own: Any = None
    episode: int = 0

    @property
    def begin(self) -> Any:
        """What a world is asked to begin."""
        return self.task if self.own is None else self.own


@dataclass(frozen=True)
class Step:
    """What all slots look like after a step or a start: arrays with a leading axis of slots."""

    observations: np.ndarray
    goals: np.ndarray
    success: np.ndarray
    done: np.ndarray


class VectorWorld(Protocol):
    """A fixed number of slots, each holding one episode, stepped together.

    `send` and `receive` are split so that a caller may compute actions for one group of slots while another steps.
    """

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
