"""Which pairs are shown: chosen at random, one a task, or asked for by name."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cta.analysis.pairs import Pairs
from cta.analysis.semantics import Labels, Semantics, is_single
from cta.errors import CtaError
from cta.ooc.components import find_layout
from cta.ooc.pairs import PRESS, built_in_pairs

ROWS = re.compile(r"(\d+):(\d+)")
HELD_OUT = "ooc"
DEFAULT_COUNT = 12


def asked_rows(words: Sequence[str]) -> np.ndarray:
    """The pairs asked for as STATE:GOAL rows, (n, 2)."""
    found = [match.groups() for word in words if (match := ROWS.fullmatch(word))]
    return np.array([[int(state), int(goal)] for state, goal in found], np.int64).reshape(-1, 2)


def choose(
    words: Sequence[str], dataset_name: str, pairs: Pairs, tasks: Labels, semantics: Semantics, *, seed: int = 0
) -> list[dict[str, Any]]:
    """[{point, name}] for what was asked for: STATE:GOAL, the name of a task, `ooc` for the world's held-out pairs.

    Where nothing was asked for, one pair of each of the commonest tasks. Among pairs of the same name chance decides.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    if not words:
        counts = np.bincount(tasks.codes[is_single(tasks)], minlength=len(tasks.names))
        common = [code for code in np.argsort(-counts, kind="stable").tolist() if counts[code]][:DEFAULT_COUNT]
        if not common:
            return [{"point": int(point), "name": f"pair {point}"} for point in np.sort(order[:3])]
        return [_first(order, tasks.codes == code, tasks.names[code]) for code in sorted(common)]
    found = []
    for word in words:
        if ROWS.fullmatch(word):
            state, goal = map(int, word.split(":"))
            at = np.flatnonzero((pairs.states == state) & (pairs.goals == goal))
            found.append({"point": int(at[0]), "name": f"{word} {tasks.names[tasks.codes[at[0]]]}"})
        elif word == HELD_OUT:
            found += _held_out(order, dataset_name, pairs, tasks, semantics)
        else:
            code = _task(word, tasks)
            found.append(_first(order, tasks.codes == code, tasks.names[code]))
    return found


def _first(order: np.ndarray, mask: np.ndarray, name: str) -> dict[str, Any]:
    return {"point": int(order[mask[order]][0]), "name": name}


def _task(word: str, tasks: Labels) -> int:
    exact = [code for code, name in enumerate(tasks.names) if name.lower() == word.lower()]
    near = exact or [code for code, name in enumerate(tasks.names) if word.lower() in name.lower()]
    if len(near) != 1:
        found = "several tasks" if near else "no task"
        raise CtaError(f"--query '{word}': {found} of this name among the pairs; there are {', '.join(tasks.names)}")
    return near[0]


def _held_out(
    order: np.ndarray, dataset_name: str, pairs: Pairs, tasks: Labels, semantics: Semantics
) -> list[dict[str, Any]]:
    """A pair for each held-out combination that occurs among the pairs: its task, begun in its context."""
    layout = find_layout(dataset_name)
    if not semantics.known:
        raise CtaError(f"--query {HELD_OUT}: the data does not tell tasks and contexts; give rows, as STATE:GOAL")
    found = []
    for number, held in enumerate(built_in_pairs(layout), 1):
        what, value = held.event
        events = len(layout.patterns) and what == PRESS
        name = semantics.event_names[value if events else 2 * layout.index(what) + (1 - value)]
        mask = np.array([label == name for label in tasks.names], bool)[tasks.codes]
        for component, wanted in held.context.items():
            mask &= semantics.sides[pairs.states, layout.index(component)] == wanted
        if mask.any():
            found.append(_first(order, mask, f"held-out pair {number}: {name}"))
    if not found:
        raise CtaError(f"--query {HELD_OUT}: none of the held-out combinations occurs among these pairs")
    return found
