"""Carrying out a plan: one training process on the accelerator, generation and scoring beside it on the cores."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cta.reproduce.accelerator import Accelerator
from cta.reproduce.board import Board, clock
from cta.reproduce.crew import SCORERS, Crew, Options
from cta.reproduce.forecast import Forecast
from cta.reproduce.jobs import GENERATE, PACK, REHEARSE, SCORE, TRAIN, Job, data_words, pack_words, score_words
from cta.reproduce.plan import PlannedCell
from cta.reproduce.rates import Rates
from cta.reproduce.units import Pending, Unit
from cta.reproduce.watch import progress
from cta.reproduce.work import Workspace
from cta.stopping import SEED_STOPPED, asking

POLL_S = 0.5


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
        self.crew = Crew(board, space.logs)
        self.accelerator = Accelerator(self.crew, space, rates, options, board, self._deadline)
        self._asked: set[tuple[str, Unit, int, int]] = set()

    def run(self, lock: int) -> None:
        """Until the plan is done, the budget spent, or a signal."""
        self.crew.lock = lock
        with self._signals():
            try:
                while not self.stopped and not self._time_is_up:
                    self._reap()
                    self.accelerator.watch()
                    self._start()
                    if not self.crew.jobs:
                        return
                    self.board.tick(progress(self.space, self.crew.jobs))
                    time.sleep(POLL_S)
            finally:
                self._wind_down()

    @property
    def _time_is_up(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    # Starting

    def _start(self) -> None:
        training, making = self.crew.doing(TRAIN), self.crew.doing(GENERATE)
        ahead = self.forecast.ahead(self.failed, training, making)
        choice = ahead.choices[0] if ahead.choices and training is None else None
        if choice is not None and self.space.data_file(choice.cell).exists():
            self.accelerator.train(choice)
        if making is None and ahead.generate:
            self._make_data(next(c for c in self.space.plan.cells if c.material == ahead.generate[0][0]))
        if choice is not None and self.crew.doing(TRAIN) is None:
            self.accelerator.rehearse(choice)
        if not self.options.later:
            self.score()
        if self.options.packs:
            self.pack()

    def _make_data(self, cell: PlannedCell) -> None:
        alone = self.crew.doing(TRAIN) is None and self.crew.doing(SCORE) is None
        workers = self.options.cores if alone else self.options.share
        name = f"{cell.dataset} without its pairs" if self.space.generated_file(cell).exists() else cell.dataset
        self.crew.begin(GENERATE, name, cell, data_words(self.space, cell, workers))

    def score(self) -> None:
        """The checkpoints of a run that wait, in one process for each half of its seeds: starting one takes a while."""
        room = SCORERS - sum(job.kind in (SCORE, GENERATE) for job in self.crew.jobs)
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
                self.crew.begin(SCORE, name, items, score_words(self.space, items, self.options.share))

    def pack(self) -> None:
        """Keep the weights of a checkpoint whose scores are missing; once it is scored they go again."""
        waiting = self._new(PACK, self.space.unpacked())
        if waiting and self.crew.doing(PACK) is None:
            item = waiting[0]
            self._asked |= {(PACK, item.unit, item.step, seed) for seed in item.seeds}
            self.crew.begin(PACK, item.name, item, pack_words(self.space, item, self.options.precision))

    def _new(self, kind: str, found: list[Pending]) -> list[Pending]:
        """What no job of this kind has been started for.

        The record of a run's last step holds its whole time, which is known when its process has ended.
        """
        ready = [item for item in found if not self.crew.trains(item.unit) or (item.settled and not item.last)]
        fresh = [
            replace(item, seeds=tuple(s for s in item.seeds if (kind, item.unit, item.step, s) not in self._asked))
            for item in ready
        ]
        return [item for item in fresh if item.seeds]

    # Ending

    def _reap(self) -> None:
        """Note what has ended, and how."""
        for job in [job for job in self.crew.jobs if job.poll() is not None]:
            self.crew.jobs.remove(job)
            code = job.poll()
            if job.kind == TRAIN:
                self.accelerator.note_clock(job)
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
        elif job.kind in (TRAIN, SCORE, PACK):
            unit = _unit(job)
            if not any(other.kind == PACK and _unit(other) == unit for other in self.crew.jobs):  # it reads them
                self.space.tidy(unit, weights=not self.options.later)

    def _wind_down(self) -> None:
        """Stop everything, keep everything: what is trained but not scored must travel."""
        if self.crew.jobs:
            spent = self._time_is_up and not self.stopped
            self.board.say("stopping" + (": the budget is spent" if spent else ""))
        for job in self.crew.jobs:
            if job.kind != PACK:
                job.stop()
        until = time.monotonic() + 60 if self._end is None else max(self._end, time.monotonic() + 20)
        while time.monotonic() < until:
            self._reap()
            if self.options.packs:
                self.pack()
            if not self.crew.jobs:
                return
            time.sleep(POLL_S)
        for job in self.crew.jobs:
            job.wait(0)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, frame: Any) -> None:
            if self.stopped:
                raise KeyboardInterrupt
            self.stopped = True

        old = {number: signal.signal(number, handle) for number in asking()}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _unit(job: Job) -> Unit:
    """The run that a job trains, scores or keeps the weights of."""
    if job.kind == TRAIN:
        return job.subject
    return job.subject[0].unit if job.kind == SCORE else job.subject.unit


def _blamed(job: Job) -> list[object]:
    """What is not tried again, and makes the plan fail."""
    if job.kind == TRAIN:
        return [job.subject, job.subject.cell]
    if job.kind == REHEARSE:
        return []
    return [job.subject.material] if job.kind == GENERATE else [job.name]
