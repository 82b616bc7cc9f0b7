"""The out-of-combination study: hold pairs of context and task out of the data, train, and ask for them."""

from cta.ooc.components import Layout, Rule, find_layout
from cta.ooc.cut import cut_files, find_all, plan_cut
from cta.ooc.pairs import HeldOut, Pair, held_out_of

__all__ = ["HeldOut", "Layout", "Pair", "Rule", "cut_files", "find_all", "find_layout", "held_out_of", "plan_cut"]
