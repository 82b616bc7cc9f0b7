"""Which state–goal pairs are mapped, and which of them are shown: by chance, one for each task, or by name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cta.analysis.semantics import Labels, Semantics, is_single
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.ooc.components import find_layout
from cta.ooc.pairs import PRESS, built_in_pairs

STEPS_APART = (5, 30)
"""How far a goal lies ahead of its state in OGBench's worlds: about one press, one pull or one lift."""
DESK_STEPS_APART = (3, 10)
"""The same on the embedded worlds, where a subtask takes about nine steps."""
ROWS = re.compile(r"(\d+):(\d+)")
HELD_OUT = "ooc"
DEFAULT_COUNT = 12


@dataclass(frozen=True)
class Pairs:
    """(state row, goal row) of N pairs, and the episode each lies in; all (N,) int."""

    states: np.ndarray
    goals: np.ndarray
    episodes: np.ndarray

    def __len__(self) -> int:
        return len(self.states)


def draw_pairs(
    data: TrajectoryDataset, count: int, *, apart: tuple[int, int], seed: int = 0, first: np.ndarray | None = None
) -> Pairs:
    """`count` different pairs (t, t + δ), t and δ ∈ `apart` uniform over all that fit, or all pairs if there are fewer.

    `first`, (n, 2) rows, are pairs that must be among them; they come first, in their order.
    """
    least, most = apart
    if not 1 <= least <= most:
        raise CtaError(f"steps between state and goal: 1 ≤ least ≤ most, not {least} and {most}")
    chosen = np.zeros((0, 2), np.int64) if first is None else np.asarray(first, np.int64).reshape(-1, 2)
    for state, goal in chosen[(chosen >= data.num_rows).any(axis=1)].tolist():
        raise CtaError(f"{data.name} has rows 0 to {data.num_rows - 1}; there is no pair {state}:{goal}")
    ends = np.repeat(data.episode_ends, data.episode_ends - data.episode_starts + 1).astype(np.int64)
    room = np.clip(np.minimum(ends - np.arange(data.num_rows), most) - least + 1, 0, None)
    total = int(room.sum())
    if total + len(chosen) == 0:
        longest = int((data.episode_ends - data.episode_starts).max())
        raise CtaError(f"{data.name}: no two rows of an episode are {least} apart; the longest has {longest} steps")
    # Pair number n belongs to the row whose share of the numbers 0 … total − 1 holds n.
    upto = np.cumsum(room)
    numbers = np.sort(np.random.default_rng(seed).choice(total, size=min(count, total), replace=False))
    states = np.searchsorted(upto, numbers, side="right")
    goals = states + least + numbers - (upto[states] - room[states])
    drawn = np.stack([states, goals], axis=1)
    if len(chosen):
        known = set(map(tuple, chosen.tolist()))
        fresh = np.array([tuple(pair) not in known for pair in drawn.tolist()], bool)
        drawn = np.concatenate([chosen, drawn[fresh]])[: max(count, len(chosen))]
    episodes = np.searchsorted(data.episode_ends, drawn[:, 0])
    return Pairs(drawn[:, 0], drawn[:, 1], episodes)


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
    if semantics.events is None:
        raise CtaError(f"--query {HELD_OUT}: the data does not tell tasks and contexts; give rows, as STATE:GOAL")
    found = []
    for number, held in enumerate(built_in_pairs(layout), 1):
        what, value = held.event
        name = semantics.event_names[value if what == PRESS else 2 * layout.index(what) + (1 - value)]
        mask = np.array([label == name for label in tasks.names], bool)[tasks.codes]
        for component, wanted in held.context.items():
            mask &= semantics.sides[pairs.states, layout.index(component)] == wanted
        if mask.any():
            found.append(_first(order, mask, f"held-out pair {number}: {name}"))
    if not found:
        raise CtaError(f"--query {HELD_OUT}: none of the held-out combinations occurs among these pairs")
    return found
