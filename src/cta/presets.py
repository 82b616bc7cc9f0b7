"""The paper's settings per agent and dataset, as data: changes to an agent's defaults, and the length of a run."""

from dataclasses import replace
from typing import Any

from cta.config import AgentConfig, DualConfig, EtaConfig, RunConfig, TrunkConfig, TwoLevelConfig

TWO_LEVEL = {
    "scene": {"subgoal_steps": 10, "batch_size": 256},
    "cube-single": {"subgoal_steps": 30, "batch_size": 256},
    "cube-double": {"subgoal_steps": 30, "batch_size": 512},
    "cube-triple": {"subgoal_steps": 30, "batch_size": 1024},
    "puzzle-3x3": {"subgoal_steps": 20, "batch_size": 256},
    "puzzle-4x4": {"subgoal_steps": 20, "batch_size": 256},
    "puzzle-4x5": {"subgoal_steps": 20, "batch_size": 512},
    "puzzle-4x6": {"subgoal_steps": 20, "batch_size": 1024},
    "pointmaze": {"subgoal_steps": 25, "batch_size": 256},
    "antmaze": {"subgoal_steps": 25, "batch_size": 256},
    "humanoidmaze": {"subgoal_steps": 25, "batch_size": 256},
}
"""k and batch of the two-level agents by environment; noisy data use the play data's."""

SMALL_WORLDS = ("desk", "lights-3x3")

SMALL_COMMON = {"batch_size": 128, "lr": 1e-3, "tau": 0.01, "discount": 0.95}
"""Every agent on the embedded worlds, whose tasks take tens of steps rather than hundreds."""

SMALL_TWO_LEVEL = {
    "subgoal_steps": 5,
    "hidden": (128, 128, 128),
    "dual": DualConfig(hidden=(64, 64), dim=32),
    "eta": EtaConfig(hidden=(64, 64), dim=16),
    "trunk": TrunkConfig(hidden=(64, 64), features=16, rank=8, backbone=(64, 64)),
}

RUN = {
    "pixel": {"steps": 500_000},
    "small": {
        "steps": 10_000,
        "log_interval": 500,
        "eval_interval": 1_000,
        "eval_episodes": 100,
        "checkpoint_interval": 1_000,
    },
}
"""Run lengths that differ from RunConfig's defaults, which are the paper's for state observations."""


def agent_preset(config: AgentConfig, dataset_name: str) -> AgentConfig:
    """The agent's default config with the paper's values for this dataset."""
    if _starts(dataset_name, SMALL_WORLDS):
        changes: dict[str, Any] = dict(SMALL_COMMON)
        if isinstance(config, TwoLevelConfig):
            changes |= SMALL_TWO_LEVEL
        return replace(config, **changes)
    if isinstance(config, TwoLevelConfig):
        environment = _starts(dataset_name, TWO_LEVEL)
        if environment:
            return replace(config, **TWO_LEVEL[environment])
    return config


def run_preset(config: RunConfig) -> RunConfig:
    """Run length and intervals for this dataset."""
    if _starts(config.dataset_name, SMALL_WORLDS):
        return replace(config, **RUN["small"])
    if config.dataset_name.startswith("visual-"):
        return replace(config, **RUN["pixel"])
    return config


def _starts(dataset_name: str, environments: Any) -> str | None:
    """The environment this dataset's name begins with."""
    name = dataset_name.removeprefix("visual-")
    return next((env for env in environments if name == env or name.startswith(f"{env}-")), None)
