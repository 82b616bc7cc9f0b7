"""What `cta data info` prints."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from cta.data import DatasetFiles, TrajectoryDataset, environment_name
from cta.data.download import read_record, sha256_of
from cta.data.npz import NpzReader, row_blocks
from cta.envs.datasets import check_fits, open_dataset, simulator_notice
from cta.envs.names import DESK_DATASETS
from cta.errors import CtaError
from cta.exit_codes import DONE, ERROR
from cta.io.json_files import printable
from cta.io.text_tables import print_table


def describe(files: DatasetFiles) -> int:
    """Print what both files of a dataset hold, and the problems found in them; the exit code says if there are any."""
    if not files.train.exists():
        raise CtaError(f"no such file: {files.train}; `cta data list` shows what is there")
    problems: list[str] = []
    try:
        env_name = environment_name(files.name)
    except CtaError:
        env_name = None
    train = _file(files.train, env_name, problems)
    if files.validation.exists():
        validation = _file(files.validation, env_name, problems)
        try:
            if train is not None and validation is not None:
                validation.check_like(train)
        except CtaError as error:
            problems.append(str(error))
    else:
        _say(f"no validation file: {files.validation.name} is not beside it")
    for problem in problems:
        _say(f"problem: {problem}", "red")
    _say(f"{len(problems)} problem(s) found" if problems else "no problems found")
    return ERROR if problems else DONE


def describe_foreign(name: str) -> int:
    """Print what a local dataset of Minari or LeRobot holds, as training sees it."""
    _, dataset, _ = open_dataset(name)
    parts = (dataset.provenance or {}).get("observation_parts", {})
    _say(f"{dataset!r}")
    if parts:
        _say(f"observations: {', '.join(f'{part} ({size})' for part, size in parts.items())}")
    if dataset.bounds is not None:
        ends = (" ".join(f"{value:.6g}" for value in end) for end in dataset.bounds)
        _say(f"bounds of actions: {' to '.join(ends)}")
    _episodes(dataset)
    return DONE


def _say(text: str, style: str = "") -> None:
    """A line; names from files are shown, never taken for mark-up."""
    Console().print(Text(printable(text), style), soft_wrap=True)


def _file(path: Path, env_name: str | None, problems: list[str]) -> TrajectoryDataset | None:
    """Print one file; returns its data unless they are unreadable."""
    dataset, record = None, None
    try:
        with NpzReader(path) as file:
            record = file.provenance()
            rows = [[printable(key), *_array_row(file, key)] for key in file.keys if key != "provenance"]
        print_table([("array", "dtype", "shape", "lowest", "highest"), *rows], left=3, title=Text(printable(str(path))))
        dataset = TrajectoryDataset.from_npz(path, info=True)
        _episodes(dataset)
        if env_name is not None:
            check_fits(dataset, env_name)
    except CtaError as error:
        problems.append(str(error))
        if dataset is None:
            return None
    _origin(path, record, problems)
    return dataset


def _episodes(dataset: TrajectoryDataset) -> None:
    lengths = dataset.episode_ends - dataset.episode_starts + 1
    spread = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    _say(
        f"{dataset.num_episodes} episodes of {spread} rows, {dataset.num_transitions} transitions, "
        f"fingerprint {dataset.fingerprint()[:16]}"
    )


def _origin(path: Path, record: dict[str, Any] | None, problems: list[str]) -> None:
    """Where a file comes from, and whether its checksum is the recorded one."""
    fetched = read_record(path) or {}
    if record is not None:
        _say("generated:")
        for key, value in record.items():
            _say(f"  {key}: {_in_words(value)}")
    elif fetched:
        _say(f"published: {fetched.get('url')}")
    else:
        _say("published, or made by other means: the file carries no record of its making")
    notice = None if path.stem.removesuffix("-val") in DESK_DATASETS else simulator_notice(record)
    if notice:
        _say(f"note: {notice}")
    if fetched.get("sha256") not in (None, sha256_of(path)):
        problems.append(f"{path}: the SHA-256 is not the one recorded when it was downloaded")


def _in_words(value: Any) -> str:
    """A value of a record without brackets and quotes."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_in_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return str(value)


def _array_row(file: NpzReader, key: str) -> list[str]:
    """Type, shape, lowest and highest value of an array."""
    shape, dtype = file.header(key)
    ends: list[str] = []
    if dtype.kind in "iufb" and 0 not in shape:
        blocks = [block for _, block in row_blocks(file[key].reshape(-1))]
        ends = [f"{end([end(block) for block in blocks]):.6g}" for end in (np.min, np.max)]
    return [printable(str(dtype)), str(shape), *(ends or ["", ""])]
