"""Which numbers a setting may have, said in its type: `steps: Count = 1000`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from cta.errors import CtaError

LARGEST = 2**31 - 1
"""Whole numbers end here: steps and rows are counted in 32 bits."""
WIDEST = 2**20
"""Layers end here, far above what fits on a device."""
BELOW_ONE = 1 - 2**-24
"""The number before 1 in 32 bits: what is nearer to 1 is 1 to the device."""


class Bounds(NamedTuple):
    """What must hold of a value, in words and as a function."""

    words: str
    holds: Callable[[Any], bool]
    infinite: bool = False
    """The number may be infinite."""


Count = Annotated[int, Bounds("be at least 1", lambda x: x >= 1)]
Natural = Annotated[int, Bounds("be at least 0", lambda x: x >= 0)]
NotNegative = Annotated[float, Bounds("be at least 0", lambda x: x >= 0)]
Positive = Annotated[float, Bounds("be positive", lambda x: x > 0)]
Limit = Annotated[float, Bounds("be positive", lambda x: x > 0, infinite=True)]
"""An upper bound; infinite: none."""
Probability = Annotated[float, Bounds("lie in [0, 1]", lambda x: 0 <= x <= 1)]
Share = Annotated[float, Bounds("lie in [0, 1)", lambda x: 0 <= x < 1)]
Inside = Annotated[float, Bounds("lie in (0, 1)", lambda x: 0 < x <= BELOW_ONE)]
Rate = Annotated[float, Bounds("lie in (0, 1]", lambda x: 0 < x <= 1)]
Sizes = Annotated[
    tuple[int, ...], Bounds(f"be sizes from 1 to {WIDEST}", lambda sizes: all(1 <= size <= WIDEST for size in sizes))
]
"""Of layers."""
SomeSizes = Annotated[Sizes, Bounds("have at least one size", bool)]
"""Of layers that have no output layer besides."""
ActionBounds = Annotated[
    tuple[float, float],
    Bounds(
        "be two finite numbers, the lower one first",
        lambda ends: len(ends) == 2 and -math.inf < ends[0] < ends[1] < math.inf,
    ),
]
Seeds = Annotated[
    tuple[int, ...],
    Bounds(
        f"be a list of different numbers from 0 to {2**32 - 1}",
        lambda seeds: seeds and len(set(seeds)) == len(seeds) and all(0 <= seed < 2**32 for seed in seeds),
    ),
]


def check_bounds(config: Any, where: str = "--") -> None:
    """Complain about the first value, at any depth, that is not finite, too large, or outside the bounds of its type.

    `where` is what stands before the setting's name on the command line.
    """
    for entry in fields(config):
        value, flag = getattr(config, entry.name), f"{where}{entry.name.replace('_', '-')}"
        bounds = _bounds_of(type(config)).get(entry.name, [])
        if is_dataclass(value):
            check_bounds(value, f"{flag}.")
        elif isinstance(value, float) and not (math.isfinite(value) or any(b.infinite and value > 0 for b in bounds)):
            raise CtaError(f"{flag} must be a finite number, not {value}")
        elif value is not None:
            for bound in bounds:
                if not bound.holds(value):
                    raise CtaError(f"{flag} must {bound.words}, not {_short(value)}")
            if isinstance(value, int) and abs(value) > LARGEST:
                raise CtaError(f"{flag} must be at most {LARGEST}, not {_short(value)}")


@cache
def _bounds_of(kind: type) -> dict[str, list[Bounds]]:
    def inside(hint: Any) -> list[Bounds]:
        return [hint] if isinstance(hint, Bounds) else [bound for part in get_args(hint) for bound in inside(part)]

    return {name: inside(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def refuse_unread(config: Any, who: str, settings: Mapping[str, Any]) -> None:
    """Complain about the first setting that is not at this value; `who` says for whom it would change nothing."""
    for path, value in settings.items():
        if reduce(getattr, path.split("."), config) != value:
            raise CtaError(f"{who} --agent.{path.replace('_', '-')}: leave it at {value}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
