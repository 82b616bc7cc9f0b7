"""The assumptions of the paper's proposition as checks that return counterexamples: an empty list means "holds".

A decoder is two integer tables (S, S): `en_S[s, g]`, the endogenous reading of s when paired with goal g, and
`en_G[s, g]`, that of g when paired with state s. A support is a boolean table (S, S).
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from cta.errors import CtaError
from cta_theory.mdp import MDP

Pair = tuple[int, int]


class AbstractionFailure(NamedTuple):
    """Two pairs of one task whose next-task laws under `action` differ by `gap` in total variation."""

    first: Pair
    second: Pair
    action: int
    gap: float


class ConsistencyFailure(NamedTuple):
    """A pair and a probe x that violate one clause of P3, with the two readings that should be equal."""

    pair: Pair
    probe: int
    clause: str
    readings: Pair


def global_decoder(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The decoder whose reading ν(s) = labels[s] does not depend on the partner."""
    en_S, en_G = np.meshgrid(np.asarray(labels, int), labels, indexing="ij")
    return en_S, en_G


def difference_decoder(coordinates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair-dependent decoder "endogenous = the coordinates in which s and g differ".

    A coordinate that agrees reads 0, one that differs reads its value plus one; the digits are packed into one integer.
    """
    values = np.asarray(coordinates, int)
    differ = values[:, None, :] != values[None, :, :]
    radix = np.cumprod([1, *(values.max(axis=0)[1:] + 2)[::-1]])[::-1]
    digits = (values + 1) * radix
    return (differ * digits[:, None]).sum(axis=-1), (differ * digits[None]).sum(axis=-1)


def blocks(en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None = None) -> dict[Pair, np.ndarray]:
    """Task blocks: task (en_S, en_G) → its pairs (k, 2) in the support."""
    support = np.ones(en_S.shape, bool) if support is None else support
    if not en_S.shape == en_G.shape == support.shape == (len(en_S), len(en_S)):
        raise CtaError(f"decoder {en_S.shape}, {en_G.shape} and support {support.shape} must be equal squares")
    found: dict[Pair, list[np.ndarray]] = defaultdict(list)
    for pair in np.argwhere(support):
        found[int(en_S[*pair]), int(en_G[*pair])].append(pair)
    return {task: np.stack(members) for task, members in found.items()}


def check_abstraction(mdp: MDP, en_S: np.ndarray, en_G: np.ndarray) -> list[AbstractionFailure]:
    """Task-endogenous abstraction: the law of the next task given (s,g), a depends on (s,g) through its task only.

    At most one counterexample per (task, action), against the first pair of the block.
    """
    tasks, ids = np.unique(np.stack([en_S, en_G], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
    one_hot = np.eye(len(tasks))[ids.reshape(en_S.shape)]
    failures = []
    for members in blocks(en_S, en_G).values():
        laws = np.stack([mdp.P[s] @ one_hot[:, g] for s, g in members])
        gaps = 0.5 * np.abs(laws - laws[:1]).sum(axis=-1)
        first, *pairs = [(int(s), int(g)) for s, g in members[[0, *gaps.argmax(axis=0)]]]
        failures += [
            AbstractionFailure(first, pair, action, float(gap))
            for action, (pair, gap) in enumerate(zip(pairs, gaps.max(axis=0), strict=True))
            if gap > 1e-9
        ]
    return failures


def check_consistency(
    en_S: np.ndarray, en_G: np.ndarray, support: np.ndarray | None = None, *, common_reading: bool = True
) -> list[ConsistencyFailure]:
    """P3, per pair (s,g) of the support and per probe x with (x,s) and (x,g) in the support:

    en_S(x,s) = en_S(x,g),  en_G(x,s) = en_S(s,g),  en_G(x,g) = en_G(s,g),
    and, with `common_reading` (the appendix form), en_S(x,s) = ρ(x) for one ρ per task block.
    """
    support = np.ones(en_S.shape, bool) if support is None else support
    failures = []
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
                failures += [
                    ConsistencyFailure((int(s), int(g)), int(x), name, (int(left), int(right)))
                    for name, left, right in clauses
                    if left != right
                ]
    return failures


def close_support(support: np.ndarray) -> np.ndarray:
    """The smallest superset of `support` that satisfies P1."""
    closed = np.array(support, dtype=bool)
    while True:
        grown = closed | closed.any(axis=0) | closed.any(axis=1)
        if np.array_equal(grown, closed):
            return closed
        closed = grown
