"""Lights Out through its group: states F₂ⁿ, one press adds a fixed pattern, d*(s, g) = w(s + g).

Everything about D (4,096 × 4,096 on an orbit of the 4×4 board) follows from the weight function w on the span of the
presses: D is a convolution on F₂ʳ, its singular values are the absolute Walsh–Hadamard coefficients of w, and the
contexts that leave a field unchanged are the annihilator of the field's Walsh support. Nothing dense is decomposed.
"""

from functools import cached_property

import numpy as np

from cta.envs.lights import Board
from cta.errors import CtaError
from cta_theory.distance import surrogate_return

_MAX_RANK = 20


def walsh_hadamard(values: np.ndarray) -> np.ndarray:
    """Unnormalised transform: f̂(ω) = Σ_y (−1)^{ω·y} f(y), for a vector of length 2^r (index bits = coordinates)."""
    cube = np.asarray(values, float).reshape((2,) * (len(values).bit_length() - 1))
    return np.fft.fftn(cube).real.reshape(-1)


class LightsOut(Board):
    """A board whose 2^rank mutually reachable states are F₂ʳ: bit i of a state is the i-th press of a basis."""

    @cached_property
    def press_coordinates(self) -> np.ndarray:
        """(lights,) the presses in a basis of their span; every orbit looks the same."""
        _, reduced, _ = self._reduced
        return (1 << np.arange(self.rank)) @ reduced[: self.rank]

    @cached_property
    def weights(self) -> np.ndarray:
        """(2^rank,) fewest presses w(y) that add y."""
        if self.rank > _MAX_RANK:
            raise CtaError(f"LightsOut({self.rows}, {self.columns}): an orbit of 2^{self.rank} states is too large")
        return np.concatenate([self.least(sets @ self.patterns % 2) for sets in self._sets_of_presses()])

    def press_field(self, press: int) -> np.ndarray:
        """f_i(y) = w(y + a_i) − w(y): the field of "press i" as a function of y = x + s."""
        return self.weights[np.arange(len(self.weights)) ^ self.press_coordinates[press]] - self.weights

    def stabiliser_size(self, press: int) -> int:
        """Number of contexts c with f_i(y + c) = f_i(y) for all y: there Σ f(y)·f(y + c) is as large as at c = 0.

        That sum is the transform of the squared Walsh coefficients. It is a whole number, as f is.
        """
        correlation = walsh_hadamard(walsh_hadamard(self.press_field(press)) ** 2) / len(self.weights)
        return int((correlation > correlation[0] - 0.5).sum())

    def spectrum(self, gamma: float | None = None) -> np.ndarray:
        """Singular values, descending, of D on one orbit, or of Ṽ = −(1−γ^D)/(1−γ) when γ is given."""
        values = self.weights if gamma is None else surrogate_return(self.weights, gamma)
        return np.sort(np.abs(walsh_hadamard(values)))[::-1]

    @property
    def reachable_probability(self) -> float:
        """Probability that one of two uniformly drawn patterns can be reached from the other."""
        return 2.0 ** (self.rank - self.lights)
