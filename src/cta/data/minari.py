"""Minari datasets that lie on this machine, as trajectories. Nothing is downloaded and no environment is made."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from cta.data.dataset import TrajectoryDataset
from cta.data.npz import reading
from cta.data.observations import join, leaves
from cta.data.progress import progress
from cta.errors import CtaError
from cta.io.files import safe_name
from cta.io.json_files import read_json
from cta.units import Bounds, make_bounds

PREFIX = "minari:"


def minari_folder() -> Path:
    """$MINARI_DATASETS_PATH, else ~/.minari/datasets, as in Minari itself."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def read_minari(name: str) -> TrajectoryDataset:
    """The local Minari dataset `name`, such as `D4RL/pointmaze/umaze-v2`.

    An episode's T + 1 observations become T + 1 rows. Observations are joined as `cta.data.observations` says; the
    bounds of the actions are those of their box.
    """
    label = f"{PREFIX}{name}"
    bounds, shape = _action_box(_metadata(name, label), label)
    try:
        import minari
    except ImportError:
        raise CtaError(f"{label} needs the minari package: pip install 'cta[minari]'") from None
    columns: tuple[list[Any], ...] = ([], [], [])
    layout: dict[str, int] = {}
    with reading(label):
        dataset = minari.load_dataset(name)
        with progress(f"reading {label}", total=len(dataset), unit="episodes") as advance:
            for episode in dataset.iterate_episodes():
                observed = join(episode.observations, rows=True, label=label)
                layout = {part: int(np.prod(array.shape[1:])) for part, array in leaves(episode.observations).items()}
                for column, values in zip(columns, _rows(episode, observed, bounds, shape, label), strict=True):
                    column.append(values)
                advance(1)
    if not columns[0]:
        raise CtaError(f"{label}: the dataset has no episodes")
    if len({(part.shape[1:], part.dtype) for part in columns[0]}) > 1:
        raise CtaError(f"{label}: observations change their shape from episode to episode")
    observations, actions, terminals = (np.concatenate(column) for column in columns)
    record = {"created_by": "minari", "id": name, "observation_parts": layout}
    called = safe_name(f"minari-{name}")
    options = {"action_low": bounds.low, "action_high": bounds.high, "name": called, "provenance": record}
    return TrajectoryDataset.from_arrays(observations, actions, terminals, **options)


def _rows(
    episode: Any, observed: np.ndarray, bounds: Bounds, shape: tuple[int, ...], label: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations, actions and terminals of an episode, its last state with the middle of the box."""
    acted = np.asarray(episode.actions)
    steps = len(acted)
    if acted.shape != (steps, *shape) or acted.dtype.kind not in "iuf":
        raise CtaError(f"{label}: actions of episode {episode.id} have shape {acted.shape}, expected {shape} each")
    if len(observed) != steps + 1:
        raise CtaError(
            f"{label}: episode {episode.id} has {steps} actions and {len(observed)} observations, not one more"
        )
    padded = np.concatenate([acted.reshape(steps, -1).astype(np.float32), bounds.middle[None]])
    return observed, padded, np.arange(steps + 1) == steps


def _metadata(name: str, label: str) -> dict[str, Any]:
    """metadata.json, read before Minari does: of a dataset that does not describe its spaces it would make the
    environment, whose description may name any code."""
    parts = name.split("/")
    if not all(part and set(part) != {"."} and not set(part) & set("\\:\0") for part in parts):
        raise CtaError(f"{label}: not a name of Minari such as minari:D4RL/pointmaze/umaze-v2")
    path = minari_folder() / name / "data" / "metadata.json"
    if not path.is_file():
        raise CtaError(
            f"{label} is not in {minari_folder()}: `minari download {name}` fetches it, `minari list local` lists"
        )
    values = read_json(path)
    if not all(isinstance(values.get(key), str) for key in ("observation_space", "action_space")):
        raise CtaError(
            f"{label}: its metadata does not describe observations and actions: write it again with a newer Minari"
        )
    return values


def _action_box(metadata: dict[str, Any], label: str) -> tuple[Bounds, tuple[int, ...]]:
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
