"""Agents, found by name."""

import difflib

from cta.agents import crl as crl
from cta.agents import gcbc as gcbc
from cta.agents import gciql as gciql
from cta.agents import gcivl as gcivl
from cta.agents import qrl as qrl
from cta.agents import two_level as two_level
from cta.agents.base import REGISTRY, Agent, Entry, Networks, Spec
from cta.errors import CtaError

__all__ = ["REGISTRY", "Agent", "Entry", "Networks", "Spec", "find"]


def find(name: str) -> Entry:
    """The registered agent of this name; OGBench's `agents/NAME.py` is understood too."""
    short = name.removeprefix("agents/").removesuffix(".py")
    if short in REGISTRY:
        return REGISTRY[short]
    close = difflib.get_close_matches(short, REGISTRY, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"choose one of {', '.join(sorted(REGISTRY))}"
    raise CtaError(f"there is no agent '{name}': {hint}")
