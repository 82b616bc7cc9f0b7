"""Evaluation beside training: a thread that scores snapshots in the order they were taken."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cta.agents import Networks


class Cancelled(Exception):
    """Nobody waits for this evaluation any more."""


class BackgroundEvaluation:
    """`submit` hands over weights and returns; `score(step, networks)` runs in another thread, one job at a time.

    At most `depth` snapshots wait, so that slow scoring costs time rather than memory.
    """

    def __init__(self, score: Callable[[int, list[Networks]], Any], *, depth: int = 2):
        self._score = score
        self._jobs: queue.Queue[tuple[int, list[Networks]]] = queue.Queue(maxsize=depth)
        self._failure: BaseException | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
        self._thread.start()

    def submit(self, step: int, networks: Sequence[Networks], *, give_up: Callable[[], bool] = lambda: False) -> None:
        """Queue a snapshot; waits only while `depth` others are queued already, and not if `give_up()`."""
        while True:
            self.check()
            with contextlib.suppress(queue.Full):
                return self._jobs.put((step, list(networks)), timeout=0.1)
            if give_up():
                return None

    @property
    def pending(self) -> int:
        """Snapshots not yet scored."""
        return self._jobs.unfinished_tasks

    def finish(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until everything submitted is scored; returns False if `give_up()` became true before that."""
        while self.pending:
            self.check()
            if give_up():
                return False
            self._thread.join(timeout=0.1)
        self.check()
        return True

    def check(self) -> None:
        """Raise here what went wrong there."""
        if self._failure is not None:
            raise self._failure

    def go_on(self) -> None:
        """For `score` to call now and then: raises Cancelled once nobody waits any more."""
        if self._cancelled.is_set():
            raise Cancelled

    def cancel(self) -> None:
        """Drop what is not scored yet. What is being scored ends at its next `go_on`."""
        self._cancelled.set()

    def join(self, timeout: float = 10.0) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)

    def _work(self) -> None:
        while not self._cancelled.is_set():
            try:
                step, networks = self._jobs.get(timeout=0.5)
            except queue.Empty:
                continue
            try:
                self._score(step, networks)
            except Cancelled:
                return
            except BaseException as error:
                self._failure = error
                return
            self._jobs.task_done()
