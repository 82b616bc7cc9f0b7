"""cta ooc: the out-of-combination study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from cta.errors import CtaError
from cta.ooc.components import Rule, find_layout
from cta.ooc.cut import CutReport, cut_files
from cta.ooc.pairs_file import HeldOut, held_out_of

NameOrFile = Annotated[Positional[str], arg(metavar="NAME|FILE")]
PairsFile = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: the world's own)")]
Levels = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="PART=VALUE", help_behavior_hint="(may be repeated; default: half)")
]
Folder = Annotated[Path, arg(metavar="DIR")]
DataFolder = Annotated[
    Path | None, arg(metavar="DIR", help_behavior_hint="(default: OGBENCH_DATA_DIR, else ~/.ogbench/data)")
]
World = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: by the file's name)")]


def held_out(
    dataset: str, *, pairs: Path | None, env: str | None, threshold: Sequence[str], event_threshold: Sequence[str]
) -> HeldOut:
    """What the options ask to hold out; thresholds of the command line take the place of the file's."""
    layout = find_layout(env or Path(dataset).name.removesuffix(".npz"))
    chosen = held_out_of(layout, pairs)
    rule = Rule(
        {**chosen.rule.context, **_levels(threshold, "--threshold")},
        {**chosen.rule.event, **_levels(event_threshold, "--event-threshold")},
    )
    rule.check(layout)
    return HeldOut(layout, chosen.pairs, rule)


def _levels(words: Sequence[str], flag: str) -> dict[str, float]:
    levels = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            levels[name] = float(value)
        except ValueError:
            raise CtaError(f"{flag} {word}: give PART=VALUE, such as window=0.04") from None
    return levels


def cut_command(
    dataset: NameOrFile,
    *,
    out: Folder,
    pairs: PairsFile = None,
    per_pair: bool = False,
    control: bool = False,
    seed: int = 0,
    threshold: Levels = (),
    event_threshold: Levels = (),
    env: World = None,
    dataset_dir: DataFolder = None,
) -> int:
    """Take every demonstration of held-out pairs out of a dataset.

    Finds the steps that complete a pair's task in its context, removes the K transitions up to each, splits the
    episodes there, and writes an ordinary dataset with the same name and all arrays to DIR. What was removed stands in
    the file and in FILE.npz.json beside it. The validation file is cut likewise.

    For example:

    cta ooc cut desk-play-v0 --out data/cut

    cta ooc cut scene-play-v0 --out data/cut --per-pair

    cta train --dataset data/cut/desk-play-v0.npz

    Args:
        dataset: a dataset name in the data folder, or an npz file.
        out: folder for the results; earlier cuts there are replaced, nothing else is.
        pairs: a TOML file of pairs of your own (docs/ooc.md).
        per_pair: one dataset for each pair, in DIR/pair1, DIR/pair2, …
        control: remove as many windows of the same lengths at random places instead.
        seed: of the random places.
        threshold: how near to its end a part counts as open or closed.
        event_threshold: how near to its new end a part's crossing counts as the event.
        env: a dataset name of the world, for files with a name of their own.
        dataset_dir: the data folder.
    """
    wanted = held_out(dataset, pairs=pairs, env=env, threshold=threshold, event_threshold=event_threshold)
    reports = cut_files(
        dataset, out, wanted, per_pair=per_pair, control_seed=seed if control else None, dataset_dir=dataset_dir
    )
    console = Console(highlight=False, soft_wrap=True)
    for path, splits in reports.items():
        for split in sorted(splits):
            print_report(console, f"{path.stem}, {split}", splits[split], control=control)
        if "validation" not in splits:
            console.print("no validation file beside it: only the training data were cut")
        console.print(f"wrote {path}")
    return 0


def print_report(console: Console, title: str, report: CutReport, *, control: bool) -> None:
    """Events and transitions of a cut, pair by pair."""
    table = Table(title=title)
    for heading in ("pair", "events", "K · events", "transitions", "events left"):
        table.add_column(heading, justify="left" if heading == "pair" else "right")
    for pair, left in zip(report.pairs, report.left, strict=True):
        table.add_row(
            f"{pair.number} {pair.name}", *(f"{n:,}" for n in (pair.events, pair.nominal, pair.removed, left))
        )
    console.print(table)
    where = "random windows" if control else "windows"
    console.print(
        f"removed {report.removed:,} transitions in {report.windows:,} {where}; left {report.transitions:,} in "
        f"{report.episodes:,} episodes"
    )
    if report.unexplained:
        console.print(f"note: {report.unexplained:,} steps change lights in a way that no single press explains")


COMMANDS: dict[str, Any] = {"cut": cut_command}


def main(argv: Sequence[str]) -> int:
    """Run `cta ooc …`; returns the exit code."""
    if len(COMMANDS) == 1 and argv[:1] == ["cut"]:
        return tyro.cli(cut_command, args=list(argv[1:]), prog="cta ooc cut")
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="cta ooc", args=list(argv), description="Hold pairs of context and task out, train, and ask."
    )
