"""Evaluation beside training: a thread that scores snapshots in the order they were taken."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cta.agents import Networks

Job = tuple[int, list[Networks]]


class BackgroundEvaluation:
    """`submit` hands over weights and returns; `score(step, networks)` runs in another thread, one job at a time.

    At most `depth` snapshots wait, so that slow scoring costs time rather than memory.
    """

    def __init__(self, score: Callable[[int, list[Networks]], Any], *, depth: int = 2):
        self._score = score
        self._jobs: queue.Queue[Job | None] = queue.Queue(maxsize=depth)
        self._failure: BaseException | None = None
        self._pending = 0
        self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
        self._thread.start()

    def submit(self, step: int, networks: Sequence[Networks]) -> None:
        """Queue a snapshot; waits only while `depth` others are queued already."""
        self._put((step, list(networks)))
        self._pending += 1

    @property
    def pending(self) -> int:
        """Snapshots not yet scored."""
        return self._pending

    def finish(self) -> None:
        """Wait until everything submitted is scored."""
        self._put(None)
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise here what went wrong there."""
        if self._failure is not None:
            raise self._failure

    def _put(self, job: Job | None) -> None:
        while True:
            self.check()
            try:
                return self._jobs.put(job, timeout=0.5)
            except queue.Full:
                continue

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._score(*job)
            except BaseException as error:
                self._failure = error
                return
            self._pending -= 1
