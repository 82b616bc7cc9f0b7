"""Exact factorisations D = ΦΨᵀ, dual analogies, and bilinear completion of a held-out block."""

from dataclasses import dataclass

import numpy as np

from cta.errors import CtaError

_RELATIVE_TOLERANCE = 1e-9


def _finite_matrix(H: np.ndarray, name: str) -> np.ndarray:
    H = np.asarray(H, float)
    if H.ndim != 2:
        raise CtaError(f"{name}: expected a matrix, got shape {H.shape}")
    bad = np.flatnonzero(~np.isfinite(H).all(axis=1))
    if len(bad):
        column = int(np.flatnonzero(~np.isfinite(H[bad[0]]))[0])
        raise CtaError(
            f"{name}: row {int(bad[0])} is not finite in column {column} (an unreachable goal?); "
            "restrict the table to mutually reachable states"
        )
    return H


def numerical_rank(H: np.ndarray, *, tolerance: float = _RELATIVE_TOLERANCE) -> int:
    """Number of singular values above `tolerance` times the largest."""
    values = np.linalg.svd(_finite_matrix(H, "numerical_rank"), compute_uv=False)
    return int((values > tolerance * values[0]).sum()) if values[0] > 0 else 0


def factorise(D: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Best rank-`dim` factors (Φ, Ψ), shapes (S, dim) and (G, dim), by the singular value decomposition.

    D = ΦΨᵀ exactly iff dim ≥ rank(D); otherwise the squared Frobenius error is the tail Σ_{i>dim} σ_i². Singular values
    are split evenly between the factors; those at rounding level are dropped, which leaves zero columns.
    """
    D = _finite_matrix(D, "factorise")
    if not 1 <= dim <= min(D.shape):
        raise CtaError(f"factorise: dim = {dim} for a {D.shape[0]}×{D.shape[1]} matrix, choose 1 to {min(D.shape)}")
    U, values, Vt = np.linalg.svd(D, full_matrices=False)
    root = np.sqrt(np.where(values > _RELATIVE_TOLERANCE * values[0], values, 0.0))[:dim]
    return U[:, :dim] * root, Vt[:dim].T * root


def dual_analogy(psi: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """α∨(s,g) = ψ(g) − ψ(s) for `pairs` (N, 2) of row indices of `psi` (S, d): (N, d)."""
    pairs = np.asarray(pairs, int)
    return psi[pairs[:, 1]] - psi[pairs[:, 0]]


@dataclass(frozen=True)
class Completion:
    """A completed matrix and whether the observed blocks determine it.

    Attributes:
        H: the matrix, observed entries kept, missing ones predicted.
        identified: rank of the fully observed block equals the requested rank.
        core_rank: that rank.
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
    mask = np.asarray(mask, bool)
    H = np.asarray(H, float)
    if mask.shape != H.shape:
        raise CtaError(f"bilinear_complete: the mask has shape {mask.shape}, the matrix {H.shape}")
    if not 1 <= rank <= min(H.shape):
        raise CtaError(
            f"bilinear_complete: rank = {rank} for a {H.shape[0]}×{H.shape[1]} matrix, choose 1 to {min(H.shape)}"
        )
    known = _finite_matrix(np.where(mask, H, 0.0), "bilinear_complete")
    a1, d1 = mask.all(axis=1), mask.all(axis=0)
    if not a1.any() or not d1.any():
        axis = "row" if not a1.any() else "column"
        raise CtaError(f"bilinear_complete: no {axis} is observed everywhere, the observed blocks share no core")
    core = known[np.ix_(a1, d1)]
    U, values, Vt = np.linalg.svd(core, full_matrices=False)
    core_rank = int((values > _RELATIVE_TOLERANCE * max(values[0], np.finfo(float).tiny)).sum())
    keep = min(rank, core_rank)
    inverse = (Vt[:keep].T / values[:keep]) @ U[:, :keep].T
    predicted = known[:, d1] @ inverse @ known[a1]
    return Completion(np.where(mask, known, predicted), core_rank >= rank, core_rank)


@dataclass(frozen=True)
class TransductionBound:
    """Constants of the bilinear transduction bound: R_test ≤ factor · R_train whenever R_train ≤ threshold."""

    M: float
    sigma2: float
    kappa: float

    @property
    def threshold(self) -> float:
        return self.sigma2 / (4.0 * self.kappa)

    @property
    def factor(self) -> float:
        return self.kappa**2 * (1.0 + 64.0 * self.M**4 / self.sigma2**2)


def transduction_bound(
    G: np.ndarray, F: np.ndarray, anchors: np.ndarray, displacements: np.ndarray, *, kappa: float = 3.0
) -> TransductionBound:
    """Constants for the target H = GFᵀ, G (n, p) anchors, F (m, p) displacements.

    `anchors` (n,) and `displacements` (m,) are boolean: membership in the fully observed A₁ and D₁. σ² is the smallest
    singular value of the two second-moment matrices there, M the largest |H|. κ = 3 fits three equally weighted blocks.
    """
    second = [part.T @ part / len(part) for part in (G[anchors], F[displacements])]
    sigma2 = min(float(np.linalg.svd(m, compute_uv=False)[-1]) for m in second)
    return TransductionBound(float(np.abs(G @ F.T).max()), sigma2, kappa)


def block_risks(
    H: np.ndarray, estimate: np.ndarray, anchors: np.ndarray, displacements: np.ndarray
) -> tuple[float, float]:
    """(R_train, R_test): mean squared error over the three observed blocks, equally weighted, and over A₂×D₂."""
    square = (H - estimate) ** 2
    parts = [square[np.ix_(a, d)].mean() for a, d in _blocks(anchors, displacements)]
    return float(np.mean(parts[:3])), float(parts[3])


def _blocks(anchors: np.ndarray, displacements: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    a, d = np.asarray(anchors, bool), np.asarray(displacements, bool)
    return [(a, d), (a, ~d), (~a, d), (~a, ~d)]
