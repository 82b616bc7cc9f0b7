"""The paper's settings per agent and dataset, as data: changes to an agent's defaults, and the length of a run.

An agent of one's own whose config builds on one of these classes gets that family's settings.
"""

from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from cta.agent_configs import ActorConfig, CrlConfig, Extraction, GciqlConfig, QrlConfig
from cta.config import AgentConfig, ConditionedConfig, RunConfig, TwoLevelConfig, with_settings
from cta.envs.names import KNOWN


class Rule(NamedTuple):
    """Settings of the agents whose config is of a class, on datasets of these names, in a family."""

    agents: type[AgentConfig] | tuple[type[AgentConfig], ...]
    where: str
    changes: dict[str, Any]
    family: str = ""
    """raw: without a representation of goals; flat, levels: with one; ddpgbc: with that actor loss; empty: all."""


PIXEL_WORLDS = "visual-desk-* visual-lights-*"
SMALL_WORLDS = f"desk-* lights-[23]x?-* lights-4x[23]-* {PIXEL_WORLDS}"
BOARDS = "lights-4x[456]-*"  # larger ones, with the paper's networks
EMBEDDED = f"{SMALL_WORLDS} {BOARDS}"
LONG_HORIZON = {"discount": 0.995}

SMALL_SIZE = (
    Rule(AgentConfig, SMALL_WORLDS, {"batch_size": 128, "lr": 1e-3, "tau": 0.01}),
    Rule(ActorConfig, SMALL_WORLDS, {"hidden": (128, 128, 128)}),
    Rule(ConditionedConfig, SMALL_WORLDS, {"dual": {"hidden": (64, 64), "dim": 32}}),
    Rule(ConditionedConfig, SMALL_WORLDS, {"gcb": {"hidden": (64, 64), "dim": 32}}),
    Rule(ConditionedConfig, SMALL_WORLDS, {"eta": {"hidden": (64, 64), "dim": 16}}),
    Rule(ConditionedConfig, SMALL_WORLDS, {"trunk": {"hidden": (64, 64), "features": 16, "backbone": (64, 64)}}),
    Rule((CrlConfig, QrlConfig), SMALL_WORLDS, {"latent_dim": 64}),
)
"""Small networks, and what goes with them; on every dataset with `--size small`."""

ALPHA = {
    GciqlConfig: {"*-play-*": 1.0, "*-noisy-*": 0.03, "pointmaze-*": 0.003, "antmaze-*": 0.3, "humanoidmaze-*": 0.1},
    QrlConfig: {"*-play-*": 0.3, "*-noisy-*": 0.03, "pointmaze-*": 3e-4, "antmaze-*": 0.003, "humanoidmaze-*": 0.001},
    CrlConfig: {"*-play-*": 3.0, "*-noisy-*": 0.1, "pointmaze-*": 0.03, "antmaze-*": 0.1, "humanoidmaze-*": 0.1},
}
"""Weight of behavioural cloning in DDPG+BC."""
LEVELS = {
    "scene-*": (10, 256),
    "cube-single-*": (30, 256),
    "cube-double-*": (30, 512),
    "cube-triple-*": (30, 1024),
    "puzzle-3x3-* puzzle-4x4-*": (20, 256),
    "puzzle-4x5-*": (20, 512),
    "puzzle-4x6-*": (20, 1024),
    "pointmaze-* antmaze-* humanoidmaze-*": (25, 256),
}
"""k and batch of the two-level agents with representations; noisy data use the play data's."""

RULES = (
    *(Rule(TwoLevelConfig, at, {"subgoal_steps": k, "batch_size": n}, "levels") for at, (k, n) in LEVELS.items()),
    # Plain HIQL.
    Rule(TwoLevelConfig, "*-play-* *-noisy-*", {"subgoal_steps": 10}, "raw"),
    Rule(TwoLevelConfig, "pointmaze-* antmaze-*", {"subgoal_steps": 25}, "raw"),
    Rule(TwoLevelConfig, "humanoidmaze-*", {"subgoal_steps": 100}, "raw"),
    # Mazes on which agents look further ahead.
    Rule((ConditionedConfig, QrlConfig), "pointmaze-giant-* antmaze-giant-* humanoidmaze-*", LONG_HORIZON, "raw"),
    Rule(ConditionedConfig, "antmaze-giant-* humanoidmaze-*", LONG_HORIZON, "flat"),
    # The dual learner of the flat agents on mazes.
    Rule(ConditionedConfig, "pointmaze-* antmaze-* humanoidmaze-*", {"dual.expectile": 0.9}, "flat"),
    Rule(ConditionedConfig, "pointmaze-*", {"dual.dim": 64}, "flat"),
    # Pixels.
    Rule(AgentConfig, "visual-*", {"batch_size": 256, "p_aug": 0.5}),
    Rule(TwoLevelConfig, "visual-*", {"policy_rep_grad_stop": False}, "raw"),
    *(Rule(kind, at, {"alpha": alpha}, "ddpgbc") for kind, alphas in ALPHA.items() for at, alpha in alphas.items()),
    # The embedded worlds, whose tasks take tens of steps rather than hundreds.
    Rule(AgentConfig, BOARDS, {"batch_size": 256}),
    *SMALL_SIZE,
    Rule(AgentConfig, EMBEDDED, {"discount": 0.95, "p_aug": 0.0}),
    Rule(AgentConfig, "lights-4x4-*", {"discount": 0.97}),
    Rule(AgentConfig, PIXEL_WORLDS, {"lr": 3e-4}),
    Rule(TwoLevelConfig, EMBEDDED, {"subgoal_steps": 5, "policy_rep_grad_stop": True}),
)
"""In this order: a later one wins."""

AWR_ALPHA = 10.0  # temperature of AWR in the flat agents that have it, on every dataset

RUNS = {
    SMALL_WORLDS: {"steps": 10_000, "eval_episodes": 100, "log_interval": 500}
    | dict.fromkeys(("eval_interval", "checkpoint_interval"), 1_000),
    BOARDS: {"steps": 30_000, "log_interval": 1_000, "eval_interval": 5_000, "checkpoint_interval": 5_000},
    "visual-*": {"steps": 500_000},
}
"""Run lengths that differ from RunConfig's defaults, which are the paper's for state observations."""
PARTS = {"log_interval": 20, "eval_interval": 10, "checkpoint_interval": 10}  # intervals at least, as parts of a run
SHORTEST = 100  # steps: no interval is made shorter than this


def agent_preset(config: AgentConfig, dataset_name: str, *, small: bool = False) -> AgentConfig:
    """The agent's default config with the paper's values for this dataset, or with `small` networks."""
    raw = not isinstance(config, ConditionedConfig) or config.conditioning == "raw"
    families = {"", "raw" if raw else "levels" if isinstance(config, TwoLevelConfig) else "flat"}
    if isinstance(config, Extraction):
        families.add(config.actor_loss)
    changes: dict[str, Any] = {}
    for rule in RULES:
        here = _is(dataset_name, rule.where) or (small and rule in SMALL_SIZE)
        if here and isinstance(config, rule.agents) and rule.family in families:
            changes |= rule.changes
    if isinstance(config, ConditionedConfig) and not config.eta.use:
        changes.pop("eta", None)
    return with_settings(config, changes, "a preset")


def with_actor_loss(config: AgentConfig, actor_loss: str | None) -> AgentConfig:
    """The config with another rule of extraction, and the α of that rule; `agent_preset` knows better for a dataset."""
    if not isinstance(config, Extraction) or actor_loss in (None, config.actor_loss):
        return config
    alpha = AWR_ALPHA if actor_loss == "awr" else type(config).alpha
    return replace(config, actor_loss=actor_loss, alpha=alpha)


def run_preset(config: RunConfig, given: Collection[str] = ()) -> RunConfig:
    """Run length and intervals for this dataset, except those that are `given`.

    A shorter run has shorter intervals, too (if killed it loses a tenth at most), except of rollouts in known worlds.
    """
    name = config.dataset_name
    usual = next((run for where, run in RUNS.items() if _is(name, where)), {})
    config = replace(config, **{key: value for key, value in usual.items() if key not in given})
    if "steps" not in given:
        return config
    fixed = {*given, *usual, *(["eval_interval"] if name in KNOWN else [])}
    shorter = {key: max(SHORTEST, config.steps // part) for key, part in PARTS.items() if key not in fixed}
    return replace(config, **{key: min(getattr(config, key), value) for key, value in shorter.items()})


def _is(dataset_name: str, patterns: str) -> bool:
    """Whether the name, with or without `visual-`, fits one of the patterns."""
    names = (f"{dataset_name}-", f"{dataset_name.removeprefix('visual-')}-")
    return any(fnmatchcase(name, pattern) for pattern in patterns.split() for name in names)
