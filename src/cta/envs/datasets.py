"""Opening a dataset by name or file, making the embedded worlds' data on first use."""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from cta.data import TrajectoryDataset, dataset_folder, is_path, resolve
from cta.data.dataset import ActionBounds
from cta.data.other_formats import LEROBOT, MINARI, read_lerobot, read_minari
from cta.envs.generate import generate, generate_desk, plan_job
from cta.envs.names import DESK_DATASETS, expected_shapes, known_spec
from cta.errors import CtaError
from cta.io.json_files import known_maker
from cta.io.provenance import versions


def open_dataset(
    name_or_path: str | Path,
    *,
    dataset_dir: str | Path | None = None,
    info: bool = False,
    action_bounds: ActionBounds = None,
) -> tuple[str, TrajectoryDataset, TrajectoryDataset | None]:
    """(name, training, validation data or None) of a NAME in the data folder, a FILE, `minari:NAME` or `lerobot:DIR`.

    Data of the embedded worlds are made and kept on first use. `action_bounds` are those of a file that states none.
    """
    options: Any = {"info": info, "action_bounds": action_bounds}
    text = str(name_or_path)
    if text.startswith(LEROBOT):
        train = read_lerobot(text.removeprefix(LEROBOT), action_bounds=action_bounds)
        return train.name, train, None
    if action_bounds is not None and (text.startswith(MINARI) or not is_path(name_or_path)):
        raise CtaError(f"--action-bounds is for files of your own; {name_or_path} states its bounds itself")
    if text.startswith(MINARI):
        train = read_minari(text.removeprefix(MINARI))
        return train.name, train, None
    files = resolve(name_or_path, dataset_dir=dataset_dir)
    if not files.train.exists():
        if is_path(name_or_path):
            raise CtaError(f"no such file: {files.train}")
        spec = known_spec(files.name)
        if files.name not in DESK_DATASETS:
            ways = f"`cta data download {files.name}{folder_flag('--dataset-dir', dataset_dir)}`"
            if not spec.needs_expert:
                ways = f"`cta data generate {files.name}{folder_flag('--out', dataset_dir)}` or {ways}"
            raise CtaError(f"{files.name} is not in {files.train.parent}: {ways}")
        try:
            generate(plan_job(files.name, folder=files.train.parent))
        except (OSError, CtaError) as error:
            print(f"notice: {files.name} is used from memory and not kept: {error}", file=sys.stderr)
            train, validation = generate_desk(files.name)
            if not info:
                train, validation = replace(train, info={}), replace(validation, info={})
            return files.name, train, validation
    train, validation = TrajectoryDataset.from_npz(files.train, **options), None
    if files.validation.exists():
        validation = TrajectoryDataset.from_npz(files.validation, **options)
        validation.check_like(train)
    return files.name, train, validation


def folder_flag(flag: str, dataset_dir: str | Path | None) -> str:
    """What a command that is advised needs to fill this folder; nothing for the one it fills anyway."""
    folder = dataset_folder(dataset_dir)
    return "" if folder == dataset_folder() else f" {flag} {shlex.quote(str(folder))}"


def check_fits(dataset: TrajectoryDataset, env_name: str) -> None:
    found, expected = (dataset.observation_shape, dataset.action_dim), expected_shapes(env_name)
    if expected and expected != found:
        mine = "observations of shape {} and {} actions".format(*found)
        its = "{} and {}".format(*expected)
        raise CtaError(f"{dataset.name} has {mine}, {env_name} has {its}: this dataset belongs to another environment")


def simulator_notice(record: dict[str, Any] | None) -> str | None:
    """A line about data and simulator from different sides of MuJoCo 3.5, where the arm's dynamics changed."""
    record = known_maker(record, "the data")
    if record is not None and "source" in record:  # cut out of other data
        record = (record["source"] or {}).get("provenance")
    # Without a record it is OGBench's published data, from before.
    made_by = "3.4" if record is None else (record.get("versions") or {}).get("mujoco")
    here = versions(("mujoco",))["mujoco"]
    found = [re.match(r"(\d{1,4})\.(\d{1,4})(?!\d)", version or "") for version in (made_by, here)]
    sides = {None if match is None else (int(match[1]), int(match[2])) >= (3, 5) for match in found}
    if sides != {True, False}:
        return None
    told = f"the data is from MuJoCo {'before 3.5' if record is None else made_by}, the simulator here is {here}"
    return f"{told}: the arm's dynamics changed in 3.5, so scores are not comparable"
