"""What will be trained in the time left, given what is known of speed now."""

import time

from cta.reproduce.jobs import Job
from cta.reproduce.plan import PlannedCell
from cta.reproduce.rates import Rates
from cta.reproduce.schedule import Option, Schedule, schedule
from cta.reproduce.units import Unit
from cta.reproduce.watch import generated_share, training_progress
from cta.reproduce.work import Workspace

CUT_S = 40.0
"""Cutting held-out pairs out of a million rows."""


class Forecast:
    """Puts the workspace, the rates and the clock together for `schedule`."""

    def __init__(self, space: Workspace, rates: Rates, *, cores: int, deadline: float | None, partial: bool):
        self.space, self.rates = space, rates
        self._cores, self._deadline, self._partial = cores, deadline, partial

    def ahead(self, failed: set[object], training: Job | None = None, making: Job | None = None) -> Schedule:
        """Choices and data to make, without what has failed, beside the jobs under way."""
        now = time.monotonic()
        free = now if training is None else now + (self._seconds_left(training) or 0.0)
        ready = {cell.material: now for cell in self.space.plan.cells if self.space.data_file(cell).exists()}
        if making is not None:
            ready[making.subject.material] = now + self._data_left(making)
        return schedule(
            self._options(failed, training.subject if training else None),
            now=now,
            deadline=self._deadline,
            accelerator_free=free,
            ready=ready,
            generate_seconds=self.data_seconds,
            train_seconds=lambda cell, seeds, steps: self.rates.train_seconds(cell.agent, cell.dataset, seeds, steps),
            certain=lambda cell: self.rates.known(cell.agent),
            partial=self._partial,
        )

    def data_seconds(self, cell: PlannedCell) -> float:
        """Time to make a cell's data."""
        made = self.space.generated_file(cell).exists()
        seconds = 0.0 if made else self.rates.generate_seconds(self.space.rows_to_generate(cell), self._cores)
        return seconds + (CUT_S if cell.held_out else 0.0)

    def _options(self, failed: set[object], busy: Unit | None) -> list[Option]:
        """Runs to continue, then seeds to begin, in the plan's order."""
        begun, fresh = [], []
        for cell in self.space.plan.cells:
            if cell.material in failed or cell in failed:
                continue
            trained = self.space.trained(cell)
            for unit in self.space.units(cell):
                if unit != busy and unit not in failed and not unit.finished and not set(unit.seeds) <= trained:
                    begun.append(Option(cell, unit.seeds, cell.steps - unit.step, fixed=True))
            seeds = [s for s in self.space.untouched(cell) if busy is None or cell != busy.cell or s not in busy.seeds]
            if seeds:
                fresh.append(Option(cell, tuple(seeds), cell.steps))
        return [*begun, *fresh]

    def _data_left(self, job: Job) -> float:
        share = generated_share(self.space, job.subject)
        if 0.05 < share < 1:
            cut = CUT_S if job.subject.held_out else 0.0
            return max(1.0, job.seconds * (1 - share) / share) + cut
        return max(1.0, self.data_seconds(job.subject) - job.seconds)

    def _seconds_left(self, job: Job) -> float | None:
        unit: Unit = job.subject
        step, rate = training_progress(unit)
        if rate:
            return (unit.cell.steps - step) / rate
        whole = self.rates.train_seconds(unit.cell.agent, unit.cell.dataset, len(unit.seeds), unit.cell.steps)
        return None if whole is None else max(1.0, whole - job.seconds)
