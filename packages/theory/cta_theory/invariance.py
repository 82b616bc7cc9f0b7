"""How much of a representation of (s, g) survives a change of context: measures on plain arrays.

The measures know no network: rows are vectors (exact fields, learned fields φ(x)ᵀα∨, or α∨ itself), with a task label
and a context label each, so that the same numbers can be read off an exact table and off a trained agent.
"""

from dataclasses import dataclass

import numpy as np

from cta.errors import CtaError
from cta_theory.distance import implied_distance, surrogate_return
from cta_theory.mdp import MDP


@dataclass(frozen=True)
class Invariance:
    """Root mean square distance of two vectors `within` a task, in different contexts, and `between` two tasks, in any.

    `retrieval` is how often the nearest vector of another context has the same task.
    """

    within: float
    between: float
    retrieval: float

    @property
    def ratio(self) -> float:
        """within / between: 0 = exactly invariant, 1 = the context matters as much as the task."""
        return self.within / self.between if self.between > 0 else float("nan")


def context_invariance(vectors: np.ndarray, tasks: np.ndarray, contexts: np.ndarray) -> Invariance:
    """Measure `vectors` (N, K) with integer labels `tasks` (N,) and `contexts` (N,)."""
    from scipy.spatial.distance import pdist, squareform

    vectors, tasks, contexts = np.asarray(vectors, float), np.asarray(tasks), np.asarray(contexts)
    if vectors.ndim != 2 or not len(vectors) == len(tasks) == len(contexts):
        raise CtaError(
            f"context_invariance: {vectors.shape} vectors with {len(tasks)} tasks and {len(contexts)} contexts; "
            "expected (N, K), (N,), (N,)"
        )
    same_task = tasks[:, None] == tasks[None, :]
    other_context = contexts[:, None] != contexts[None, :]
    if not (same_task & other_context).any() or same_task.all():
        raise CtaError("context_invariance: needs two tasks, and one task seen in two contexts")
    square = squareform(pdist(vectors, "sqeuclidean"))
    # Rounding leaves distances of order 1e-16·‖v‖² between equal vectors: call those zero.
    square[square < 1e-13 * (vectors**2).sum(axis=1).max()] = 0.0
    pairs = same_task & other_context
    nearest = np.where(other_context, square, np.inf)
    seen = pairs.any(axis=1)
    best = nearest.min(axis=1, keepdims=True)
    # Among ties a hit counts by its share, so that identical vectors of two tasks are not credited.
    ties = nearest <= best
    hits = (ties & same_task).sum(axis=1) / ties.sum(axis=1)
    return Invariance(
        within=float(np.sqrt(square[pairs].mean())),
        between=float(np.sqrt(square[~same_task].mean())),
        retrieval=float(hits[seen].mean()),
    )


@dataclass(frozen=True)
class DualAccuracy:
    """A learned table against the exact one: Pearson's correlation of φᵀψ and Ṽ, the median absolute error of the
    implied distances, Spearman's correlation of implied and exact distances."""

    value_correlation: float
    distance_error: float
    rank_correlation: float


def dual_accuracy(values: np.ndarray, distances: np.ndarray, gamma: float) -> DualAccuracy:
    """Compare learned surrogate returns `values` with exact distances d* of the same shape (infinite ones skipped)."""
    from scipy.stats import rankdata

    values, distances = np.asarray(values, float), np.asarray(distances, float)
    if values.shape != distances.shape:
        raise CtaError(f"dual_accuracy: values {values.shape} and distances {distances.shape} differ in shape")
    finite = np.isfinite(distances)
    learned, exact = values[finite], distances[finite]
    if len(exact) < 2 or np.ptp(exact) == 0.0:
        raise CtaError("dual_accuracy: needs at least two different finite distances")

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 else 0.0

    return DualAccuracy(
        value_correlation=correlation(learned, surrogate_return(exact, gamma)),
        distance_error=float(np.median(np.abs(implied_distance(learned, gamma) - exact))),
        rank_correlation=correlation(rankdata(-learned), rankdata(exact)),
    )


def context_pairs(mdp: MDP, moved: tuple[int, ...] = (0,)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs (s, g), s ≠ g, that agree outside the coordinates `moved`: (pairs (N, 2), tasks (N,), contexts (N,)).

    The task is where `moved` starts and ends, the context the rest.
    """
    values = mdp.coordinates
    rest = [k for k in range(values.shape[1]) if k not in moved]
    if not rest or max(moved) >= values.shape[1]:
        raise CtaError(f"{mdp.name}: coordinates {moved} of {values.shape[1]} leave no context")
    agree = (values[:, None, rest] == values[None, :, rest]).all(axis=-1) & ~np.eye(mdp.n_states, dtype=bool)
    pairs = np.argwhere(agree)
    start_end = np.concatenate([values[pairs[:, 0]][:, moved], values[pairs[:, 1]][:, moved]], axis=1)
    tasks = np.unique(start_end, axis=0, return_inverse=True)[1].reshape(-1)
    contexts = np.unique(values[pairs[:, 0]][:, rest], axis=0, return_inverse=True)[1].reshape(-1)
    return pairs, tasks, contexts
