"""The help of commands: each default is said once, and all pages can be had as text."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import tyro
from tyro.conf import arg
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from cta.cli import COMMANDS, run

SAID = re.compile(r"\s*\(default: (?P<what>[^)]*)\)")
"""How a docstring says what happens without an option whose default is None."""
KINDS = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}
REGISTRY = ConstructorRegistry()
"""tyro's rules and ours. `with REGISTRY:` around a command."""
_inside: list[Any] = []


@REGISTRY.struct_rule
def say_defaults_once(info: StructTypeInfo) -> StructConstructorSpec | None:
    """tyro's own rule for a dataclass, with the words of docstrings in the place of `(default: None)`."""
    if info.type in _inside or not is_dataclass(info.type):
        return None
    _inside.append(info.type)
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _inside.remove(info.type)
    if not isinstance(spec, StructConstructorSpec):
        return None
    return replace(spec, fields=tuple(map(_field, spec.fields)))


def _field(field: StructFieldSpec) -> StructFieldSpec:
    if field.default not in (None, "", (), tyro.MISSING, tyro.MISSING_NONPROP):
        return field

    def text() -> str:
        return (field.helptext() if callable(field.helptext) else field.helptext) or ""

    def hint(_: str) -> str:
        said = SAID.search(text())
        return f"(default: {said['what']})" if said else ""

    kind, *more = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    plain = [get_args(part)[0] if get_origin(part) is Annotated else part for part in get_args(kind)]
    (named,) = {KINDS.get(part) for part in plain} - {None} or {None}
    ours = arg(help_behavior_hint=hint, metavar=named if type(None) in get_args(kind) else None)
    return replace(field, type=Annotated[(kind, ours, *more)], helptext=lambda: SAID.sub("", text()))


def help_pages() -> Iterator[tuple[tuple[str, ...], str]]:
    """(words of a command, what `cta WORDS --help` prints), for every command and its subcommands."""
    for name in COMMANDS:
        seconds = getattr(import_module(f"cta.cli.{name}"), "COMMANDS", ())
        for words in ((name,), *((name, second) for second in seconds)):
            with contextlib.redirect_stdout(io.StringIO()) as page:
                run([*words, "--help"])
            yield words, page.getvalue()
