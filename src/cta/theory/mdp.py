"""Finite controlled Markov processes: one array, checked once."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cta.errors import CtaError

_ROW_TOLERANCE = 1e-9


def check_gamma(gamma: float) -> None:
    """Raise unless 0 < γ < 1 (at 0 or 1 the map d ↔ γ^d is not invertible)."""
    if not 0.0 < gamma < 1.0:
        raise CtaError(f"gamma = {gamma} is outside (0, 1): distances are log_γ of values, choose for example 0.9")


def check_distributions(rows: np.ndarray, name: str) -> None:
    """Raise, naming the first offending row, unless every row along the last axis of `rows` is a distribution."""
    bad = ~np.isfinite(rows).all(axis=-1) | (np.where(np.isfinite(rows), rows, 0.0) < -_ROW_TOLERANCE).any(axis=-1)
    bad |= ~(np.abs(rows.sum(axis=-1) - 1.0) <= 1e-6)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        row = rows[index]
        where = f"state {index[0]}, action {index[1]}" if len(index) == 2 else f"row {index[0]}"
        raise CtaError(
            f"{name}: {where} is not a probability distribution (sum {row.sum():.6g}, smallest entry {row.min():.3g}); "
            "make its entries non-negative with sum 1"
        )


@dataclass(frozen=True, eq=False)
class MDP:
    """A finite controlled Markov process (S, A, P).

    Attributes:
        P: transition law, (S, A, S); `P[s, a, s']` is the probability of s' after action a in s.
        coordinates: (S, k) integers, what each state index stands for (slider positions, bits); empty k when unknown.
        actions: a name per action.
        name: what the process is called in reports.
    """

    P: np.ndarray
    coordinates: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), int))
    actions: tuple[str, ...] = ()
    name: str = "mdp"

    def __post_init__(self) -> None:
        P = np.asarray(self.P, float)
        if P.ndim != 3 or P.shape[0] != P.shape[2] or 0 in P.shape:
            raise CtaError(f"{self.name}: P has shape {P.shape}, expected (states, actions, states)")
        check_distributions(P, self.name)
        coordinates = np.asarray(self.coordinates, int)
        if coordinates.size == 0:
            coordinates = np.arange(P.shape[0])[:, None]
        if len(coordinates) != P.shape[0]:
            raise CtaError(f"{self.name}: {len(coordinates)} rows of coordinates for {P.shape[0]} states")
        object.__setattr__(self, "P", P)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "actions", self.actions or tuple(f"a{i}" for i in range(P.shape[1])))

    @classmethod
    def deterministic(
        cls,
        successors: np.ndarray,
        *,
        coordinates: np.ndarray | None = None,
        actions: tuple[str, ...] = (),
        name: str = "mdp",
    ) -> "MDP":
        """Build from a successor table (S, A) of state indices."""
        successors = np.asarray(successors, int)
        n = len(successors)
        bad = np.argwhere((successors < 0) | (successors >= n))
        if len(bad):
            s, a = (int(i) for i in bad[0])
            raise CtaError(f"{name}: state {s}, action {a} leads to {successors[s, a]}, outside 0..{n - 1}")
        P = np.zeros((n, successors.shape[1], n))
        np.put_along_axis(P, successors[..., None], 1.0, axis=-1)
        return cls(
            P, coordinates=np.zeros((0, 0), int) if coordinates is None else coordinates, actions=actions, name=name
        )

    @property
    def n_states(self) -> int:
        return self.P.shape[0]

    @property
    def n_actions(self) -> int:
        return self.P.shape[1]

    @cached_property
    def is_deterministic(self) -> bool:
        return bool((self.P.max(axis=-1) > 1.0 - _ROW_TOLERANCE).all())

    @cached_property
    def successors(self) -> np.ndarray:
        """Successor table (S, A); only for deterministic processes."""
        if not self.is_deterministic:
            s, a = (int(i) for i in np.argwhere(self.P.max(axis=-1) <= 1.0 - _ROW_TOLERANCE)[0])
            raise CtaError(f"{self.name}: state {s}, action {a} is stochastic, there is no successor table")
        return self.P.argmax(axis=-1)

    def index(self, *coordinates: int) -> int:
        """The state whose coordinates are given."""
        hit = np.flatnonzero((self.coordinates == np.asarray(coordinates)).all(axis=1))
        if not len(hit):
            raise CtaError(f"{self.name}: no state has coordinates {coordinates}")
        return int(hit[0])
