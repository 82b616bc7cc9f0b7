"""What the accelerator does: one run at a time, and a rehearsal while its data are made."""

import shutil
import time

from cta.reproduce.board import Board
from cta.reproduce.crew import Crew, Options
from cta.reproduce.jobs import REHEARSE, TRAIN, Job, fresh_words, train_words
from cta.reproduce.rates import START_S, WARM_START_S, Rates
from cta.reproduce.rehearsal import FOLDER, random_file, rehearsed
from cta.reproduce.schedule import Choice
from cta.reproduce.units import Unit
from cta.reproduce.watch import data_notices, training_progress
from cta.reproduce.work import Workspace

EARLY = (0.02, 0.25)
"""Between these shares of its steps, a run that turns out too slow for the budget is begun again with fewer seeds."""
MARGIN = 1.02
"""Less than what a run is begun with (`rates.SLOWER`): who has begun is given up only for being slower than thought."""
MEASURED_S = 20.0
"""A process younger than this has not come up to speed."""


class Accelerator:
    """Trains, rehearses, learns the speed, and gives up in time what cannot end in time."""

    def __init__(
        self, crew: Crew, space: Workspace, rates: Rates, options: Options, board: Board, deadline: float | None
    ):
        self._crew, self._space, self._rates, self._board = crew, space, rates, board
        self._options, self._deadline = options, deadline
        self._said: set[str] = set()
        self._rehearsed: set[tuple[object, ...]] = set()
        self._seconds_before = 0.0

    def train(self, choice: Choice) -> None:
        """Begin or continue a run."""
        rehearsal = self._crew.doing(REHEARSE)
        if rehearsal is not None:
            self._crew.end(rehearsal, 5)
        shutil.rmtree(self._space.folder / FOLDER, ignore_errors=True)
        unit = self._space.unit(choice.cell, choice.seeds)
        self._seconds_before = self._space.clock(unit)
        begun = f", from step {unit.step:,}" if unit.begun else ""
        self._crew.begin(TRAIN, unit.name + begun, unit, train_words(self._space, unit))

    def rehearse(self, choice: Choice) -> None:
        """Once for each number of seeds, one after the other."""
        key = choice.cell, choice.seeds
        if not self._options.rehearse or self._crew.doing(REHEARSE) is not None or key in self._rehearsed:
            return
        self._rehearsed.add(key)
        unit = rehearsed(self._space, choice)
        if unit is not None:
            data = str(random_file(self._space, unit.cell))
            self._crew.begin(REHEARSE, unit.name, unit, fresh_words(unit, "--dataset", data))

    def watch(self) -> None:
        """Learn the rate; begin again with fewer seeds if the run cannot end in time."""
        rehearsal, job = self._crew.doing(REHEARSE), self._crew.doing(TRAIN)
        if rehearsal is not None:
            # How many rows a cut will leave is not known: that program is compiled when it is there.
            self._measure(rehearsal, START_S if rehearsal.subject.cell.held_out else WARM_START_S)
        if job is None:
            return
        self.note_clock(job)
        self._compare_data(job.subject)
        step, rate = self._measure(job, START_S)
        if not rate or self._deadline is None or self._options.partial:
            return
        unit: Unit = job.subject
        early = EARLY[0] <= step / unit.cell.steps <= EARLY[1] and not unit.checkpoints()
        if early and (unit.cell.steps - step) / rate * MARGIN > self._deadline - time.monotonic():
            self._board.say(f"too slow for the budget ({rate:,.0f} steps/s): {unit.name} is given up at step {step:,}")
            self._crew.end(job, 30)
            shutil.rmtree(unit.path, ignore_errors=True)

    def _measure(self, job: Job, start: float) -> tuple[int, float]:
        """(step, steps per second) of a run, noted; no rate before it is up to speed."""
        unit: Unit = job.subject
        step, rate = training_progress(unit)
        if not rate or job.seconds < MEASURED_S:
            return step, 0.0
        self._rates.measured(unit.cell.agent, unit.cell.dataset, len(unit.seeds), rate * len(unit.seeds), start)
        return step, rate

    def note_clock(self, job: Job) -> None:
        """Keep how long a run's processes have taken so far."""
        self._space.set_clock(job.subject, self._seconds_before + job.seconds)

    def _compare_data(self, unit: Unit) -> None:
        """Say so if a record knows another fingerprint of the same data."""
        if str(unit.path) in self._said:
            return
        found = data_notices(self._space, unit)
        if found is not None:
            self._said.add(str(unit.path))
            for notice in set(found) - self._said:
                self._said.add(notice)
                self._board.say(f"notice: {notice}")
