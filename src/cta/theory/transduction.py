"""Analogy transduction end to end in a table: cut a combination from the data, fit, ask for it.

The data are pairs (s, g) labelled with the actions that are optimal for them. Held out are all pairs in which slider 1
has to move while slider 2 stands at w₀. Models are logits(s, g)_a = u(s)ᵀ W_a v(s, g), fitted by minimum-norm least
squares; they differ in the anchor features u and in what stands for the goal in v.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cta.errors import CtaError
from cta.theory.distance import optimal_actions, temporal_distance
from cta.theory.factorisation import factorise, numerical_rank
from cta.theory.mdp import MDP

Anchor = Literal["constant", "coordinates", "table"]
Displacement = Literal["analogy", "goal", "table"]


@dataclass(frozen=True)
class Transduction:
    """Share of pairs, seen in training and held out, at which the fitted model picks an optimal action."""

    train: float
    held_out: float
    pairs: int


def held_out_moves(mdp: MDP, w0: int, *, one_step: bool) -> tuple[np.ndarray, np.ndarray]:
    """(training pairs, held-out pairs), each (N, 2).

    Training: every pair, or every pair one step apart (`one_step`), except those that start at slider 2 = w₀ and change
    slider 1. Held out: the pairs among these that change slider 1 only.
    """
    start, end = mdp.coordinates[:, None, :], mdp.coordinates[None, :, :]
    moves = start != end
    allowed = (mdp.P > 0).any(axis=1) if one_step else np.ones(moves.shape[:2], bool)
    cut = (start[..., 1] == w0) & moves[..., 0]
    if not cut.any() or cut.all():
        raise CtaError(f"{mdp.name}: no pair starts at slider 2 = {w0} and moves slider 1")
    alone = moves.sum(axis=-1) == 1
    return np.argwhere(allowed & ~cut), np.argwhere(allowed & cut & alone)


def transduce(
    mdp: MDP,
    w0: int,
    *,
    gamma: float = 0.9,
    one_step: bool = False,
    anchor: Anchor = "constant",
    displacement: Displacement = "analogy",
    table: np.ndarray | None = None,
) -> Transduction:
    """Fit on the training pairs and count right moves at the held-out ones.

    `anchor`: u(s) = 1, one-hot coordinates of s (with 1), or one-hot s. `displacement`: v = (1, α∨(s,g)), (1, ψ(g)), or
    one-hot g. ψ comes from the exact factorisation of `table` (default D) at its rank. Anchor and displacement both
    "table" is the unconstrained table Q(s, g).
    """
    D = temporal_distance(mdp, gamma)
    source = D if table is None else table
    _, psi = factorise(source, numerical_rank(source))
    train, test = held_out_moves(mdp, w0, one_step=one_step)

    def features(pairs: np.ndarray) -> np.ndarray:
        u = _anchor_features(mdp, pairs[:, 0], anchor)
        v = _displacement_features(psi, pairs, displacement)
        return (u[:, :, None] * v[:, None, :]).reshape(len(pairs), -1)

    best = [_labels(mdp, D, gamma, pairs) for pairs in (train, test)]
    target = best[0] / best[0].sum(axis=1, keepdims=True)
    weights = np.linalg.pinv(features(train), rcond=1e-8) @ target
    scores = [_credit(features(pairs) @ weights, labels) for pairs, labels in zip((train, test), best, strict=True)]
    return Transduction(scores[0], scores[1], len(test))


def _labels(mdp: MDP, D: np.ndarray, gamma: float, pairs: np.ndarray) -> np.ndarray:
    """(N, A) bools: optimal actions; at s = g the first action, which stands still in the slider worlds."""
    values = gamma**D
    stay = np.arange(mdp.n_actions) == 0
    return np.stack([stay if s == g else optimal_actions(mdp, values, int(s), int(g)) for s, g in pairs])


def _credit(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean probability that an argmax action, ties broken uniformly, is optimal."""
    top = logits >= logits.max(axis=1, keepdims=True) - 1e-9
    return float(((top & labels).sum(axis=1) / top.sum(axis=1)).mean())


def _anchor_features(mdp: MDP, states: np.ndarray, kind: Anchor) -> np.ndarray:
    one = np.ones((len(states), 1))
    if kind == "constant":
        return one
    if kind == "table":
        return np.eye(mdp.n_states)[states]
    values = mdp.coordinates
    return np.concatenate([one] + [np.eye(column.max() + 1)[column[states]] for column in values.T], axis=1)


def _displacement_features(psi: np.ndarray, pairs: np.ndarray, kind: Displacement) -> np.ndarray:
    if kind == "table":
        return np.eye(len(psi))[pairs[:, 1]]
    vectors = psi[pairs[:, 1]] - psi[pairs[:, 0]] if kind == "analogy" else psi[pairs[:, 1]]
    return np.concatenate([np.ones((len(pairs), 1)), vectors], axis=1)
