"""Typed, immutable settings of agents and runs. Plain data: nothing here imports JAX."""

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any, Literal

from tyro.conf import arg

from cta.errors import CtaError

Sizes = tuple[int, ...]
T = typing.TypeVar("T")


@dataclass(frozen=True)
class AgentConfig:
    """Settings every agent has: optimisation and goal sampling, under OGBench's names."""

    lr: float = 3e-4
    """Adam's learning rate."""
    batch_size: int = 1024
    """Transitions per step."""
    discount: float = 0.99
    """γ, of the values and of geometric goal sampling."""
    tau: float = 0.005
    """Rate of the EMA targets."""
    layer_norm: bool = True
    """Layer norm in values, encoders and bilinear networks (plain actors never have it, see `actor_layer_norm`)."""
    value_p_curgoal: float = 0.2
    """Probability that a value goal is the current row."""
    value_p_trajgoal: float = 0.5
    """Probability that a value goal is a later row of the trajectory."""
    value_p_randomgoal: float = 0.3
    """Probability that a value goal is any row."""
    value_geom_sample: bool = True
    """Later rows at geometric (else uniform) distance for value goals."""
    actor_p_curgoal: float = 0.0
    """Probability that an actor goal is the current row (flat agents)."""
    actor_p_trajgoal: float = 1.0
    """Probability that an actor goal is a later row of the trajectory (flat agents)."""
    actor_p_randomgoal: float = 0.0
    """Probability that an actor goal is any row."""
    actor_geom_sample: bool = False
    """Later rows at geometric (else uniform) distance for actor goals."""

    def check(self) -> None:
        """Complain in one line about values that make no sense."""
        if self.batch_size < 1:
            raise CtaError(f"--agent.batch-size must be at least 1, not {self.batch_size}")
        if not 0 < self.discount < 1:
            raise CtaError(f"--agent.discount must lie in (0, 1), not {self.discount}")
        if not 0 < self.tau <= 1:
            raise CtaError(f"--agent.tau must lie in (0, 1], not {self.tau}")
        if not self.lr > 0:
            raise CtaError(f"--agent.lr must be positive, not {self.lr}")
        for kind in ("value", "actor"):
            mix = [getattr(self, f"{kind}_p_{goal}goal") for goal in ("cur", "traj", "random")]
            if min(mix) < 0 or abs(sum(mix) - 1) > 1e-6:
                raise CtaError(f"--agent.{kind}-p-curgoal, -trajgoal, -randomgoal must add up to 1, not {sum(mix):g}")


@dataclass(frozen=True)
class DualConfig:
    """The dual representation learner: Ṽ(s,g) = φ(s)ᵀψ(g)/√d and its critic."""

    hidden: Sizes = (512, 512, 512)
    """Hidden sizes of φ, ψ and the critic."""
    dim: int = 256
    """d, the dimension of φ and ψ."""
    expectile: float = 0.7
    """ι."""
    ensemble: int = 2
    """Members of φ, ψ and the critic."""
    scale: Literal["sqrt_d", "none"] = "sqrt_d"
    """Divide the inner product by √d, or not."""
    value_target: Literal["online", "ema"] = "online"
    """Bootstrap the critic from the online φ, ψ or from EMA copies."""
    pretrain_steps: int = 0
    """0: learn jointly with the agent; n: learn alone for n steps, then freeze and train the agent."""


@dataclass(frozen=True)
class EtaConfig:
    """The projection η of goal representations or analogies."""

    hidden: Sizes = (256, 256)
    """Hidden sizes."""
    dim: int = 32
    """e, the output dimension."""
    normalise: bool = True
    """Scale the output to length √e."""
    ema: bool = False
    """Feed the target value from an EMA copy of η instead of the online one."""


@dataclass(frozen=True)
class TrunkConfig:
    """The bilinear networks."""

    hidden: Sizes = (128, 128)
    """Hidden sizes of the displacement and anchor modules."""
    features: int = 128
    """p, the number of bilinear features."""
    rank: int = 8
    """b, the rank of each bilinear feature."""
    backbone: Sizes = (128, 128)
    """Sizes of the MLP after the bilinear features."""
    form: Literal["backbone", "head", "pure"] = "backbone"
    """backbone: MLP and linear head on the features; head: linear head only; pure: the features are the output."""
    activate_final: bool = True
    """GELU and layer norm on the modules' last layer too."""


@dataclass(frozen=True)
class TwoLevelConfig(AgentConfig):
    """HIQL and everything grown from it: a value, a high policy that proposes subgoals, a low policy that acts."""

    batch_size: int = 256
    """Transitions per step."""
    conditioning: Literal["dual", "analogy"] = "analogy"
    """What stands for a goal: ψ(g), or the dual analogy ψ(g)−ψ(s)."""
    networks: Literal["mlp", "bilinear"] = "bilinear"
    """Form of value and policies."""
    expectile: float = 0.7
    """κ of the value loss."""
    low_alpha: float = 3.0
    """β_ℓ, temperature of the low policy's advantage weights."""
    high_alpha: float = 3.0
    """β_h, temperature of the high policy's advantage weights."""
    awr_clip: float = 100.0
    """Upper bound of advantage weights (inf: none)."""
    subgoal_steps: int = 20
    """k, how far ahead a subgoal lies."""
    high_hold: int = 1
    """Environment steps a proposed subgoal is kept when acting."""
    actor_std: float = 1.0
    """σ of both policies."""
    hidden: Sizes = (512, 512, 512)
    """Hidden sizes of value and policies in MLP form."""
    actor_layer_norm: bool = False
    """Layer norm in MLP policies."""
    value_ensemble: int = 2
    """Members of the value."""
    bilinear_high_actor: bool = True
    """False: the high policy is a plain MLP on [s; g] (sizes: the trunk's backbone)."""
    value_rep_grad_stop: bool = False
    """True: the value loss does not train η."""
    policy_rep_grad_stop: bool = True
    """False: the low policy's loss trains η too."""
    dual: DualConfig = field(default_factory=DualConfig)
    eta: EtaConfig = field(default_factory=EtaConfig)
    trunk: TrunkConfig = field(default_factory=TrunkConfig)


@dataclass(frozen=True)
class RunConfig:
    """One run: data, seeds, length, and what is measured on the way."""

    agent: AgentConfig
    agent_name: Annotated[str, arg(name="agent", metavar="NAME")] = "cta"
    """Agent; `cta agents` lists them."""
    dataset: Annotated[str, arg(aliases=["--env-name"], metavar="NAME|FILE")] = "desk-play-v0"
    """Dataset name (`cta data list`) or the path of an npz file."""
    dataset_dir: str | None = None
    """Folder of datasets (default: OGBench's, ~/.ogbench/data, or $OGBENCH_DATA_DIR)."""
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
    videos: Annotated[int, arg(aliases=["--video-episodes"])] = 0
    """Videos per task, recorded after training."""
    video_frame_skip: int = 3
    """Record every N-th frame."""
    wandb: bool = False
    """Also log to Weights & Biases (needs `pip install 'cta[wandb]'`)."""

    @property
    def dataset_name(self) -> str:
        """The dataset's name, also when it was given as a file."""
        return PurePath(self.dataset).name.removesuffix(".npz")

    def check(self) -> None:
        """Complain in one line about values that make no sense."""
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise CtaError(f"--seeds: {self.seeds} is not a list of different non-negative numbers")
        for name in ("steps", "log_interval", "eval_episodes", "video_frame_skip"):
            if getattr(self, name) < 1:
                raise CtaError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        for name in ("eval_interval", "checkpoint_interval", "videos", "eval_temperature", "eval_gaussian"):
            if getattr(self, name) < 0:
                raise CtaError(f"--{name.replace('_', '-')} must not be negative")
        self.agent.check()


def to_dict(config: Any) -> dict[str, Any]:
    """A config as JSON-ready nested dictionaries."""
    return dataclasses.asdict(config)


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
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (int, bool, str) and type(value) is hint:
        return value
    raise CtaError(f"{where}: {value!r} is not {getattr(hint, '__name__', None) or str(hint)}")
