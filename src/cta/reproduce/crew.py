"""The jobs under way, and how a plan is carried out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.reproduce.board import Board
from cta.reproduce.jobs import TRAIN, Job
from cta.reproduce.units import Unit

SCORERS = 2
"""Two scoring processes fill the cores better than one, whose last long episodes leave most of them idle."""


@dataclass(frozen=True)
class Options:
    """How to carry out a plan."""

    budget: float | None
    """Seconds, or None for as long as it takes."""
    reserve: float
    """Seconds of the budget kept for checkpointing, packing and ending."""
    cores: int
    later: bool
    """Keep weights instead of scoring."""
    precision: str
    partial: bool
    rehearse: bool = False
    """Compile and measure on random rows while the data are made."""

    @property
    def share(self) -> int:
        """Worker processes of one of the two jobs that run beside training: one core is left to it."""
        return max(1, (self.cores - 1) // SCORERS)

    @property
    def packs(self) -> bool:
        """Whether to keep weights: a machine of which only a budget was lent keeps nothing else."""
        return self.later or self.budget is not None


class Crew:
    """Starts jobs and knows which are under way."""

    def __init__(self, board: Board, logs: Path):
        self.jobs: list[Job] = []
        self.lock: int | None = None
        """The lock of the work folder, which every process holds."""
        self._board, self._logs = board, logs

    def begin(self, kind: str, name: str, subject: Any, words: Sequence[str]) -> None:
        self._board.say(f"{kind} {name}")
        self.jobs.append(Job(kind, name, subject, words, logs=self._logs, lock=self.lock))

    def doing(self, kind: str) -> Job | None:
        return next((job for job in self.jobs if job.kind == kind), None)

    def trains(self, unit: Unit) -> bool:
        job = self.doing(TRAIN)
        return job is not None and job.subject == unit

    def end(self, job: Job, seconds: float) -> None:
        """Stop a job and wait for it."""
        job.stop()
        job.wait(seconds)
        self.jobs.remove(job)
