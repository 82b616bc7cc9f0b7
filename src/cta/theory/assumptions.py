"""The assumptions of the paper's proposition as checks that return witnesses of failure.

A decoder is two integer tables (S, S): `en_S[s, g]`, the endogenous reading of s when paired with goal g, and
`en_G[s, g]`, that of g when paired with state s. A support is a boolean table (S, S). An empty list means "holds".
"""

from dataclasses import dataclass

import numpy as np

from cta.errors import CtaError
from cta.theory.mdp import MDP


@dataclass(frozen=True)
class AbstractionWitness:
    """Two pairs of one task whose next-task laws under `action` differ by `gap` in total variation."""

    first: tuple[int, int]
    second: tuple[int, int]
    action: int
    gap: float


@dataclass(frozen=True)
class ProbeWitness:
    """A pair of the support and a probe x such that `missing` is not in the support (P1), or not reachable (P2)."""

    pair: tuple[int, int]
    probe: int
    missing: tuple[int, int]


@dataclass(frozen=True)
class ConsistencyWitness:
    """A pair and a probe x that violate one clause of P3, with the two readings that should be equal."""

    pair: tuple[int, int]
    probe: int
    clause: str
    readings: tuple[int, int]


def global_decoder(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The decoder whose reading ν(s) = labels[s] does not depend on the partner."""
    labels = np.asarray(labels, int)
    n = len(labels)
    return np.repeat(labels[:, None], n, axis=1), np.repeat(labels[None, :], n, axis=0)


def difference_decoder(coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair-dependent decoder "endogenous = the coordinates in which s and g differ".

    A coordinate that agrees reads 0, one that differs reads its value plus one; the digits are packed into one integer.
    """
    values = np.asarray(coordinates, int)
    differ = values[:, None, :] != values[None, :, :]
    radix = np.cumprod(np.concatenate([[1], values.max(axis=0)[::-1] + 2]))[:-1][::-1]
    en_S = (np.where(differ, values[:, None, :] + 1, 0) * radix).sum(axis=-1)
    en_G = (np.where(differ, values[None, :, :] + 1, 0) * radix).sum(axis=-1)
    return en_S, en_G


def _full(en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None) -> np.ndarray:
    if en_S.shape != en_G.shape or en_S.ndim != 2 or en_S.shape[0] != en_S.shape[1]:
        raise CtaError(f"decoder tables have shapes {en_S.shape} and {en_G.shape}, expected two equal squares")
    support = np.ones(en_S.shape, bool) if support is None else np.asarray(support, bool)
    if support.shape != en_S.shape:
        raise CtaError(f"the support has shape {support.shape}, the decoder {en_S.shape}")
    return support


def blocks(en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None = None) -> dict[tuple[int, int], np.ndarray]:
    """Task blocks: task (en_S, en_G) → its pairs (k, 2) in the support."""
    support = _full(en_S, en_G, support)
    pairs = np.argwhere(support)
    out: dict[tuple[int, int], list[np.ndarray]] = {}
    for s, g in pairs:
        out.setdefault((int(en_S[s, g]), int(en_G[s, g])), []).append(np.array([s, g]))
    return {task: np.stack(members) for task, members in out.items()}


def check_abstraction(
    mdp: MDP, en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None = None, *, tolerance: float = 1e-9
) -> list[AbstractionWitness]:
    """Task-endogenous abstraction: the law of the next task given (s,g), a depends on (s,g) through its task only.

    One witness per (task, action) at most, against the first pair of the block.
    """
    tasks, ids = np.unique(np.stack([en_S, en_G], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
    ids = ids.reshape(en_S.shape)
    one_hot = np.eye(len(tasks))
    witnesses = []
    for members in blocks(en_S, en_G, support).values():
        laws = np.stack([mdp.P[s] @ one_hot[ids[:, g]] for s, g in members])
        gaps = 0.5 * np.abs(laws - laws[:1]).sum(axis=-1)
        for a in range(mdp.n_actions):
            worst = int(gaps[:, a].argmax())
            if gaps[worst, a] > tolerance:
                witnesses.append(AbstractionWitness(_pair(members[0]), _pair(members[worst]), a, float(gaps[worst, a])))
    return witnesses


def _pair(row: np.ndarray) -> tuple[int, int]:
    return int(row[0]), int(row[1])


def check_probe_completeness(support: np.ndarray) -> list[ProbeWitness]:
    """P1: (s,g) in the support ⇒ (x,s) and (x,g) in the support for all x. All violations, first missing pair each."""
    support = np.asarray(support, bool)
    witnesses = []
    for s, g in np.argwhere(support):
        for x in np.flatnonzero(~(support[:, s] & support[:, g])):
            missing = (int(x), int(s)) if not support[x, s] else (int(x), int(g))
            witnesses.append(ProbeWitness((int(s), int(g)), int(x), missing))
    return witnesses


def check_finite_distances(D: np.ndarray, support: np.ndarray | None = None) -> list[ProbeWitness]:
    """P2: every probe reaches s and g in finite time, for every pair of the support."""
    finite = np.isfinite(D)
    support = np.ones(D.shape, bool) if support is None else np.asarray(support, bool)
    witnesses = []
    for s, g in np.argwhere(support):
        for x in np.flatnonzero(~(finite[:, s] & finite[:, g])):
            missing = (int(x), int(s)) if not finite[x, s] else (int(x), int(g))
            witnesses.append(ProbeWitness((int(s), int(g)), int(x), missing))
    return witnesses


def check_consistency(
    en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None = None, *, common_reading: bool = True
) -> list[ConsistencyWitness]:
    """P3, per pair (s,g) of the support and per probe x with (x,s) and (x,g) in the support:

    en_S(x,s) = en_S(x,g),  en_G(x,s) = en_S(s,g),  en_G(x,g) = en_G(s,g),
    and, with `common_reading` (the appendix form), en_S(x,s) = ρ(x) for one ρ per task block.
    """
    support = _full(en_S, en_G, support)
    witnesses = []
    for members in blocks(en_S, en_G, support).values():
        rho: dict[int, int] = {}
        for s, g in members:
            for x in np.flatnonzero(support[:, s] & support[:, g]):
                clauses = [
                    ("en_S(x,s) = en_S(x,g)", en_S[x, s], en_S[x, g]),
                    ("en_G(x,s) = en_S(s,g)", en_G[x, s], en_S[s, g]),
                    ("en_G(x,g) = en_G(s,g)", en_G[x, g], en_G[s, g]),
                ]
                if common_reading:
                    clauses.append(("en_S(x,s) = ρ(x)", en_S[x, s], rho.setdefault(int(x), int(en_S[x, s]))))
                witnesses += [
                    ConsistencyWitness((int(s), int(g)), int(x), name, (int(left), int(right)))
                    for name, left, right in clauses
                    if left != right
                ]
    return witnesses


def close_support(support: np.ndarray) -> np.ndarray:
    """The smallest superset of `support` that satisfies P1."""
    closed = np.array(support, dtype=bool)
    while True:
        touched = np.logical_or(closed.any(axis=0), closed.any(axis=1))
        grown = np.logical_or(closed, np.broadcast_to(touched, closed.shape))
        if np.array_equal(grown, closed):
            return closed
        closed = grown
