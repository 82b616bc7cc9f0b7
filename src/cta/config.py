"""Typed, immutable settings of runs (and, from `cta.agent_configs`, of agents). Plain data: no JAX."""

import contextlib
import dataclasses
import types
import typing
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from tyro.conf import arg

from cta.agent_configs import (
    ActorConfig,
    AgentConfig,
    ConditionedConfig,
    CrlConfig,
    DualConfig,
    EtaConfig,
    Extraction,
    GcbConfig,
    GciqlConfig,
    GcivlConfig,
    ImplicitValueConfig,
    QrlConfig,
    Sizes,
    TrunkConfig,
    TwoLevelConfig,
)
from cta.errors import CtaError
from cta.ranges import LARGEST

__all__ = [
    "ActorConfig",
    "AgentConfig",
    "ConditionedConfig",
    "CrlConfig",
    "DualConfig",
    "EtaConfig",
    "Extraction",
    "GcbConfig",
    "GciqlConfig",
    "GcivlConfig",
    "ImplicitValueConfig",
    "QrlConfig",
    "RunConfig",
    "Sizes",
    "TrunkConfig",
    "TwoLevelConfig",
    "from_dict",
    "to_dict",
]

T = typing.TypeVar("T")
INFINITE = "inf"


@dataclass(frozen=True)
class RunConfig:
    """One run: data, seeds, length, and what is measured on the way."""

    agent: AgentConfig
    agent_name: Annotated[str, arg(name="agent", metavar="NAME")] = "cta"
    """Agent; `cta agents` lists them."""
    dataset: Annotated[str, arg(aliases=["--env-name"], metavar="NAME|FILE")] = "desk-play-v0"
    """Dataset name (`cta data list`), the path of an npz file, or minari:NAME of a local Minari dataset."""
    dataset_dir: str | None = None
    """Folder of datasets (default: OGBench's, ~/.ogbench/data, or $OGBENCH_DATA_DIR)."""
    holdout: float = 0.1
    """Share of episodes held out of your own data when there is no FILE-val.npz (0: none)."""
    seeds: tuple[int, ...] = (0,)
    """Trained together: a count (8 means 0…7) or a list (0,3,5; one alone as `3,` or --seed 3)."""
    steps: Annotated[int, arg(aliases=["--train-steps"])] = 1_000_000
    """Optimiser steps."""
    run_dir: str | None = None
    """Run directory (default: SAVE_DIR/[GROUP/]DATASET/AGENT-TIME)."""
    save_dir: str = "runs"
    """Folder of run directories, used when --run-dir is not given."""
    group: Annotated[str | None, arg(aliases=["--run-group"])] = None
    """Name of a group of runs: a folder in SAVE_DIR, and the W&B group."""
    kernels: Literal["auto", "plain", "fused"] = "auto"
    """How steps are computed: fused GPU kernels with bfloat16 products, or plain JAX; auto fuses where it can."""
    log_interval: int = 5_000
    """Steps between rows of train.csv."""
    eval_interval: int = 100_000
    """Steps between evaluations (0: none)."""
    eval_episodes: int = 50
    """Episodes per task and evaluation."""
    eval_tasks: int | None = None
    """Evaluate only the first N tasks."""
    eval_temperature: float = 0.0
    """Policy temperature in evaluation (0: the mean action)."""
    eval_gaussian: float = 0.0
    """Standard deviation of noise added to evaluation actions."""
    eval_workers: int | None = None
    """Processes that step the simulator (default: the number of cores)."""
    eval_seed: int = 0
    """Base seed of evaluation episodes."""
    checkpoint_interval: Annotated[int, arg(aliases=["--save-interval"])] = 100_000
    """Steps between checkpoints (0: only with evaluations and at the end)."""
    keep: int = 3
    """Checkpoints kept: the last N, besides those a score comes from (0: all)."""
    videos: Annotated[int, arg(aliases=["--video-episodes"])] = 0
    """Videos per task, recorded after training."""
    video_frame_skip: int = 3
    """Record every N-th frame."""
    wandb: bool = False
    """Also log to Weights & Biases (needs `pip install 'cta[wandb]'`)."""

    @property
    def dataset_name(self) -> str:
        """The dataset's name, also when it was given as a file."""
        if self.dataset.startswith("minari:"):
            return self.dataset.replace(":", "-", 1).replace("/", "-")
        return PurePath(self.dataset).name.removesuffix(".npz")

    def planned(self, step: int) -> bool:
        """Whether a checkpoint at this step is due, and not just what a signal left behind."""
        return step == self.steps or any(i and step % i == 0 for i in (self.eval_interval, self.checkpoint_interval))

    def check(self) -> None:
        """Complain in one line about values that make no sense."""
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or not all(0 <= s < 2**32 for s in self.seeds):
            raise CtaError(f"--seeds: {self.seeds} is not a list of different numbers from 0 to {2**32 - 1}")
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, int | float) and not abs(value) <= LARGEST:
                raise CtaError(f"--{entry.name.replace('_', '-')} must be a number up to {LARGEST}, not {value}")
        for name in ("steps", "log_interval", "eval_episodes", "video_frame_skip", "eval_tasks", "eval_workers"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise CtaError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        free = (
            "eval_interval",
            "checkpoint_interval",
            "keep",
            "videos",
            "eval_temperature",
            "eval_gaussian",
            "eval_seed",
        )
        for name in free:
            if getattr(self, name) < 0:
                raise CtaError(f"--{name.replace('_', '-')} must not be negative")
        if not 0 <= self.holdout < 1:
            raise CtaError(f"--holdout is a share of the episodes, from 0 to below 1, not {self.holdout}")
        self.agent.check()


def to_dict(config: Any) -> dict[str, Any]:
    """A config as JSON-ready nested dictionaries; JSON has no infinite numbers, so those are the text `inf`."""

    def ready(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ready(item) for key, item in value.items()}
        return INFINITE if value == float("inf") else value

    return ready(dataclasses.asdict(config))


def from_dict(kind: type[T], values: Any, where: str = "config") -> T:
    """Rebuild a config from `to_dict`'s output; unknown keys and wrong types are errors that name the place."""
    if not isinstance(values, dict):
        raise CtaError(f"{where}: expected an object, found {type(values).__name__}")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise CtaError(f"{where}: unknown setting '{unknown[0]}' for {kind.__name__}")
    return kind(**{key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, where) for item in value)
    if origin is Literal and value in arguments:
        return value
    if hint is float and value == INFINITE:
        return float(INFINITE)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # of a whole number that no float can hold
            return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    raise CtaError(f"{where}: {value!r} is not {getattr(hint, '__name__', None) or str(hint)}")
