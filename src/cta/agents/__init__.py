"""Agents, found by name: every module of this folder registers its own, and so do installed packages."""

import pkgutil
import sys
import typing
from functools import cache
from importlib import import_module, metadata

from cta import plugins
from cta.agents.base import REGISTRY, Agent, Entry, Networks, Spec, register
from cta.config import AgentConfig
from cta.errors import CtaError, did_you_mean

__all__ = ["REGISTRY", "Agent", "Entry", "Networks", "Spec", "find", "find_stored", "paper_names", "register"]

ENTRY_POINTS = "cta.agents"
"""Installed packages name modules in this group; what those register is found like our own."""


def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for point in metadata.entry_points(group=ENTRY_POINTS):
        plugins.loaded.append(point.value)
        try:
            point.load()
        except Exception as error:  # somebody else's code: it must not take every command with it
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"notice: the agents of {point.value} cannot be loaded ({reason})", file=sys.stderr)


_discover()


def find(name: str) -> Entry:
    """The agent of a name that a person gave: a registered one, or `module:Class`, which is imported.

    OGBench's `agents/NAME.py` is understood too.
    """
    short = name.removeprefix("agents/").removesuffix(".py")
    if short in REGISTRY:
        return REGISTRY[short]
    if plugins.is_code(name):
        return _outside(name)
    hint = did_you_mean(short, REGISTRY, f"choose one of {', '.join(sorted(REGISTRY))}", form="'{}'", most=1)
    raise CtaError(f"there is no agent '{name}': {hint}")


def find_stored(name: str, where: object) -> Entry:
    """The agent of a name that stands in a file, which never imports code: a person must have given it, too."""
    if plugins.is_code(name) and name not in plugins.loaded:
        raise CtaError(f"{where}: agent {name} is code of its own; to run it, give --agent {name} too")
    return find(name)


@cache
def paper_names() -> dict[str, str]:
    """Our names of the methods in the paper's tables."""
    return {entry.paper_name: name for name, entry in REGISTRY.items() if entry.paper_name}


def _outside(name: str) -> Entry:
    """`module:Class`, the module on Python's path or in the current folder; its config is the default of its class."""
    kind = plugins.load_plugin(name, flag="--agent")
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        module, _, wanted = name.partition(":")
        raise CtaError(f"--agent {name}: {module} has no class {wanted} that is a cta.agents.Agent")
    config = typing.get_type_hints(kind).get("config", AgentConfig)
    return Entry(name, "", config(), kind)
