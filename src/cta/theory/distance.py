"""Optimal temporal distances, the surrogate return, distance-difference fields and the greedy rule on them."""

from typing import Literal

import numpy as np

from cta.errors import CtaError
from cta.theory.mdp import MDP, check_gamma

_MAX_SWEEPS = 100_000


def _reached(mdp: MDP, reached: np.ndarray | None) -> np.ndarray:
    if reached is None:
        return np.eye(mdp.n_states, dtype=bool)
    reached = np.asarray(reached, bool)
    if reached.ndim != 2 or len(reached) != mdp.n_states:
        raise CtaError(f"{mdp.name}: `reached` has shape {reached.shape}, expected ({mdp.n_states}, goals)")
    return reached


def value_iteration(
    mdp: MDP, gamma: float, *, reached: np.ndarray | None = None, tolerance: float = 1e-12
) -> np.ndarray:
    """Optimal values V* (S, G) of reward 1 collected once on reaching the goal.

    V*(s,g) = 1 where `reached[s,g]` (default s = g), else γ max_a Σ P(s'|s,a) V*(s',g). Starting from zero keeps values
    of unreachable goals at exactly 0.
    """
    check_gamma(gamma)
    reached = _reached(mdp, reached)
    values = reached.astype(float)
    for _ in range(_MAX_SWEEPS):
        swept = np.where(reached, 1.0, gamma * backup(mdp, values).max(axis=1))
        change = np.abs(swept - values).max()
        values = swept
        if change <= tolerance * (1.0 - gamma):
            return values
    raise CtaError(f"{mdp.name}: value iteration did not converge in {_MAX_SWEEPS} sweeps at gamma = {gamma}")


def surrogate_iteration(
    mdp: MDP, gamma: float, *, reached: np.ndarray | None = None, tolerance: float = 1e-12
) -> np.ndarray:
    """Optimal surrogate returns Ṽ (S, G) by dynamic programming: reward −1 until the goal is reached, 0 after."""
    check_gamma(gamma)
    reached = _reached(mdp, reached)
    values = np.zeros(reached.shape)
    for _ in range(_MAX_SWEEPS):
        swept = np.where(reached, 0.0, -1.0 + gamma * backup(mdp, values).max(axis=1))
        change = np.abs(swept - values).max()
        values = swept
        if change <= tolerance:
            return values
    raise CtaError(f"{mdp.name}: value iteration did not converge in {_MAX_SWEEPS} sweeps at gamma = {gamma}")


def backup(mdp: MDP, values: np.ndarray) -> np.ndarray:
    """Expected values of the successor, (S, A, G): Σ_{s'} P(s'|s,a) values(s', g)."""
    return np.tensordot(mdp.P, values, axes=([2], [0]))


def breadth_first(mdp: MDP, *, reached: np.ndarray | None = None) -> np.ndarray:
    """Shortest path lengths (S, G) of a deterministic process, inf where there is no path."""
    reached = _reached(mdp, reached)
    successors = mdp.successors
    distance = np.where(reached, 0.0, np.inf)
    for depth in range(1, mdp.n_states + 1):
        arrives = np.isfinite(distance)[successors].any(axis=1)
        new = arrives & np.isinf(distance)
        if not new.any():
            break
        distance[new] = depth
    return distance


def temporal_distance(
    mdp: MDP,
    gamma: float = 0.9,
    *,
    reached: np.ndarray | None = None,
    method: Literal["auto", "value", "bfs"] = "auto",
) -> np.ndarray:
    """d*(s,g) = log_γ V*(s,g), (S, G), inf for unreachable goals.

    `method`: breadth-first search (deterministic processes), value iteration, or whichever fits.
    """
    check_gamma(gamma)
    if method == "bfs" or (method == "auto" and mdp.is_deterministic):
        return breadth_first(mdp, reached=reached)
    values = value_iteration(mdp, gamma, reached=reached)
    # γ^0 = 1 up to rounding may exceed 1 by an ulp: distances are non-negative by definition.
    return np.maximum(values_to_distance(values, gamma), 0.0)


def values_to_distance(values: np.ndarray, gamma: float) -> np.ndarray:
    """d = log_γ V, inf where V = 0."""
    check_gamma(gamma)
    with np.errstate(divide="ignore"):
        return np.log(values) / np.log(gamma)


def surrogate_return(distance: np.ndarray, gamma: float) -> np.ndarray:
    """Ṽ = −(1−γ^d)/(1−γ), elementwise; −1/(1−γ) at d = ∞."""
    check_gamma(gamma)
    return -(1.0 - gamma ** np.asarray(distance, float)) / (1.0 - gamma)


def implied_distance(returns: np.ndarray, gamma: float) -> np.ndarray:
    """d = log_γ(1+(1−γ)Ṽ), elementwise, the inverse of `surrogate_return`.

    Learned values leave the range (−1/(1−γ), 0]; they are clipped to it, so that an estimate at or below the floor
    reads as a very large and one above 0 as no distance.
    """
    check_gamma(gamma)
    remaining = np.clip(1.0 + (1.0 - gamma) * np.asarray(returns, float), np.finfo(float).tiny, 1.0)
    return np.log(remaining) / np.log(gamma)


def field(D: np.ndarray, s: int, g: int) -> np.ndarray:
    """Distance-difference field α(s,g)(x) = d*(x,g) − d*(x,s) over all probes x, (S,).

    Works on any table of the same shape, for example Ṽ. Raises where a probe cannot reach s or g.
    """
    difference_undefined = ~(np.isfinite(D[:, g]) & np.isfinite(D[:, s]))
    if difference_undefined.any():
        x = int(np.flatnonzero(difference_undefined)[0])
        missing = g if not np.isfinite(D[x, g]) else s
        raise CtaError(
            f"field({s}, {g}): state {x} cannot reach {missing} (d* = ∞), the difference is undefined there; "
            "restrict the process to states that reach both"
        )
    return D[:, g] - D[:, s]


def fields(D: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The fields of `pairs` (N, 2) as rows, (N, S)."""
    return np.stack([field(D, int(s), int(g)) for s, g in pairs])


def greedy_from_field(
    mdp: MDP,
    D: np.ndarray,
    s: int,
    F: np.ndarray,
    *,
    gamma: float,
    return_distance: bool = True,
    tolerance: float = 1e-8,
) -> np.ndarray:
    """Actions (A,) of bools that maximise Σ_{s'} P(s'|s,a) γ^{F(s') + d*(s',s)}, ties within `tolerance`.

    The summand is V*(s',g) when F = α(s,g). `return_distance=False` drops d*(s',s), which is not a policy in general.
    """
    check_gamma(gamma)
    exponent = F + D[:, s] if return_distance else F
    scores = mdp.P[s] @ gamma**exponent
    return scores >= scores.max() - tolerance * max(1.0, abs(float(scores.max())))


def optimal_actions(mdp: MDP, values: np.ndarray, s: int, g: int, *, tolerance: float = 1e-8) -> np.ndarray:
    """Actions (A,) of bools that maximise Σ P(s'|s,a) V*(s',g), ties within `tolerance`."""
    scores = mdp.P[s] @ values[:, g]
    return scores >= scores.max() - tolerance * max(1.0, abs(float(scores.max())))


def policy_values(mdp: MDP, policy: np.ndarray, g: int, gamma: float) -> np.ndarray:
    """V^π(·,g) (S,) of a deterministic policy (S,) of action indices, by solving the linear system."""
    check_gamma(gamma)
    law = mdp.P[np.arange(mdp.n_states), policy].copy()
    law[g] = 0.0
    reward = np.zeros(mdp.n_states)
    reward[g] = 1.0
    return np.linalg.solve(np.eye(mdp.n_states) - gamma * law, reward)
