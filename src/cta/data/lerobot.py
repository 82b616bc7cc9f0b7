"""LeRobot datasets (format v3) in a folder on this machine, as trajectories: their numbers, without their videos."""

import sys
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from cta.data.dataset import TrajectoryDataset
from cta.data.npz import reading
from cta.data.progress import progress
from cta.errors import CtaError
from cta.io.files import safe_name, user_path
from cta.io.json_files import read_json

PREFIX = "lerobot:"
STATE, ACTION, EPISODE, FRAME = COLUMNS = ("observation.state", "action", "episode_index", "frame_index")
BESIDE = ("timestamp", "index", "task_index")
"""Columns that every such dataset has and that say nothing to an agent."""
INFO = {"codebase_version!": str, "features!": {...: {"dtype": str}}, "total_frames": int}


def read_lerobot(folder: str | Path, *, action_bounds: tuple[float, float] | None = None) -> TrajectoryDataset:
    """`observation.state` and `action` of all episodes, one row per frame.

    Bounds of the actions are `action_bounds`, the same for each, else the lowest and highest of meta/stats.json.
    """
    root, label = user_path(folder), f"{PREFIX}{folder}"
    features = _features(root, label)
    files = sorted(root.glob("data/chunk-*/file-*.parquet"))
    if not files:
        raise CtaError(f"{label}: there is no data/chunk-*/file-*.parquet in it")
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise CtaError(f"{label} needs the pyarrow package: pip install 'cta[lerobot]'") from None
    parts: list[list[np.ndarray]] = []
    with progress(f"reading {label}", total=len(files), unit="files") as advance:
        for file in files:
            with reading(str(file)):
                there = parquet.read_schema(file).names
                if missing := [name for name in COLUMNS if name not in there]:
                    raise CtaError(f"{file}: it has no column {', '.join(missing)}")
                table = parquet.read_table(file, columns=list(COLUMNS))
                parts.append([_rows(table, name, file) for name in COLUMNS])
            advance(1)
    try:
        observations, actions, episodes, frames = (np.concatenate(column) for column in zip(*parts, strict=True))
    except ValueError:
        raise CtaError(f"{label}: observation.state or action change their shape from file to file") from None
    left_out = sorted(set(features) - {*COLUMNS, *BESIDE})
    if left_out:
        print(f"{label}: not used: {', '.join(left_out)}", file=sys.stderr)
    low, high = action_bounds or _stated_bounds(root)
    return TrajectoryDataset.from_arrays(
        observations,
        actions,
        _ends(episodes.reshape(-1), frames.reshape(-1), label),
        action_low=low,
        action_high=high,
        name=dataset_name(folder),
        provenance={"created_by": "lerobot", "folder": root.name, "left_out": left_out},
    )


def dataset_name(folder: str | Path) -> str:
    """What runs on the data of a folder are called after."""
    return safe_name(f"lerobot-{PurePath(folder).name}")


def _features(root: Path, label: str) -> dict[str, Any]:
    """The columns that meta/info.json describes, among them those that are needed."""
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise CtaError(f"{label} is no LeRobot dataset: it has no meta/info.json")
    info = read_json(path, INFO)
    if not (version := info["codebase_version"]).startswith("v3."):
        raise CtaError(f"{label} has LeRobot's format {version:.20}, this reads v3: convert it with lerobot")
    missing = [name for name in COLUMNS if name not in info["features"]]
    if missing:
        there = ", ".join(info["features"]) or "nothing"
        raise CtaError(f"{label}: it has no {', '.join(missing)}; its features are {there}")
    return info["features"]


def _rows(table: Any, name: str, file: Path) -> np.ndarray:
    """A column as (rows, size) or (rows,) numbers; lists of fixed and of variable length are both in use."""
    if table[name].null_count:
        raise CtaError(f"{file}: {name} has an empty value")
    values = table[name].to_numpy()
    if values.dtype != object:
        return values
    if len({len(row) for row in values}) > 1:
        raise CtaError(f"{file}: {name} has rows of different lengths")
    return np.stack(values)


def _ends(episodes: np.ndarray, frames: np.ndarray, label: str) -> np.ndarray:
    """The last row of each episode. Numbers of episodes may skip some, but they rise, and frames count from 0."""
    if episodes.dtype.kind not in "iu" or frames.dtype.kind not in "iu":
        raise CtaError(f"{label}: episode_index and frame_index must be whole numbers")
    change = np.diff(episodes)
    if (change < 0).any():
        row = int(np.argmax(change < 0))
        raise CtaError(f"{label}: episode_index falls from {episodes[row]} to {episodes[row + 1]} at row {row + 1}")
    starts = np.flatnonzero(np.concatenate([[True], change > 0]))
    expected = np.arange(len(frames)) - np.repeat(starts, np.diff(starts, append=len(frames)))
    if (frames != expected).any():
        row = int(np.argmax(frames != expected))
        raise CtaError(
            f"{label}: frame_index is {frames[row]} at row {row}, not {expected[row]}: the rows of an episode "
            "must lie together, in order"
        )
    return np.concatenate([change > 0, [True]])


def _stated_bounds(root: Path) -> tuple[Any, Any]:
    """The lowest and highest actions of meta/stats.json, if it is there."""
    path = root / "meta" / "stats.json"
    stats = read_json(path).get(ACTION) if path.is_file() else None
    if not isinstance(stats, dict) or "min" not in stats or "max" not in stats:
        return None, None
    try:
        low, high = (np.array(stats[end], np.float64) for end in ("min", "max"))
        still = low == high  # an action that never changed: any bounds around it will do
        return np.where(still, low - 1, low), np.where(still, high + 1, high)
    except (ValueError, TypeError):
        raise CtaError(f"{path}: min and max of {ACTION} are no numbers") from None
