"""`cta data`: generate, download, list and inspect datasets."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from cta.cli.data_info import describe, describe_minari
from cta.data import dataset_folder
from cta.data.dataset import count_transitions
from cta.data.download import download, mirrors
from cta.data.files import resolve
from cta.data.minari import PREFIX
from cta.data.npz import NpzReader
from cta.data.progress import human
from cta.envs.datasets import folder_flag
from cta.envs.generate import default_workers, generate, plan_job
from cta.envs.names import DESK_DATASETS, KNOWN
from cta.errors import CtaError
from cta.stopping import INTERRUPTED

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
NameOrFile = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE")]
OutFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: the data folder)")]
DataFolder = Annotated[
    Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: OGBENCH_DATA_DIR, else ~/.ogbench/data)")
]
Count = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: as published)")]
Workers = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: one a processor)")]
Seed = Annotated[int, tyro.conf.arg(metavar="N")]
Addresses = Annotated[
    tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="URL", help_behavior_hint="(may be repeated)")
]


def generate_command(
    name: Name,
    *,
    episodes: Count = None,
    episode_steps: Count = None,
    workers: Workers = None,
    seed: Seed = 0,
    out: OutFolder = None,
    dataset_dir: DataFolder = None,
) -> int:
    """Make a dataset with OGBench's own oracles and settings.

    Every episode has its own seed, so the files do not depend on the number of workers; an interrupted generation
    continues where it stopped when the same command is given again.

    For example:

    cta data generate puzzle-3x3-play-v0

    cta data generate scene-play-v0 --episodes 20 --workers 2 --out data

    Args:
        name: a dataset that needs no expert; `cta data list` shows them.
        episodes: training episodes; a tenth as many more, at least one, are made for validation.
        episode_steps: transitions an episode; an episode has one row more.
        workers: worker processes.
        seed: root of all episodes' seeds.
        out: folder for NAME.npz and NAME-val.npz. Without it only a full-size dataset goes to the data folder.
        dataset_dir: the data folder.
    """
    folder = out if out is not None else dataset_folder(dataset_dir)
    job = plan_job(name, folder=folder, episodes=episodes, episode_steps=episode_steps, seed=seed)
    if out is None and not job.full_size:
        raise CtaError(
            f"only the full size ({job.spec.episodes} episodes of {job.spec.episode_steps} steps) goes to {folder}: "
            "give --out DIR for another size"
        )
    if workers is not None and workers < 1:
        raise CtaError(f"--workers is at least 1, not {workers}")
    try:
        paths = generate(job, workers=workers or default_workers())
    except KeyboardInterrupt:
        print("interrupted: finished episodes are kept, the same command continues", file=sys.stderr)
        return INTERRUPTED
    for path in paths:
        print(path)
    return 0


def download_command(
    name: Name,
    *,
    dataset_dir: DataFolder = None,
    mirror: Addresses = (),
) -> int:
    """Fetch a dataset that OGBench publishes: NAME.npz and NAME-val.npz.

    A transfer that broke off is resumed. The SHA-256 of each file is written to NAME.npz.json beside it, and checked
    when such a record is there already.

    For example:

    cta data download antmaze-large-navigate-v0

    cta data download scene-play-v0 --mirror https://example.org/ogbench

    Args:
        name: a dataset of OGBench.
        dataset_dir: the data folder.
        mirror: an address to try first; more may stand in CTA_DATA_MIRRORS, separated by spaces.
    """
    if name in DESK_DATASETS:
        raise CtaError(f"{name} is not published: it is generated on first use, or by `cta data generate {name}`")
    spec = KNOWN.get(name)
    makes = spec is not None and not spec.needs_expert
    generates = f"cta data generate {name}{folder_flag('--out', dataset_dir)}"
    advice = f"Without a network: `{generates}` makes it here" if makes else "It needs a network"
    try:
        paths = download(name, dataset_folder(dataset_dir), extra_mirrors=mirror, advice=advice)
    except KeyboardInterrupt:
        print("interrupted: the same command resumes the transfer", file=sys.stderr)
        return INTERRUPTED
    for path in paths:
        print(path)
    return 0


def list_command(*, dataset_dir: DataFolder = None) -> int:
    """Show the known datasets, and whether they are here: generated, published or absent.

    The size is the file's own; of a dataset that is not here, what it has in full.

    For example:

    cta data list

    cta data list --dataset-dir data

    Args:
        dataset_dir: the data folder.
    """
    folder = dataset_folder(dataset_dir)
    table = Table(title=f"datasets in {folder}", box=box.SIMPLE_HEAD)
    table.add_column("dataset", no_wrap=True)
    table.add_column("transitions", justify="right")
    table.add_column("here")
    table.add_column("to get it")
    for spec in KNOWN.values():
        ways = [] if spec.needs_expert else ["generate"]
        ways += [] if spec.name in DESK_DATASETS else ["download"]
        path = resolve(spec.name, dataset_dir=folder).train
        size = count_transitions(path) or spec.episodes * spec.episode_steps
        table.add_row(spec.name, human(size), origin(path), ", ".join(ways))
    console = Console()
    console.print(table)
    console.print(f"download: {', '.join(mirrors())}")
    return 0


def info_command(file: NameOrFile, *, dataset_dir: DataFolder = None) -> int:
    """Describe a dataset: shapes, episodes, ranges, where it comes from, and the problems found in it.

    Exits with 1 if there are problems.

    For example:

    cta data info scene-play-v0

    cta data info data/scene-play-v0.npz

    cta data info minari:D4RL/pointmaze/umaze-v2

    Args:
        file: a dataset name in the data folder, an npz file, or minari:NAME.
        dataset_dir: the data folder.
    """
    if file.startswith(PREFIX):
        return describe_minari(file.removeprefix(PREFIX), console=Console())
    return describe(resolve(file, dataset_dir=dataset_dir), console=Console())


def origin(path: Path) -> str:
    """generated (by cta), published (by OGBench) or absent."""
    if not path.exists():
        return "absent"
    try:
        with NpzReader(path) as file:
            record = file.provenance()
    except CtaError:
        return "damaged"
    return "generated" if (record or {}).get("created_by") == "cta" else "published"


COMMANDS: dict[str, Any] = {
    "generate": generate_command,
    "download": download_command,
    "list": list_command,
    "info": info_command,
}


def main(argv: Sequence[str]) -> int:
    """Run `cta data …`; returns the exit code."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="cta data", args=list(argv), description="Generate, download, list and inspect datasets."
    )
