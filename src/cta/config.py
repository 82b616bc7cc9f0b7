"""Typed, immutable settings of runs (and, from `cta.agent_configs`, of agents). Plain data: no JAX."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from numbers import Integral, Real
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tyro.conf import arg

from cta.agent_configs import *  # noqa: F403 - whoever needs settings finds them all here
from cta.agent_configs import AgentConfig
from cta.errors import CtaError, did_you_mean
from cta.io.json_files import WORDS
from cta.validation import ActionBounds, Count, Natural, NotNegative, Seeds, Share, check_bounds
from cta.validation import Sizes as Sizes

T = TypeVar("T")
INFINITE = "inf"


@dataclass(frozen=True)
class RunConfig:
    """One run: data, seeds, length, and what is measured on the way."""

    agent: AgentConfig
    agent_name: Annotated[str, arg(name="agent", metavar="NAME")] = "cta"
    """Agent; `cta agents` lists them."""
    dataset: Annotated[str, arg(aliases=["--env-name"], metavar="NAME|FILE")] = "desk-play-v0"
    """Dataset name (`cta data list`), an npz file, minari:NAME (a local Minari dataset), or lerobot:DIR (a folder)."""
    dataset_dir: str | None = None
    """Folder of datasets (default: OGBench's, ~/.ogbench/data, or $OGBENCH_DATA_DIR)."""
    action_bounds: ActionBounds | None = None
    """Lowest and highest action of the environment, if your own file does not state them (default: [-1, 1])."""
    normalise_observations: bool = False
    """Networks see each number of an observation less its mean, divided by its standard deviation in the data."""
    holdout: Share = 0.1
    """Share of episodes held out of your own data when there is no FILE-val.npz (0: none)."""
    seeds: Seeds = (0,)
    """Trained together: a count (8 means 0…7) or a list (0,3,5; one alone as `3,` or --seed 3)."""
    steps: Annotated[Count, arg(aliases=["--train-steps"])] = 1_000_000
    """Optimiser steps."""
    run_dir: str | None = None
    """Run directory (default: SAVE_DIR/[GROUP/]DATASET/AGENT-TIME)."""
    save_dir: str = "runs"
    """Folder of run directories, used when --run-dir is not given."""
    group: Annotated[str | None, arg(aliases=["--run-group"])] = None
    """Name of a group of runs: a folder in SAVE_DIR, and the W&B group."""
    kernels: Literal["auto", "plain", "fused"] = "auto"
    """How steps are computed: fused GPU kernels with bfloat16 products, or plain JAX; auto fuses where it can."""
    size: Literal["paper", "small"] = "paper"
    """Networks and batches of the paper, or small ones (those of the embedded worlds), for a CPU."""
    log_interval: Count = 5_000
    """Steps between rows of train.csv."""
    eval_interval: Natural = 100_000
    """Steps between evaluations (0: none)."""
    eval_episodes: Count = 50
    """Episodes per task and evaluation."""
    eval_tasks: Count | None = None
    """Evaluate only the first N tasks."""
    eval_temperature: NotNegative = 0.0
    """Policy temperature in evaluation (0: the mean action)."""
    eval_gaussian: NotNegative = 0.0
    """Standard deviation of noise added to evaluation actions."""
    eval_workers: Count | None = None
    """Processes that step the simulator (default: the number of cores)."""
    eval_seed: Natural = 0
    """Base seed of evaluation episodes."""
    checkpoint_interval: Annotated[Natural, arg(aliases=["--save-interval"])] = 100_000
    """Steps between checkpoints (0: only with evaluations and at the end)."""
    keep: Natural = 3
    """Checkpoints kept: the last N, besides those a score comes from (0: all)."""
    videos: Annotated[Natural, arg(aliases=["--video-episodes"])] = 0
    """Videos per task, recorded after training."""
    video_frame_skip: Count = 3
    """Record every N-th frame."""
    wandb: bool = False
    """Also log to Weights & Biases (needs `pip install 'cta[wandb]'`)."""

    @property
    def dataset_name(self) -> str:
        """The dataset's name, also when it was given as a file."""
        if self.dataset.startswith("minari:"):
            return self.dataset.replace(":", "-", 1).replace("/", "-")
        if self.dataset.startswith("lerobot:"):
            return f"lerobot-{PurePath(self.dataset.removeprefix('lerobot:')).name}"
        return PurePath(self.dataset).name.removesuffix(".npz")

    def planned(self, step: int) -> bool:
        """Whether a checkpoint at this step is due, and not just what a signal left behind."""
        return step == self.steps or any(i and step % i == 0 for i in (self.eval_interval, self.checkpoint_interval))

    def check(self) -> None:
        check_bounds(self)
        self.agent.check()


def to_dict(config: Any) -> dict[str, Any]:
    """A config as JSON-ready nested dictionaries; JSON has no infinite numbers, so those are the text `inf`."""

    def ready(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: INFINITE if value == float("inf") else value for name, value in items}

    return asdict(config, dict_factory=ready)


def from_dict(kind: type[T], values: Any, where: str = "config") -> T:
    """Rebuild a config from `to_dict`'s output; unknown keys and wrong types are errors that name the place."""
    if not isinstance(values, dict):
        raise CtaError(f"{where}: expected an object, found {type(values).__name__}")
    hints = _types(kind, values, where=f"{where}: ")
    return kind(**{key: _convert(hints[key], value, f"{where}.{key}") for key, value in values.items()})


def with_settings(config: T, values: Mapping[str, Any], owner: str) -> T:
    """A config with these settings changed; of a block in it `trunk.rank` or {"trunk": {"rank": …}} change one."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        block, _, rest = str(name).partition(".")
        hint = _types(type(config), [block], of=f" of {owner}")[block]
        old = changes.get(block, getattr(config, block))
        if is_dataclass(old) and (rest or isinstance(value, Mapping)):
            changes[block] = with_settings(old, {rest: value} if rest else value, f"{owner}, {block}")
        else:
            changes[block] = _convert(hint, value, str(name))
    return replace(cast(Any, config), **changes)


def settings_key(config: AgentConfig, preset: AgentConfig) -> str:
    """What differs from the preset of (agent, dataset), in short: `lr=0.001;trunk.rank=4`; empty if nothing does."""
    mine, usual = flat_settings(to_dict(config)), flat_settings(to_dict(preset))
    return ";".join(f"{path}={mine[path]}" for path in sorted(mine) if mine[path] != usual.get(path))


def flat_settings(values: dict[str, Any], where: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat_settings(value, f"{where}{name}.")
        else:
            found[where + name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return found


def _types(kind: type, names: Iterable[str], *, where: str = "", of: str = "") -> dict[str, Any]:
    """The type of every setting; names that are none are an error."""
    hints = get_type_hints(kind)
    for name in names:
        if name not in hints:
            hint = did_you_mean(str(name), hints, f"there are {', '.join(hints)}", form="'{}'", most=1)
            raise CtaError(f"{where}unknown setting '{name}'{of}: {hint}")
    return hints


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return value if isinstance(value, cast(type, hint)) else from_dict(cast(type, hint), value, where)
    if origin in (UnionType, Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, where) for item in value)
    if origin is Literal and value in arguments:
        return value
    if hint is str and isinstance(value, str | PurePath):
        return str(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is float and value == INFINITE:
        return float(INFINITE)
    # NumPy's numbers are numbers, too; a bool is none.
    if not isinstance(value, bool) and isinstance(value, {int: Integral, float: Real}.get(hint, ())):
        with suppress(OverflowError):  # of a whole number that no float can hold
            return hint(value)
    wanted = f"one of {', '.join(map(str, arguments))}" if origin is Literal else WORDS.get(hint, "a list")
    raise CtaError(f"{where}: {value!r:.60} is not {wanted}")
