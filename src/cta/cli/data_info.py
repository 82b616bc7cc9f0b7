"""What `cta data info` prints."""

import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cta.data import DatasetFiles, TrajectoryDataset, environment_name
from cta.data.download import read_record, sha256_of
from cta.data.minari import read_minari
from cta.data.npz import NpzReader, row_blocks
from cta.envs.datasets import check_fits
from cta.envs.generate_record import simulator_notice
from cta.envs.names import DESK_DATASETS
from cta.errors import CtaError


def describe(files: DatasetFiles, *, console: Console) -> int:
    """Print what both files of a dataset hold; returns 1 if there are problems, else 0."""
    if not files.train.exists():
        raise CtaError(f"no such file: {files.train}; `cta data list` shows what is there")
    problems = _describe_file(files.train, env_name=_environment(files.name), console=console)
    if files.validation.exists():
        problems += _describe_file(files.validation, env_name=_environment(files.name), console=console)
    else:
        console.print(f"no validation file: {files.validation.name} is not beside it", markup=False)
    for problem in problems:
        console.print(f"problem: {problem}", style="red", markup=False, soft_wrap=True)
    console.print("no problems found" if not problems else f"{len(problems)} problem(s) found")
    return 1 if problems else 0


def describe_minari(name: str, *, console: Console) -> int:
    """Print what a local Minari dataset holds, as training sees it."""
    dataset = read_minari(name)
    parts = (dataset.provenance or {}).get("observation_parts", {})
    console.print(f"{dataset!r}", markup=False, soft_wrap=True)
    console.print(f"observations: {', '.join(f'{part} ({size})' for part, size in parts.items())}", markup=False)
    _print_episodes(dataset, console)
    return 0


def _environment(name: str) -> str | None:
    try:
        return environment_name(name)
    except CtaError:
        return None


def _describe_file(path: Path, *, env_name: str | None, console: Console) -> list[str]:
    """Print one file; returns its problems, each a line."""
    problems: list[str] = []
    table = Table(title=Text(str(path)))  # names from files are shown, never taken for mark-up
    for heading in ("array", "dtype", "shape", "lowest", "highest"):
        table.add_column(heading)
    try:
        with NpzReader(path) as file:
            record = file.provenance()
            for key in file.keys:
                if key != "provenance":
                    table.add_row(*map(Text, [key, *_array_row(file, key)]))
    except CtaError as error:
        return [str(error)]
    console.print(table)
    try:
        dataset = TrajectoryDataset.from_npz(path, info=True)
        _print_episodes(dataset, console)
        if env_name is not None:
            check_fits(dataset, env_name)
    except CtaError as error:
        problems.append(str(error))
    problems += _origin(path, record, console)
    return problems


def _array_row(file: NpzReader, key: str) -> list[str]:
    shape, dtype = file.header(key)
    if dtype.kind not in "iufb":
        return [str(dtype), str(shape), "", ""]
    values = file[key].reshape(-1)
    extremes = [(block.min(), block.max()) for _, block in row_blocks(values) if block.size]
    low, high = (
        (np.min([pair[0] for pair in extremes]), np.max([pair[1] for pair in extremes])) if extremes else ("", "")
    )
    return [str(dtype), str(shape), *(f"{value:.6g}" if extremes else "" for value in (low, high))]


def _print_episodes(dataset: TrajectoryDataset, console: Console) -> None:
    lengths = dataset.episode_ends - dataset.episode_starts + 1
    spread = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    console.print(
        f"{dataset.num_episodes} episodes of {spread} rows, {dataset.num_transitions} transitions, "
        f"fingerprint {dataset.fingerprint()[:16]}"
    )


def _origin(path: Path, record: dict | None, console: Console) -> list[str]:
    """Print where a file comes from; returns a problem if its checksum is not the recorded one."""
    fetched = read_record(path)
    if record is not None:
        console.print(f"generated: {json.dumps(record)}", markup=False, soft_wrap=True)
    elif fetched is not None:
        console.print(f"published: {fetched.get('url')}", markup=False, soft_wrap=True)
    else:
        console.print("published, or made by other means: the file carries no record of its making")
    notice = None if path.stem.removesuffix("-val") in DESK_DATASETS else simulator_notice(record)
    if notice:
        console.print(f"note: {notice}", markup=False, soft_wrap=True)
    known = (fetched or {}).get("sha256")
    if known is not None and known != sha256_of(path):
        return [f"{path}: the SHA-256 is not the one recorded when it was downloaded"]
    return []
