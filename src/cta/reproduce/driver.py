"""Carrying out a plan: one training process on the accelerator, generation and scoring beside it on the cores."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cta.reproduce.board import Board, clock
from cta.reproduce.jobs import Job, generate_words, pack_words, score_words, train_words
from cta.reproduce.plan import PlannedCell
from cta.reproduce.rates import Rates
from cta.reproduce.schedule import Option, Schedule, schedule
from cta.reproduce.watch import data_notices, generated_share, progress, training_progress
from cta.reproduce.work import Pending, Unit, Workspace

DONE, SEED_STOPPED = 0, 4
"""Exit codes of a training process that came to its end."""
POLL_S = 0.5
SCORERS = 2
"""Two scoring processes fill the cores better than one, whose last long episodes leave most of them idle."""
EARLY = 0.25
"""Up to this share of its steps, a run that turns out too slow for the budget is begun again with fewer seeds."""


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


class Driver:
    """Decides every half second, from files, what to start; stops everything when the time is up or a signal comes."""

    def __init__(self, space: Workspace, rates: Rates, options: Options, board: Board):
        self.space, self.rates, self.options, self.board = space, rates, options, board
        self.failed: set[Any] = set()
        self._training: Job | None = None
        self._generating: Job | None = None
        self._side: list[Job] = []
        self._packing: Job | None = None
        self._stop = False
        self._said: set[str] = set()
        self._asked: set[tuple[Unit, int]] = set()
        self.began = now = time.monotonic()
        self._deadline = None if options.budget is None else now + options.budget - options.reserve
        self._end = None if options.budget is None else now + options.budget

    def run(self, lock: int) -> None:
        """Until the plan is done, the budget spent, or a signal."""
        self._lock = lock
        with self._signals():
            try:
                while not self._stop and not self._late():
                    self._reap()
                    self._watch_training()
                    self._start()
                    if not self._jobs():
                        return
                    self.board.tick(progress(self.space, self._training, self._generating, self._others()))
                    time.sleep(POLL_S)
            finally:
                self._wind_down()

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _jobs(self) -> list[Job]:
        return [job for job in (self._training, self._generating) if job is not None] + self._others()

    def _others(self) -> list[Job]:
        return [*self._side, *([self._packing] if self._packing else [])]

    # Deciding

    def plan_ahead(self) -> Schedule:
        """What will be trained in the time left, given what is known of speed now."""
        now = time.monotonic()
        free = now if self._training is None else now + (self._seconds_left(self._training.subject) or 0.0)
        ready: dict[str, float] = {}
        for cell in self.space.plan.cells:
            if self.space.data_file(cell).exists():
                ready[cell.dataset] = now
        if self._generating is not None:
            ready[self._generating.subject.dataset] = now + self._generation_left(self._generating)
        return schedule(
            self._options(),
            now=now,
            deadline=self._deadline,
            accelerator_free=free,
            ready=ready,
            generate_seconds=self._generation_seconds,
            train_seconds=lambda cell, seeds, steps: self.rates.train_seconds(cell.agent, cell.dataset, seeds, steps),
            certain=lambda cell: self.rates.known(cell.agent),
            partial=self.options.partial,
        )

    def _options(self) -> list[Option]:
        """Runs to continue, then seeds to begin, in the plan's order."""
        busy = self._training.subject if self._training else None
        begun, fresh = [], []
        for cell in self.space.plan.cells:
            if cell.dataset in self.failed or cell in self.failed:
                continue
            trained = self.space.trained(cell)
            for unit in self.space.units(cell):
                if unit != busy and unit not in self.failed and not unit.finished and not set(unit.seeds) <= trained:
                    begun.append(Option(cell, unit.seeds, cell.steps - unit.step, fixed=True))
            seeds = [s for s in self.space.untouched(cell) if busy is None or cell != busy.cell or s not in busy.seeds]
            if seeds:
                fresh.append(Option(cell, tuple(seeds), cell.steps))
        return [*begun, *fresh]

    def _generation_seconds(self, cell: PlannedCell) -> float:
        return self.rates.generate_seconds(self.space.rows_to_generate(cell), self.options.cores)

    def _generation_left(self, job: Job) -> float:
        share = generated_share(self.space, job.subject)
        if share > 0.05:
            return max(1.0, job.seconds * (1 - share) / share)
        return max(1.0, self._generation_seconds(job.subject) - job.seconds)

    def _seconds_left(self, unit: Unit) -> float | None:
        assert self._training is not None
        step, rate = training_progress(unit)
        if rate:
            return (unit.cell.steps - step) / rate
        whole = self.rates.train_seconds(unit.cell.agent, unit.cell.dataset, len(unit.seeds), unit.cell.steps)
        return None if whole is None else max(1.0, whole - self._training.seconds)

    # Starting

    def _start(self) -> None:
        ahead = self.plan_ahead()
        if self._training is None and ahead.choices:
            choice = ahead.choices[0]
            if self.space.data_file(choice.cell).exists():
                self._train(self.space.unit(choice.cell, choice.seeds))
        if self._generating is None and ahead.generate:
            self._generate(next(c for c in self.space.plan.cells if c.dataset == ahead.generate[0][0]))
        self._score()
        if self.options.later and self._packing is None:
            self._pack_next()

    def _train(self, unit: Unit) -> None:
        self._clock_before = self.space.clock(unit)
        verb = f"continue at step {unit.step:,}" if unit.begun else "train"
        self.board.say(f"{verb}: {unit.name}")
        self._training = self._job(f"train {unit.name}", unit, train_words(self.space, unit), cpu=False)

    def _generate(self, cell: PlannedCell) -> None:
        self.board.say(f"generate {cell.dataset} with {self.options.cores} workers")
        words = generate_words(self.space, cell, self.options.cores)
        self._generating = self._job(f"generate {cell.dataset}", cell, words, cpu=True)

    def _score(self) -> None:
        """One process for all checkpoints of a run that wait: starting one takes a while."""
        busy = {(item.unit, item.step) for job in self._side for item in job.subject}
        waiting = [item for item in self._waiting() if (item.unit, item.step) not in busy | self._asked]
        # The record of a run's last step holds its whole time, which is known when its process has ended.
        waiting = [i for i in waiting if i.settled and not (i.step == i.unit.cell.steps and self._trains(i.unit))]
        while waiting and len(self._side) < SCORERS:
            first = waiting[0]
            group = tuple(item for item in waiting if item.unit == first.unit and item.urgent == first.urgent)
            waiting = [item for item in waiting if item not in group]
            steps = [item.step for item in group]
            self._asked |= {(item.unit, item.step) for item in group}
            name = f"score {first.unit.name}, step {', '.join(f'{step:,}' for step in steps)}"
            self.board.say(name)
            words = score_words(self.space, first.unit, steps, self.options.cores)
            self._side.append(self._job(name, group, words, cpu=True))

    def _pack_next(self) -> bool:
        """Keep the weights of a finished run whose scores are missing."""
        for unit in self.space.all_units():
            steps = self.space.unpacked(unit)
            if steps and ("pack", unit) not in self.failed and not self._trains(unit):
                self.board.say(f"keep weights: {unit.name}")
                words = pack_words(self.space, unit, steps, self.options.precision)
                self._packing = self._job(f"pack {unit.name}", unit, words, cpu=True)
                return True
        return False

    def _trains(self, unit: Unit) -> bool:
        return self._training is not None and self._training.subject == unit

    def _waiting(self) -> list[Pending]:
        """Checkpoints to score, those of results before those of curves."""
        if self.options.later:
            return []
        found = [item for cell in self.space.plan.cells for item in self.space.pending(cell)]
        return sorted(found, key=lambda item: not item.urgent)

    def _job(self, name: str, subject: Any, words: list[str], *, cpu: bool) -> Job:
        log = self.space.logs / (name.replace(" ", "-").replace(",", "").replace("/", "-") + ".log")
        return Job(name, subject, words, log=log, cpu=cpu, lock=self._lock)

    # Watching

    def _reap(self) -> None:
        """Note what has ended, and how."""
        if self._training is not None and (code := self._training.poll()) is not None:
            job, self._training = self._training, None
            self._note_clock(job)
            self.space.tidy(job.subject)
            if code == SEED_STOPPED:
                self.board.say(f"notice: {job.name}: {job.last_words()}")
                code = DONE
            self._ended(
                job, code, job.subject, job.subject.cell, text=f"trained: {job.subject.name}, {clock(job.seconds)}"
            )
        if self._generating is not None and (code := self._generating.poll()) is not None:
            job, self._generating = self._generating, None
            if code == 0:
                rows = self.space.rows_to_generate(job.subject)
                self.rates.rows_per_core.append(rows / job.seconds / self.options.cores)
            self._ended(job, code, job.subject.dataset, text=f"generated: {job.subject.dataset}, {clock(job.seconds)}")
        if self._packing is not None and (code := self._packing.poll()) is not None:
            job, self._packing = self._packing, None
            self._ended(job, code, ("pack", job.subject), text=job.last_words())
        for job in [job for job in self._side if job.poll() is not None]:
            self._side.remove(job)
            self.space.tidy(job.subject[0].unit)
            self._ended(job, job.poll() or 0, *job.subject, text=f"{job.name}: done in {clock(job.seconds)}")

    def _ended(self, job: Job, code: int, *subjects: Any, text: str) -> None:
        if code == 0:
            self.board.say(text)
        else:
            self.failed.update(subjects)
            self.board.say(f"FAILED ({code}): {job.name}: {job.last_words()} (log: {job.log})")

    def _note_clock(self, job: Job) -> None:
        self.space.set_clock(job.subject, self._clock_before + job.seconds)

    def _watch_training(self) -> None:
        """Learn the rate; begin again with fewer seeds if the run cannot end in time."""
        job = self._training
        if job is None:
            return
        unit: Unit = job.subject
        self._note_clock(job)
        self._compare_data(unit)
        step, rate = training_progress(unit)
        if not rate or job.seconds < 20:
            return
        self.rates.measured(unit.cell.agent, unit.cell.dataset, len(unit.seeds), rate * len(unit.seeds))
        if self._deadline is None or self.options.partial:
            return
        over = (unit.cell.steps - step) / rate - (self._deadline - time.monotonic())
        if over > 0.03 * unit.cell.steps / rate and step < EARLY * unit.cell.steps and not unit.checkpoints():
            self.board.say(f"too slow for the budget ({rate:,.0f} steps/s): {unit.name} is given up at step {step:,}")
            job.stop()
            job.wait(30)
            self._training = None
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
        """Stop everything, keep everything."""
        jobs = self._jobs()
        if jobs:
            self.board.say("stopping" + ("" if self._stop else ": the budget is spent"))
        for job in jobs:
            job.stop()
        for job in jobs:
            job.wait(60 if self._end is None else max(5.0, self._end - time.monotonic()))
        if self._training is not None:
            self._note_clock(self._training)
        self._training = self._generating = self._packing = None
        self._side = []
        # A machine of which only this budget was lent keeps nothing: what is trained but not scored must travel.
        while self._end is not None and not self._stop and self._pack_next():
            assert self._packing is not None
            self._packing.wait(max(20.0, self._end - time.monotonic()))
            self._reap()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, frame: Any) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    @property
    def stopped(self) -> bool:
        """Ended by a signal."""
        return self._stop
