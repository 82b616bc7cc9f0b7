"""Where curves go: TensorBoard, and W&B when asked for."""

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cta.errors import CtaError


class TensorBoardLog:
    """Event files, one folder a seed. After a resume TensorBoard drops what was logged beyond `step` before."""

    def __init__(self, folder: Path, *, step: int = 0):
        self._folder, self._step = folder, step
        self._writers: dict[int, Any] = {}
        self._writing = threading.Lock()
        """Training and evaluation log from threads of their own."""

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


def import_wandb() -> Any:
    """The package, or a line that says how to get it."""
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CtaError("--wandb needs the wandb package: pip install 'cta[wandb]'") from error
    return wandb


class WandbLog:
    """One Weights & Biases run a seed; continued under the same id when the run resumes."""

    def __init__(self, run_dir: Path, config: Mapping[str, Any], seeds: Sequence[int], group: str | None):
        wandb = import_wandb()
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


MetricLog = TensorBoardLog | WandbLog
"""What shows scalars over steps."""
