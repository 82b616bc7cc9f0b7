"""Where the paper's text and the released code differ: every other reading as a change of settings.

The presets follow the code throughout, as whoever wants the published numbers must. A reading changes one place of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cta.config import RunConfig, TwoLevelConfig
from cta.errors import CtaError

CODE = "code"
"""The reading of the presets."""


@dataclass(frozen=True)
class Reading:
    """What is done otherwise, and the settings of a run that do it."""

    text: str
    changes: Callable[[RunConfig], Mapping[str, Any]]


def _fixed(text: str, **changes: Any) -> Reading:
    return Reading(text, lambda config: {name.replace("__", "."): value for name, value in changes.items()})


READINGS = {
    CODE: _fixed("the presets"),
    "two-stages": Reading(
        "the dual representation learns alone for half of the steps, then is frozen",
        lambda config: {"agent.dual.pretrain_steps": config.steps // 2},
    ),
    "dual-ema": _fixed("slow copies of φ and ψ in the critic's target", agent__dual__value_target="ema"),
    "one-dual": _fixed("one φ, ψ and critic instead of two", agent__dual__ensemble=1),
    "unscaled": _fixed("φᵀψ without 1/√d", agent__dual__scale="none"),
    "free-eta": _fixed("η's output is not brought to a length", agent__eta__normalise=False),
    "eta-ema": _fixed("a slow copy of η in the value's target", agent__eta__ema=True),
    "eta-by-policy": _fixed("the low policy trains η too", agent__policy_rep_grad_stop=False),
    "one-value": _fixed("one value instead of two", agent__value_ensemble=1),
    "unclipped": _fixed("advantage weights without upper bound", agent__awr_clip=float("inf")),
    "no-backbone": _fixed("a linear head on the bilinear features", agent__trunk__form="head"),
    "pure": _fixed("the bilinear features are the output", agent__trunk__form="pure"),
    "linear-features": _fixed("no GELU and norm before the inner product", agent__trunk__activate_final=False),
    "hold": Reading(
        "acting, a subgoal is kept for k steps",
        lambda config: {"agent.high_hold": _two_level(config).subgoal_steps},
    ),
    "sampling": _fixed("acting, both policies are sampled", eval_temperature=1.0),
}


def readings_of(config: RunConfig) -> tuple[str, ...]:
    """Those that an agent has."""
    trunk = _two_level(config).networks == "bilinear"
    return tuple(n for n, r in READINGS.items() if trunk or not any("trunk" in path for path in r.changes(config)))


def read(config: RunConfig, name: str) -> RunConfig:
    """The same run by another reading."""
    names = readings_of(config)
    if name not in names:
        raise CtaError(f"{config.agent_name} has no reading {name!r}, only {', '.join(names)}")
    for path, value in READINGS[name].changes(config).items():
        config = _set(config, path.split("."), value)
    return config


def _two_level(config: RunConfig) -> TwoLevelConfig:
    agent = config.agent
    if not isinstance(agent, TwoLevelConfig) or agent.conditioning not in ("dual", "analogy"):
        raise CtaError(f"{config.agent_name}: readings are of the two-level agents with a dual representation")
    return agent


def _set(config: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    return replace(config, **{name: _set(getattr(config, name), rest, value) if rest else value})
