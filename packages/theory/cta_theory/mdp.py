"""Finite controlled Markov processes, one array each, checked once; and the small worlds of the paper's claims."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from cta.errors import CtaError

_ROW_TOLERANCE = 1e-9


def check_gamma(gamma: float) -> None:
    """Raise unless 0 < γ < 1 (at 0 or 1 the map d ↔ γ^d is not invertible)."""
    if not 0.0 < gamma < 1.0:
        raise CtaError(f"gamma = {gamma} is outside (0, 1): distances are log_γ of values, choose for example 0.9")


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
        bad = ~((P >= -_ROW_TOLERANCE).all(axis=-1) & (np.abs(P.sum(axis=-1) - 1.0) <= 1e-6))  # NaN compares as false
        if bad.any():
            s, a = np.argwhere(bad)[0]
            raise CtaError(
                f"{self.name}: state {s}, action {a} is not a probability distribution (sum {P[s, a].sum():.6g}, "
                f"smallest entry {P[s, a].min():.3g}); make its entries non-negative with sum 1"
            )
        coordinates = np.asarray(self.coordinates, int)
        if coordinates.size == 0:
            coordinates = np.arange(P.shape[0])[:, None]
        if len(coordinates) != P.shape[0]:
            raise CtaError(f"{self.name}: {len(coordinates)} rows of coordinates for {P.shape[0]} states")
        object.__setattr__(self, "P", P)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "actions", self.actions or tuple(f"a{i}" for i in range(P.shape[1])))

    @classmethod
    def deterministic(cls, successors: np.ndarray, *, name: str = "mdp", **options: Any) -> "MDP":
        """Build from a successor table (S, A) of state indices; `options` are `coordinates` and `actions`."""
        successors = np.asarray(successors, int)
        n = len(successors)
        bad = np.argwhere((successors < 0) | (successors >= n))
        if len(bad):
            s, a = bad[0]
            raise CtaError(f"{name}: state {s}, action {a} leads to {successors[s, a]}, outside 0..{n - 1}")
        return cls(np.eye(n)[successors], name=name, **options)

    @property
    def n_states(self) -> int:
        return self.P.shape[0]

    @property
    def n_actions(self) -> int:
        return self.P.shape[1]

    @cached_property
    def is_deterministic(self) -> bool:
        return bool((self.P.max(axis=-1) > 1.0 - _ROW_TOLERANCE).all())

    def index(self, *coordinates: int) -> int:
        """The state whose coordinates are given."""
        hit = np.flatnonzero((self.coordinates == np.asarray(coordinates)).all(axis=1))
        if not len(hit):
            raise CtaError(f"{self.name}: no state has coordinates {coordinates}")
        return int(hit[0])


def _world(sizes: tuple[int, ...], moved: np.ndarray, actions: tuple[str, ...], name: str) -> MDP:
    """A process on a grid: `moved` (S, A, k) are the coordinates to which each action leads."""
    successors = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(moved, -1, 0)), sizes))
    return MDP.deterministic(successors, coordinates=_grid(*sizes), actions=actions, name=name)


def _grid(*sizes: int) -> np.ndarray:
    """All places (S, k) of a grid, the last coordinate fastest."""
    return np.array(list(np.ndindex(*sizes)))


def sliders(*sizes: int, simultaneous: bool = False) -> MDP:
    """Sliders on `sizes` positions each, moved by unit steps.

    One may move per step (d* = Σ|Δ_i|), or, with `simultaneous`, all may (d* = max|Δ_i|). Standing still is an action
    in both. States are ordered with the last slider fastest; `coordinates` holds the positions.
    """
    if len(sizes) < 1 or min(sizes) < 1:
        raise CtaError(f"sliders: sizes {sizes} must be at least one positive number of positions")
    moves = [m for m in product((0, -1, 1), repeat=len(sizes)) if simultaneous or np.count_nonzero(m) <= 1]
    moves.sort(key=lambda m: (np.count_nonzero(m), m))
    signs = {1: "+", -1: "-"}
    names = [" ".join(f"{i}{signs[v]}" for i, v in enumerate(m, 1) if v) or "stay" for m in moves]
    moved = np.clip(_grid(*sizes)[:, None] + moves, 0, np.array(sizes) - 1)
    label = "×".join(map(str, sizes)) + (" simultaneous sliders" if simultaneous else " additive sliders")
    return _world(sizes, moved, tuple(names), label)


def locked_slider(n: int) -> MDP:
    """One slider gated by a lock bit (1 = open): actions stay, left, right, toggle. Coordinates (position, bit)."""
    if n < 2:
        raise CtaError(f"locked_slider: n = {n}, a slider needs at least two positions")
    places = _grid(n, 2)
    steps = np.array([(0, 0), (-1, 0), (1, 0)]) * places[:, None, 1:]
    moved = np.concatenate([np.clip(places[:, None] + steps, 0, (n - 1, 1)), places[:, None] ^ (0, 1)], axis=1)
    return _world((n, 2), moved, ("stay", "left", "right", "toggle"), f"locked slider of {n}")


def desk_skeleton() -> MDP:
    """The desk world with the gripper removed: 32 states, coordinates (drawer, window, tray, bit 0, bit 1).

    Bit 0 unlocks the drawer, bit 1 the window, the tray has no lock. One action flips one part (if its lock is open) or
    one bit, so that d* counts subtasks instead of time steps.
    """
    places = _grid(2, 2, 2, 2, 2)
    free = np.ones_like(places)
    free[:, :2] = places[:, 3:]
    moved = places[:, None] ^ (np.eye(5, dtype=int) * free[:, :, None])
    return _world((2,) * 5, moved, ("drawer", "window", "tray", "button 0", "button 1"), "desk skeleton")
