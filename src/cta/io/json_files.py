"""JSON objects in files: the one reader, what it makes sure of, and what the facts in our files look like."""

import json
import math
import unicodedata
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.files import read_content, write_whole

MOST = 2**53  # whole numbers that are worked with end here: every float holds them
LIMITS = {int: MOST, float: 1e300}
WORDS = {int: "a whole number", float: "a number", str: "text"}
WORDS |= {bool: "true or false", list: "a list", dict: "an object"}


def write_json(path: Path, values: Any) -> None:
    write_whole(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, shape: Any = None) -> dict[str, Any]:
    """The object in a file, of this shape (see `check_shape`); what is none is an error that names the file."""
    values = parse_json(read_content(path), str(path))
    check_shape(values, shape, str(path))
    return values


def parse_json(content: str | bytes, where: str) -> dict[str, Any]:
    """The object in a text. Numbers in it are finite, and characters that a terminal would act on are replaced."""
    try:
        text = content if isinstance(content, str) else content.decode()
        values = json.loads(text, parse_constant=_constant, parse_float=_finite)
        # Numbers and plain words cannot hold what is looked for.
        values = values if text.isascii() and "\\" not in text else printable(values)
    except (ValueError, RecursionError) as error:
        raise CtaError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise CtaError(f"{where}: expected a JSON object")
    return values


def _constant(word: str) -> str:
    if word == "Infinity":  # as settings of earlier versions have it
        return "inf"
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def printable(value: Any) -> Any:
    """A text, or all in a list or object, without what a terminal acts on: escapes, marks that turn the writing."""
    if isinstance(value, list):
        return [printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c in "\n\t" or c.isprintable() or unicodedata.category(c) == "Zs" else "�" for c in value)


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Complain about the first value, at any depth, that is not what `shape` says; None says nothing.

    A type is itself (float takes whole numbers too), [shape] a list of such, (shape, None) such a value or null.
    A dictionary has the shape of its keys' values: of those that are there, and "key!" must be; `...` stands for all.
    """
    if shape is None or (isinstance(shape, tuple) and value is None):
        return
    shape = shape[0] if isinstance(shape, tuple) else shape
    kind: Any = shape if isinstance(shape, type) else type(shape)
    allowed: Any = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (kind in LIMITS and (type(value) is bool or abs(value) > LIMITS[kind])):
        raise CtaError(f"{where}: {value!r:.40} is not {WORDS[kind]}")
    if isinstance(shape, list):
        for item in value:
            check_shape(item, shape[0], where)
    elif isinstance(shape, dict):
        for name, inner in shape.items():
            if name is ...:
                for key, item in value.items():
                    check_shape(item, inner, f"{where}: {key:.40}")
            elif (key := name.removesuffix("!")) in value:
                check_shape(value[key], inner, f"{where}: {key}")
            elif key != name:
                raise CtaError(f"{where}: '{key}' is missing")


TEXTS = {...: (str, None)}
MACHINE = {"cpu": (str, None), "device": (str, None), "backend": (str, None)}
PAIR = {"name": str, "K!": int, "context!": dict, "event!": dict}
COUNTS = {"pairs": [{"events": int, "removed": int}], "removed": int, "transitions_left": int}
CUT = {"kind": str, "first_pair": int, "pair": [PAIR], "thresholds": {...: float}, "event_thresholds": {...: float}}
CUT |= {"report": (COUNTS, None)}
MADE: dict[str, Any] = {"command": (str, None), "versions": (TEXTS, None), "dataset": str, "ooc": CUT}
MADE |= dict.fromkeys(("seed", "episodes", "episode_steps"), (int, None))
MADE |= {"source": ({"name": (str, None), "provenance": ({k: v for k, v in MADE.items() if k != "ooc"}, None)}, None)}
"""How a dataset was made, as a file of ours says it."""
DATA = {"name": (str, None), "fingerprint": (str, None), "transitions": (int, None), "provenance": (dict, None)}
RUN = {"command": (str, None), "commit": (str, None), "versions": TEXTS, "hardware": MACHINE, "dataset": DATA}
"""provenance.json of a run."""
TRAINING = {"seeds": [int], "steps": int, "command": (str, None), "cell": str, "data": (DATA, None)}
TRAINING |= {"settings": (dict, None), "versions": (TEXTS, None), "hardware": (MACHINE, None)}
TRAINING |= dict.fromkeys(("seeds_together", "wall_clock_s", "seed_steps_per_s"), (float, None))
"""One entry of a record's `training`."""
SCORING = {"scored!": [[float]], "episodes": int, "workers": int, "weights": str, "asked": str}
"""One entry of a record's `scoring`."""


def check_data(data: Any, where: str) -> None:
    """Replace how data were made, if others said it in a way of their own, by nothing; complain if ours is damaged."""
    if isinstance(data, dict) and "provenance" in data:
        data["provenance"] = known_maker(data["provenance"], where)


def known_maker(made: Any, where: str) -> dict[str, Any] | None:
    """How data were made, as we write it; an empty record if others wrote it in a way of their own."""
    if made is None:
        return None
    try:
        check_shape(made, MADE, f"{where}: provenance")
    except CtaError:
        if isinstance(made, dict) and (made.get("created_by") == "cta" or "ooc" in made):
            raise
        return {}
    return made
