"""An evaluation that runs beside a measurement, and stands still between its turns."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np

from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import Policy

SETTLED = 6
"""Calls of the policy after which a turn has begun: rounds that were under way when the last one ended do not count."""


class PausedEvaluation:
    """Plays the protocol's episodes again and again, in a thread; `calls` and `steps` count what was done."""

    def __init__(self, evaluator: Evaluator, make_policy: Callable[[int], Policy]):
        self._evaluator, self._make_policy = evaluator, make_policy
        self._may, self._over = threading.Event(), False
        self.calls = self.steps = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._may.set()
        self._thread.join()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Episodes are played inside; what goes wrong with them is raised."""
        before = self.calls
        self._may.set()
        while self.calls < before + SETTLED and self._thread.is_alive():
            time.sleep(0.002)
        try:
            yield
        finally:
            self._may.clear()
        if self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            while True:
                self._evaluator.run(self._policy, run_seed=0)
        except _Over:
            pass
        except BaseException as error:
            self._failure = error

    def _policy(self, slots: int) -> Policy:
        policy = self._make_policy(slots)

        def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
            self.steps += int(np.sum(~first))  # the others' last round was a reset
            self.calls += 1
            self._may.wait()
            if self._over:
                raise _Over
            return policy(observations, goals, first)

        return act


class _Over(Exception):
    """Nobody measures any more."""
