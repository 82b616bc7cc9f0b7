"""Which numbers a setting may have, said in its type: `steps: Count = 1000`."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from cta.errors import CtaError

LARGEST = 2**31 - 1
"""Whole numbers end here: steps and rows are counted in 32 bits."""
WIDEST = 2**20  # layers end here, far above what fits on a device
BELOW_ONE = 1 - 2**-24  # the number before 1 in 32 bits: what is nearer to 1 is 1 to the device


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
Limit = Annotated[float, Bounds("be positive", lambda x: x > 0, infinite=True)]  # an upper bound; infinite: none
Probability = Annotated[float, Bounds("lie in [0, 1]", lambda x: 0 <= x <= 1)]
Share = Annotated[float, Bounds("lie in [0, 1)", lambda x: 0 <= x < 1)]
Inside = Annotated[float, Bounds("lie in (0, 1)", lambda x: 0 < x <= BELOW_ONE)]
Rate = Annotated[float, Bounds("lie in (0, 1]", lambda x: 0 < x <= 1)]
LAYERS = Bounds(f"be sizes from 1 to {WIDEST}", lambda sizes: all(1 <= size <= WIDEST for size in sizes))
Sizes = Annotated[tuple[int, ...], LAYERS]
SomeSizes = Annotated[Sizes, Bounds("have at least one size", bool)]  # of layers that have no output layer besides
ENDS = Bounds(
    "be two finite numbers, the lower one first", lambda x: len(x) == 2 and -math.inf < x[0] < x[1] < math.inf
)
ActionBounds = Annotated[tuple[float, float], ENDS]
DIFFERENT = Bounds(
    f"be a list of different numbers from 0 to {2**32 - 1}",
    lambda seeds: seeds and len(set(seeds)) == len(seeds) and all(0 <= seed < 2**32 for seed in seeds),
)
Seeds = Annotated[tuple[int, ...], DIFFERENT]


def check_bounds(config: Any, where: str = "--") -> None:
    """Complain about the first value, at any depth, that is not finite, too large, or outside its type's bounds."""
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
                    raise CtaError(f"{flag} must {bound.words}, not {value!s:.40}")
            if isinstance(value, int) and abs(value) > LARGEST:
                raise CtaError(f"{flag} must be at most {LARGEST}, not {value!s:.40}")


@cache
def _bounds_of(kind: type) -> dict[str, list[Bounds]]:
    def inside(hint: Any) -> list[Bounds]:
        return [hint] if isinstance(hint, Bounds) else [bound for part in get_args(hint) for bound in inside(part)]

    return {name: inside(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
