"""Carrying out a plan: decides from files what is next, and has an engine do it."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cta.errors import CtaError
from cta.exit_codes import DONE, INTERRUPTED, SEED_STOPPED, Stop
from cta.grid import How, processes
from cta.grid.cells import Cell, Pending, Unit, listed
from cta.grid.processes import DATA, PACK, SCORE, SCORERS, TRAIN, Job, last_line
from cta.grid.rates import Budget, Console, Rates
from cta.grid.workspace import Workspace
from cta.io.text_tables import clock
from cta.scores.schema import RANDOM

Engine = processes.LocalEngine | processes.RayEngine
POLL_S = 0.5
LOOK_S = 5.0  # how often files are looked at when no job has ended
MEASURED_S = 20.0  # a process younger than this has not come up to speed
TRIES = 3  # a job that is lost so often without having come further has failed


@dataclass
class Running:
    job: Job
    handle: processes.Process | processes.RayHandle
    began: float
    reached: Callable[[], bool] = lambda: True  # whether what it was started for is there
    stopping: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class Runner:
    """Decides from files what to start; stops everything when the time is up or a signal comes."""

    def __init__(self, space: Workspace, rates: Rates, budget: Budget, how: How, engine: Engine):
        self.space, self.rates, self.budget = space, rates, budget
        self.how, self.engine, self.console = how, engine, Console()
        self.failed: dict[str, str] = {}  # jobs and cells that failed, with the reason
        self.blocked: set[str] = set()  # folders of cells and files of data that are not tried again
        self.stop = Stop()  # whether a signal came
        self.running: list[Running] = []
        self._asked: set[tuple[str, Pending]] = set()  # what was started, by kind of job
        self._tries = Counter[tuple[str, int]]()  # how often a job has ended at a step
        self._said: set[str] = set()

    def run(self) -> None:
        """Until the plan is done, the budget spent, or a signal."""
        signals = self.stop.on_signals(say=lambda _: None, how_to_resume="the same command continues")
        with self.console.bars, signals:
            try:
                for cell in self.space.plan.cells:
                    if found := self._publish(cell):
                        self.console.say(f"{cell.name}: {found} scores found in {self.space.folder} and published")
                looked, waits = 0.0, False
                while not self.stop and self.budget.left > 0:
                    if self._reap() or time.monotonic() - looked > LOOK_S:
                        looked = time.monotonic()
                        self._watch()
                        waits = self._start()
                    if not self.running and not waits:
                        return
                    self.console.tick({run.job.title: progress(run) for run in self.running})
                    time.sleep(POLL_S)
            finally:
                self._wind_down()

    def doing(self, kind: str) -> list[Running]:
        return [run for run in self.running if run.job.kind == kind]

    def _start(self) -> bool:
        """Start what there is room for; whether something waits for room."""
        while (training := self._next_training()) and self._train(training):
            pass
        while (data := self._next_data()) and self._make(data):
            pass
        if self.how.evaluate == "here":
            self.score()
        if self.how.packs:
            self.pack()
        return bool(training or data)

    def _train(self, unit: Unit) -> bool:
        name, target = unit.name + (f", from step {unit.step:,}" if unit.begun else ""), unit.target
        self.space.write_cell(unit.cell)
        return self._begin(TRAIN, name, processes.train_words(self.space, unit), unit, lambda: unit.reached(target))

    def _make(self, unit: Unit) -> bool:
        cell = unit.cell
        name, file = cell.dataset_name, self.space.source_file(cell)
        if file.exists():
            name += " with random windows cut" if cell.condition == RANDOM else " without its pairs"
            file = self.space.data_file(cell)
        words = processes.data_words(self.space, cell, self.engine.cores(DATA, self._kinds))
        return self._begin(DATA, name, words, unit, file.exists)

    def _begin(
        self, kind: str, name: str, words: list[str], unit: Unit, reached: Callable[[], bool], *items: Pending
    ) -> bool:
        """Whether there was room for it."""
        if self.engine.room(kind, self._kinds) < 1:
            return False
        log = self.space.folder / "logs" / (re.sub(r"[^\w.]+", "-", f"{kind} {name}")[:180] + ".log")
        job = Job(kind, name, tuple(words), log, unit, items)
        self.console.say(job.title)
        self._asked |= {(kind, item) for item in items}
        self.running.append(Running(job, self.engine.start(job), time.monotonic(), reached))
        return True

    @property
    def _kinds(self) -> list[str]:
        return [run.job.kind for run in self.running]

    def _waiting(self, *, ready: bool) -> list[Unit]:
        """Runs to continue, then seeds to begin, in the plan's order, whose data are there or are not."""
        training = [run.job.unit for run in self.doing(TRAIN)]
        found: list[Unit] = []
        for cell in self.space.plan.cells:
            data = self.space.data_file(cell)
            if data.exists() == ready and not {cell.folder, str(data)} & self.blocked:
                busy = {seed for unit in training if unit.cell.folder == cell.folder for seed in unit.seeds}
                found += self.space.to_train(cell, busy)
        return sorted(found, key=lambda unit: not unit.begun)

    def _next_training(self) -> Unit | None:
        return next(filter(None, map(self._fitting, self._waiting(ready=True))), None)

    def _next_data(self) -> Unit | None:
        """The first that waits for its data and would still have time after they are made."""
        making = {self.space.source_file(run.job.unit.cell) for run in self.doing(DATA)}
        for unit in self._waiting(ready=False):
            rows = self.space.rows_to_generate(unit.cell)
            seconds = self.rates.generate_seconds(unit.cell.dataset_name, rows, self.engine.cores(DATA, []))
            if self.space.source_file(unit.cell) not in making and self._fitting(unit, after=seconds):
                return unit
        return None

    def _fitting(self, unit: Unit, *, after: float = 0.0) -> Unit | None:
        """A run that should end in time, begun after so many seconds, with as many seeds as that allows.

        A cell whose speed was never measured on this device is tried with all its seeds if it would end in time at
        twice the speed: measuring takes a minute, and a wrong guess would cost the slot.
        """
        agent, left = unit.cell.agent, self.budget.left - after
        for count in [len(unit.seeds)] if unit.begun else range(len(unit.seeds), 0, -1):
            seconds = self.rates.train_seconds(agent, unit.cell.dataset_name, count, unit.left) or 0.0
            if left > 0 and seconds / (1 if self.rates.known(agent) else 2) <= left:
                return self.space.unit(unit.cell, unit.seeds[:count])
        return None

    def score(self) -> None:
        """The checkpoints of a run that wait, some of its seeds in each process: starting one takes a while."""
        waiting = self._new(SCORE, self.space.all_pending())
        while waiting:
            unit, _, seed = first = waiting[0]
            part = unit.seeds[unit.seeds.index(seed) :: max(SCORERS, self.engine.room(SCORE, self._kinds))]
            items = [i for i in waiting if i.unit == unit and i.urgent == first.urgent and i.seed in part]
            words = processes.score_words(self.space, items, self.engine.cores(SCORE, self._kinds))
            if not self._begin_with(SCORE, items, words):
                return
            waiting = [item for item in waiting if item not in items]

    def pack(self) -> None:
        """Keep the weights of a checkpoint whose scores are missing; once it is scored they go again."""
        if waiting := self._new(PACK, self.space.unpacked()):
            items = [item for item in waiting if item[:2] == waiting[0][:2]]
            self._begin_with(PACK, items, processes.pack_words(self.space, items[0], self.how.weights))

    def _begin_with(self, kind: str, items: list[Pending], words: list[str]) -> bool:
        """Begin to score or to keep some seeds of a run at some steps."""
        unit, cell = items[0].unit, items[0].unit.cell

        def reached() -> bool:
            wanted = {(item.seed, item.step) for item in items} - self.space.scored(cell)
            return not wanted or (kind == PACK and all(self.space.weights_file(cell, *one).exists() for one in wanted))

        seeds, steps = sorted({item.seed for item in items}), sorted({item.step for item in items})
        name = f"{cell.name}, seeds {listed(seeds)}, step {', '.join(f'{step:,}' for step in steps)}"
        return self._begin(kind, name, words, unit, reached, *items)

    def _new(self, kind: str, found: list[Pending]) -> list[Pending]:
        """What no job of this kind has been started for."""
        # The record of a run's last step holds its whole time, which is known when its process has ended.
        training = {run.job.unit.path for run in self.doing(TRAIN)}
        ready = [i for i in found if i.unit.path not in training or (i.settled and i.step != i.unit.cell.steps)]
        return [item for item in ready if (kind, item) not in self._asked]

    def _watch(self) -> None:
        """Learn rates from runs that have come up to speed."""
        for run in self.doing(TRAIN):
            cell, seeds, (_, rate) = run.job.unit.cell, len(run.job.unit.seeds), run.job.unit.progress()
            if rate and run.seconds > MEASURED_S:
                self.rates.measured(cell.agent, cell.dataset_name, seeds, rate * seeds)

    def _reap(self) -> bool:
        """Note what has ended, and how; whether anything has."""
        ended = [run for run in self.running if run.handle.poll() is not None]
        for run in ended:
            self.running.remove(run)
            code, words = run.handle.poll() or DONE, run.handle.last_words()
            if code in (DONE, SEED_STOPPED):
                self._done(run, code)
            elif code > 0 and code != INTERRUPTED:
                self._fail(run.job, f"{words} (exit {code}; log: {run.job.log})")
            elif not run.stopping:
                self._again(run.job, words)
        return bool(ended)

    def _done(self, run: Running, code: int) -> None:
        job, words = run.job, run.handle.last_words()
        if job.kind == SCORE:
            self._publish(job.unit.cell)
        if not run.reached():
            what = {TRAIN: "its last step", DATA: "the data", SCORE: "all scores", PACK: "all weights"}[job.kind]
            self._fail(job, f"it ended without {what}: {words} (exit {code}; log: {job.log})")
            return
        self.console.say(f"done in {clock(run.seconds)}: {job.title}" + (f": {words}" if code != DONE else ""))
        if all(other.job.unit != job.unit for other in self.doing(PACK)):  # it reads them
            self.space.tidy(job.unit, weights=self.how.evaluate == "here")

    def _publish(self, cell: Cell) -> int:
        """Scores that are new; whoever reads them together is told what does not belong together."""
        try:
            found = self.space.publish(cell)
            notices = set(self.space.out.notices()) - self._said if found else set()
        except CtaError as error:
            self.failed[cell.name] = str(error)
            self.blocked.add(cell.folder)
            return 0
        self._said |= notices
        for notice in notices:
            self.console.say(f"notice: {notice}")
        return found

    def _again(self, job: Job, words: str) -> None:
        """A job that was interrupted or lost: its files are there, and the same command continues."""
        key, step = (str(job.unit.path), job.unit.step) if job.kind == TRAIN else (job.title, 0)
        self._tries[key, step] += 1
        if self._tries[key, step] >= TRIES:
            self._fail(job, f"ended {TRIES} times without coming further: {words} (log: {job.log})")
            return
        self.console.say(f"to be continued: {job.title}: {words}")
        self._asked -= {(job.kind, item) for item in job.items}

    def _fail(self, job: Job, reason: str) -> None:
        """Nobody else stops for it."""
        self.console.say(f"FAILED: {job.title}: {reason}")
        self.failed[job.title] = reason
        if job.kind in (TRAIN, DATA):
            cell = job.unit.cell
            self.blocked.add(cell.folder if job.kind == TRAIN else str(self.space.data_file(cell)))

    def _wind_down(self) -> None:
        """Stop everything, keep everything: what is trained but not scored must travel."""
        if self.running:
            self.console.say("stopping" if self.stop or self.budget.left > 0 else "stopping: the budget is spent")
        for run in self.running:
            if run.job.kind != PACK:
                run.stopping = True
                run.handle.stop()
        until = self.budget.last_moment
        while time.monotonic() < until:
            self._reap()
            if self.how.packs:
                self.pack()
            if not self.running:
                return
            time.sleep(POLL_S)
        for run in self.running:
            run.handle.wait(0.1)


def progress(run: Running) -> tuple[float, str]:
    """(share done, a word on it) of a job, read from the files it writes."""
    if run.job.kind != TRAIN:
        return 0.0, f"{clock(run.seconds)}, {last_line(run.job.log, 'starting')[:60]}"
    unit = run.job.unit
    step, rate = unit.progress()
    left = f", {clock((unit.cell.steps - step) / rate)} left" if rate else ""
    note = f"{step:,} of {unit.cell.steps:,}, {rate * len(unit.seeds):,.0f} seed-steps/s{left}"
    return step / unit.cell.steps, note if rate else last_line(run.job.log, "starting")[:60]
