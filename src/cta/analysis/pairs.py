"""State–goal pairs: which are mapped, which are shown (by chance, one for each task, or by name), and neighbour purity.

Purity is how often the nearest pairs have the same task, and how far that survives a change of context. Its queries are
pairs in which exactly one event happened; neighbours are any pairs of other episodes. Beside the true labels stand
shuffled ones, permuted over all pairs: what a representation that knows nothing would score.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np

from cta.analysis.semantics import Labels, Semantics, is_single
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.ooc import find_layout, held_out_of
from cta.ooc.pairs import PRESS

STEPS_APART = (5, 30)  # from a state to its goal in OGBench's worlds: about one press, one pull or one lift
DESK_STEPS_APART = (3, 10)  # the same on the embedded worlds, where a subtask takes about nine steps
ROWS = re.compile(r"(\d{1,15}):(\d{1,15})")
HELD_OUT = "ooc"
DEFAULT_COUNT = 12
Wanted = tuple[np.ndarray, str]  # which pairs would do, (N,) bool, and what to call the one that is shown
Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "l2")
NEAREST = 10
BLOCK = 512
MEASURES = ("purity", "same_task_other_context", "purity_across_contexts")
QUERIES = 2_000
ALL = "all"
SHOWN: Metric = "cosine"  # the metric of the short tables


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
    """`count` different pairs (t, t + δ), uniform over all with δ ∈ `apart`, or all there are, `first` (n, 2) first."""
    least, most = apart
    if not 1 <= least <= most:
        raise CtaError(f"steps between state and goal: 1 ≤ least ≤ most, not {least} and {most}")
    chosen = np.reshape([] if first is None else first, (-1, 2)).astype(np.int64)
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
    drawn = dict.fromkeys(map(tuple, [*chosen.tolist(), *zip(states.tolist(), goals.tolist(), strict=True)]))
    kept = np.array([*drawn][: max(count, len(chosen))])
    return Pairs(kept[:, 0], kept[:, 1], np.searchsorted(data.episode_ends, kept[:, 0]))


def asked_rows(words: Sequence[str]) -> np.ndarray:
    """The pairs asked for as STATE:GOAL rows, (n, 2)."""
    found = [match.groups() for word in words if (match := ROWS.fullmatch(word))]
    return np.array(found, np.int64).reshape(-1, 2)


def choose(
    words: Sequence[str], dataset_name: str, pairs: Pairs, tasks: Labels, semantics: Semantics, *, seed: int = 0
) -> list[dict[str, Any]]:
    """[{point, name}] for what was asked for: STATE:GOAL, the name of a task, `ooc` for the world's held-out pairs.

    Where nothing was asked for, one pair of each of the commonest tasks. Among pairs of the same name chance decides.
    """
    order, wanted = np.random.default_rng(seed).permutation(len(pairs)), list[Wanted]()
    for word in words:
        if ROWS.fullmatch(word):
            state, goal = map(int, word.split(":"))
            here = (pairs.states == state) & (pairs.goals == goal)
            wanted.append((here, f"{word} {tasks.names[tasks.codes[here.argmax()]]}"))
        elif word == HELD_OUT:
            wanted += _held_out(dataset_name, pairs, tasks, semantics)
        else:
            code = _task(word, tasks)
            wanted.append((tasks.codes == code, tasks.names[code]))
    if not words:
        counts = np.bincount(tasks.codes[is_single(tasks)], minlength=len(tasks.names))
        common = [code for code in np.argsort(-counts, kind="stable").tolist() if counts[code]][:DEFAULT_COUNT]
        if not common:
            return [{"point": int(point), "name": f"pair {point}"} for point in np.sort(order[:3])]
        wanted = [(tasks.codes == code, tasks.names[code]) for code in sorted(common)]
    return [{"point": int(order[mask[order]][0]), "name": name} for mask, name in wanted]


def _task(word: str, tasks: Labels) -> int:
    exact = [code for code, name in enumerate(tasks.names) if name.lower() == word.lower()]
    near = exact or [code for code, name in enumerate(tasks.names) if word.lower() in name.lower()]
    if len(near) != 1:
        found = "several tasks" if near else "no task"
        raise CtaError(f"--query '{word}': {found} of this name among the pairs; there are {', '.join(tasks.names)}")
    return near[0]


def _held_out(dataset_name: str, pairs: Pairs, tasks: Labels, semantics: Semantics) -> list[Wanted]:
    """A pair for each held-out combination that occurs among the pairs: its task, begun in its context."""
    layout = find_layout(dataset_name)
    if semantics.events is None:
        raise CtaError(f"--query {HELD_OUT}: the data does not tell tasks and contexts; give rows, as STATE:GOAL")
    found = []
    for number, held in held_out_of(layout).numbered():
        what, value = held.event
        name = semantics.event_names[value if what == PRESS else 2 * layout.index(what) + (1 - value)]
        mask = np.array([label == name for label in tasks.names], bool)[tasks.codes]
        for component, wanted in held.context.items():
            mask &= semantics.sides[pairs.states, layout.index(component)] == wanted
        if mask.any():
            found.append((mask, f"held-out pair {number}: {name}"))
    if not found:
        raise CtaError(f"--query {HELD_OUT}: none of the held-out combinations occurs among these pairs")
    return found


def nearest(
    points: np.ndarray, apart: Sequence[np.ndarray], *, metric: Metric, count: int, queries: np.ndarray | None = None
) -> list[np.ndarray]:
    """For each query the `count` nearest of the `points` (N, d), exactly, nearest first: a list of (Q, count) indices.

    `apart` are arrays of N numbers; result r leaves out every point that shares a number of apart[0] … apart[r] with
    the query. −1 stands where too few points are left. `queries` are indices into the points (default: all).
    """
    points = np.asarray(points, np.float32).reshape(len(points), -1)
    if metric == "cosine":
        points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    else:
        # A common shift changes no distance, and keeps the squares small.
        points = points - points.mean(axis=0)
    squares = (points**2).sum(axis=1)
    chosen = np.arange(len(points)) if queries is None else np.asarray(queries)
    found, kept = [np.full((len(chosen), count), -1, np.int64) for _ in apart], min(count, len(points))
    for begin in range(0, len(chosen), BLOCK):
        rows = chosen[begin : begin + BLOCK]
        away = squares - 2 * (points[rows] @ points.T)
        for result, numbers in zip(found, apart, strict=True):
            away[numbers[rows][:, None] == numbers] = np.inf
            best = np.argpartition(away, kept - 1, axis=1)[:, :kept]
            order = np.argsort(np.take_along_axis(away, best, axis=1), axis=1, kind="stable")
            best = np.take_along_axis(best, order, axis=1)
            there = np.isfinite(np.take_along_axis(away, best, axis=1))
            result[begin : begin + len(rows), :kept] = np.where(there, best, -1)
    return found


def among(episodes: np.ndarray) -> str:
    return "pairs of other episodes" if len(np.unique(episodes)) > 1 else "pairs of the one episode there is"


def neighbour_groups(episodes: np.ndarray) -> tuple[np.ndarray, int]:
    """Groups whose members are never each other's neighbours, and how many neighbours every pair can then have."""
    # Two pairs a step apart in one episode are near in any representation and say nothing; unless there is only one.
    others = len(episodes) - int(np.bincount(episodes).max())
    groups = episodes if others else np.arange(len(episodes))
    return groups, min(NEAREST, others or len(episodes) - 1)


@dataclass(frozen=True)
class Labelled:
    """Pairs with what they mean: task and context codes and neighbour groups, all (N,), and the queries among them."""

    tasks: Labels
    contexts: np.ndarray
    groups: np.ndarray
    queries: np.ndarray
    count: int = NEAREST


def choose_queries(tasks: Labels) -> np.ndarray:
    """At most `QUERIES` pairs of exactly one event, drawn at random, in order."""
    single = np.flatnonzero(is_single(tasks))
    if len(single) <= QUERIES:
        return single
    return np.sort(np.random.default_rng(0).choice(single, QUERIES, replace=False))


def measure(points: np.ndarray, pairs: Labelled, *, metric: Metric, shuffle: int = 0) -> list[dict[str, Any]]:
    """Rows of one representation: `labels` true for all queries and for each task, and `labels` shuffled.

    purity: share of a query's nearest pairs that have its task. same_task_other_context: that have its task and another
    context. purity_across_contexts: the first, when only pairs in another context may be neighbours.
    """
    codes, contexts, queries = pairs.tasks.codes, pairs.contexts, pairs.queries
    around, elsewhere = nearest(points, [pairs.groups, contexts], metric=metric, count=pairs.count, queries=queries)
    asked = codes[queries]

    def shares(order: np.ndarray) -> np.ndarray:
        """(queries, measures), where pair i is labelled as pair order[i] is."""
        same = (codes[order][around] == asked[:, None]) & (around >= 0)
        across = (codes[order][elsewhere] == asked[:, None]) & (elsewhere >= 0)
        moved = contexts[order][around] != contexts[queries][:, None]
        return np.stack([same, same & moved, across], axis=-1).mean(axis=1)

    def row(shares: np.ndarray, labels: str, task: str) -> dict[str, Any]:
        means = shares.mean(axis=0) if len(shares) else np.full(len(MEASURES), np.nan)
        values = {name: round(float(value), 4) for name, value in zip(MEASURES, means, strict=True)}
        return {"metric": metric, "labels": labels, "task": task, "queries": len(shares), **values}

    true = shares(np.arange(len(codes)))
    chance = shares(np.random.default_rng(shuffle).permutation(len(codes)))
    by_task = [row(true[asked == code], "true", pairs.tasks.names[code]) for code in np.unique(asked).tolist()]
    return [row(true, "true", ALL), row(chance, "shuffled", ALL), *by_task]


def purity_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A short table in per cent: a line for each representation and network, means and deviations over seeds."""
    lines = []
    mine = [row for row in rows if row["metric"] == SHOWN and row["task"] == ALL]
    for name, network in dict.fromkeys((row["representation"], row["network"]) for row in mine):
        these = [row for row in mine if (row["representation"], row["network"]) == (name, network)]
        true = [row for row in these if row["labels"] == "true"]
        columns = {measure: [row[measure] for row in true] for measure in MEASURES}
        columns["purity_shuffled_labels"] = [row["purity"] for row in these if row["labels"] == "shuffled"]
        line: dict[str, Any] = {"representation": name, "network": network, "seeds": len(true)}
        for column, values in columns.items():
            line[f"{column}_%"] = round(100 * fmean(values), 1)
            if len(values) > 1:
                line[f"{column}_sd"] = round(100 * pstdev(values), 1)
        lines.append(line)
    return lines


def purity_by_task(rows: Sequence[Mapping[str, Any]], representation: str) -> list[dict[str, Any]]:
    """The same for one trained representation, a line for each task."""
    mine = [row for row in rows if (row["representation"], row["network"]) == (representation, "trained")]
    mine = [row for row in mine if row["metric"] == SHOWN and row["labels"] == "true" and row["task"] != ALL]
    lines = []
    for task in dict.fromkeys(row["task"] for row in mine):
        these = [row for row in mine if row["task"] == task]
        means = {f"{name}_%": round(100 * fmean(row[name] for row in these), 1) for name in MEASURES}
        lines.append({"task": task, "queries": these[0]["queries"], **means})
    return lines
