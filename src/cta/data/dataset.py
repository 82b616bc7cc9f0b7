"""Trajectories as plain NumPy arrays plus episode bounds. No environment and no JAX needed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cta.data import checks
from cta.data.npz import PROVENANCE_KEY, NpzReader, column, is_mapped, read_or_map, row_blocks, write_npz
from cta.errors import CtaError
from cta.io.files import user_path
from cta.units import Bounds, make_bounds

CORE_KEYS = ("observations", "actions", "terminals")
MORE_KEYS = ("valids", "next_observations", "timeouts")
BOUND_KEYS = ("action_low", "action_high")
INFO_KEYS = ("qpos", "qvel", "button_states")
ActionBounds = tuple[float, float] | None  # the lowest and the highest, the same for each action


@dataclass(frozen=True, eq=False, repr=False)
class TrajectoryDataset:
    """Episodes back to back, one row per state, in OGBench's on-disk layout.

    An episode of T transitions has T + 1 rows: the states s_0 … s_T, where the action of the last row leads nowhere.

    observations: (N, D) float32, or (N, H, W, C) uint8 for images; the state before the action.
    actions: (N, A) float32 within `bounds`, or in [-1, 1] if there are none.
    terminals: (N,) bool, True on the last row of each episode.
    info: arrays with N rows that training does not use (`qpos`, `qvel`, `button_states`, …).
    bounds: the lowest and highest actions of the environment, if stated; a policy acts between them.
    """

    observations: np.ndarray
    actions: np.ndarray
    terminals: np.ndarray
    info: dict[str, np.ndarray] = field(default_factory=dict)
    provenance: dict[str, Any] | None = None
    name: str = "dataset"
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        label = self.name
        seen, *others = (getattr(self, key).dtype for key in CORE_KEYS)
        if seen not in (np.float32, np.uint8) or others != [np.float32, np.bool_]:
            raise CtaError(f"{label}: use float32 or uint8 observations, float32 actions, bool terminals: from_arrays")
        checks.check_shapes(self.observations, self.actions, self.terminals, label=label)
        checks.check_episodes(self.terminals, label=label)
        for key in ("observations", "actions"):
            checks.check_finite(getattr(self, key), key=key, label=label)
        checks.check_action_range(self.actions, self.bounds, label=label)
        for key, values in self.info.items():
            if (rows := len(values) if np.ndim(values) else 0) != self.num_rows:
                raise CtaError(f"{label}: {key} has {rows} rows, observations have {self.num_rows}")

    def __repr__(self) -> str:
        size = f"{self.num_episodes} episodes, {self.num_transitions} transitions"
        seen = f"observations {self.observations.dtype}{self.observation_shape}"
        return f"TrajectoryDataset({self.name!r}: {size}, {seen}, actions {self.action_dim})"

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        terminals: Any = None,
        *,
        episode_lengths: Sequence[int] | np.ndarray | None = None,
        next_observations: Any = None,
        action_low: Any = None,
        action_high: Any = None,
        name: str = "dataset",
        info: Mapping[str, np.ndarray] | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> "TrajectoryDataset":
        """Build a dataset from your own arrays.

        Say where episodes end with `terminals` (True on each episode's last row) or with `episode_lengths` (rows each).
        The rows are states, and an episode's last row has no next one. With `next_observations` they are transitions
        (s_t, a_t, s_{t+1}): each episode then gets its final next observation as a last row; its action leads nowhere.
        Actions lie between `action_low` and `action_high`, numbers or (A,) arrays, else in [-1, 1].
        """
        observed = checks.as_numbers(observations, label=name, key="observations", images=True)
        acted = checks.as_numbers(actions, label=name, key="actions")
        bounds = make_bounds(action_low, action_high, acted.shape[-1], label=name)
        ends = _terminals(terminals, episode_lengths, rows=len(observed), label=name)
        if next_observations is not None:
            if info:
                raise CtaError(f"{name}: info arrays cannot be given with next_observations, whose last rows they lack")
            following = checks.as_numbers(next_observations, label=name, key="next_observations", images=True)
            last = np.zeros(1, np.float32) if bounds is None else bounds.middle
            observed, acted, ends = _join_transitions(observed, acted, ends, following, last, name)
        return cls(observed, acted, ends, dict(info or {}), provenance, name, bounds)

    @classmethod
    def from_npz(
        cls, path: str | Path, *, info: bool = False, name: str | None = None, action_bounds: ActionBounds = None
    ) -> "TrajectoryDataset":
        """Read an OGBench file; `info=True` also reads `qpos`, `qvel`, `button_states` and other per-row arrays.

        Bounds of the actions are `action_bounds`, the same for each, else the file's `action_low` and `action_high`.
        OGBench's in-memory forms saved to a file are understood too: the compact one (`valids`) and the regular one
        (`next_observations`). So are D4RL's `timeouts`: an episode ends where either array says so.
        """
        path = user_path(path)
        label = name or path.stem
        with NpzReader(path) as file:
            if missing := [key for key in CORE_KEYS if key not in file.keys]:
                there = ", ".join(file.keys) or "no arrays"
                raise CtaError(f"{path}: missing {', '.join(missing)}; the file has {there}")
            shapes = {key: file.header(key)[0] for key in (*CORE_KEYS, *MORE_KEYS) if key in file.keys}
            checks.check_lengths({key: shape[0] for key, shape in shapes.items() if shape}, label=label)
            ends = _episode_ends(file, label=label)
            # Images may be larger than the memory: they are mapped, and fetched as training asks for them.
            images = file.header("observations")[1] == np.uint8
            observations = read_or_map(file, "observations") if images else file["observations"]
            more: dict[str, Any] = {key: file[key] for key in ("next_observations", *BOUND_KEYS) if key in file.keys}
            if action_bounds is not None:
                more |= zip(BOUND_KEYS, action_bounds, strict=True)
            if info and "next_observations" not in more:
                more["info"] = _info_arrays(file, rows=len(ends))
            more["provenance"] = file.provenance()
            return cls.from_arrays(observations, file["actions"], ends, name=label, **more)

    def to_npz(self, path: str | Path) -> None:
        """Write OGBench's file format (compressed), through a temporary file that is renamed into place."""
        arrays = {key: getattr(self, key) for key in CORE_KEYS} | self.info
        if self.bounds is not None:
            arrays |= dict(zip(BOUND_KEYS, self.bounds, strict=True))
        write_npz(Path(path).expanduser(), {key: column(values) for key, values in arrays.items()}, self.provenance)

    @property
    def num_rows(self) -> int:
        return len(self.terminals)

    @property
    def num_episodes(self) -> int:
        return len(self.episode_ends)

    @property
    def num_transitions(self) -> int:
        return self.num_rows - self.num_episodes

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.observations.shape[1:]

    @property
    def action_dim(self) -> int:
        return self.actions.shape[1]

    @cached_property
    def episode_ends(self) -> np.ndarray:
        """(E,) int32: the last row of each episode."""
        return np.flatnonzero(self.terminals).astype(np.int32)

    @cached_property
    def episode_starts(self) -> np.ndarray:
        """(E,) int32: the first row of each episode."""
        return np.concatenate([np.zeros(1, np.int32), self.episode_ends[:-1] + np.int32(1)])

    @cached_property
    def valid_rows(self) -> np.ndarray:
        """(N − E,) int32: the rows that have a next row in their episode."""
        return np.flatnonzero(~self.terminals).astype(np.int32)

    @cached_property
    def goal_limits(self) -> np.ndarray:
        """(N,) int32: end(i), the last row of a row's episode that has a next one: a last state is never a goal."""
        lengths = self.episode_ends - self.episode_starts + 1
        return np.repeat(self.episode_ends - np.int32(1), lengths)

    def fingerprint(self) -> str:
        """SHA-256 over what training sees: observations, actions, terminals, their dtypes and shapes, bounds."""
        digest = hashlib.sha256()
        for key in CORE_KEYS:
            array = getattr(self, key)
            digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
            for _, block in row_blocks(array):
                digest.update(np.ascontiguousarray(block).data)
        if self.bounds is not None:
            digest.update(np.stack(self.bounds).data)
        return digest.hexdigest()

    def check_like(self, other: "TrajectoryDataset") -> None:
        words = "{0.observations.dtype} observations of shape {0.observation_shape} and {0.action_dim} actions"
        mine, theirs = words.format(self), words.format(other)
        if mine != theirs:
            raise CtaError(f"{self.name} has {mine}, {other.name} has {theirs}: they do not belong together")
        if not np.array_equal(self.bounds or (), other.bounds or ()):
            raise CtaError(f"{self.name} and {other.name} state different bounds of actions: give both the same")

    def take(self, wanted: np.ndarray, terminals: np.ndarray | None = None) -> "TrajectoryDataset":
        """The rows of a mask or an index, of every array, in memory; `terminals` says which of them end an episode."""
        observations, actions = (np.ascontiguousarray(rows[wanted]) for rows in (self.observations, self.actions))
        ends = self.terminals[wanted] if terminals is None else terminals
        info = {key: values[wanted] for key, values in self.info.items()}
        return replace(self, observations=observations, actions=actions, terminals=ends, info=info)


def hold_out(dataset: TrajectoryDataset, fraction: float) -> tuple[TrajectoryDataset, TrajectoryDataset | None]:
    """(what is left, the held-out episodes): `fraction` of the episodes, at least one, drawn by their number alone."""
    # Taking rows would read all of a mapped file into memory.
    if fraction <= 0 or dataset.num_episodes < 2 or is_mapped(dataset.observations):
        return dataset, None
    count = min(max(1, int(fraction * dataset.num_episodes)), dataset.num_episodes - 1)
    held = np.zeros(dataset.num_episodes, bool)
    held[np.random.default_rng(0).permutation(dataset.num_episodes)[:count]] = True
    rows = np.repeat(held, dataset.episode_ends - dataset.episode_starts + 1)
    return dataset.take(~rows), dataset.take(rows)


def _episode_ends(file: NpzReader, *, label: str) -> np.ndarray:
    """The last row of each episode, as the file marks it: by `valids`, or by `terminals` and D4RL's `timeouts`."""
    if "valids" in file.keys:
        return ~checks.as_terminals(file["valids"], label=label, key="valids")
    keys = [key for key in ("terminals", "timeouts") if key in file.keys]
    marks = [checks.as_terminals(file[key], label=label, key=key) for key in keys]
    if len({mark.shape for mark in marks}) > 1:
        raise CtaError(f"{label}: terminals have shape {marks[0].shape}, timeouts {marks[1].shape}")
    return np.logical_or.reduce(marks)


def _terminals(terminals: Any, lengths: Sequence[int] | np.ndarray | None, *, rows: int, label: str) -> np.ndarray:
    if terminals is not None and lengths is not None:
        raise CtaError(f"{label}: give terminals or episode_lengths, not both")
    if terminals is not None:
        return checks.as_terminals(terminals, label=label)
    if lengths is None:
        raise CtaError(f"{label}: no terminals: give terminals (True on each episode's last row) or episode_lengths")
    counts = np.asarray(lengths)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any() or counts.sum() != rows:
        raise CtaError(f"{label}: episode_lengths must be positive integers that add up to the {rows} rows")
    ends = np.zeros(rows, bool)
    ends[np.cumsum(counts) - 1] = True
    return ends


def _join_transitions(
    observations: np.ndarray, actions: np.ndarray, ends: np.ndarray, following: np.ndarray, last: np.ndarray, label: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of states from rows of transitions: one more row per episode, of its final next observation and `last`."""
    checks.check_shapes(observations, actions, ends, label=label)
    if following.shape != observations.shape or following.dtype != observations.dtype:
        kinds = (f"{array.dtype}{array.shape}" for array in (following, observations))
        raise CtaError(f"{label}: next_observations are {', observations '.join(kinds)}")
    checks.check_episodes(ends, label=label, least=1)
    inner = np.flatnonzero(~ends)
    for start, block in row_blocks(inner):
        same = (following[block] == observations[block + 1]).reshape(len(block), -1).all(axis=1)
        if not same.all():
            row = inner[start + int(np.argmin(same))]
            both = f"next_observations of row {row} differ from observations of row {row + 1}"
            raise CtaError(f"{label}: {both} of the same episode: mark the end of an episode there")
    new = np.flatnonzero(ends) + 1
    joined = np.insert(observations, new, following[ends], axis=0)
    return joined, np.insert(actions, new, last, axis=0), np.insert(np.zeros(len(ends), bool), new, True)


def _info_arrays(file: NpzReader, *, rows: int) -> dict[str, np.ndarray]:
    """The per-row arrays of a file beside the core ones; OGBench's own must fit, strangers that do not are left out."""
    lengths = {key: (*file.header(key)[0], 0)[0] for key in file.keys}
    for key in INFO_KEYS:
        if lengths.get(key, rows) != rows:
            raise CtaError(f"{file.path}: {key} has {lengths[key]} rows, observations have {rows}")
    others = lengths.keys() - {*CORE_KEYS, *MORE_KEYS, *BOUND_KEYS, PROVENANCE_KEY}
    return {key: file[key] for key in file.keys if key in others and lengths[key] == rows}


def count_transitions(path: Path) -> int | None:
    """How many a file has, read from the marks of its episodes' ends alone; None if it is absent or damaged."""
    try:
        with NpzReader(path) as file:
            ends = _episode_ends(file, label=path.stem)
            # With next observations every row is a transition.
            return ends.size if "next_observations" in file.keys else int(np.count_nonzero(~ends))
    except CtaError:
        return None
