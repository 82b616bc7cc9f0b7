"""What is seen of a run: progress, live on a terminal and in a notebook, plain lines elsewhere; curves; memory."""

import contextlib
import io
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cta.errors import CtaError, need_extra
from cta.io.files import safe_stream
from cta.io.text_tables import clock
from cta.scores.schema import Score
from cta.scores.statistics import task_scores

SILENCE_S = 20.0  # off a terminal, a line says what is going on after so long without one


class RunConsole:
    """Progress of one run. Context manager: the bar disappears on the way out, whatever happened."""

    def __init__(self, *, quiet: bool = False):
        notebook = Console().is_jupyter
        stream = safe_stream(sys.stdout if notebook else sys.stderr)  # notebooks paint standard error red
        terminal = False if notebook else None  # a kernel sets FORCE_COLOR
        self.console = Console(file=stream, quiet=quiet, highlight=False, force_jupyter=False, force_terminal=terminal)
        self._live = self.console.is_terminal and not quiet
        self._in_cell, self._cell, self._shown = notebook and not quiet, None, 0.0
        what, rate, note = (TextColumn(f"{{task.{name}}}") for name in ("description", "fields[rate]", "fields[note]"))
        columns = what, BarColumn(bar_width=24), MofNCompleteColumn(), rate, TimeElapsedColumn(), note
        self._progress = Progress(*columns, console=self.console, disable=not self._live)
        self._train = self._progress.add_task("train", total=None, visible=False, rate="", note="")
        self._score = self._progress.add_task("evaluate", total=None, visible=False, rate="", note="")
        self._doing, self._how_far, self._spoke = "", "", time.monotonic()
        self._began: dict[str, float] = {}
        self._over = threading.Event()

    def __enter__(self) -> "RunConsole":
        self._progress.start()
        if not self._live and not self.console.quiet:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._progress.stop()
        self._show_in_cell(at_once=True)

    def _break_silence(self) -> None:
        """Lines where there is no bar, so that a log that grows slowly is not taken for one that has stopped."""
        while not self._over.wait(min(1.0, SILENCE_S)):
            now = time.monotonic()
            if self._doing and now - self._spoke >= SILENCE_S:
                self.say(f"{self._doing}{self._how_far}, {now - self._began[self._doing]:.0f} s so far")

    def _do(self, what: str, how_far: str = "") -> None:
        self._began.setdefault(what, time.monotonic())
        self._doing, self._how_far = what, how_far

    def say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self.console.print(text, soft_wrap=True, markup=False)

    def loud(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, style="bold")

    def waiting(self, text: str) -> None:
        """Something slow begins that has no measure of progress."""
        self._do(text)
        if self._live:
            self._progress.update(self._train, visible=True, note=text)
        else:
            self.say(text)

    def steps(self, done: int, total: int, rate: float) -> None:
        self._do("training", f": step {done:,} of {total:,}")
        fast, left = (f"{rate:,.0f} steps/s", f"{clock((total - done) / rate)} left") if rate else ("", "")
        self._progress.update(self._train, completed=done, total=total, visible=True, rate=fast, note=left)
        self._show_in_cell()

    def _show_in_cell(self, *, at_once: bool = False) -> None:
        """The bars as text below a notebook's cell, written again in place twice a second; needs no widgets."""
        now = time.monotonic()
        if not self._in_cell or (now - self._shown < 0.5 and not at_once):
            return
        self._shown = now
        page = Console(file=io.StringIO(), width=100, force_jupyter=False, force_terminal=False)
        with page.capture() as text:
            page.print(self._progress.get_renderable())
        bundle = {"text/plain": text.get().rstrip()}
        if self._cell is None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            self._cell = display(bundle, raw=True, display_id=True)
        else:
            self._cell.update(bundle, raw=True)

    def metrics(self, step: int, total: int, rows: Sequence[Mapping[str, Any]], rate: float) -> None:
        """A row of train.csv, in short: every loss, averaged over seeds."""
        losses = [name for name in rows[0] if name.startswith("training/") and name.endswith("_loss")]
        text = "  ".join(f"{_short(name)} {fmean(float(row[name]) for row in rows):.4g}" for name in losses)
        left = clock((total - step) / rate) if rate else "?"
        self.say(f"step {step:>9,}  {rate:,.0f} steps/s  left {left}  {text}")

    def episodes(self, step: int, seed: int, done: int, total: int) -> None:
        self._do("evaluating", f" step {step:,}, seed {seed}: {done:,} of {total:,} episodes")
        note = f"step {step:,}, seed {seed}"
        self._progress.update(self._score, completed=done, total=total, visible=done < total, note=note)
        self._show_in_cell()

    def scores(self, step: int, rows: Sequence[Score]) -> None:
        """An evaluation, in short: success per task and overall, averaged over seeds."""
        rates = {task: fmean(by_seed.values()) for task, by_seed in task_scores(rows).items()}
        per_task = "  ".join(f"task{task} {rate:.0f}%" for task, rate in rates.items())
        mean = f"[bold]success {fmean(rates.values()):.1f}%[/bold]"
        self.console.print(f"step {step:>9,}  {mean}  ({per_task})", soft_wrap=True)

    def orders(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """How well values order held-out trajectories, averaged over seeds."""
        names = [name for name in (rows[0] if rows else []) if name.endswith("_order")]
        means = [f"{_short(name)} {fmean(row[name] for row in rows):.3f}" for name in names]
        if means:
            self.say(f"step {step:>9,}  order of held-out trajectories: {'  '.join(means)}")

    def peaks(self) -> None:
        device = peak_device_bytes()
        more = "" if device is None else f", device {device / 2**30:.2f} GiB"
        self.say(f"peak memory: host {peak_host_bytes() / 2**30:.2f} GiB{more}")


def _short(name: str) -> str:
    return name.removeprefix("training/").removesuffix("_loss").removesuffix("_order").replace("/", "·")


class TensorBoardLog:
    """Event files, one folder a seed. After a resume TensorBoard drops what was logged beyond `step` before."""

    def __init__(self, folder: Path, *, step: int = 0):
        self._folder, self._step = folder, step
        self._writers: dict[int, Any] = {}
        self._writing = threading.Lock()  # training and evaluation log from threads of their own

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        with self._writing:
            if seed not in self._writers:
                # The writer below SummaryWriter: without its thread, in which a full disk would go unheard.
                folder = self._folder / f"seed_{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                self._writers[seed] = EventsWriter(str(folder / "events"), f".{os.getpid()}.{self._step}")
                start = SessionLog(status=SessionLog.START)
                self._writers[seed].write_event(Event(wall_time=time.time(), step=self._step + 1, session_log=start))
            for name, value in values.items():
                self._writers[seed].write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
            self._writers[seed].flush()

    def close(self) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()


class WandbLog:
    """One Weights & Biases run a seed; continued under the same id when the run resumes."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], seeds: Sequence[int], group: str | None):
        need_extra("wandb", "wandb", "--wandb")
        import wandb  # pyright: ignore[reportMissingImports]

        try:
            common = {"project": "cta", "group": group or run_dir.name, "dir": run_dir}
            common |= {"resume": "allow", "reinit": "create_new"}
            self._runs = {}
            for seed in seeds:
                name = f"{run_dir.name}-seed{seed}"
                own = {"name": name, "id": f"{run_dir.parent.name}-{name}", "config": {**config, "seed": seed}}
                self._runs[seed] = wandb.init(**common, **own)
        except wandb.Error as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise CtaError(f"Weights & Biases: {why}; without a connection, set WANDB_MODE=offline") from error

    def scalars(self, seed: int, step: int, values: Mapping[str, float]) -> None:
        self._runs[seed].log({"step": step, **values})

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()


def peak_host_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_device_bytes() -> int | None:
    """Most bytes in use on the device so far; None where the device does not count (a CPU shares the host's)."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
