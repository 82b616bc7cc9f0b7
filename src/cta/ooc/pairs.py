"""Held-out pairs: a context, an event, and how many transitions before the event go.

Pairs of one's own come from a small TOML file:

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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.files import read_toml
from cta.ooc.components import Layout, Rule, Value

PRESS = "press"


@dataclass(frozen=True)
class Pair:
    """One task under one context.

    `context` is {component: value (0 or 1)} at the row before the event. `event` is (component, value), the component's
    change to that value, or ("press", i). `window` is K: the event's transition and the K − 1 before it are removed.
    """

    name: str
    context: Mapping[str, int]
    event: tuple[str, int]
    window: int

    def record(self, layout: Layout) -> dict[str, Any]:
        """The pair in words, in the form of a pairs file."""
        what, value = self.event
        return {
            "name": self.name,
            "context": {key: layout.say(key, held) for key, held in self.context.items()},
            "event": {what: value if what == PRESS else layout.say(what, value)},
            "K": self.window,
        }

    def describe(self, layout: Layout) -> str:
        """A short line: window closed, …: drawer → open."""
        context = ", ".join(f"{key} {layout.say(key, value)}" for key, value in self.context.items())
        what, value = self.event
        event = f"press {value}" if what == PRESS else f"{what} → {layout.say(what, value)}"
        return f"{context}: {event}"


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
        rule = {"thresholds": dict(self.rule.context), "event_thresholds": dict(self.rule.event)}
        chosen = {name: levels for name, levels in rule.items() if levels}
        return {"pair": [pair.record(self.layout) for pair in self.pairs], **chosen}


def parse_pair(record: Any, *, layout: Layout, where: str) -> Pair:
    """A pair from its record; complains in one line that begins with `where`."""
    record = _table(record, ("context", "event", "K", "name"), where, "a pair is a table with context, event and K")
    for key in ("context", "event", "K"):
        if key not in record:
            raise CtaError(f"{where}: {key} is missing; a pair has context, event and K")
    name, window = record.get("name", where), record["K"]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise CtaError(f"{where}: name must be a line of text")
    if type(window) is not int or not 1 <= window <= 1_000_000:
        raise CtaError(f"{where}: K must be a whole number of transitions, at least 1, not {short(window)}")
    context, event = record["context"], _event(record["event"], layout=layout, where=f"{where}: event")
    if not isinstance(context, dict):
        raise CtaError(f"{where}: context is a table such as {_example(layout)}")
    context = {key: _value(key, value, layout=layout, where=f"{where}: context") for key, value in context.items()}
    if context.get(event[0]) == event[1]:
        said = layout.say(*event)
        raise CtaError(f"{where}: the event makes {event[0]} {said}, but the context says it is {said} already")
    return Pair(name.strip(), context, event, window)


def _table(record: Any, known: Sequence[str], where: str, what: str) -> dict[str, Any]:
    """A record that is a table and has no keys but those that are known."""
    if not isinstance(record, dict):
        raise CtaError(f"{where}: {what}")
    for key in sorted(set(record) - set(known)):
        raise CtaError(f"{where}: unknown key {short(key)}; {what}")
    return record


def _event(values: Any, *, layout: Layout, where: str) -> tuple[str, int]:
    example = "{ press = 0 }" if layout.patterns else _example(layout)
    if not isinstance(values, dict) or len(values) != 1:
        raise CtaError(f"{where} is a table with one entry, such as {example}")
    ((what, value),) = values.items()
    if not layout.patterns:
        return what, _value(what, value, layout=layout, where=where)
    if what != PRESS or type(value) is not int or not 0 <= value < len(layout.patterns):
        raise CtaError(f"{where}: events of {layout.name} are presses 0 to {len(layout.patterns) - 1}, as {example}")
    return PRESS, value


def _value(name: str, value: Any, *, layout: Layout, where: str) -> int:
    if name not in layout.names:
        raise CtaError(f"{where}: {layout.name} has no component {short(name)}; it has {', '.join(layout.names)}")
    known: tuple[Value, ...] = layout.components[layout.index(name)].values
    for number, word in enumerate(known):
        if type(value) is type(word) and value == word:
            return number
    raise CtaError(f"{where}: {name} is {' or '.join(map(json.dumps, known))}, not {short(value)}")


def _example(layout: Layout) -> str:
    return f"{{ {layout.names[0]} = {json.dumps(layout.components[0].values[1])} }}"


def short(value: Any) -> str:
    """A value of any kind as a piece of a line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in a list in a list …
        return f"such a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "…"


def _move(removed: int, name: str, event: tuple[str, int], **context: int) -> Pair:
    return Pair(name, context, event, removed)


def _press(button: int, lit: Mapping[int, int], window: int) -> Pair:
    return Pair(f"press {button}", {f"light{i}": value for i, value in lit.items()}, (PRESS, button), window)


BUILT_IN: dict[str, tuple[Pair, ...]] = {
    "scene": (
        _move(15, "open the drawer", ("drawer", 1), window=0, window_lock=1, drawer=0),
        _move(15, "close the window", ("window", 0), drawer=0, drawer_lock=0, window=1),
        _move(15, "put the cube into the drawer", ("cube", 1), window=1, window_lock=0, drawer=1, cube=0),
    ),
    "puzzle-4x4": (
        _press(5, {5: 0, 1: 1, 9: 0, 4: 1, 6: 0}, 20),
        _press(2, {2: 1, 1: 0, 3: 1, 6: 0}, 20),
        _press(15, {15: 0, 11: 1, 14: 1}, 20),
        _press(10, {10: 1, 6: 0, 14: 1, 9: 0, 11: 1}, 20),
        _press(0, {0: 1, 1: 0, 4: 1}, 20),
    ),
    "desk": (
        _move(6, "open the drawer", ("drawer", 1), drawer=0, window=0, window_lock=1),
        _move(6, "close the window", ("window", 0), drawer=0, drawer_lock=0, window=1),
        _move(6, "open the tray", ("tray", 1), drawer=1, window=1, window_lock=0, tray=0),
    ),
    "lights-3x3": (
        _press(0, {0: 1, 1: 0, 3: 1}, 6),
        _press(1, {1: 1, 0: 0, 2: 1, 4: 0}, 6),
        _press(8, {8: 0, 5: 1, 7: 1}, 6),
        _press(4, {4: 0, 1: 1, 7: 0, 3: 1, 5: 0}, 6),
        _press(3, {3: 1, 0: 0, 4: 1, 6: 0}, 6),
    ),
}
"""The paper's pairs of scene and puzzle-4x4, and the embedded worlds' own, by layout."""
PAPER_EVENTS = {"scene": (338, 464, 74), "puzzle-4x4": (54, 137, 234, 54, 216)}
"""Events in the million transitions of the published files: removed transitions / K, as the paper reports them."""


def built_in_pairs(layout: Layout) -> tuple[Pair, ...]:
    """The pairs that come with a world."""
    pairs = BUILT_IN.get(layout.name)
    if pairs is None:
        raise CtaError(f"{layout.name} comes without held-out pairs: write them to a TOML file and give --pairs FILE")
    return pairs


def held_out_of(layout: Layout, path: str | Path | None = None) -> HeldOut:
    """The pairs in a file, or those that come with the world."""
    if path is None:
        return HeldOut(layout, built_in_pairs(layout))
    return parse_held_out(read_toml(Path(path).expanduser()), layout=layout, where=str(path))


def parse_held_out(record: Mapping[str, Any], *, layout: Layout, where: str) -> HeldOut:
    """Pairs and rule from the content of a pairs file; complains in one line that begins with `where`."""
    keys = ("thresholds", "event_thresholds")
    _table(record, ("pair", *keys), where, "a pairs file has [[pair]], [thresholds] and [event_thresholds]")
    entries = record.get("pair")
    if not isinstance(entries, list) or not entries:
        raise CtaError(f"{where}: no pairs: write at least one [[pair]] with context, event and K")
    pairs = tuple(parse_pair(entry, layout=layout, where=f"{where}: pair {n}") for n, entry in enumerate(entries, 1))
    rule = Rule(*(_thresholds(record.get(key, {}), f"{where}: {key}") for key in keys))
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
