"""Progress of long jobs: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

LINE_SECONDS = 15.0


class Advance(Protocol):
    """Called with how much more of the total is done."""

    def __call__(self, amount: int, /) -> None: ...


def human(amount: float) -> str:
    """1234567 → 1.2M, 0.25 → 0.2."""
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= scale:
            return f"{amount / scale:.1f}{suffix}"
    return f"{amount:.0f}" if amount >= 10 or amount == int(amount) else f"{amount:.1f}"


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if not task.speed else f"{human(task.speed)} {self._unit}/s", style="cyan")


@contextmanager
def progress(label: str, *, total: int | None, unit: str, done: int = 0) -> Iterator[Advance]:
    """Show how far a job of `total` `unit`s is, with its rate and the time left; `done` of them lie behind already."""
    console = Console(file=sys.stderr)
    if console.is_terminal:
        columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%")]
        with Progress(*columns, _RateColumn(unit), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(label, total=total, completed=done)
            yield lambda amount: bar.advance(task, amount)
    else:
        yield _Lines(label, total=total, unit=unit, done=done)


class _Lines:
    """A line every `LINE_SECONDS`, for logs."""

    def __init__(self, label: str, *, total: int | None, unit: str, done: int) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._before = self._done = done
        self._began = self._spoke = time.monotonic()

    def __call__(self, amount: int, /) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._spoke < LINE_SECONDS:
            return
        self._spoke = now
        rate = (self._done - self._before) / (now - self._began)
        text = f"{self._label}: {human(self._done)}"
        if self._total:
            left = (self._total - self._done) / rate if rate > 0 else float("inf")
            text += f" of {human(self._total)} ({self._done / self._total:.0%}), {left / 60:.1f} min left"
        print(f"{text}, {human(rate)} {self._unit}/s", file=sys.stderr, flush=True)
