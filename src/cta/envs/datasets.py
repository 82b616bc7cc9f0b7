"""Opening a dataset by name or file, making the embedded worlds' data on first use."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from cta.data import TrajectoryDataset, dataset_folder, resolve
from cta.data.files import is_path
from cta.data.minari import PREFIX, read_minari, safe_name
from cta.envs.generate_record import provenance
from cta.envs.names import DESK_DATASETS, expected_shapes, known_spec, validation_count
from cta.errors import CtaError


def open_dataset(
    name_or_path: str | Path, *, dataset_dir: str | Path | None = None, info: bool = False
) -> tuple[str, TrajectoryDataset, TrajectoryDataset | None]:
    """(name, training data, validation data or None) of a NAME in the data folder or of a FILE.

    `minari:NAME` is a Minari dataset on this machine. A dataset of the embedded worlds that is not there is generated
    and kept in the data folder.
    """
    if str(name_or_path).startswith(PREFIX):
        name = str(name_or_path).removeprefix(PREFIX)
        return safe_name(name), read_minari(name), None
    files = resolve(name_or_path, dataset_dir=dataset_dir)
    if files.train.exists():
        train = TrajectoryDataset.from_npz(files.train, info=info)
        if not files.validation.exists():
            return files.name, train, None
        return files.name, train, TrajectoryDataset.from_npz(files.validation, info=info)
    if is_path(name_or_path):
        raise CtaError(f"no such file: {files.train}")
    if files.name in DESK_DATASETS:
        spec = known_spec(files.name)
        train, validation = generate_desk(files.name, episodes=spec.episodes, episode_steps=spec.episode_steps, seed=0)
        _keep(files.name, train, validation, dataset_folder(dataset_dir))
        if not info:
            train, validation = replace(train, info={}), replace(validation, info={})
        return files.name, train, validation
    spec = known_spec(files.name)
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

    world = name.removesuffix("-play-v0")
    validation = validation_count(episodes)
    rows = episode_steps + 1
    pair = generate_play(world, episodes=episodes, validation_episodes=validation, episode_steps=rows, seed=seed)
    made = {"episodes": episodes, "episode_steps": episode_steps, "seed": seed}
    train, held_out = (
        replace(data, provenance=provenance(name, split=split, **made))
        for data, split in zip(pair, ("train", "validation"), strict=True)
    )
    return train, held_out


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
