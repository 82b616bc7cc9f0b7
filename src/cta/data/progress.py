"""Progress of long jobs: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 15.0
Advance = Callable[[int], None]  # called with how much more of the total is done


def human(amount: float) -> str:
    """1234567 → 1.2M, 0.25 → 0.2."""
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= scale:
            return f"{amount / scale:.1f}{suffix}"
    return f"{amount:.0f}" if amount >= 10 or amount == int(amount) else f"{amount:.1f}"


@contextmanager
def progress(label: str, *, total: int | None, unit: str, done: int = 0) -> Iterator[Advance]:
    """Show how far a job of `total` `unit`s is, with its rate and the time left; `done` of them lie behind already."""
    began = spoke = time.monotonic()
    now, console = done, Console(file=sys.stderr)
    words = [TextColumn("{task.percentage:>3.0f}%"), TextColumn("[cyan]{task.fields[rate]}"), TimeRemainingColumn()]
    bar = Progress(TextColumn("{task.description}"), BarColumn(), *words, console=console)
    task = bar.add_task(label, total=total, completed=done, rate="")

    def advance(amount: int) -> None:
        nonlocal now, spoke
        now += amount
        rate = (now - done) / max(1e-9, time.monotonic() - began)
        bar.update(task, completed=now, rate=f"{human(rate)} {unit}/s")
        if not console.is_terminal and time.monotonic() - spoke >= LINE_SECONDS:
            spoke = time.monotonic()
            minutes = (total - now) / max(1e-9, rate) / 60 if total else 0
            left = f" of {human(total)} ({now / total:.0%}), {minutes:.1f} min left" if total else ""
            print(f"{label}: {human(now)}{left}, {human(rate)} {unit}/s", file=sys.stderr, flush=True)

    with bar if console.is_terminal else nullcontext():
        yield advance
