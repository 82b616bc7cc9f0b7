"""Generate, download, list and inspect datasets."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from cta.cli.data_info import describe, describe_foreign
from cta.cli.options import DataFolder, Workers
from cta.cpu_count import cpu_count
from cta.data import dataset_folder
from cta.data.dataset import count_transitions
from cta.data.download import download, mirrors
from cta.data.locations import resolve
from cta.data.npz import NpzReader
from cta.data.progress import human
from cta.envs.datasets import folder_flag
from cta.envs.generate import generate, plan_job
from cta.envs.names import DESK_DATASETS, KNOWN
from cta.errors import CtaError
from cta.exit_codes import DONE, INTERRUPTED
from cta.io.text_tables import print_table

Name = Annotated[Positional[str], arg(metavar="NAME")]
OutFolder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: the data folder)")]
Length = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as published)")]


@dataclass(frozen=True)
class Generate:
    """Make a dataset with OGBench's own oracles and settings.

    Every episode has its own seed, so the files do not depend on the number of workers; an interrupted generation
    continues where it stopped when the same command is given again.

      cta data generate puzzle-3x3-play-v0
      cta data generate scene-play-v0 --episodes 20 --workers 2 --out data
    """

    name: Name
    """A dataset that needs no expert; `cta data list` shows them."""
    episodes: Length = None
    """Training episodes; a tenth as many more, at least one, are made for validation."""
    episode_steps: Length = None
    """Transitions per episode; an episode has one row more."""
    workers: Workers = None
    seed: int = 0
    """Root of all episodes' seeds."""
    out: OutFolder = None
    """Folder for NAME.npz and NAME-val.npz. Without it only a full-size dataset goes to the data folder."""
    dataset_dir: DataFolder = None

    def __call__(self) -> int:
        folder = self.out if self.out is not None else dataset_folder(self.dataset_dir)
        size = {"episodes": self.episodes, "episode_steps": self.episode_steps}
        job = plan_job(self.name, folder=folder, **size, seed=self.seed)
        if self.out is None and not job.full_size:
            raise CtaError(
                f"only the full size ({job.spec.episodes} episodes of {job.spec.episode_steps} steps) goes to {folder}:"
                " give --out DIR for another size"
            )
        return _print_paths(
            lambda: generate(job, workers=self.workers or cpu_count()),
            "finished episodes are kept, the same command continues",
        )


def _print_paths(make: Callable[[], list[Path]], interrupted: str) -> int:
    """Print the files that were made; `interrupted` says what becomes of an interrupted command."""
    try:
        paths = make()
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        return INTERRUPTED
    print(*paths, sep="\n")
    return DONE


@dataclass(frozen=True)
class Download:
    """Fetch a dataset that OGBench publishes: NAME.npz and NAME-val.npz.

    A transfer that broke off is resumed. The SHA-256 of each file is written to NAME.npz.json beside it, and checked
    when such a record is there already.

      cta data download antmaze-large-navigate-v0
      cta data download scene-play-v0 --mirror https://example.org/ogbench
    """

    name: Name
    """A dataset of OGBench."""
    out: OutFolder = None
    """Folder for NAME.npz and NAME-val.npz."""
    dataset_dir: DataFolder = None
    mirror: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="URL")] = ()
    """An address to try first; more may be in CTA_DATA_MIRRORS, separated by spaces."""

    def __call__(self) -> int:
        name, spec = self.name, KNOWN.get(self.name)
        if name in DESK_DATASETS:
            raise CtaError(f"{name} is not published: it is generated on first use, or by `cta data generate {name}`")
        folder = self.out if self.out is not None else dataset_folder(self.dataset_dir)
        advice = "It needs a network"
        if spec is not None and not spec.needs_expert:
            command = f"cta data generate {name}{folder_flag('--out', self.out or self.dataset_dir)}"
            advice = f"Without a network: `{command}` makes it here"
        return _print_paths(
            lambda: download(name, folder, extra_mirrors=self.mirror, advice=advice),
            "the same command resumes the transfer",
        )


@dataclass(frozen=True)
class List:
    """Show the known datasets, and whether they are here: generated, published or absent.

    The size is the file's own; of a dataset that is not here, what it has in full.

      cta data list
      cta data list --dataset-dir data
    """

    dataset_dir: DataFolder = None

    def __call__(self) -> None:
        folder = dataset_folder(self.dataset_dir)
        rows = [("dataset", "transitions", "here", "to get it")]
        for spec in KNOWN.values():
            ways = [] if spec.needs_expert else ["generate"]
            ways += [] if spec.name in DESK_DATASETS else ["download"]
            path = resolve(spec.name, dataset_dir=folder).train
            size = count_transitions(path) or spec.episodes * spec.episode_steps
            rows.append((spec.name, human(size), origin(path), ", ".join(ways)))
        print(f"datasets in {folder}")
        print_table(rows, left=4)
        print(f"download: {', '.join(mirrors())}")


@dataclass(frozen=True)
class Info:
    """Describe a dataset: shapes, episodes, ranges, where it comes from, and the problems found in it.

    Exits with 1 if there are problems.

      cta data info scene-play-v0
      cta data info data/scene-play-v0.npz
      cta data info minari:D4RL/pointmaze/umaze-v2
      cta data info lerobot:recordings/pick-cube
    """

    file: Annotated[Positional[str], arg(metavar="NAME|FILE")]
    """A dataset name in the data folder, an npz file, minari:NAME, or lerobot:DIR."""
    dataset_dir: DataFolder = None

    def __call__(self) -> int:
        if self.file.startswith(("minari:", "lerobot:")):
            return describe_foreign(self.file)
        return describe(resolve(self.file, dataset_dir=self.dataset_dir))


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


COMMANDS = {"generate": Generate, "download": Download, "list": List, "info": Info}
