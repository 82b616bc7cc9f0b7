"""Scoring in an environment of one's own: checks that it fits the policy, and completes goals that it leaves open."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.evaluation.episodes import EpisodeResult
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import Policy


class OwnEvaluator(Evaluator):
    """An `Evaluator` whose world is made by `module:factory`.

    `shape` is that of the observations the policies were trained on; `data` opens the training data, asked for only if
    the environment's goals are parts of states (see `complete_goal`).
    """

    def __init__(
        self, env: str, *, shape: tuple[int, ...], data: Callable[[], TrajectoryDataset], **options: Any
    ) -> None:
        module, _, factory = env.partition(":")
        if not (module and factory):
            raise CtaError(f"--env {env}: give module:factory, a function in a module that makes the environment")
        super().__init__(env, **options)
        self._shape = shape
        self._data = data
        self._known: TrajectoryDataset | None = None
        self._completed: dict[bytes, np.ndarray] = {}

    def run(self, make_policy: Callable[[int], Policy], **options: Any) -> list[EpisodeResult]:
        return super().run(lambda slots: self._fitted(make_policy(slots)), **options)

    def _fitted(self, policy: Policy) -> Policy:
        def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
            if observations.shape[1:] != self._shape:
                found, wanted = observations.shape[1:], self._shape
                raise CtaError(
                    f"--env {self.dataset_name}: observations have shape {found}, the policy was trained on {wanted}"
                )
            return policy(observations, self._complete(goals), first)

        return act

    def _complete(self, goals: np.ndarray) -> np.ndarray:
        if goals.dtype == np.uint8 or not np.isnan(goals).any():
            return goals
        return np.stack([self._whole(goal) for goal in goals])

    def _whole(self, goal: np.ndarray) -> np.ndarray:
        key = goal.tobytes()
        if key not in self._completed:
            self._known = self._known or self._data()
            self._completed[key] = complete_goal(goal, self._known.observations)
        return self._completed[key]


def complete_goal(goal: np.ndarray, states: Sequence | np.ndarray) -> np.ndarray:
    """A state for a goal that names only a part of one: the recorded state nearest to it in the part that is known.

    A policy wants a whole state as its goal. The nearest one of the data is a state that can be, unlike one whose
    unknown numbers are made up; its known part is then set to what was asked for.
    """
    known = ~np.isnan(goal)
    if known.all() or not known.any():
        return np.nan_to_num(goal)
    rows = np.asarray(states)
    nearest = rows[np.argmin(np.sum((rows[:, known] - goal[known]) ** 2, axis=1))].copy()
    nearest[known] = goal[known]
    return nearest
