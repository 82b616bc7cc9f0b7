"""The run directory: what a run is, what it did, and where it stands, in files anyone can read."""

import contextlib
import json
import os
import re
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cta import provenance
from cta.agents import find
from cta.config import RunConfig, from_dict, to_dict
from cta.data.files import remove_unfinished, user_path, write_whole
from cta.errors import CtaError
from cta.experiment.lock import RunLock
from cta.training.logs import CsvLog

EVENT_COLUMNS = ("time", "kind", "step", "seed", "text")
EVAL_COLUMNS = ("dataset", "agent", "seed", "step", "task", "episodes", "successes")


class RunDir:
    """`config.json`, `provenance.json`, `train.csv`, `eval.csv`, `events.csv`, `checkpoints/`, `tensorboard/`."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.videos = path / "videos"
        self._lock: RunLock | None = None
        self._recording = threading.Lock()

    @classmethod
    def create(cls, config: RunConfig) -> "RunDir":
        """A fresh directory, locked, holding the config before anything slow happens."""
        run = cls(Path(config.run_dir).expanduser() if config.run_dir else default_path(config))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CtaError(f"{run.path}: cannot write the run directory ({error.strerror})") from error
        run.acquire()
        try:
            run.check_free()
            stored = to_dict(replace(config, run_dir=str(run.path)))
            run.eval_log()
            (run.path / "train.csv").touch()
            run.checkpoints.mkdir(exist_ok=True)
            run.record({"command": provenance.command(), "versions": provenance.versions()})
            # Last: with a config a directory is a run, which `resume` can begin with.
            write_json(run.path / "config.json", stored)
        except BaseException as error:
            run.release()
            if isinstance(error, OSError):
                raise CtaError(f"{run.path}: cannot write the run directory ({error.strerror})") from error
            raise
        return run

    def check_free(self) -> None:
        """Complain if a run was begun here."""
        if (self.path / "config.json").exists():
            raise CtaError(f"{self.path} already holds a run: {self.resume_command} continues it, or choose --run-dir")

    @property
    def resume_command(self) -> str:
        """What to type to go on."""
        return f"`cta resume {shlex.quote(str(self.path))}`"

    def withdraw(self) -> None:
        """Undo `create`, so that the same command can be given again, mended."""
        # The config first: without it a directory is no run.
        for name in ("config.json", "provenance.json", "train.csv", "eval.csv"):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other things in it are not ours
            self.checkpoints.rmdir()
            self.release()
            self.path.rmdir()

    def acquire(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Become the one process that writes here; an error that names the other one if there is."""
        if self._lock is None:
            self._lock = RunLock(self.path, say=say)
            remove_unfinished(self.path)

    def release(self) -> None:
        """Let others write here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @classmethod
    def open(cls, path: str | Path) -> "RunDir":
        run = cls(user_path(path))
        if not run.path.is_dir():
            raise CtaError(f"{path}: no such run directory")
        if not (run.path / "config.json").is_file():
            raise CtaError(f"{path} is not a run directory: it has no config.json")
        for file in (*run.path.glob("*.json"), *run.path.glob("*.csv")):
            if not file.is_file():  # a pipe or a device would be read without end
                raise CtaError(f"{file} is not a file")
        return run

    def config(self) -> RunConfig:
        """The run's config, as written when it began."""
        where = self.path / "config.json"
        values = read_json(where)
        name, agent = values.get("agent_name"), values.pop("agent", None)
        if not isinstance(name, str):
            raise CtaError(f"{where}: agent_name is missing")
        if ":" in name and Path.cwd().resolve().is_relative_to(self.path.resolve()):
            # A folder from a stranger must not bring the code that opens it.
            raise CtaError(f"{where}: agent {name} is code, which is not looked for inside a run; go to another folder")
        config = from_dict(RunConfig, {**values, "agent": {}}, str(where))
        # RunConfig itself cannot know which agent's fields to expect.
        agent = from_dict(type(find(name).config), agent, f"{where}: agent")
        config = replace(config, agent=agent, run_dir=str(self.path))
        try:
            config.check()
        except CtaError as error:
            raise CtaError(f"{where}: {error}") from None
        return config

    def record(self, facts: dict[str, Any]) -> None:
        """Add facts to provenance.json."""
        where = self.path / "provenance.json"
        with self._recording:
            known = read_json(where) if where.exists() else {}
            write_json(where, {**known, **facts})

    def note(self, kind: str, text: str, *, step: int | None = None, seed: int | None = None) -> None:
        """Add a line to events.csv: what befell the run. Nothing else depends on it, not even a disk with room."""
        place = {"step": "" if step is None else step, "seed": "" if seed is None else seed}
        row = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "kind": kind, **place, "text": text}
        with contextlib.suppress(OSError), self._recording:
            CsvLog(self.path / "events.csv", EVENT_COLUMNS).append([row])

    def provenance(self) -> dict[str, Any]:
        return read_json(self.path / "provenance.json")

    def train_log(self) -> CsvLog:
        return CsvLog(self.path / "train.csv")

    def eval_log(self, name: str = "eval.csv", more: tuple[str, ...] = ()) -> CsvLog:
        return CsvLog(self.path / name, (*EVAL_COLUMNS, *more))


def default_path(config: RunConfig) -> Path:
    """SAVE_DIR/[GROUP/]DATASET/AGENT-TIME."""
    folder = Path(config.save_dir).expanduser()
    if config.group:
        folder = folder / config.group
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    # An agent from outside the package is called module:Class.
    agent = re.sub(r"[^\w.-]", "-", config.agent_name)
    path = folder / config.dataset_name / f"{agent}-{stamp}"
    return path if not path.exists() else path.with_name(f"{path.name}-{os.getpid()}")


def write_json(path: Path, values: Any) -> None:
    """Write a whole file or none of it."""
    write_whole(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise CtaError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise CtaError(f"{path}: expected a JSON object")
    return values
