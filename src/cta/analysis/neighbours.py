"""Nearest pairs, exactly, in blocks."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

Metric = Literal["cosine", "l2"]
METRICS: tuple[Metric, ...] = ("cosine", "l2")
NEAREST = 10
BLOCK = 512


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


def neighbour_groups(episodes: np.ndarray, count: int = NEAREST) -> tuple[np.ndarray, int]:
    """Groups whose members are never each other's neighbours, and how many neighbours every pair can then have.

    The groups are the episodes: two pairs a step apart in one episode are near in any representation and say nothing.
    Where one episode holds nearly everything, each pair is its own group.
    """
    most = int(np.bincount(episodes).max())
    if len(episodes) - most >= 1:
        return episodes, min(count, len(episodes) - most)
    return np.arange(len(episodes)), min(count, len(episodes) - 1)
