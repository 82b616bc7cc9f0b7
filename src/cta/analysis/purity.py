"""How often the nearest pairs mean the same: neighbour purity by task, and how far it survives a change of context.

Queries are pairs in which exactly one event happened; neighbours are any pairs of other episodes. Beside the true
labels stand shuffled ones, where the neighbours' labels are permuted over all pairs: what a representation that knows
nothing would score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from cta.analysis.neighbours import METRICS, NEAREST, Metric, nearest
from cta.analysis.semantics import Labels, is_single

MEASURES = ("purity", "same_task_other_context", "purity_across_contexts")
QUERIES = 2_000
ALL = "all"


@dataclass(frozen=True)
class Labelled:
    """Pairs with what they mean: task and context codes and neighbour groups, all (N,), and the queries among them."""

    tasks: Labels
    contexts: np.ndarray
    groups: np.ndarray
    queries: np.ndarray
    count: int = NEAREST


def choose_queries(tasks: Labels, *, most: int = QUERIES, seed: int = 0) -> np.ndarray:
    """At most `most` pairs of exactly one event, drawn at random, in order."""
    single = np.flatnonzero(is_single(tasks))
    if len(single) <= most:
        return single
    return np.sort(np.random.default_rng(seed).choice(single, most, replace=False))


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


def measure_all(
    representations: Mapping[tuple[str, str], np.ndarray], pairs: Labelled, *, shuffle: int = 0
) -> list[dict[str, Any]]:
    """Rows of {(representation, network): points} by both metrics."""
    return [
        {"representation": name, "network": network, **row, "neighbours": pairs.count}
        for (name, network), points in representations.items()
        for metric in METRICS
        for row in measure(points, pairs, metric=metric, shuffle=shuffle)
    ]


def table(rows: Sequence[Mapping[str, Any]], *, metric: Metric = "cosine") -> list[dict[str, Any]]:
    """A short table in per cent: a line for each representation and network, means and deviations over seeds."""
    lines = []
    mine = [row for row in rows if row["metric"] == metric and row["task"] == ALL]
    for key in dict.fromkeys((row["representation"], row["network"]) for row in mine):
        these = [row for row in mine if (row["representation"], row["network"]) == key]
        true = [row for row in these if row["labels"] == "true"]
        chance = [row for row in these if row["labels"] == "shuffled"]
        line: dict[str, Any] = {"representation": key[0], "network": key[1], "seeds": len(true)}
        columns = {name: [row[name] for row in true] for name in MEASURES}
        columns["purity_shuffled_labels"] = [row["purity"] for row in chance]
        for name, values in columns.items():
            line[f"{name}_%"] = round(100 * fmean(values), 1)
            if len(values) > 1:
                line[f"{name}_sd"] = round(100 * pstdev(values), 1)
        lines.append(line)
    return lines


def task_table(
    rows: Sequence[Mapping[str, Any]], representation: str, *, network: str = "trained", metric: Metric = "cosine"
) -> list[dict[str, Any]]:
    """The same for one representation, a line for each task."""
    mine = [row for row in rows if (row["representation"], row["network"]) == (representation, network)]
    mine = [row for row in mine if row["metric"] == metric and row["labels"] == "true" and row["task"] != ALL]
    lines = []
    for task in dict.fromkeys(row["task"] for row in mine):
        these = [row for row in mine if row["task"] == task]
        means = {f"{name}_%": round(100 * fmean(row[name] for row in these), 1) for name in MEASURES}
        lines.append({"task": task, "queries": these[0]["queries"], **means})
    return lines
