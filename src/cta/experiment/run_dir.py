"""The run directory: what a run is, what it did, and where it stands, in files anyone can read."""

import contextlib
import json
import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cta.agents import find, find_stored
from cta.config import AgentConfig, RunConfig, from_dict, settings_key, to_dict
from cta.errors import CtaError
from cta.io import provenance
from cta.io.csv_log import CsvLog
from cta.io.files import lock_at_once, open_claimed, remove_unfinished, safe_name, user_path
from cta.io.json_files import RUN, check_data, read_json, write_json
from cta.ooc.cut import RECORD_KEY
from cta.plugins import is_code
from cta.presets import agent_preset
from cta.scores.schema import COLUMNS, HELD_OUT, RANDOM, WHOLE, CellKey
from cta.training.checkpoints import Checkpoints

WATCH_SECONDS = 20.0  # how long the lock of another machine is watched before its owner counts as gone


class RunDir:
    """`config.json`, `provenance.json`, `status.json`, `{train,eval,events}.csv`, `checkpoints/`, `tensorboard/`."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints, self.tensorboard, self.videos = (path / p for p in ("checkpoints", "tensorboard", "videos"))
        self.code = ""  # the agent's name if it is code of one's own, which `--agent` must name again
        self.unverified = False  # whether checkpoints that have no checksums are used
        self._lock: RunLock | None = None
        self._recording = threading.Lock()

    @classmethod
    def create(cls, config: RunConfig) -> "RunDir":
        """A fresh directory, locked, holding the config before anything slow happens."""
        run = cls(run_path(config))
        run.code = config.agent_name if is_code(config.agent_name) else ""
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            run.acquire()
            run.check_free()
            run.eval_log()
            (run.path / "train.csv").touch()
            run.checkpoints.mkdir(exist_ok=True)
            run.record({"command": provenance.command(), "versions": provenance.versions()})
            # Last: with a config a directory is a run, which `resume` can begin with.
            write_json(run.path / "config.json", to_dict(replace(config, run_dir=str(run.path))))
        except BaseException as error:
            run.release()
            if isinstance(error, OSError):
                raise CtaError(f"{run.path}: cannot write the run directory ({error.strerror})") from error
            raise
        return run

    def check_free(self) -> None:
        if (self.path / "config.json").exists():
            raise CtaError(f"{self.path} already holds a run: {self.resume_command} continues it, or choose --run-dir")

    @property
    def resume_command(self) -> str:
        agent = f" --agent {shlex.quote(self.code)}" if self.code else ""
        return f"`cta resume {shlex.quote(str(self.path))}{agent}`"

    def withdraw(self) -> None:
        """Undo `create`, so that the same command can be given again, corrected."""
        # The config first: without it a directory is no run.
        for name in ("config.json", "provenance.json", "status.json", "train.csv", "eval.csv"):
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
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @classmethod
    def open(cls, path: str | Path, *, agent: str | None = None, unverified: bool = False) -> "RunDir":
        """A directory that holds a run; `agent` is imported if it is code, which a name in the run never is."""
        run = cls(user_path(path))
        if not run.path.is_dir():
            raise CtaError(f"{path}: no such run directory")
        if not (run.path / "config.json").is_file():
            raise CtaError(f"{path} is not a run directory: it has no config.json")
        for file in (*run.path.glob("*.json"), *run.path.glob("*.csv")):
            if not file.is_file():  # a pipe or a device would be read without end
                raise CtaError(f"{file} is not a file")
        run.unverified, run.code = unverified, "" if agent is None else find(agent).name
        return run

    def config(self) -> RunConfig:
        config = read_config(self.path / "config.json", code=self.code)
        self.code = config.agent_name if is_code(config.agent_name) else ""
        return replace(config, run_dir=str(self.path))

    def set_status(self, state: str, *, step: int | None = None, reason: str = "") -> None:
        """How the run stands, for people and for whatever starts runs. A killed process leaves `running`, unlocked."""
        values = {"state": state, "step": step, "reason": reason, "time": now(), "pid": os.getpid()}
        # Why it failed may be why this cannot be written.
        with contextlib.suppress(*([] if state == "finished" else [CtaError])):
            write_json(self.path / "status.json", values)

    def set_steps(self, steps: int) -> None:
        """Let the run end at this step; for whoever holds the lock."""
        old = self.config()
        new = replace(old, steps=steps)
        new.check()
        done = max(Checkpoints(self.checkpoints, create=True).steps(), default=0)
        if steps < done:
            raise CtaError(f"--steps {steps}: {self.path} has {done} steps already; give {done} or more")
        if steps == old.steps:
            return
        # What was logged only because the run ended there goes: a run begun with more steps would not have it.
        intervals = {"train.csv": old.log_interval, "eval.csv": old.eval_interval, "offline.csv": old.eval_interval}
        for name, interval in intervals.items():
            if interval and old.steps % interval:
                CsvLog(self.path / name).keep(lambda row: row.get("step") != str(old.steps))
        facts = {name: value for name, value in self.provenance().items() if name != "finished"}
        write_json(self.path / "provenance.json", facts)
        write_json(self.path / "config.json", to_dict(new))

    def record(self, facts: dict[str, Any]) -> None:
        with self._recording:
            write_json(self.path / "provenance.json", {**self.provenance(), **facts})

    def note(self, kind: str, text: str, *, step: int | None = None, seed: int | None = None) -> None:
        """Add a line to events.csv: what befell the run. Nothing else depends on it, not even a disk with room."""
        row = {"time": now(), "kind": kind, "step": step, "seed": seed, "text": text}
        with contextlib.suppress(OSError), self._recording:
            CsvLog(self.path / "events.csv", tuple(row)).append([row])

    def provenance(self) -> dict[str, Any]:
        """What is known of how it was made; nothing where there is no such file."""
        where = self.path / "provenance.json"
        if not where.exists():
            return {}
        facts = read_json(where, RUN)
        check_data(facts.get("dataset"), str(where))
        return facts

    def eval_log(self) -> CsvLog:
        return CsvLog(self.path / "eval.csv", COLUMNS)

    def cell(self, config: RunConfig) -> CellKey:
        data = self.provenance().get("dataset") or {}
        return cell_key(config.dataset_name, config.agent_name, config.agent, data).check(str(self.path))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def read_config(where: Path, *, code: str = "") -> RunConfig:
    """The config in a file; if its agent is code of one's own, that must be what was named, `code`."""
    values = read_json(where)
    name, agent = values.get("agent_name"), values.pop("agent", None)
    if not isinstance(name, str):
        raise CtaError(f"{where}: agent_name is missing")
    if code not in ("", name):
        raise CtaError(f"{where}: this run's agent is {name}, not {code}")
    entry = find_stored(name, where)
    config = from_dict(RunConfig, {**values, "agent": {}}, str(where))
    # RunConfig itself cannot know which agent's fields to expect.
    config = replace(config, agent=from_dict(type(entry.config), agent, f"{where}: agent"))
    try:
        config.check()
    except CtaError as error:
        raise CtaError(f"{where}: {error}") from None
    return config


def run_path(config: RunConfig) -> Path:
    """Where a new run goes: by default to SAVE_DIR/[GROUP/]DATASET/AGENT-TIME."""
    if config.run_dir:
        return Path(config.run_dir).expanduser()
    folder = Path(config.save_dir, config.group or "", config.dataset_name).expanduser()
    path = folder / f"{safe_name(config.agent_name)}-{time.strftime('%Y%m%d-%H%M%S')}"
    return path if not path.exists() else path.with_name(f"{path.name}-{os.getpid()}")


def cut_of(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `cta ooc cut` took out of the data that a record or provenance.json describes; None if nothing."""
    return (data.get("provenance") or {}).get(RECORD_KEY)


def condition_of(data: Mapping[str, Any]) -> str:
    """On what an agent was trained that learned from these data."""
    cut = cut_of(data)
    return WHOLE if cut is None else RANDOM if cut.get("kind") == RANDOM else HELD_OUT


def cell_key(dataset: str, agent: str, config: AgentConfig, data: Mapping[str, Any]) -> CellKey:
    changes = settings_key(config, agent_preset(find(agent).config, dataset))
    if data.get("normalised"):
        changes = ";".join(filter(None, [changes, "normalise_observations=True"]))
    return CellKey(dataset, agent, changes, condition_of(data))


class RunLock:
    """`RUN/lock`, held until `release` or the end of the process. `say` hears when a dead owner is succeeded.

    The kernel's file lock decides wherever the file system has one: it goes with the process that took it, so a stale
    file or a process number used again mean nothing. What the file says is for people, and for file systems that do not
    pass locks on to other machines: there its owner touches the file, and who wants it watches whether it is touched.
    """

    def __init__(self, run: Path, *, say: Callable[[str], None] = lambda text: None):
        self.path, self._run, self._say = run / "lock", run, say
        try:
            self._file = open_claimed(self.path, self._claim)
        except OSError as error:
            raise CtaError(f"{run}: this run directory cannot be written ({error.strerror})") from error
        self._released = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="lock", daemon=True)
        self._beats.start()

    def release(self) -> None:
        self._released.set()
        self._beats.join()
        # While the lock is still held: nobody else can have put a file of theirs here.
        self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _claim(self, file: int) -> None:
        """Lock the file and write our name into it, or say who has it."""
        locked, owner = lock_at_once(file), _read(file)
        if locked is False:
            raise self._in_use(owner)
        if owner and owner.get("boot") != _boot():
            self._watch(owner)
        elif owner and not locked and _started(owner.get("pid")) == owner.get("started"):
            raise self._in_use(owner)
        if owner:
            self._say(f"taking over from process {owner.get('pid')} on {owner.get('host')}, which is gone")
        me = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "started": _started(os.getpid())}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(me).encode(), 0)

    def _watch(self, owner: dict[str, Any]) -> None:
        """The owner was on another machine (or before a restart of this one): is the file still touched?"""
        first = self._touched()
        self._say(f"{self.path}: held on {owner.get('host')}; watching for {WATCH_SECONDS:.0f} s whether it is alive")
        until = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < until:
            time.sleep(min(1.0, WATCH_SECONDS / 4))
            if self._touched() != first:
                raise self._in_use(owner)

    def _touched(self) -> int:
        # Opening makes a network file system ask its server; the clocks of the machines are never compared.
        try:
            with self.path.open() as file:
                return os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _in_use(self, owner: dict[str, Any]) -> CtaError:
        who = f"process {owner['pid']} on {owner.get('host')}" if "pid" in owner else "another process"
        return CtaError(f"{self._run} is in use by {who}; wait for it, stop it, or choose another --run-dir")

    def _beat(self) -> None:
        while not self._released.wait(5.0):
            with contextlib.suppress(OSError):  # the disk is gone or read-only: whoever writes numbers says so
                os.utime(self._file)


def _read(file: int) -> dict[str, Any]:
    try:
        values = json.loads(os.pread(file, 4096, 0))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _boot() -> str:
    """This machine since it was last started; host names are given twice more often than one thinks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _started(pid: Any) -> str | None:
    """When a process began, in ticks since the start of the machine: tells it from a later one of the same number."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, ValueError, TypeError, IndexError):
        return None
