"""Exact factorisations D = ΦΨᵀ, dual analogies, bilinear completion of a held-out block, transduction end to end."""

from typing import Literal, NamedTuple

import numpy as np

from cta.errors import CtaError
from cta_theory.distance import optimal_actions, temporal_distance
from cta_theory.mdp import MDP

KAPPA = 3.0
"""κ of the bound for three equally weighted blocks."""
_RELATIVE_TOLERANCE = 1e-9


def _checked(H: np.ndarray, name: str, rank: int = 1) -> np.ndarray:
    """A finite matrix that can have this rank, or one line that says why not."""
    H = np.asarray(H, float)
    if H.ndim != 2:
        raise CtaError(f"{name}: expected a matrix, got shape {H.shape}")
    if not 1 <= rank <= min(H.shape):
        raise CtaError(f"{name}: rank {rank} for a {H.shape[0]}×{H.shape[1]} matrix, choose 1 to {min(H.shape)}")
    bad = np.argwhere(~np.isfinite(H))
    if len(bad):
        raise CtaError(
            f"{name}: row {bad[0, 0]} is not finite in column {bad[0, 1]} (an unreachable goal?); "
            "restrict the table to mutually reachable states"
        )
    return H


def numerical_rank(H: np.ndarray) -> int:
    """Number of singular values above 1e-9 times the largest."""
    values = np.linalg.svd(_checked(H, "numerical_rank"), compute_uv=False)
    return int((values > _RELATIVE_TOLERANCE * values[0]).sum()) if values[0] > 0 else 0


def factorise(D: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Best rank-`dim` factors (Φ, Ψ), shapes (S, dim) and (G, dim), by the singular value decomposition.

    D = ΦΨᵀ exactly iff dim ≥ rank(D); otherwise the squared Frobenius error is the tail Σ_{i>dim} σ_i². Singular values
    are split evenly between the factors; those at rounding level are dropped, which leaves zero columns.
    """
    U, values, Vt = np.linalg.svd(_checked(D, "factorise", dim), full_matrices=False)
    root = np.sqrt(np.where(values > _RELATIVE_TOLERANCE * values[0], values, 0.0))[:dim]
    return U[:, :dim] * root, Vt[:dim].T * root


def dual_analogy(psi: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """α∨(s,g) = ψ(g) − ψ(s) for `pairs` (N, 2) of row indices of `psi` (S, d): (N, d)."""
    return psi[pairs[:, 1]] - psi[pairs[:, 0]]


class Completion(NamedTuple):
    """A matrix with its missing entries predicted, whether the observed blocks determine it, and the rank of the core.

    It is determined (`identified`) if that rank is the requested one.
    """

    H: np.ndarray
    identified: bool
    core_rank: int


def bilinear_complete(H: np.ndarray, mask: np.ndarray, rank: int) -> Completion:
    """Complete a rank-`rank` matrix from observed blocks: H₂₂ = H₂₁ H₁₁⁺ H₁₂.

    `mask` (same shape) marks observed entries. Rows that are observed everywhere are the anchors A₁, columns observed
    everywhere the displacements D₁; every missing entry must lie in the remaining block A₂×D₂. Exact iff the rank of
    H₁₁ is that of H. Values of `H` at missing entries are ignored.
    """
    if np.shape(mask) != np.shape(H):
        raise CtaError(f"bilinear_complete: the mask has shape {np.shape(mask)}, the matrix {np.shape(H)}")
    known = _checked(np.where(mask, H, 0.0), "bilinear_complete", rank)
    a1, d1 = mask.all(axis=1), mask.all(axis=0)
    if not a1.any() or not d1.any():
        axis = "row" if not a1.any() else "column"
        raise CtaError(f"bilinear_complete: no {axis} is observed everywhere, the observed blocks share no core")
    core = known[np.ix_(a1, d1)]
    U, values, Vt = np.linalg.svd(core, full_matrices=False)
    core_rank = numerical_rank(core)
    keep = min(rank, core_rank)
    predicted = known[:, d1] @ (Vt[:keep].T / values[:keep]) @ U[:, :keep].T @ known[a1]
    return Completion(np.where(mask, known, predicted), core_rank >= rank, core_rank)


class TransductionBound(NamedTuple):
    """The bilinear transduction bound: R_test ≤ factor · R_train whenever R_train ≤ threshold."""

    threshold: float
    factor: float


def transduction_bound(
    G: np.ndarray, F: np.ndarray, anchors: np.ndarray, displacements: np.ndarray
) -> TransductionBound:
    """The bound for the target H = GFᵀ, G (n, p) anchors, F (m, p) displacements.

    `anchors` (n,) and `displacements` (m,) are boolean: membership in the fully observed A₁ and D₁. σ² is the smallest
    singular value of the two second-moment matrices there, M the largest |H|.
    """
    second = [part.T @ part / len(part) for part in (G[anchors], F[displacements])]
    sigma2 = min(float(np.linalg.svd(m, compute_uv=False)[-1]) for m in second)
    return TransductionBound(sigma2 / (4 * KAPPA), KAPPA**2 * (1 + 64 * float(np.abs(G @ F.T).max()) ** 4 / sigma2**2))


def block_risks(
    H: np.ndarray, estimate: np.ndarray, anchors: np.ndarray, displacements: np.ndarray
) -> tuple[float, float]:
    """(R_train, R_test): mean squared error over the three observed blocks, equally weighted, and over A₂×D₂."""
    square = (H - estimate) ** 2
    parts = [square[np.ix_(a, d)].mean() for a in (anchors, ~anchors) for d in (displacements, ~displacements)]
    return float(np.mean(parts[:3])), float(parts[3])


Anchor = Literal["constant", "coordinates", "table"]
Displacement = Literal["analogy", "goal", "table"]


class Transduction(NamedTuple):
    """Share of pairs, seen in training and held out, at which the fitted model picks an optimal action."""

    train: float
    held_out: float


def held_out_moves(mdp: MDP, w0: int, *, one_step: bool) -> tuple[np.ndarray, np.ndarray]:
    """(training pairs, held-out pairs), each (N, 2).

    Training: every pair, or every pair one step apart (`one_step`), except those that start at slider 2 = w₀ and change
    slider 1. Held out: the pairs among these that change slider 1 only.
    """
    moves = mdp.coordinates[:, None] != mdp.coordinates[None]
    allowed = (mdp.P > 0).any(axis=1) if one_step else np.ones(moves.shape[:2], bool)
    cut = (mdp.coordinates[:, 1] == w0)[:, None] & moves[..., 0]
    if not cut.any():
        raise CtaError(f"{mdp.name}: no pair starts at slider 2 = {w0} and moves slider 1")
    return np.argwhere(allowed & ~cut), np.argwhere(allowed & cut & (moves.sum(axis=-1) == 1))


def transduce(
    mdp: MDP,
    w0: int,
    *,
    gamma: float = 0.9,
    one_step: bool = False,
    anchor: Anchor = "constant",
    displacement: Displacement = "analogy",
) -> Transduction:
    """Cut a combination out of a table, fit the rest, and count right moves at what was held out.

    The data are pairs (s, g) with their optimal actions; the model is logits(s, g)_a = u(s)ᵀ W_a v(s, g), fitted by
    minimum-norm least squares. `anchor`: u(s) = 1, one-hot coordinates of s (with 1), or one-hot s. `displacement`:
    v = (1, α∨(s,g)), (1, ψ(g)), or one-hot g. ψ comes from the exact factorisation of D at its rank. Anchor and
    displacement both "table" is the unconstrained table Q(s, g).
    """
    D = temporal_distance(mdp, gamma)
    _, psi = factorise(D, numerical_rank(D))
    coordinates = [np.eye(column.max() + 1)[column] for column in mdp.coordinates.T]
    one, stay = np.ones((mdp.n_states, 1)), np.arange(mdp.n_actions) == 0
    tables = {"constant": one, "coordinates": np.concatenate([one, *coordinates], axis=1), "table": np.eye(len(D))}

    def features(pairs: np.ndarray) -> np.ndarray:
        if displacement == "table":
            v = np.eye(len(D))[pairs[:, 1]]
        else:
            vectors = dual_analogy(psi, pairs) if displacement == "analogy" else psi[pairs[:, 1]]
            v = np.concatenate([one[pairs[:, 1]], vectors], axis=1)
        return np.einsum("ni,nj->nij", tables[anchor][pairs[:, 0]], v).reshape(len(pairs), -1)

    def optimal(pairs: np.ndarray) -> np.ndarray:
        """(N, A) bools; at s = g the first action, which stands still in the slider worlds."""
        return np.stack([stay if s == g else optimal_actions(mdp, gamma**D, int(s), int(g)) for s, g in pairs])

    def right(pairs: np.ndarray) -> float:
        """Mean probability that an argmax action, ties broken uniformly, is optimal."""
        logits = features(pairs) @ weights
        top = logits >= logits.max(axis=1, keepdims=True) - 1e-9
        return float(((top & optimal(pairs)).sum(axis=1) / top.sum(axis=1)).mean())

    train, held_out = held_out_moves(mdp, w0, one_step=one_step)
    labels = optimal(train)
    weights = np.linalg.pinv(features(train), rcond=1e-8) @ (labels / labels.sum(axis=1, keepdims=True))
    return Transduction(right(train), right(held_out))
