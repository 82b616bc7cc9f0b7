"""Held-out pairs: a context, an event, and how many transitions before the event go; `built_in.toml` is an example."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.files import read_toml
from cta.ooc.components import Layout, Rule, Value

PRESS = "press"
BUILT_IN = tomllib.loads((files("cta.ooc") / "built_in.toml").read_text("utf-8"))
"""The contents of a pairs file for each layout that comes with pairs."""
PAPER_EVENTS = {"scene": (338, 464, 74), "puzzle-4x4": (54, 137, 234, 54, 216)}
"""Events in the million transitions of the published files: removed transitions / K, as the paper reports them."""


@dataclass(frozen=True)
class Pair:
    """One task under one context."""

    name: str
    context: Mapping[str, int]  # {component: value (0 or 1)} at the row before the event
    event: tuple[str, int]  # (component, value), the component's change to that value, or ("press", i)
    window: int  # K: the event's transition and the K − 1 before it are removed

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
    """What is held out of a world's data: pairs, and the rule by which their events are found."""

    layout: Layout
    pairs: tuple[Pair, ...]
    rule: Rule = field(default_factory=Rule)
    first: int = 1  # number of the first pair: a dataset without pair 2 alone still calls it pair 2

    def numbered(self) -> list[tuple[int, Pair]]:
        return list(enumerate(self.pairs, self.first))

    def each(self) -> "list[HeldOut]":
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


def held_out_of(layout: Layout, path: str | Path | None = None) -> HeldOut:
    """The pairs in a file, or those that come with the world."""
    if path is not None:
        return parse_held_out(read_toml(Path(path).expanduser()), layout=layout, where=str(path))
    if layout.name not in BUILT_IN:
        raise CtaError(f"{layout.name} comes without held-out pairs: write them to a TOML file and give --pairs FILE")
    return parse_held_out(BUILT_IN[layout.name], layout=layout, where=f"pairs of {layout.name}")


def parse_held_out(record: Mapping[str, Any], *, layout: Layout, where: str) -> HeldOut:
    """Pairs and rule from the content of a pairs file; complains in one line that begins with `where`."""
    keys = ("thresholds", "event_thresholds")
    _table(record, ("pair", *keys), where, "a pairs file has [[pair]], [thresholds] and [event_thresholds]")
    entries = record.get("pair")
    if not isinstance(entries, list) or not entries:
        raise CtaError(f"{where}: no pairs: write at least one [[pair]] with context, event and K")
    pairs = tuple(parse_pair(entry, layout=layout, where=f"{where}: pair {n}") for n, entry in enumerate(entries, 1))
    rule = Rule(*(_thresholds(record.get(key, {}), f"{where}: {key}") for key in keys))
    rule.check(layout, f"{where}: ")
    return HeldOut(layout, pairs, rule)


def _thresholds(values: Any, where: str) -> dict[str, float]:
    if not isinstance(values, dict):
        raise CtaError(f"{where}: expected a table of numbers")
    for name, value in values.items():
        # The bound keeps whole numbers out that no float can hold.
        if type(value) not in (int, float) or not -1e6 < value < 1e6:
            raise CtaError(f"{where}: {short(name)} must be a number, not {short(value)}")
    return {name: float(value) for name, value in values.items()}
