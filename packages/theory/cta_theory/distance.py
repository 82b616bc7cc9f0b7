"""Optimal temporal distances, the surrogate return, distance-difference fields and optimal actions."""

import numpy as np

from cta.errors import CtaError
from cta_theory.mdp import MDP, check_gamma

_MAX_SWEEPS = 100_000


def value_iteration(mdp: MDP, gamma: float, *, reached: np.ndarray | None = None) -> np.ndarray:
    """Optimal values V* (S, G) of reward 1 collected once on reaching the goal.

    V*(s,g) = 1 where `reached[s,g]` (default s = g), else γ max_a Σ P(s'|s,a) V*(s',g). Starting from zero keeps values
    of unreachable goals at exactly 0.
    """
    check_gamma(gamma)
    reached = np.eye(mdp.n_states, dtype=bool) if reached is None else np.asarray(reached, bool)
    if reached.ndim != 2 or len(reached) != mdp.n_states:
        raise CtaError(f"{mdp.name}: `reached` has shape {reached.shape}, expected ({mdp.n_states}, goals)")
    values = reached.astype(float)
    for _ in range(_MAX_SWEEPS):
        before = values
        values = np.where(reached, 1.0, gamma * np.tensordot(mdp.P, before, axes=1).max(axis=1))
        if np.abs(values - before).max() <= 1e-12 * (1.0 - gamma):
            return values
    raise CtaError(f"{mdp.name}: value iteration did not converge in {_MAX_SWEEPS} sweeps at gamma = {gamma}")


def breadth_first(mdp: MDP) -> np.ndarray:
    """Shortest path lengths (S, S) of a deterministic process, inf where there is no path."""
    from scipy.sparse.csgraph import shortest_path  # a second, which the command's help can do without

    return shortest_path((mdp.P > 0.5).any(axis=1), unweighted=True)


def temporal_distance(mdp: MDP, gamma: float = 0.9, *, reached: np.ndarray | None = None) -> np.ndarray:
    """d*(s,g) = log_γ V*(s,g), (S, G), inf for unreachable goals.

    By breadth-first search where the process is deterministic and goals are states, else by value iteration.
    """
    check_gamma(gamma)
    if reached is None and mdp.is_deterministic:
        return breadth_first(mdp)
    with np.errstate(divide="ignore"):
        distance = np.log(value_iteration(mdp, gamma, reached=reached)) / np.log(gamma)
    # γ^0 = 1 up to rounding may exceed 1 by an ulp: distances are non-negative by definition.
    return np.maximum(distance, 0.0)


def surrogate_return(distance: np.ndarray, gamma: float) -> np.ndarray:
    """Ṽ = −(1−γ^d)/(1−γ), elementwise; −1/(1−γ) at d = ∞."""
    check_gamma(gamma)
    return -(1.0 - gamma ** np.asarray(distance, float)) / (1.0 - gamma)


def implied_distance(returns: np.ndarray, gamma: float) -> np.ndarray:
    """d = log_γ(1+(1−γ)Ṽ), elementwise, the inverse of `surrogate_return`.

    Learned values leave the range (−1/(1−γ), 0]; they are clipped to it, so that an estimate at or below the floor
    reads as a very large and one above 0 as no distance.
    """
    remaining = np.clip(1.0 + (1.0 - gamma) * np.asarray(returns, float), np.finfo(float).tiny, 1.0)
    return np.log(remaining) / np.log(gamma)


def field(D: np.ndarray, s: int, g: int) -> np.ndarray:
    """Distance-difference field α(s,g)(x) = d*(x,g) − d*(x,s) over all probes x, (S,).

    Works on any table of the same shape, for example Ṽ. Raises where a probe cannot reach s or g.
    """
    undefined = np.argwhere(~np.isfinite(D[:, [g, s]]))
    if len(undefined):
        x, which = undefined[0]
        raise CtaError(
            f"field({s}, {g}): state {x} cannot reach {(g, s)[which]} (d* = ∞), the difference is undefined there; "
            "restrict the process to states that reach both"
        )
    return D[:, g] - D[:, s]


def fields(D: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The fields of `pairs` (N, 2) as rows, (N, S)."""
    return np.stack([field(D, int(s), int(g)) for s, g in pairs])


def optimal_actions(mdp: MDP, values: np.ndarray, s: int, g: int, *, tolerance: float = 1e-8) -> np.ndarray:
    """Actions (A,) of bools that maximise Σ P(s'|s,a) V*(s',g), ties within `tolerance`."""
    scores = mdp.P[s] @ values[:, g]
    return scores >= scores.max() - tolerance * max(1.0, abs(float(scores.max())))
