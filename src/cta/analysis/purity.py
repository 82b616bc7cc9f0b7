"""How often the nearest pairs mean the same: neighbour purity by task, and how far it survives a change of context.

Neighbours are found exactly, in blocks. Queries are pairs in which exactly one event happened; neighbours are any pairs
of other episodes. Beside the true labels stand shuffled ones, where the neighbours' labels are permuted over all pairs:
what a representation that knows nothing would score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np

from cta.analysis.semantics import Labels, is_single

Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "l2")
NEAREST = 10
BLOCK = 512
MEASURES = ("purity", "same_task_other_context", "purity_across_contexts")
QUERIES = 2_000
ALL = "all"
SHOWN: Metric = "cosine"
"""The metric of the short tables."""


def nearest(
    points: np.ndarray,
    apart: Sequence[np.ndarray],
    *,
    metric: Metric = "cosine",
    count: int = NEAREST,
    queries: np.ndarray | None = None,
) -> list[np.ndarray]:
    """For each query the `count` nearest of the `points` (N, d), nearest first: a list of (Q, count) indices.

    `apart` are arrays of N numbers; result r leaves out every point that shares a number of apart[0] … apart[r] with
    the query, so the first result is the widest. −1 stands where too few points are left. `queries` are indices into
    the points, by default all of them. Cosine distances are those of the directions, a zero vector's direction is zero.
    """
    points = np.asarray(points, np.float32).reshape(len(points), -1)
    if metric == "cosine":
        points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    else:
        # A common shift changes no distance, and keeps the squares small.
        points = points - points.mean(axis=0)
    squares = (points**2).sum(axis=1)
    chosen = np.arange(len(points)) if queries is None else np.asarray(queries)
    found = [np.full((len(chosen), count), -1, np.int64) for _ in apart]
    for begin in range(0, len(chosen), BLOCK):
        rows = chosen[begin : begin + BLOCK]
        away = squares - 2 * (points[rows] @ points.T)
        for result, numbers in zip(found, apart, strict=True):
            away[numbers[rows][:, None] == numbers] = np.inf
            best = _smallest(away, count)
            result[begin : begin + len(rows), : best.shape[1]] = best
    return found


def _smallest(away: np.ndarray, count: int) -> np.ndarray:
    """Columns of the `count` smallest finite entries of each row, smallest first; −1 for infinite ones."""
    kept = min(count, away.shape[1])
    best = np.argpartition(away, kept - 1, axis=1)[:, :kept]
    distance = np.take_along_axis(away, best, axis=1)
    order = np.argsort(distance, axis=1, kind="stable")
    best, distance = np.take_along_axis(best, order, axis=1), np.take_along_axis(distance, order, axis=1)
    return np.where(np.isfinite(distance), best, -1)


def among(episodes: np.ndarray) -> str:
    """What neighbours are looked for among, in words."""
    return "pairs of other episodes" if len(np.unique(episodes)) > 1 else "pairs of the one episode there is"


def neighbour_groups(episodes: np.ndarray) -> tuple[np.ndarray, int]:
    """Groups whose members are never each other's neighbours, and how many neighbours every pair can then have.

    The groups are the episodes: two pairs a step apart in one episode are near in any representation and say nothing.
    Where one episode holds nearly everything, each pair is its own group.
    """
    most = int(np.bincount(episodes).max())
    if len(episodes) - most >= 1:
        return episodes, min(NEAREST, len(episodes) - most)
    return np.arange(len(episodes)), min(NEAREST, len(episodes) - 1)


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
    context. purity_across_contexts: the first, when only pairs in another context may be neighbours. A neighbour that
    does not exist shares nothing.
    """
    around, elsewhere = nearest(
        points, [pairs.groups, pairs.contexts], metric=metric, count=pairs.count, queries=pairs.queries
    )
    names, codes, contexts = pairs.tasks.names, pairs.tasks.codes, pairs.contexts
    mine, other = codes[pairs.queries][:, None], contexts[around] != contexts[pairs.queries][:, None]

    def shares(labels: np.ndarray, moved: np.ndarray) -> np.ndarray:
        same = (labels[around] == mine) & (around >= 0)
        across = (labels[elsewhere] == mine) & (elsewhere >= 0)
        return np.stack([same, same & moved, across], axis=-1).mean(axis=1)

    true = shares(codes, other)
    order = np.random.default_rng(shuffle).permutation(len(codes))
    shuffled_contexts = contexts[order][around] != contexts[pairs.queries][:, None]
    rows = [_row(true, "true", ALL), _row(shares(codes[order], shuffled_contexts), "shuffled", ALL)]
    asked = codes[pairs.queries]
    rows += [_row(true[asked == code], "true", names[code]) for code in np.unique(asked).tolist()]
    return [{"metric": metric, **row} for row in rows]


def _row(shares: np.ndarray, labels: str, task: str) -> dict[str, Any]:
    means = shares.mean(axis=0) if len(shares) else np.full(len(MEASURES), np.nan)
    values = {name: round(float(value), 4) for name, value in zip(MEASURES, means, strict=True)}
    return {"labels": labels, "task": task, "queries": len(shares), **values}


def table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
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


def task_table(rows: Sequence[Mapping[str, Any]], representation: str) -> list[dict[str, Any]]:
    """The same for one trained representation, a line for each task."""
    mine = [row for row in rows if (row["representation"], row["network"]) == (representation, "trained")]
    mine = [row for row in mine if row["metric"] == SHOWN and row["labels"] == "true" and row["task"] != ALL]
    lines = []
    for task in dict.fromkeys(row["task"] for row in mine):
        these = [row for row in mine if row["task"] == task]
        means = {f"{name}_%": round(100 * fmean(row[name] for row in these), 1) for name in MEASURES}
        lines.append({"task": task, "queries": these[0]["queries"], **means})
    return lines
