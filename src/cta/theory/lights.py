"""Lights Out through its group: states F₂ⁿ, one press adds a fixed pattern, d*(s, g) = w(s + g).

Everything about D (4,096 × 4,096 on an orbit of the 4×4 board) follows from the weight function w on the span of the
presses: D is a convolution on F₂ʳ, its singular values are the absolute Walsh–Hadamard coefficients of w, and the
contexts that leave a field unchanged are the annihilator of the field's Walsh support. Nothing dense is decomposed.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cta.errors import CtaError
from cta.theory.distance import surrogate_return

_MAX_RANK = 20


def walsh_hadamard(values: np.ndarray) -> np.ndarray:
    """Unnormalised transform: f̂(ω) = Σ_y (−1)^{ω·y} f(y), for a vector of length 2^r (index bits = coordinates)."""
    out = np.asarray(values, float).copy()
    h = 1
    while h < len(out):
        pairs = out.reshape(-1, 2, h)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        h *= 2
    return out


def f2_coordinates(rows: np.ndarray) -> tuple[int, np.ndarray]:
    """Rank over F₂ of bit patterns (integers), and each pattern in a basis of their span.

    The basis are the patterns that do not depend on those before them; in its coordinates they are the unit vectors.
    """
    pivots: dict[int, tuple[int, int]] = {}
    coordinates = np.zeros(len(rows), int)
    for i, row in enumerate(int(r) for r in rows):
        mask = 0
        while row and row.bit_length() in pivots:
            pivot, pivot_mask = pivots[row.bit_length()]
            row, mask = row ^ pivot, mask ^ pivot_mask
        unit = 1 << len(pivots)
        coordinates[i] = unit if row else mask
        if row:
            pivots[row.bit_length()] = (row, mask ^ unit)
    return len(pivots), coordinates


@dataclass(frozen=True)
class LightsOut:
    """The board with `rows × columns` lights; a press flips a light and its four neighbours."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise CtaError(f"LightsOut: a {self.rows}×{self.columns} board has no lights")

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @cached_property
    def presses(self) -> np.ndarray:
        """(cells,) bit patterns a_i; bit j of a_i says whether press i flips light j."""
        places = np.argwhere(np.ones((self.rows, self.columns)))
        near = np.abs(places[:, None] - places[None]).sum(axis=-1) <= 1
        return near @ (1 << np.arange(self.cells))

    @property
    def rank(self) -> int:
        """Rank of the press matrix over F₂; 2^rank states are mutually reachable."""
        return f2_coordinates(self.presses)[0]

    @cached_property
    def press_coordinates(self) -> np.ndarray:
        """(cells,) the presses in a basis of their span: one orbit is F₂ʳ, and every orbit looks the same."""
        return f2_coordinates(self.presses)[1]

    @cached_property
    def weights(self) -> np.ndarray:
        """(2^rank,) fewest presses w(y) that add y, by breadth-first search from 0 over the presses."""
        if self.rank > _MAX_RANK:
            raise CtaError(f"LightsOut({self.rows}, {self.columns}): an orbit of 2^{self.rank} states is too large")
        weights = np.full(1 << self.rank, -1, np.int16)
        frontier, depth = np.zeros(1, int), 0
        while len(frontier):
            weights[frontier] = depth
            reached = np.zeros(len(weights), bool)
            for press in self.press_coordinates:
                reached[frontier ^ press] = True
            frontier, depth = np.flatnonzero(reached & (weights < 0)), depth + 1
        return weights

    def press_field(self, press: int) -> np.ndarray:
        """f_i(y) = w(y + a_i) − w(y): the field of "press i" as a function of y = x + s."""
        if not 0 <= press < self.cells:
            raise CtaError(f"LightsOut({self.rows}, {self.columns}): there is no press {press}")
        y = np.arange(1 << self.rank)
        return (self.weights[y ^ self.press_coordinates[press]] - self.weights[y]).astype(int)

    def stabiliser_size(self, press: int) -> int:
        """Number of contexts c with f_i(y + c) = f_i(y) for all y.

        f(·+c) has Walsh coefficients (−1)^{ω·c} f̂(ω): c stabilises f iff ω·c = 0 on the support of f̂, so that the
        stabiliser has 2^(r − rank of the support) elements.
        """
        spectrum = walsh_hadamard(self.press_field(press))
        support = np.flatnonzero(np.abs(spectrum) > 0.5)
        return 1 << (self.rank - f2_coordinates(support)[0])

    def spectrum(self, gamma: float | None = None) -> np.ndarray:
        """Singular values, descending, of D on one orbit, or of Ṽ = −(1−γ^D)/(1−γ) when γ is given."""
        values = self.weights if gamma is None else surrogate_return(self.weights, gamma)
        return np.sort(np.abs(walsh_hadamard(values)))[::-1]

    @property
    def reachable_probability(self) -> float:
        """Probability that one of two uniformly drawn patterns can be reached from the other, 2^(rank − cells)."""
        return 2.0 ** (self.rank - self.cells)
