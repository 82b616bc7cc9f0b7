"""The paper's settings per agent and dataset, as data: changes to an agent's defaults, and the length of a run.

An agent's family is read off its config's class and conditioning, so an agent of one's own that builds on one of these
classes gets that family's settings.
"""

from dataclasses import fields, replace
from typing import Any

from cta.config import (
    ActorConfig,
    AgentConfig,
    ConditionedConfig,
    CrlConfig,
    DualConfig,
    GcbConfig,
    GciqlConfig,
    QrlConfig,
    RunConfig,
    TrunkConfig,
    TwoLevelConfig,
)
from cta.envs.names import KNOWN

PAPER_NAMES = {
    "GCBC": "gcbc",
    "GCIVL": "gcivl",
    "GCIQL": "gciql",
    "QRL": "qrl",
    "CRL": "crl",
    "HIQL": "hiql",
    "CRL^v": "crl-dual",
    "GCIVL^v": "gcivl-dual",
    "GCIQL^v": "gciql-dual",
    "HIQL^v": "hiql-dual",
    "HIQL^v+alpha": "hiql-analogy",
    "GCIVL^v+alpha": "gcivl-analogy",
    "CTA": "cta",
    "CTA_gcb_psi": "cta-gcb",
}
"""Our names of the methods in the paper's tables."""

MAZES = ("pointmaze", "antmaze", "humanoidmaze")

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
"""k and batch of the two-level agents with representations; noisy data use the play data's."""

HIQL_STEPS = {"pointmaze": 25, "antmaze": 25, "humanoidmaze": 100, "play": 10, "noisy": 10}
"""k of plain HIQL."""

ALPHA = {
    GciqlConfig: {"play": 1.0, "noisy": 0.03, "pointmaze": 0.003, "antmaze": 0.3, "humanoidmaze": 0.1},
    QrlConfig: {"play": 0.3, "noisy": 0.03, "pointmaze": 0.0003, "antmaze": 0.003, "humanoidmaze": 0.001},
    CrlConfig: {"play": 3.0, "noisy": 0.1, "pointmaze": 0.03, "antmaze": 0.1, "humanoidmaze": 0.1},
}
"""Weight of behavioural cloning in DDPG+BC, by kind of play data or by maze. AWR temperatures do not vary."""

LONG_HORIZON = {"discount": 0.995}
LONG_MAZES = ("pointmaze-giant", "antmaze-giant", "humanoidmaze")
"""Mazes on which the agents without representations look further ahead."""
LONG_DUAL_MAZES = ("antmaze-giant", "humanoidmaze")
"""The same for the flat agents with representations."""

FLAT_DUAL_MAZE = {
    "pointmaze": {"expectile": 0.9, "dim": 64},
    "antmaze": {"expectile": 0.9},
    "humanoidmaze": {"expectile": 0.9},
}
"""Changes to the dual learner of the flat agents on mazes."""

PIXELS = {"batch_size": 256, "p_aug": 0.5}

SMALL_WORLDS = ("desk", "lights-3x3")
SMALL_COMMON = {"batch_size": 128, "lr": 1e-3, "tau": 0.01, "discount": 0.95}
"""Every agent on the embedded worlds, whose tasks take tens of steps rather than hundreds."""
SMALL_ETA = {"hidden": (64, 64), "dim": 16}
SMALL: dict[type[AgentConfig], dict[str, Any]] = {
    ActorConfig: {"hidden": (128, 128, 128)},
    ConditionedConfig: {
        "dual": DualConfig(hidden=(64, 64), dim=32),
        "gcb": GcbConfig(hidden=(64, 64), dim=32),
        "trunk": TrunkConfig(hidden=(64, 64), features=16, rank=8, backbone=(64, 64)),
    },
    TwoLevelConfig: {"subgoal_steps": 5},
    CrlConfig: {"latent_dim": 64},
    QrlConfig: {"latent_dim": 64},
}
"""Small networks by class of config."""

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
SHORTEST = 100
"""Steps: no interval is made shorter than this."""


def agent_preset(config: AgentConfig, dataset_name: str) -> AgentConfig:
    """The agent's default config with the paper's values for this dataset."""
    if _starts(dataset_name, SMALL_WORLDS):
        return _small(config)
    changes: dict[str, Any] = {}
    if isinstance(config, ConditionedConfig) and config.conditioning != "raw":
        changes |= _with_representation(config, dataset_name)
    elif isinstance(config, ConditionedConfig | QrlConfig):
        changes |= _baseline(config, dataset_name)
    changes |= _alpha(config, dataset_name)
    if dataset_name.startswith("visual-"):
        changes |= PIXELS
        if isinstance(config, TwoLevelConfig) and config.conditioning == "raw":
            changes["policy_rep_grad_stop"] = False
    return replace(config, **changes)


def _small(config: AgentConfig) -> AgentConfig:
    changes: dict[str, Any] = dict(SMALL_COMMON)
    for kind, values in SMALL.items():
        if isinstance(config, kind):
            changes |= values
    if isinstance(config, ConditionedConfig):
        changes["eta"] = replace(config.eta, **(SMALL_ETA if config.eta.use else {}))
    return replace(config, **changes)


def _baseline(config: AgentConfig, dataset_name: str) -> dict[str, Any]:
    """OGBench's settings of the agents without representations."""
    changes: dict[str, Any] = dict(LONG_HORIZON) if _starts(dataset_name, LONG_MAZES) else {}
    kind = _kind(dataset_name)
    if isinstance(config, TwoLevelConfig) and kind in HIQL_STEPS:
        changes["subgoal_steps"] = HIQL_STEPS[kind]
    return changes


def _with_representation(config: ConditionedConfig, dataset_name: str) -> dict[str, Any]:
    """The settings of the two papers that introduced dual goals and dual analogies."""
    if isinstance(config, TwoLevelConfig):
        environment = _starts(dataset_name, TWO_LEVEL)
        return dict(TWO_LEVEL[environment]) if environment else {}
    changes: dict[str, Any] = dict(LONG_HORIZON) if _starts(dataset_name, LONG_DUAL_MAZES) else {}
    maze = _starts(dataset_name, MAZES)
    return changes | ({"dual": replace(config.dual, **FLAT_DUAL_MAZE[maze])} if maze else {})


def _alpha(config: AgentConfig, dataset_name: str) -> dict[str, float]:
    if getattr(config, "actor_loss", "awr") == "awr":
        return {}
    values = next((values for kind, values in ALPHA.items() if isinstance(config, kind)), {})
    kind = _kind(dataset_name)
    return {"alpha": values[kind]} if kind in values else {}


def fit_intervals(config: RunConfig) -> RunConfig:
    """Of a shorter run than the paper's, intervals that nobody chose are shorter too: a killed one loses a tenth of it.

    Worlds are rolled out in no more often than the paper does; measuring on held-out data costs little.
    """
    parts = {"log_interval": 20, "checkpoint_interval": 10}
    if config.dataset_name not in KNOWN:
        parts["eval_interval"] = 10
    usual: dict[str, Any] = {field.name: field.default for field in fields(RunConfig)}
    unchosen = [name for name in parts if getattr(config, name) == usual[name]]
    return replace(config, **{n: min(usual[n], max(SHORTEST, config.steps // parts[n])) for n in unchosen})


def run_preset(config: RunConfig) -> RunConfig:
    """Run length and intervals for this dataset."""
    if _starts(config.dataset_name, SMALL_WORLDS):
        return replace(config, **RUN["small"])
    if config.dataset_name.startswith("visual-"):
        return replace(config, **RUN["pixel"])
    return config


def _kind(dataset_name: str) -> str:
    """The maze's body, or play or noisy."""
    return _starts(dataset_name, MAZES) or next((k for k in ("play", "noisy") if f"-{k}-" in dataset_name), "")


def _starts(dataset_name: str, environments: Any) -> str | None:
    """The environment this dataset's name begins with."""
    name = dataset_name.removeprefix("visual-")
    return next((env for env in environments if name == env or name.startswith(f"{env}-")), None)
