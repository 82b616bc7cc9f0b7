"""Pairs of one's own, from a small TOML file.

[thresholds]                 # optional: where parts count as open or closed, see `Rule`
drawer = 0.04
[event_thresholds]           # optional: where a crossing counts as the event
window = 0.16

[[pair]]
name = "open the drawer"     # optional
context = { window = "closed", window_lock = "unlocked", drawer = "closed" }
event = { drawer = "open" }
K = 15                       # transitions removed, the completing one last
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.ooc.components import Layout, Rule
from cta.ooc.pairs import Pair, built_in_pairs, parse_pair, short


@dataclass(frozen=True)
class HeldOut:
    """What is held out of a world's data: pairs, and the rule by which their events are found.

    `first` is the number of the first pair: a dataset without pair 2 alone still calls it pair 2.
    """

    layout: Layout
    pairs: tuple[Pair, ...]
    rule: Rule = field(default_factory=Rule)
    first: int = 1

    def numbered(self) -> list[tuple[int, Pair]]:
        """The pairs with their numbers."""
        return list(enumerate(self.pairs, self.first))

    def each(self) -> "list[HeldOut]":
        """One for every pair."""
        return [replace(self, pairs=(pair,), first=number) for number, pair in self.numbered()]

    def record(self) -> dict[str, Any]:
        """In the form of a pairs file; `parse_held_out` reads it back."""
        record: dict[str, Any] = {"pair": [pair.record(self.layout) for pair in self.pairs]}
        if self.rule.context:
            record["thresholds"] = dict(self.rule.context)
        if self.rule.event:
            record["event_thresholds"] = dict(self.rule.event)
        return record


def held_out_of(layout: Layout, path: str | Path | None = None) -> HeldOut:
    """The pairs in a file, or those that come with the world."""
    if path is None:
        return HeldOut(layout, built_in_pairs(layout))
    return parse_held_out(_read(Path(path).expanduser()), layout=layout, where=str(path))


def parse_held_out(record: Mapping[str, Any], *, layout: Layout, where: str) -> HeldOut:
    """Pairs and rule from the content of a pairs file; complains in one line that begins with `where`."""
    unknown = sorted(set(record) - {"pair", "thresholds", "event_thresholds"})
    if unknown:
        raise CtaError(
            f"{where}: unknown key {short(unknown[0])}; a pairs file has [[pair]], [thresholds] and [event_thresholds]"
        )
    entries = record.get("pair")
    if not isinstance(entries, list) or not entries:
        raise CtaError(f"{where}: no pairs: write at least one [[pair]] with context, event and K")
    pairs = tuple(
        parse_pair(entry, layout=layout, where=f"{where}: pair {number}") for number, entry in enumerate(entries, 1)
    )
    rule = Rule(*(_thresholds(record.get(key, {}), f"{where}: {key}") for key in ("thresholds", "event_thresholds")))
    try:
        rule.check(layout)
    except CtaError as error:
        raise CtaError(f"{where}: {error}") from None
    return HeldOut(layout, pairs, rule)


def _thresholds(values: Any, where: str) -> dict[str, float]:
    if not isinstance(values, dict):
        raise CtaError(f"{where}: expected a table of numbers")
    for name, value in values.items():
        # The bound keeps whole numbers out that no float can hold.
        if type(value) not in (int, float) or not -1e6 < value < 1e6:
            raise CtaError(f"{where}: {short(name)} must be a number, not {short(value)}")
    return {name: float(value) for name, value in values.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise CtaError(f"{path}: not a TOML file: it is not text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CtaError(f"{path}: not valid TOML: {reason}") from None
