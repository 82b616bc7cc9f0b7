"""What others call data: datasets of Minari and LeRobot (v3) on this machine, and observations of any structure.

Nothing is downloaded and no environment is made. An observation is one vector (or image), in data as in rollouts.
"""

import json
import os
import sys
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from cta.data.dataset import ActionBounds, TrajectoryDataset
from cta.data.npz import reading
from cta.data.progress import progress
from cta.errors import CtaError, need_extra
from cta.io.files import safe_name, user_path
from cta.io.json_files import read_json
from cta.units import Bounds, make_bounds

MINARI, LEROBOT = "minari:", "lerobot:"
STATE, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"  # parts of a GoalEnv's observations
COLUMNS = ("observation.state", "action", "episode_index", "frame_index")  # that are read of LeRobot's
BESIDE = ("timestamp", "index", "task_index")  # columns that every such dataset has and that say nothing to an agent
INFO = {"codebase_version!": str, "features!": {...: {"dtype": str}}, "total_frames!": int}


def leaves(observation: Any, path: str = "") -> dict[str, np.ndarray]:
    """The arrays of an observation by their paths, such as `arm/joints`, in the order they are joined.

    First `observation`, then the others by name. `desired_goal` is left out, because it is not the case, and so is an
    `achieved_goal` of the shape of `observation`, where states themselves are goals.
    """
    if isinstance(observation, tuple):
        observation = {str(i): part for i, part in enumerate(observation)}
    if not isinstance(observation, dict):
        return {path or STATE: np.asarray(observation)}
    parts = {key: part for key, part in observation.items() if key != DESIRED}
    if {STATE, ACHIEVED} <= parts.keys():
        mine, theirs = ([array.shape for array in leaves(parts[key]).values()] for key in (STATE, ACHIEVED))
        if mine == theirs:
            del parts[ACHIEVED]
    found = {}
    for key in sorted(parts, key=lambda key: (key != STATE, str(key))):
        inner = leaves(parts[key], f"{path}/{key}" if path else str(key))
        for name in inner.keys() & found.keys():
            raise CtaError(f"two parts of an observation are called {name}: rename one")
        found |= inner
    return found


def join(observation: Any, *, rows: bool, label: str) -> np.ndarray:
    """float32 vectors, or one uint8 image; with `rows` every part has a leading axis of rows."""
    return _joined(leaves(observation), rows=rows, label=label)


def _joined(parts: dict[str, np.ndarray], *, rows: bool, label: str) -> np.ndarray:
    lead = 1 if rows else 0
    for name, part in parts.items():
        if part.dtype.kind not in "iufb":
            raise CtaError(f"{label}: {name} has dtype {part.dtype}; observations are numbers")
    (first, *others) = parts.values() or [np.zeros(0)]
    if not others and first.dtype == np.uint8 and first.ndim == lead + 3:
        return first
    pictures = [name for name, part in parts.items() if part.ndim - lead > 1]
    if others and pictures:
        shape = parts[pictures[0]].shape
        raise CtaError(f"{label}: {pictures[0]} has shape {shape}; images and vectors cannot be mixed")
    if rows and len({len(part) for part in parts.values()}) > 1:
        raise CtaError(f"{label}: the parts of its observations disagree in length")
    with np.errstate(over="ignore"):  # what overflows becomes infinite, which is reported where data is checked
        flat = [part.reshape(*part.shape[:lead], -1).astype(np.float32) for part in parts.values()]
    return np.concatenate(flat, axis=-1)


def goal_vector(observation: Any, info: dict[str, Any], *, label: str) -> np.ndarray:
    """The goal of an episode as an observation, from `info["goal"]` or from the `desired_goal` of a GoalEnv.

    Where that is only a part of a state, as `achieved_goal` is, the rest of the vector is NaN: unknown.
    """
    if info.get("goal") is not None:
        return join(info["goal"], rows=False, label=f"{label}: info['goal']")
    if not isinstance(observation, dict) or DESIRED not in observation:
        other = "return a dictionary with observation, achieved_goal and desired_goal"
        raise CtaError(f"{label}: reset gives no goal: put an observation of it into info['goal'], or {other}")
    wanted = np.asarray(observation[DESIRED])
    parts = leaves(observation)
    place = ACHIEVED if ACHIEVED in parts else STATE
    if place not in parts or parts[place].shape != wanted.shape:
        lacking = f"desired_goal has shape {wanted.shape}, but no part of the observation has"
        raise CtaError(f"{label}: {lacking}: add an achieved_goal")
    unknown = {name: np.full(part.shape, np.nan, np.float32) for name, part in parts.items()}
    if len(parts) == 1 and wanted.ndim == 3:
        return wanted
    return _joined({**unknown, place: wanted}, rows=False, label=label)


def read_minari(name: str) -> TrajectoryDataset:
    """The local Minari dataset `name`, such as `D4RL/pointmaze/umaze-v2`: T + 1 rows for an episode of T actions."""
    label = f"{MINARI}{name}"
    bounds, shape = _action_box(name, label)
    need_extra("minari", "minari", label)
    import minari

    observations, actions, layout = [], [], {}
    with reading(label):
        dataset = minari.load_dataset(name)
        with progress(f"reading {label}", total=len(dataset), unit="episodes") as advance:
            for episode in dataset.iterate_episodes():
                layout = {part: int(np.prod(array.shape[1:])) for part, array in leaves(episode.observations).items()}
                observations.append(join(episode.observations, rows=True, label=label))
                actions.append(_actions(episode, len(observations[-1]), bounds, shape, label))
                advance(1)
    if not observations:
        raise CtaError(f"{label}: the dataset has no episodes")
    if len({(part.shape[1:], part.dtype) for part in observations}) > 1:
        raise CtaError(f"{label}: observations change their shape from episode to episode")
    return TrajectoryDataset.from_arrays(
        np.concatenate(observations),
        np.concatenate(actions),
        episode_lengths=[len(part) for part in observations],
        action_low=bounds.low,
        action_high=bounds.high,
        name=safe_name(f"minari-{name}"),
        provenance={"created_by": "minari", "id": name, "observation_parts": layout},
    )


def _actions(episode: Any, rows: int, bounds: Bounds, shape: tuple[int, ...], label: str) -> np.ndarray:
    """Of an episode, its last state with the middle of the box."""
    acted = np.asarray(episode.actions)
    steps = len(acted)
    if acted.shape != (steps, *shape) or acted.dtype.kind not in "iuf":
        raise CtaError(f"{label}: actions of episode {episode.id} have shape {acted.shape}, expected {shape} each")
    if rows != steps + 1:
        raise CtaError(f"{label}: episode {episode.id} has {steps} actions and {rows} observations, not one more")
    return np.concatenate([acted.reshape(steps, -1).astype(np.float32), bounds.middle[None]])


def _action_box(name: str, label: str) -> tuple[Bounds, tuple[int, ...]]:
    """Of metadata.json, read first: where that describes no spaces, Minari would make an environment from any code."""
    if not all(part and set(part) != {"."} and not set(part) & set("\\:\0") for part in name.split("/")):
        raise CtaError(f"{label}: not a name of Minari such as minari:D4RL/pointmaze/umaze-v2")
    folder = Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()  # as in Minari itself
    path = folder / name / "data" / "metadata.json"
    if not path.is_file():
        raise CtaError(f"{label} is not in {folder}: `minari download {name}` fetches it, `minari list local` lists")
    metadata = read_json(path)
    if not all(isinstance(metadata.get(key), str) for key in ("observation_space", "action_space")):
        undescribed = "its metadata does not describe observations and actions"
        raise CtaError(f"{label}: {undescribed}: write it again with a newer Minari")
    try:
        space = json.loads(metadata["action_space"])
        if space["type"] != "Box":
            raise CtaError(f"{label}: actions are {space['type']}; this package learns continuous actions (Box) only")
        low, high = (np.broadcast_to(np.array(space[end], np.float64), space["shape"]) for end in ("low", "high"))
    except (ValueError, TypeError, KeyError) as error:
        raise CtaError(f"{label}: its action space cannot be read ({type(error).__name__}: {error})") from None
    bounds = make_bounds(low.ravel(), high.ravel(), low.size, label=label)
    if bounds is None or not low.size:
        raise CtaError(f"{label}: its actions have no numbers")
    return bounds, low.shape


def read_lerobot(folder: str | Path, *, action_bounds: ActionBounds = None) -> TrajectoryDataset:
    """`observation.state` and `action` of all episodes, with these bounds of actions or those of meta/stats.json."""
    root, label = user_path(folder), f"{LEROBOT}{folder}"
    info = _info(root, label)
    files = sorted(root.glob("data/chunk-*/file-*.parquet"))
    if not files:
        raise CtaError(f"{label}: there is no data/chunk-*/file-*.parquet in it")
    need_extra("lerobot", "pyarrow", label)
    import pyarrow.parquet as parquet

    parts: list[list[np.ndarray]] = []
    with progress(f"reading {label}", total=len(files), unit="files") as advance:
        for file in files:
            with reading(str(file)):
                there = parquet.read_schema(file).names
                if missing := [name for name in COLUMNS if name not in there]:
                    raise CtaError(f"{file}: it has no column {', '.join(missing)}")
                table = parquet.read_table(file, columns=list(COLUMNS))
                if table.num_rows:
                    parts.append([_rows(table, name, file) for name in COLUMNS])
            advance(1)
    rows = sum(len(part[0]) for part in parts)
    if not rows or rows != info["total_frames"]:
        told = f"meta/info.json says {info['total_frames']:,}: is all of it here?"
        raise CtaError(f"{label}: its files have {rows:,} frames, {told}")
    try:
        observations, actions, episodes, frames = (np.concatenate(column) for column in zip(*parts, strict=True))
    except ValueError:
        raise CtaError(f"{label}: observation.state or action change their shape from file to file") from None
    # Whole numbers, such as an encoder's ticks, are numbers.
    observations, actions = (x if x.dtype.kind == "f" else x.astype(np.float64) for x in (observations, actions))
    if left_out := sorted(set(info["features"]) - {*COLUMNS, *BESIDE}):
        print(f"{label}: not used: {', '.join(left_out)}", file=sys.stderr)
    low, high = action_bounds or _stated_bounds(root)
    return TrajectoryDataset.from_arrays(
        observations,
        actions,
        _ends(episodes.reshape(-1), frames.reshape(-1), label),
        action_low=low,
        action_high=high,
        name=safe_name(f"lerobot-{PurePath(folder).name}"),
        provenance={"created_by": "lerobot", "folder": root.name, "left_out": left_out},
    )


def _info(root: Path, label: str) -> dict[str, Any]:
    """What meta/info.json says; the columns that are needed are among its features."""
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise CtaError(f"{label} is no LeRobot dataset: it has no meta/info.json")
    info = read_json(path, INFO)
    if not (version := info["codebase_version"]).startswith("v3."):
        raise CtaError(f"{label} has LeRobot's format {version:.20}, this reads v3: convert it with lerobot")
    if missing := [name for name in COLUMNS if name not in info["features"]]:
        there = ", ".join(info["features"]) or "nothing"
        raise CtaError(f"{label}: it has no {', '.join(missing)}; its features are {there}")
    return info


def _rows(table: Any, name: str, file: Path) -> np.ndarray:
    """A column as (rows, size) numbers: lists of fixed or of variable length, or plain numbers where the size is 1."""
    if table[name].null_count:
        raise CtaError(f"{file}: {name} has an empty value")
    values = table[name].to_numpy()
    if values.dtype == object:
        if len({np.shape(row) for row in values}) > 1:
            raise CtaError(f"{file}: {name} has rows of different lengths")
        values = np.stack(values)
    if values.dtype.kind not in "iuf":
        raise CtaError(f"{file}: {name} is no list of numbers in every row")
    return values.reshape(len(values), -1)


def _ends(episodes: np.ndarray, frames: np.ndarray, label: str) -> np.ndarray:
    """The last row of each episode. Numbers of episodes may skip some, but they rise, and frames count from 0."""
    if episodes.dtype.kind not in "iu" or frames.dtype.kind not in "iu":
        raise CtaError(f"{label}: episode_index and frame_index must be whole numbers")
    change = np.diff(episodes)
    for row in np.flatnonzero(change < 0):
        raise CtaError(f"{label}: episode_index falls from {episodes[row]} to {episodes[row + 1]} at row {row + 1}")
    starts = np.flatnonzero(np.concatenate([[True], change > 0]))
    expected = np.arange(len(frames)) - np.repeat(starts, np.diff(starts, append=len(frames)))
    for row in np.flatnonzero(frames != expected):
        found = f"frame_index is {frames[row]} at row {row}, not {expected[row]}"
        raise CtaError(f"{label}: {found}: the rows of an episode must lie together, in order")
    return np.concatenate([change > 0, [True]])


def _stated_bounds(root: Path) -> tuple[Any, Any]:
    path = root / "meta" / "stats.json"
    stats = read_json(path).get("action") if path.is_file() else None
    if not isinstance(stats, dict) or "min" not in stats or "max" not in stats:
        return None, None
    try:
        low, high = (np.array(stats[end], np.float64) for end in ("min", "max"))
        still = low == high  # an action that never changed: any bounds around it will do
        return np.where(still, low - 1, low), np.where(still, high + 1, high)
    except (ValueError, TypeError):
        raise CtaError(f"{path}: min and max of action are no numbers") from None
