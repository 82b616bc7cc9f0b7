"""Worlds and checks that only the tests of the theory need."""

from itertools import product
from typing import NamedTuple

import numpy as np

from cta_theory.distance import optimal_actions
from cta_theory.lights import LightsOut
from cta_theory.mdp import MDP


def surrogate_iteration(mdp: MDP, gamma: float, *, tolerance: float = 1e-12) -> np.ndarray:
    """Optimal surrogate returns Ṽ (S, S) by dynamic programming: reward −1 until the goal is reached, 0 after."""
    reached = np.eye(mdp.n_states, dtype=bool)
    values = np.zeros(reached.shape)
    while True:
        swept = np.where(reached, 0.0, -1.0 + gamma * np.tensordot(mdp.P, values, axes=1).max(axis=1))
        change = np.abs(swept - values).max()
        values = swept
        if change <= tolerance:
            return values


def policy_values(mdp: MDP, policy: np.ndarray, g: int, gamma: float) -> np.ndarray:
    """V^π(·,g) (S,) of a deterministic policy (S,) of action indices, by solving the linear system."""
    law = mdp.P[np.arange(mdp.n_states), policy].copy()
    law[g] = 0.0
    return np.linalg.solve(np.eye(mdp.n_states) - gamma * law, np.eye(mdp.n_states)[g])


def greedy_from_field(
    mdp: MDP, D: np.ndarray, s: int, F: np.ndarray, *, gamma: float, return_distance: bool = True
) -> np.ndarray:
    """Actions (A,) of bools that maximise Σ_{s'} P(s'|s,a) γ^{F(s') + d*(s',s)}, ties within 1e-8.

    The summand is V*(s',g) when F = α(s,g). `return_distance=False` drops d*(s',s), which is not a policy in general.
    """
    values = gamma ** (F + D[:, s] if return_distance else F)
    return optimal_actions(mdp, values[:, None], s, 0)


class ProbeFailure(NamedTuple):
    """A pair of the support and a probe x such that `missing` is not in the support (P1), or not reachable (P2)."""

    pair: tuple[int, int]
    probe: int
    missing: tuple[int, int]


def check_probe_completeness(support: np.ndarray) -> list[ProbeFailure]:
    """P1: (s,g) in the support ⇒ (x,s) and (x,g) in the support for all x. All violations, first missing pair each."""
    return _missing(support, support)


def check_finite_distances(D: np.ndarray) -> list[ProbeFailure]:
    """P2: every probe reaches s and g in finite time, for every pair."""
    return _missing(np.ones(D.shape, bool), np.isfinite(D))


def _missing(support: np.ndarray, there: np.ndarray) -> list[ProbeFailure]:
    """Pairs (s,g) of the support and probes x for which (x,s) or (x,g) is not `there`."""
    return [
        ProbeFailure((int(s), int(g)), int(x), (int(x), int(g if there[x, s] else s)))
        for s, g in np.argwhere(support)
        for x in np.flatnonzero(~(there[:, s] & there[:, g]))
    ]


def lights_out(rows: int, columns: int) -> MDP:
    """Lights Out over all 2^(rows·columns) light patterns; coordinates are the lights.

    Dense, hence only up to nine lights; `LightsOut` answers the same questions for larger boards from the group.
    """
    board = LightsOut(rows, columns)
    states = np.arange(2**board.lights)
    successors = states[:, None] ^ board.patterns @ (1 << np.arange(board.lights))
    bits = (states[:, None] >> np.arange(board.lights)) & 1
    names = tuple(f"press {i}" for i in range(board.lights))
    return MDP.deterministic(successors, coordinates=bits, actions=names, name=f"{rows}×{columns} lights out")


def one_way_door() -> MDP:
    """0 → 1 → 2 and no way back: actions stay, forward."""
    return MDP.deterministic(np.array([[0, 1], [1, 2], [2, 2]]), actions=("stay", "forward"), name="one-way door")


def directed_cycle(n: int) -> MDP:
    """One action, s → s+1 mod n: the smallest process whose distance is asymmetric."""
    return MDP.deterministic(((np.arange(n) + 1) % n)[:, None], name=f"directed cycle of {n}")


def random_mdp(
    seed: int, *, states: int = 6, actions: int = 3, concentration: float = 0.4, deterministic: bool = False
) -> MDP:
    """Independent rows: Dirichlet(concentration) laws, or uniform successors when `deterministic`."""
    rng = np.random.default_rng(seed)
    if deterministic:
        return MDP.deterministic(rng.integers(0, states, (states, actions)), name=f"random graph {seed}")
    rows = rng.dirichlet(np.full(states, concentration), size=(states, actions))
    return MDP(rows / rows.sum(axis=-1, keepdims=True), name=f"random mdp {seed}")


def random_graph(seed: int, *, states: int = 6, degree: int = 2, undirected: bool = False) -> MDP:
    """A random graph without self-loops: `degree` out-edges per node, or, when `undirected`, moves along a random
    connected graph (a random tree plus a few edges); absent moves stand still."""
    rng = np.random.default_rng(seed)
    if not undirected:
        table = [rng.permutation(np.delete(np.arange(states), s))[:degree] for s in range(states)]
        return MDP.deterministic(np.array(table), name=f"random {degree}-out graph {seed}")
    edges = {(s, int(rng.integers(0, s))) for s in range(1, states)}
    edges |= {(max(a, b), min(a, b)) for a, b in rng.integers(0, states, (degree, 2)).tolist() if a != b}
    neighbours = [sorted({b for a, b in edges if a == s} | {a for a, b in edges if b == s}) for s in range(states)]
    width = max(map(len, neighbours))
    table = [row + [s] * (width - len(row)) for s, row in enumerate(neighbours)]
    return MDP.deterministic(np.array(table), name=f"random undirected graph {seed}")


def exogenous_product(mdp: MDP, chain: np.ndarray) -> MDP:
    """The process (z, e) in which z follows `mdp` and e follows the Markov chain `chain` (E, E) on its own.

    State index z·E + e; coordinates (z, e). With the endogenous reading z this satisfies every assumption of the paper.
    """
    n, k, e = mdp.n_states, mdp.n_actions, len(chain)
    P = np.einsum("zay,ef->zeayf", mdp.P, chain).reshape(n * e, k, n * e)
    coordinates = np.array(list(product(range(n), range(e))))
    return MDP(P, coordinates=coordinates, actions=mdp.actions, name=f"{mdp.name} × chain of {e}")
