"""Agents, found by name."""

import difflib
import typing

from cta.agents import crl as crl
from cta.agents import gcbc as gcbc
from cta.agents import gciql as gciql
from cta.agents import gcivl as gcivl
from cta.agents import qrl as qrl
from cta.agents import two_level as two_level
from cta.agents.base import REGISTRY, Agent, Entry, Networks, Spec
from cta.config import AgentConfig
from cta.errors import CtaError
from cta.outside import load_outside

__all__ = ["REGISTRY", "Agent", "Entry", "Networks", "Spec", "find"]


def find(name: str) -> Entry:
    """The agent of this name: a registered one, or `module:Class` from outside the package.

    OGBench's `agents/NAME.py` is understood too.
    """
    if ":" in name:
        return _outside(name)
    short = name.removeprefix("agents/").removesuffix(".py")
    if short in REGISTRY:
        return REGISTRY[short]
    close = difflib.get_close_matches(short, REGISTRY, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"choose one of {', '.join(sorted(REGISTRY))}"
    raise CtaError(f"there is no agent '{name}': {hint}")


def _outside(name: str) -> Entry:
    """`module:Class`, the module on Python's path or in the current folder; its config is the default of its class."""
    module_name, _, class_name = name.partition(":")
    kind = load_outside(name, flag="--agent")
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise CtaError(f"--agent {name}: {module_name} has no class {class_name} that is a cta.agents.Agent")
    config = typing.get_type_hints(kind).get("config", AgentConfig)
    return Entry(name, class_name, config(), kind)
