"""The run directory: what a run is, what it did, and where it stands, in files anyone can read."""

import json
import os
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cta import provenance
from cta.agents import find
from cta.config import RunConfig, from_dict, to_dict
from cta.errors import CtaError
from cta.training.logs import CsvLog

EVAL_COLUMNS = ("dataset", "agent", "seed", "step", "task", "episodes", "successes")


class RunDir:
    """`config.json`, `provenance.json`, `train.csv`, `eval.csv`, `checkpoints/`, `tensorboard/`."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.videos = path / "videos"

    @classmethod
    def create(cls, config: RunConfig) -> "RunDir":
        """A fresh directory holding the config, before anything slow happens."""
        run = cls(Path(config.run_dir).expanduser() if config.run_dir else default_path(config))
        if (run.path / "config.json").exists():
            raise CtaError(f"{run.path} already holds a run: `cta resume {run.path}` continues it, or choose --run-dir")
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            stored = to_dict(replace(config, run_dir=str(run.path)))
            write_json(run.path / "config.json", stored)
            run.record({"command": provenance.command(), "versions": provenance.versions()})
            run.eval_log()
            (run.path / "train.csv").touch()
            run.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise CtaError(f"{run.path}: cannot write the run directory ({error.strerror})") from error
        return run

    @classmethod
    def open(cls, path: str | Path) -> "RunDir":
        run = cls(Path(path).expanduser())
        if not run.path.is_dir():
            raise CtaError(f"{path}: no such run directory")
        if not (run.path / "config.json").is_file():
            raise CtaError(f"{path} is not a run directory: it has no config.json")
        return run

    def config(self) -> RunConfig:
        """The run's config, as written when it began."""
        where = self.path / "config.json"
        values = read_json(where)
        name, agent = values.get("agent_name"), values.pop("agent", None)
        if not isinstance(name, str):
            raise CtaError(f"{where}: agent_name is missing")
        config = from_dict(RunConfig, {**values, "agent": {}}, str(where))
        # RunConfig itself cannot know which agent's fields to expect.
        agent = from_dict(type(find(name).config), agent, f"{where}: agent")
        return replace(config, agent=agent, run_dir=str(self.path))

    def record(self, facts: dict[str, Any]) -> None:
        """Add facts to provenance.json."""
        where = self.path / "provenance.json"
        known = read_json(where) if where.exists() else {}
        write_json(where, {**known, **facts})

    def provenance(self) -> dict[str, Any]:
        return read_json(self.path / "provenance.json")

    def train_log(self) -> CsvLog:
        return CsvLog(self.path / "train.csv")

    def eval_log(self, name: str = "eval.csv") -> CsvLog:
        return CsvLog(self.path / name, EVAL_COLUMNS)


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
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("w") as file:
        json.dump(values, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CtaError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise CtaError(f"{path}: expected a JSON object")
    return values
