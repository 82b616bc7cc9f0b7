"""JSON objects in files: the one reader, and what it makes sure of."""

import json
import math
import unicodedata
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.files import read_content, write_whole

MOST = 2**53
"""Whole numbers that are worked with end here: every float holds them."""
LIMITS = {int: MOST, float: 1e300}
WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def write_json(path: Path, values: Any) -> None:
    """The whole file or none of it."""
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
        values = values if text.isascii() and "\\" not in text else _printable(values)
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


def printable(text: str) -> str:
    """The same text without what a terminal would act on: escape sequences, marks that turn the way of writing."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() or unicodedata.category(c) == "Zs" else "�" for c in text)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return {printable(key): _printable(item) for key, item in value.items()} if isinstance(value, dict) else value


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
