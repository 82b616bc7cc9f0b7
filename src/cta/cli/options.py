"""Options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg

from cta.validation import Count

if TYPE_CHECKING:
    from cta.experiment import Run

NameOrFile = Annotated[Positional[str], arg(metavar="NAME|FILE", help="A dataset name in the data folder, or a file.")]
DataFolder = Annotated[
    str | None,
    arg(metavar="DIR", help="The data folder.", help_behavior_hint="(default: OGBENCH_DATA_DIR, else ~/.ogbench/data)"),
]
Workers = Annotated[
    Count | None,
    arg(metavar="N", help="Worker processes, which step the simulator.", help_behavior_hint="(default: one per core)"),
]
Markdown = Annotated[bool, arg(help="Print Markdown.")]
OwnAgent = Annotated[str | None, arg(metavar="MODULE:CLASS", help="The agent, if that is code of your own.")]
Unverified = Annotated[
    bool, arg(help="Use checkpoints that have no manifest of checksums, of an old version of cta, as they are.")
]
RunFolders = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN…", help="Run directories.")]
Seeds = Annotated[str, arg(help="A count (4 means 0…3), a list (0,3,5), or one alone (`3,`).")]
Engine = Annotated[Literal["local", "ray"], arg(help="Where jobs run, as in `cta reproduce`.")]
WorkFolder = Annotated[
    Path | None,
    arg(metavar="DIR", help="Folder of runs, shared by all plans.", help_behavior_hint="(default: runs/grid)"),
]
Checkpoints = Annotated[str, arg(help="Checkpoints: `last`, `last3`, `all`, or steps separated by commas.")]
OWN_PAIRS = "A TOML file of pairs of your own (docs/ooc.md)."
PairsFile = Annotated[Path | None, arg(metavar="FILE", help=OWN_PAIRS, help_behavior_hint="(default: the world's own)")]
Levels = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="PART=VALUE", help_behavior_hint="(may be repeated; default: half)")
]


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """A run to open."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory."""
    agent: OwnAgent = None
    unverified: Unverified = False

    def open(self) -> "Run":
        from cta.experiment import Run

        return Run(self.run, agent=self.agent, unverified=self.unverified)


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
