"""Options that the commands of `cta ooc` share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from cta.errors import CtaError
from cta.ooc.components import Rule, find_layout
from cta.ooc.pairs_file import HeldOut, held_out_of

NameOrFile = Annotated[Positional[str], arg(metavar="NAME|FILE")]
PairsFile = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: the world's own)")]
Levels = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="PART=VALUE", help_behavior_hint="(may be repeated; default: half)")
]
Folder = Annotated[Path, arg(metavar="DIR")]
DataFolder = Annotated[
    Path | None, arg(metavar="DIR", help_behavior_hint="(default: OGBENCH_DATA_DIR, else ~/.ogbench/data)")
]
Workers = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: one a processor)")]
World = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: by the file's name)")]


def held_out(
    dataset: str, *, pairs: Path | None, env: str | None, threshold: Sequence[str], event_threshold: Sequence[str]
) -> HeldOut:
    """What the options ask to hold out; thresholds of the command line take the place of the file's."""
    layout = find_layout(env or Path(dataset).name.removesuffix(".npz"))
    chosen = held_out_of(layout, pairs)
    rule = Rule(
        {**chosen.rule.context, **_levels(threshold, "--threshold")},
        {**chosen.rule.event, **_levels(event_threshold, "--event-threshold")},
    )
    rule.check(layout)
    return HeldOut(layout, chosen.pairs, rule)


def _levels(words: Sequence[str], flag: str) -> dict[str, float]:
    levels = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            levels[name] = float(value)
        except ValueError:
            raise CtaError(f"{flag} {word}: give PART=VALUE, such as window=0.04") from None
    return levels
