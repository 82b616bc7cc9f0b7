"""What a person sees of a plan under way: bars on a terminal, plain lines elsewhere."""

import sys
import time

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cta.io.files import safe_stream

LINE_SECONDS = 20.0


class Console:
    """Says what happens, and shows how far the jobs under way are. Call `tick` often."""

    def __init__(self) -> None:
        self.console = RichConsole(file=safe_stream(sys.stderr), highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[note]}"))
        # No refreshing thread: the runner starts processes.
        self._bars = Progress(*columns, console=self.console, auto_refresh=False, disable=not self.console.is_terminal)
        self._tasks: dict[str, TaskID] = {}
        self._began = self._spoke = time.monotonic()

    def __enter__(self) -> "Console":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """A line that stays, with the time since the start."""
        self.console.print(f"[{clock(time.monotonic() - self._began)}] {text}", soft_wrap=True, markup=False)

    def tick(self, jobs: dict[str, tuple[float | None, str]]) -> None:
        """{job: (share done, note)} of everything that runs."""
        for name in [name for name in self._tasks if name not in jobs]:
            self._bars.remove_task(self._tasks.pop(name))
        for name, (share, note) in jobs.items():
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=1.0, note="")
            self._bars.update(self._tasks[name], completed=share or 0.0, note=note)
        if self.console.is_terminal:
            self._bars.refresh()
        elif jobs and time.monotonic() - self._spoke > LINE_SECONDS:
            self._spoke = time.monotonic()
            self.say(" | ".join(f"{name}: {note}" for name, (_, note) in jobs.items()))


def clock(seconds: float) -> str:
    """75 → 1:15."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
