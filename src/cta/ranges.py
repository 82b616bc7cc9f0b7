"""Which numbers the settings of agents may have."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Any

from cta.errors import CtaError

LARGEST = 2**31 - 1
"""Whole numbers end here: steps and rows are counted in 32 bits."""
WIDEST = 2**20
"""Layers end here, far above what fits on a device."""
BELOW_ONE = 1 - 2**-24
"""The number before 1 in 32 bits: what is nearer to 1 is 1 to the device."""

RANGES: dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]] = {
    "be at least 1": (
        ("batch_size", "dim", "ensemble", "value_ensemble", "features", "rank", "latent_dim", "subgoal_steps",
         "high_hold"),
        lambda x: x >= 1,
    ),
    "be at least 0": (("alpha", "low_alpha", "high_alpha", "eps", "pretrain_steps"), lambda x: x >= 0),
    "be positive": (("lr", "actor_std", "awr_clip"), lambda x: x > 0),
    "lie in [0, 1]": (
        ("p_aug", *(f"{kind}_p_{goal}goal" for kind in ("value", "actor") for goal in ("cur", "traj", "random"))),
        lambda x: 0 <= x <= 1,
    ),
    "lie in (0, 1)": (("discount", "expectile"), lambda x: 0 < x <= BELOW_ONE),
    "lie in (0, 1]": (("tau",), lambda x: 0 < x <= 1),
}  # fmt: skip
"""What must hold of the settings of these names, wherever they stand."""
UNBOUNDED = ("awr_clip",)
"""Numbers that may be infinite: no bound."""
NEEDED = ("backbone",)
"""Layers of which there must be one: the others have an output layer besides."""


def check_numbers(config: Any, where: str) -> None:
    """Complain about numbers no setting can have, at any depth: not finite, too large, or outside their range."""
    for entry in fields(config):
        name, value = entry.name, getattr(config, entry.name)
        flag = f"{where}.{name.replace('_', '-')}"
        if is_dataclass(value):
            check_numbers(value, flag)
        elif isinstance(value, tuple):
            if any(type(size) is int and not 1 <= size <= WIDEST for size in value):
                raise CtaError(f"{flag} must be sizes from 1 to {WIDEST}, not {_short(value)}")
            if name in NEEDED and not value:
                raise CtaError(f"{flag} must have at least one size")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            _check_number(name, value, flag)


def _check_number(name: str, value: float, flag: str) -> None:
    if isinstance(value, float) and not math.isfinite(value) and not (name in UNBOUNDED and value == math.inf):
        raise CtaError(f"{flag} must be a finite number, not {value}")
    for words, (names, holds) in RANGES.items():
        if name in names and not holds(value):
            raise CtaError(f"{flag} must {words}, not {_short(value)}")
    if isinstance(value, int) and not abs(value) <= LARGEST:
        raise CtaError(f"{flag} must be at most {LARGEST}, not {_short(value)}")


def refuse_unread(config: Any, who: str, settings: Mapping[str, Any]) -> None:
    """Complain about the first setting that is not at this value; `who` says for whom it would change nothing."""
    for path, value in settings.items():
        if reduce(getattr, path.split("."), config) != value:
            raise CtaError(f"{who} --agent.{path.replace('_', '-')}: leave it at {value}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
