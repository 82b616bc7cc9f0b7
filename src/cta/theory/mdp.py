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


def _check_laws(P: np.ndarray, name: str) -> None:
    """Raise, naming the first offending state and action, unless every `P[s, a]` is a distribution."""
    bad = ~((P >= -_ROW_TOLERANCE).all(axis=-1) & (np.abs(P.sum(axis=-1) - 1.0) <= 1e-6))  # NaN compares as false
    if bad.any():
        s, a = (int(i) for i in np.argwhere(bad)[0])
        raise CtaError(
            f"{name}: state {s}, action {a} is not a probability distribution (sum {P[s, a].sum():.6g}, smallest entry "
            f"{P[s, a].min():.3g}); make its entries non-negative with sum 1"
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
        _check_laws(P, self.name)
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
            s, a = (int(i) for i in bad[0])
            raise CtaError(f"{name}: state {s}, action {a} leads to {successors[s, a]}, outside 0..{n - 1}")
        P = np.zeros((n, successors.shape[1], n))
        np.put_along_axis(P, successors[..., None], 1.0, axis=-1)
        return cls(P, name=name, **options)

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


def _from_rule(coordinates: np.ndarray, step, actions: tuple[str, ...], name: str) -> MDP:
    """Tabulate `step(coordinate tuple, action index) → coordinate tuple`."""
    index = {tuple(int(v) for v in row): i for i, row in enumerate(coordinates)}
    table = [[index[step(key, a)] for a in range(len(actions))] for key in index]
    return MDP.deterministic(np.array(table), coordinates=coordinates, actions=actions, name=name)


def sliders(*sizes: int, simultaneous: bool = False) -> MDP:
    """Sliders on `sizes` positions each, moved by unit steps.

    One may move per step (d* = Σ|Δ_i|), or, with `simultaneous`, all may (d* = max|Δ_i|). Standing still is an action
    in both. States are ordered with the last slider fastest; `coordinates` holds the positions.
    """
    if len(sizes) < 1 or min(sizes) < 1:
        raise CtaError(f"sliders: sizes {sizes} must be at least one positive number of positions")
    moves = [m for m in product((0, -1, 1), repeat=len(sizes)) if simultaneous or np.count_nonzero(m) <= 1]
    moves.sort(key=lambda m: (np.count_nonzero(m), m))
    coordinates = np.array(list(product(*(range(n) for n in sizes))))

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        return tuple(min(max(k + m, 0), n - 1) for k, m, n in zip(key, moves[a], sizes, strict=True))

    names = tuple(
        "stay" if not any(m) else " ".join(f"{i + 1}{'+' if v > 0 else '-'}" for i, v in enumerate(m) if v)
        for m in moves
    )
    label = "×".join(map(str, sizes)) + (" simultaneous sliders" if simultaneous else " additive sliders")
    return _from_rule(coordinates, step, names, label)


def locked_slider(n: int) -> MDP:
    """One slider gated by a lock bit (1 = open): actions stay, left, right, toggle. Coordinates (position, bit)."""
    if n < 2:
        raise CtaError(f"locked_slider: n = {n}, a slider needs at least two positions")
    coordinates = np.array(list(product(range(n), (0, 1))))

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        position, bit = key
        if a == 3:
            return position, 1 - bit
        return (min(max(position + (0, -1, 1)[a], 0), n - 1) if bit else position), bit

    return _from_rule(coordinates, step, ("stay", "left", "right", "toggle"), f"locked slider of {n}")


def desk_skeleton() -> MDP:
    """The desk world with the gripper removed: 32 states, coordinates (drawer, window, tray, bit 0, bit 1).

    Bit 0 unlocks the drawer, bit 1 the window, the tray has no lock. One action flips one part (if its lock is open) or
    one bit, so that d* counts subtasks instead of time steps.
    """
    gate = (3, 4, None, None, None)

    def step(key: tuple[int, ...], a: int) -> tuple[int, ...]:
        bit = gate[a]
        if bit is not None and key[bit] == 0:
            return key
        return tuple(1 - v if i == a else v for i, v in enumerate(key))

    coordinates = np.array(list(product((0, 1), repeat=5)))
    return _from_rule(coordinates, step, ("drawer", "window", "tray", "button 0", "button 1"), "desk skeleton")
