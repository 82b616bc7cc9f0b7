"""Opening a dataset by name or file, making the embedded worlds' data on first use; the record inside a made file."""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cta.data import TrajectoryDataset, dataset_folder, lerobot, resolve
from cta.data.locations import is_path
from cta.data.minari import PREFIX, read_minari
from cta.data.npz import write_npz
from cta.data.progress import progress
from cta.envs import gl
from cta.envs.names import DESK_DATASETS, expected_shapes, is_visual, known_spec, validation_count
from cta.errors import CtaError
from cta.io.provenance import versions
from cta.io.shapes import known_maker

SIMULATOR = ("mujoco", "dm-control", "ogbench", "gymnasium", "numpy", "scipy")
EMBEDDED = ("jax", "jaxlib", "numpy")


def open_dataset(
    name_or_path: str | Path,
    *,
    dataset_dir: str | Path | None = None,
    info: bool = False,
    action_bounds: tuple[float, float] | None = None,
) -> tuple[str, TrajectoryDataset, TrajectoryDataset | None]:
    """(name, training data, validation data or None) of a NAME in the data folder or of a FILE.

    `minari:NAME` is a Minari dataset on this machine, `lerobot:DIR` a folder of LeRobot's. A dataset of the embedded
    worlds that is not there is generated and kept in the data folder. `action_bounds` are those of a
    file that does not state its own.
    """
    options: Any = {"info": info, "action_bounds": action_bounds}
    text = str(name_or_path)
    if text.startswith(lerobot.PREFIX):
        train = lerobot.read_lerobot(text.removeprefix(lerobot.PREFIX), action_bounds=action_bounds)
        return train.name, train, None
    if action_bounds is not None and not is_path(name_or_path):
        raise CtaError(f"--action-bounds is for files of your own; {name_or_path} states its bounds itself")
    if text.startswith(PREFIX):
        train = read_minari(text.removeprefix(PREFIX))
        return train.name, train, None
    files = resolve(name_or_path, dataset_dir=dataset_dir)
    if files.train.exists():
        train, validation = TrajectoryDataset.from_npz(files.train, **options), None
        if files.validation.exists():
            validation = TrajectoryDataset.from_npz(files.validation, **options)
            validation.check_like(train)
        return files.name, train, validation
    if is_path(name_or_path):
        raise CtaError(f"no such file: {files.train}")
    spec = known_spec(files.name)
    if files.name in DESK_DATASETS:
        train, validation = generate_desk(files.name, episodes=spec.episodes, episode_steps=spec.episode_steps, seed=0)
        _keep(files.name, train, validation, dataset_folder(dataset_dir))
        if not info:
            train, validation = replace(train, info={}), replace(validation, info={})
        return files.name, train, validation
    ways = f"`cta data download {files.name}{folder_flag('--dataset-dir', dataset_dir)}`"
    if not spec.needs_expert:
        ways = f"`cta data generate {files.name}{folder_flag('--out', dataset_dir)}` or {ways}"
    raise CtaError(f"{files.name} is not in {files.train.parent}: {ways}")


def folder_flag(flag: str, dataset_dir: str | Path | None) -> str:
    """What a command that is advised needs to fill this folder; nothing for the one it fills anyway."""
    folder = dataset_folder(dataset_dir)
    return "" if folder == dataset_folder() else f" {flag} {shlex.quote(str(folder))}"


def generate_desk(
    name: str, *, episodes: int, episode_steps: int, seed: int
) -> tuple[TrajectoryDataset, TrajectoryDataset]:
    """Play data of an embedded world: `episodes` of `episode_steps` transitions, and a tenth as many for validation."""
    from cta.envs.desk_play import generate_play  # the desk runs on JAX, which readers of files do without

    train, held_out = generate_play(**_play_size(name, episodes, episode_steps), seed=seed)
    made = {"episodes": episodes, "episode_steps": episode_steps, "seed": seed}
    train = replace(train, provenance=provenance(name, split="train", **made))
    return train, replace(held_out, provenance=provenance(name, split="validation", **made))


def write_desk(name: str, targets: Mapping[str, Path], *, episodes: int, episode_steps: int, seed: int) -> None:
    """The same into files, by split (`train`, `validation`); images take no memory."""
    from cta.envs.desk_play import columns, play_both

    train, held_out = play_both(**_play_size(name, episodes, episode_steps), seed=seed)
    played = {"train": train, "validation": held_out}
    for split, path in targets.items():
        record = provenance(name, split=split, episodes=episodes, episode_steps=episode_steps, seed=seed)
        with progress(f"writing {path.name}", total=len(played[split].ends), unit="rows") as advance:
            write_npz(path, columns(played[split], advance), record)


def _play_size(name: str, episodes: int, episode_steps: int) -> dict[str, Any]:
    size = {"episodes": episodes, "validation_episodes": validation_count(episodes), "episode_steps": episode_steps + 1}
    return {"world_name": name.removesuffix("-play-v0"), **size}


def _keep(name: str, train: TrajectoryDataset, validation: TrajectoryDataset, folder: Path) -> None:
    """Write both files, validation first so that a training file always has its other half."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        validation.to_npz(folder / f"{name}-val.npz")
        train.to_npz(folder / f"{name}.npz")
    except (OSError, CtaError) as error:
        print(f"notice: {name} is used from memory and not kept: {error}", file=sys.stderr)


def check_fits(dataset: TrajectoryDataset, env_name: str) -> None:
    """Complain in one line about a dataset whose shapes are not those of the environment."""
    expected = expected_shapes(env_name)
    found = (dataset.observation_shape, dataset.action_dim)
    if expected is not None and found != expected:
        raise CtaError(
            f"{dataset.name} has observations of shape {found[0]} and {found[1]} actions, "
            f"{env_name} has {expected[0]} and {expected[1]}: this dataset belongs to another environment"
        )


def provenance(name: str, *, split: str, episodes: int, episode_steps: int, seed: int) -> dict[str, Any]:
    """What fixes the bytes of a generated file, and nothing else: no clock, no machine, no number of workers."""
    record = {
        "created_by": "cta",
        "command": f"cta data generate {name} --episodes {episodes} --episode-steps {episode_steps} --seed {seed}",
        "dataset": name,
        "split": split,
        "episodes": episodes,
        "episode_steps": episode_steps,
        "seed": seed,
        "versions": versions(EMBEDDED if name in DESK_DATASETS else SIMULATOR),
    }
    if is_visual(name) and name not in DESK_DATASETS:
        record["rendering"] = gl.find_backend()
    return record


def simulator_notice(record: dict[str, Any] | None) -> str | None:
    """A line about data and simulator from different sides of MuJoCo 3.5, where the arm's dynamics changed.

    Data without a record is taken for OGBench's published data, which is from before. Data that was cut out of other
    data speaks for its source. Nothing is said of records that others wrote in ways of their own.
    """
    record = known_maker(record, "the data")
    if record is not None and "source" in record:
        record = (record["source"] or {}).get("provenance")
    made_by = "before 3.5" if record is None else (record.get("versions") or {}).get("mujoco")
    here = versions(("mujoco",))["mujoco"]
    sides = {_after_change("3.4" if record is None else made_by), _after_change(here)}
    if sides != {True, False}:
        return None
    return (
        f"the data is from MuJoCo {made_by}, the simulator here is {here}: "
        "the arm's dynamics changed in 3.5, so scores are not comparable"
    )


def _after_change(mujoco: str | None) -> bool | None:
    """Whether a version is 3.5 or later; None if it is no version."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", mujoco or "")
    return None if found is None else (int(found[1]), int(found[2])) >= (3, 5)
