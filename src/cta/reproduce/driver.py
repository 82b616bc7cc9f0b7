"""Carrying out a plan: one training process on the accelerator, generation and scoring beside it on the cores."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cta.reproduce.board import Board, clock
from cta.reproduce.forecast import Forecast
from cta.reproduce.jobs import GENERATE, PACK, SCORE, TRAIN, Job, data_words, pack_words, score_words, train_words
from cta.reproduce.plan import PlannedCell
from cta.reproduce.rates import Rates
from cta.reproduce.units import Pending, Unit
from cta.reproduce.watch import data_notices, progress, training_progress
from cta.reproduce.work import Workspace

SEED_STOPPED = 4
"""Exit code of a training process that came to its end without all of its seeds."""
POLL_S = 0.5
SCORERS = 2
"""Two scoring processes fill the cores better than one, whose last long episodes leave most of them idle."""
EARLY = (0.02, 0.25)
"""Between these shares of its steps, a run that turns out too slow for the budget is begun again with fewer seeds."""
MARGIN = 1.03
"""Training slows down a little when scoring begins beside it."""


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

    @property
    def share(self) -> int:
        """Worker processes of one of the two jobs that run beside training: one core is left to it."""
        return max(1, (self.cores - 1) // SCORERS)

    @property
    def packs(self) -> bool:
        """Whether to keep weights: a machine of which only a budget was lent keeps nothing else."""
        return self.later or self.budget is not None


class Driver:
    """Decides every half second, from files, what to start; stops everything when the time is up or a signal comes."""

    def __init__(self, space: Workspace, rates: Rates, options: Options, board: Board):
        self.space, self.rates, self.options, self.board = space, rates, options, board
        self.failed: set[object] = set()
        self.stopped = False
        """Ended by a signal."""
        self.began = time.monotonic()
        self._end = None if options.budget is None else self.began + options.budget
        self._deadline = None if self._end is None else self._end - options.reserve
        self.forecast = Forecast(space, rates, cores=options.cores, deadline=self._deadline, partial=options.partial)
        self._jobs: list[Job] = []
        self._said: set[str] = set()
        self._asked: set[tuple[str, Unit, int, int]] = set()

    def run(self, lock: int) -> None:
        """Until the plan is done, the budget spent, or a signal."""
        self._lock = lock
        with self._signals():
            try:
                while not self.stopped and (self._deadline is None or time.monotonic() < self._deadline):
                    self._reap()
                    self._watch_training()
                    self._start()
                    if not self._jobs:
                        return
                    self.board.tick(progress(self.space, self._jobs))
                    time.sleep(POLL_S)
            finally:
                self._wind_down()

    def _doing(self, kind: str) -> Job | None:
        return next((job for job in self._jobs if job.kind == kind), None)

    def _trains(self, unit: Unit) -> bool:
        job = self._doing(TRAIN)
        return job is not None and job.subject == unit

    # Starting

    def _start(self) -> None:
        ahead = self.forecast.ahead(self.failed, self._doing(TRAIN), self._doing(GENERATE))
        if self._doing(TRAIN) is None and ahead.choices:
            choice = ahead.choices[0]
            if self.space.data_file(choice.cell).exists():
                self._train(self.space.unit(choice.cell, choice.seeds))
        if self._doing(GENERATE) is None and ahead.generate:
            self._make_data(next(c for c in self.space.plan.cells if c.material == ahead.generate[0][0]))
        if not self.options.later:
            self._score()
        if self.options.packs:
            self._pack()

    def _train(self, unit: Unit) -> None:
        self._clock_before = self.space.clock(unit)
        begun = f", from step {unit.step:,}" if unit.begun else ""
        self._begin(TRAIN, unit.name + begun, unit, train_words(self.space, unit))

    def _make_data(self, cell: PlannedCell) -> None:
        alone = self._doing(TRAIN) is None and self._doing(SCORE) is None
        workers = self.options.cores if alone else self.options.share
        self._begin(GENERATE, cell.material, cell, data_words(self.space, cell, workers))

    def _score(self) -> None:
        """The checkpoints of a run that wait, in one process for each half of its seeds: starting one takes a while."""
        room = SCORERS - sum(job.kind in (SCORE, GENERATE) for job in self._jobs)
        waiting = self._new(SCORE, self.space.all_pending())
        group = [item for item in waiting if (item.unit, item.urgent) == (waiting[0].unit, waiting[0].urgent)]
        for number in range(SCORERS):
            part = group[0].unit.seeds[number::SCORERS] if group else ()
            items = [replace(item, seeds=tuple(s for s in item.seeds if s in part)) for item in group]
            items = [item for item in items if item.seeds]
            if items and room > 0:
                room -= 1
                self._asked |= {(SCORE, item.unit, item.step, seed) for item in items for seed in item.seeds}
                steps = ", ".join(f"{item.step:,}" for item in items)
                name = f"{self.space.unit(items[0].unit.cell, part).name}, step {steps}"
                self._begin(SCORE, name, items, score_words(self.space, items, self.options.share))

    def _pack(self) -> None:
        """Keep the weights of a checkpoint whose scores are missing; once it is scored they go again."""
        waiting = self._new(PACK, self.space.unpacked())
        if waiting and self._doing(PACK) is None:
            item = waiting[0]
            self._asked |= {(PACK, item.unit, item.step, seed) for seed in item.seeds}
            self._begin(PACK, item.name, item, pack_words(self.space, item, self.options.precision))

    def _new(self, kind: str, found: list[Pending]) -> list[Pending]:
        """What no job of this kind has been started for.

        The record of a run's last step holds its whole time, which is known when its process has ended.
        """
        ready = [item for item in found if not self._trains(item.unit) or (item.settled and not item.last)]
        fresh = [
            replace(item, seeds=tuple(s for s in item.seeds if (kind, item.unit, item.step, s) not in self._asked))
            for item in ready
        ]
        return [item for item in fresh if item.seeds]

    def _begin(self, kind: str, name: str, subject: Any, words: list[str]) -> None:
        self.board.say(f"{kind} {name}")
        self._jobs.append(Job(kind, name, subject, words, logs=self.space.logs, lock=self._lock))

    # Watching

    def _reap(self) -> None:
        """Note what has ended, and how."""
        for job in [job for job in self._jobs if job.poll() is not None]:
            self._jobs.remove(job)
            code = job.poll()
            if job.kind == TRAIN:
                self._note_clock(job)
                if code == SEED_STOPPED:
                    self.board.say(f"notice: {job.name}: {job.last_words()}")
                    code = 0
            if code == 0:
                self._done(job)
            elif not job.stopping:
                self.failed.update(_blamed(job))
                self.board.say(f"FAILED ({code}): {job.name}: {job.last_words()} (log: {job.log})")

    def _done(self, job: Job) -> None:
        self.board.say(f"done in {clock(job.seconds)}: {job.name}")
        if job.kind == GENERATE and "--workers" in job.words:
            workers = int(job.words[job.words.index("--workers") + 1])
            self.rates.rows_per_core.append(self.space.rows_to_generate(job.subject) / job.seconds / workers)
        elif job.kind in (TRAIN, SCORE):
            unit = job.subject if job.kind == TRAIN else job.subject[0].unit
            self.space.tidy(unit, weights=not self.options.later)

    def _note_clock(self, job: Job) -> None:
        self.space.set_clock(job.subject, self._clock_before + job.seconds)

    def _watch_training(self) -> None:
        """Learn the rate; begin again with fewer seeds if the run cannot end in time."""
        job = self._doing(TRAIN)
        if job is None:
            return
        unit: Unit = job.subject
        self._note_clock(job)
        self._compare_data(unit)
        step, rate = training_progress(unit)
        if not rate or job.seconds < 20:
            return
        self.rates.measured(unit.cell.agent, unit.cell.dataset, len(unit.seeds), rate * len(unit.seeds))
        early = EARLY[0] <= step / unit.cell.steps <= EARLY[1] and not unit.checkpoints()
        if self._deadline is None or self.options.partial or not early:
            return
        if (unit.cell.steps - step) / rate * MARGIN > self._deadline - time.monotonic():
            self.board.say(f"too slow for the budget ({rate:,.0f} steps/s): {unit.name} is given up at step {step:,}")
            job.stop()
            job.wait(30)
            self._jobs.remove(job)
            shutil.rmtree(unit.path, ignore_errors=True)

    def _compare_data(self, unit: Unit) -> None:
        """Say so if a record knows another fingerprint of the same data."""
        if str(unit.path) in self._said:
            return
        found = data_notices(self.space, unit)
        if found is not None:
            self._said.add(str(unit.path))
            for notice in set(found) - self._said:
                self._said.add(notice)
                self.board.say(f"notice: {notice}")

    # Ending

    def _wind_down(self) -> None:
        """Stop everything, keep everything: what is trained but not scored must travel."""
        if self._jobs:
            self.board.say("stopping" + ("" if self.stopped else ": the budget is spent"))
        for job in self._jobs:
            if job.kind != PACK:
                job.stop()
        until = time.monotonic() + 60 if self._end is None else max(self._end, time.monotonic() + 20)
        while time.monotonic() < until:
            self._reap()
            if self.options.packs:
                self._pack()
            if not self._jobs:
                return
            time.sleep(POLL_S)
        for job in self._jobs:
            job.wait(0)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, frame: Any) -> None:
            if self.stopped:
                raise KeyboardInterrupt
            self.stopped = True

        old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _blamed(job: Job) -> list[object]:
    """What is not tried again."""
    if job.kind == TRAIN:
        return [job.subject, job.subject.cell]
    return [job.subject.material] if job.kind == GENERATE else [job.name]
