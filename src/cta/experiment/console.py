"""What a person sees of a run: a live progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cta.streams import listener


class RunConsole:
    """Progress of one run. Context manager: the bar disappears on the way out, whatever happened."""

    def __init__(self, *, quiet: bool = False):
        self.console = Console(file=listener(sys.stderr), quiet=quiet, highlight=False)
        self._live = self.console.is_terminal and not quiet
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=self.console, disable=not self._live)
        self._train = self._progress.add_task("train", total=None, visible=False, rate="", note="")
        self._score = self._progress.add_task("evaluate", total=None, visible=False, rate="", note="")
        self._said = time.monotonic()

    def __enter__(self) -> "RunConsole":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, soft_wrap=True, markup=False)

    def loud(self, text: str) -> None:
        """A line that stays and should not be missed."""
        self.console.print(text, soft_wrap=True, markup=False, style="bold")

    def waiting(self, text: str) -> None:
        """Something slow begins that has no measure of progress."""
        if self._live:
            self._progress.update(self._train, visible=True, note=text)
        else:
            self.say(text)

    def steps(self, done: int, total: int, rate: float) -> None:
        """The training bar."""
        self._progress.update(
            self._train, completed=done, total=total, visible=True, rate=f"{rate:,.0f} steps/s" if rate else "", note=""
        )

    def metrics(self, step: int, total: int, rows: Sequence[Mapping[str, Any]], rate: float) -> None:
        """A row of train.csv, in short: every loss, averaged over seeds."""
        losses = [name for name in rows[0] if name.startswith("training/") and name.endswith("_loss")]
        means = {name: sum(float(row[name]) for row in rows) / len(rows) for name in losses}
        text = "  ".join(f"{_short(name)} {value:.4g}" for name, value in means.items())
        left = _clock((total - step) / rate) if rate else "?"
        self._said = time.monotonic()
        self.say(f"step {step:>9,}  {rate:,.0f} steps/s  left {left}  {text}")

    def episodes(self, step: int, seed: int, done: int, total: int) -> None:
        """The evaluation bar."""
        self._progress.update(
            self._score,
            completed=done,
            total=total,
            visible=done < total,
            note=f"step {step:,}, seed {seed}",
        )

    def waiting_for_scores(self, count: int) -> None:
        if count:
            self.say(f"training is done; waiting for {count} evaluation{'s' if count > 1 else ''}")

    def scores(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """An evaluation, in short: success per task and overall, averaged over seeds."""
        tasks = sorted({row["task"] for row in rows})
        rates = []
        for task in tasks:
            mine = [row for row in rows if row["task"] == task]
            rates.append(100 * sum(r["successes"] for r in mine) / sum(r["episodes"] for r in mine))
        per_task = "  ".join(f"task{task} {rate:.0f}%" for task, rate in zip(tasks, rates, strict=True))
        mean = f"[bold]success {sum(rates) / len(rates):.1f}%[/bold]"
        self.console.print(f"step {step:>9,}  {mean}  ({per_task})", soft_wrap=True)

    def orders(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """How well values order held-out trajectories, averaged over seeds."""
        names = [name for name in (rows[0] if rows else []) if name.endswith("_order")]
        means = [f"{_short(name)} {sum(row[name] for row in rows) / len(rows):.3f}" for name in names]
        if means:
            self.say(f"step {step:>9,}  order of held-out trajectories: {'  '.join(means)}")


def _short(name: str) -> str:
    return name.removeprefix("training/").removesuffix("_loss").removesuffix("_order").replace("/", "·")


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
