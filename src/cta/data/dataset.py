"""Trajectories as plain NumPy arrays plus episode bounds. No environment and no JAX needed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cta.data import checks
from cta.data.files import user_path
from cta.data.mapped import read_or_map
from cta.data.npz import PROVENANCE_KEY, NpzReader, column, row_blocks, write_npz
from cta.errors import CtaError

CORE_KEYS = ("observations", "actions", "terminals")
INFO_KEYS = ("qpos", "qvel", "button_states")


@dataclass(frozen=True, eq=False, repr=False)
class TrajectoryDataset:
    """Episodes back to back, one row a state, in OGBench's on-disk layout.

    An episode of T transitions has T + 1 rows: the states s_0 … s_T, where the action of the last row leads nowhere.

    observations: (N, D) float32, or (N, H, W, C) uint8 for images; the state before the action.
    actions: (N, A) float32 in [-1, 1].
    terminals: (N,) bool, True on the last row of each episode.
    info: arrays with N rows that training does not use (`qpos`, `qvel`, `button_states`, …).
    """

    observations: np.ndarray
    actions: np.ndarray
    terminals: np.ndarray
    info: dict[str, np.ndarray] = field(default_factory=dict)
    provenance: dict[str, Any] | None = None
    name: str = "dataset"

    def __post_init__(self) -> None:
        label = self.name
        if self.observations.dtype not in (np.float32, np.uint8):
            raise CtaError(f"{label}: observations have dtype {self.observations.dtype}; use float32 or uint8")
        if self.actions.dtype != np.float32 or self.terminals.dtype != np.bool_:
            raise CtaError(f"{label}: actions must be float32 and terminals bool; from_arrays converts")
        checks.check_shapes(self.observations, self.actions, self.terminals, label=label)
        checks.check_episodes(self.terminals, label=label)
        checks.check_finite(self.observations, key="observations", label=label)
        checks.check_finite(self.actions, key="actions", label=label)
        checks.check_action_range(self.actions, label=label)
        for key, values in self.info.items():
            rows = len(values) if np.ndim(values) else 0
            if rows != self.num_rows:
                raise CtaError(f"{label}: {key} has {rows} rows, observations have {self.num_rows}")

    def __repr__(self) -> str:
        return (
            f"TrajectoryDataset({self.name!r}: {self.num_episodes} episodes, {self.num_transitions} transitions, "
            f"observations {self.observations.dtype}{self.observations.shape[1:]}, actions {self.action_dim})"
        )

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        terminals: Any = None,
        *,
        episode_lengths: Sequence[int] | np.ndarray | None = None,
        next_observations: Any = None,
        name: str = "dataset",
        info: Mapping[str, np.ndarray] | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> "TrajectoryDataset":
        """Build a dataset from your own arrays.

        Say where episodes end with `terminals` (True on each episode's last row) or with `episode_lengths` (rows each).
        Without `next_observations` the rows are states, and an episode's last row has no next one. With
        `next_observations` the rows are transitions (s_t, a_t, s_{t+1}): each episode then gets its final next
        observation appended as a last row, with a zero action.
        """
        observed = checks.as_observations(observations, label=name)
        acted = checks.as_actions(actions, label=name)
        ends = _terminals(terminals, episode_lengths, rows=len(observed), label=name)
        if next_observations is not None:
            if info:
                raise CtaError(f"{name}: info arrays cannot be given with next_observations, whose last rows they lack")
            following = checks.as_observations(next_observations, label=name, key="next_observations")
            observed, acted, ends = _join_transitions(observed, acted, ends, following, label=name)
        return cls(observed, acted, ends, dict(info or {}), provenance, name)

    @classmethod
    def from_npz(cls, path: str | Path, *, info: bool = False, name: str | None = None) -> "TrajectoryDataset":
        """Read an OGBench file; `info=True` also reads `qpos`, `qvel`, `button_states` and other per-row arrays.

        OGBench's in-memory forms saved to a file are understood too: the compact one (`valids`) and the regular one
        (`next_observations`).
        """
        path = user_path(path)
        label = name or path.stem
        with NpzReader(path) as file:
            missing = [key for key in CORE_KEYS if key not in file.keys]
            if missing:
                raise CtaError(
                    f"{path}: missing {', '.join(missing)}; the file has {', '.join(file.keys) or 'no arrays'}"
                )
            key = "valids" if "valids" in file.keys else "terminals"
            marks = checks.as_terminals(file[key], label=label, key=key)
            terminals = ~marks if key == "valids" else marks
            following = file["next_observations"] if "next_observations" in file.keys else None
            extra = _info_arrays(file, rows=len(terminals)) if info and following is None else {}
            # Images may be larger than the memory: they are mapped, and fetched as training asks for them.
            images = file.header("observations")[1] == np.uint8
            return cls.from_arrays(
                read_or_map(file, "observations") if images else file["observations"],
                file["actions"],
                terminals,
                next_observations=following,
                name=label,
                info=extra,
                provenance=file.provenance(),
            )

    def to_npz(self, path: str | Path) -> None:
        """Write OGBench's file format (compressed), through a temporary file that is renamed into place."""
        arrays = {"observations": self.observations, "actions": self.actions, "terminals": self.terminals, **self.info}
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
        """(N,) int32: for each row, the last row of its episode that has a next row, end(i).

        The very last state of an episode is never a goal; it only occurs as a next observation.
        """
        lengths = self.episode_ends - self.episode_starts + 1
        return np.repeat(self.episode_ends - np.int32(1), lengths)

    def compact(self, *, info: bool = False) -> dict[str, np.ndarray]:
        """OGBench's compact form: all rows; `valids` = has a next row; `terminals` on an episode's last two rows."""
        last = self.terminals
        before_last = np.append(last[1:], True)
        view = {
            "observations": self.observations,
            "actions": self.actions,
            "terminals": (last | before_last).astype(np.float32),
            "valids": (~last).astype(np.float32),
        }
        return view | (self.info if info else {})

    def regular(self, *, info: bool = False) -> dict[str, np.ndarray]:
        """OGBench's regular form: one row a transition, with `next_observations`; a copy of the observations."""
        rows = self.valid_rows
        view = {
            "observations": self.observations[rows],
            "actions": self.actions[rows],
            "terminals": self.terminals[rows + 1].astype(np.float32),
            "next_observations": self.observations[rows + 1],
        }
        return view | ({key: values[rows] for key, values in self.info.items()} if info else {})

    def fingerprint(self) -> str:
        """SHA-256 over what training sees: observations, actions, terminals, their dtypes and shapes (not `info`)."""
        digest = hashlib.sha256()
        for key in CORE_KEYS:
            array = getattr(self, key)
            digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
            for _, block in row_blocks(array):
                digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()


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
    observations: np.ndarray, actions: np.ndarray, terminals: np.ndarray, following: np.ndarray, *, label: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of states from rows of transitions: one more row an episode, made of its final next observation."""
    checks.check_shapes(observations, actions, terminals, label=label)
    if following.shape != observations.shape or following.dtype != observations.dtype:
        raise CtaError(
            f"{label}: next_observations are {following.dtype}{following.shape}, "
            f"observations {observations.dtype}{observations.shape}"
        )
    if not terminals[-1]:
        raise CtaError(f"{label}: the last row ({len(terminals) - 1}) is not terminal: the last episode has no end")
    inner = np.flatnonzero(~terminals)
    for start, block in row_blocks(inner):
        same = (following[block] == observations[block + 1]).reshape(len(block), -1).all(axis=1)
        if not same.all():
            row = inner[start + int(np.argmin(same))]
            raise CtaError(
                f"{label}: next_observations of row {row} differ from observations of row {row + 1} of the same "
                "episode: mark the end of an episode there"
            )
    ends = np.flatnonzero(terminals)
    after = ends + 1
    joined = np.insert(observations, after, following[ends], axis=0)
    padded = np.insert(actions, after, np.float32(0), axis=0)
    flags = np.zeros(len(joined), bool)
    flags[ends + 1 + np.arange(len(ends))] = True
    return joined, padded, flags


def _info_arrays(file: NpzReader, *, rows: int) -> dict[str, np.ndarray]:
    """The per-row arrays of a file beside the core ones; OGBench's own must fit, strangers that do not are left out."""
    others = [key for key in file.keys if key not in (*CORE_KEYS, "valids", PROVENANCE_KEY)]
    arrays = {}
    for key in others:
        shape, _ = file.header(key)
        if key in INFO_KEYS or (shape and shape[0] == rows):
            arrays[key] = file[key]
    return arrays


def count_transitions(path: Path) -> int | None:
    """How many a file has, read from the marks of its episodes' ends alone; None if it is absent or damaged."""
    try:
        with NpzReader(path) as file:
            compact = "valids" in file.keys
            marks = file["valids" if compact else "terminals"]
            if "next_observations" in file.keys:  # there every row is a transition
                return marks.size
    except CtaError:
        return None
    return int(np.count_nonzero(marks if compact else marks == 0))
