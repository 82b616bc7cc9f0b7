"""The out-of-combination study: hold pairs of context and task out of the data, train, and ask for them.

    pairs ─► events ─► cut ─► (train) ─► episodes ─► evaluation, from event logs ─► study

`HeldOut` says what is held out, `cut_files` cuts it, `evaluate_run` asks a trained agent, `study` does all of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cta.ooc.components import Layout as Layout
    from cta.ooc.components import Rule as Rule
    from cta.ooc.components import find_layout as find_layout
    from cta.ooc.cut import cut_files as cut_files
    from cta.ooc.cut import plan_cut as plan_cut
    from cta.ooc.events import find_all as find_all
    from cta.ooc.pairs import Pair as Pair
    from cta.ooc.pairs_file import HeldOut as HeldOut
    from cta.ooc.pairs_file import held_out_of as held_out_of
    from cta.ooc.surgery import without as without

_HOME = {
    "HeldOut": "pairs_file",
    "Layout": "components",
    "Pair": "pairs",
    "Rule": "components",
    "cut_files": "cut",
    "find_all": "events",
    "find_layout": "components",
    "held_out_of": "pairs_file",
    "plan_cut": "cut",
    "without": "surgery",
}
__all__ = [
    "HeldOut",
    "Layout",
    "Pair",
    "Rule",
    "cut_files",
    "find_all",
    "find_layout",
    "held_out_of",
    "plan_cut",
    "without",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"cta.ooc.{_HOME[name]}"), name)
    raise AttributeError(f"module 'cta.ooc' has no attribute '{name}'")
