"""cta ooc cut, cta ooc rates: what concerns data alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from cta import provenance
from cta.cli.ooc_options import DataFolder, Folder, Levels, NameOrFile, PairsFile, World, held_out
from cta.data.files import write_whole
from cta.errors import CtaError
from cta.ooc.cut import CutReport, cut_files
from cta.ooc.rates import HEADER, SEARCH_HEADER, measure_rates, rate_lines, search_lines
from cta.results.study_table import markdown as as_markdown


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
    if seed < 0:
        raise CtaError(f"--seed is 0 or more, not {seed}")
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


def rates_command(
    files: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|FILE…")],
    *,
    pairs: PairsFile = None,
    threshold: Levels = (),
    event_threshold: Levels = (),
    search: bool = False,
    dataset_dir: DataFolder = None,
    markdown: bool = False,
    record: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: none)")] = None,
) -> int:
    """Count the held-out events of datasets, per million transitions, beside other counts.

    `earlier` are counts on data simulated with MuJoCo 4.0, `paper` what the paper removed from the published files, and
    `independent` what equally frequent presses and fair lights would give. σ is the difference in units of both errors
    combined.

    For example:

    cta ooc rates scene-play-v0 puzzle-4x4-play-v0

    cta ooc rates data/scene-play-v0.npz --threshold window=0.04 --event-threshold window=0.16

    Args:
        files: dataset names in the data folder, or npz files.
        pairs: a TOML file of pairs of your own (docs/ooc.md).
        threshold: how near to its end a part counts as open or closed.
        event_threshold: how near to its new end a part's crossing counts as the event.
        search: also count with every rule of a small grid, those nearest to the paper's counts first.
        dataset_dir: the data folder.
        markdown: print Markdown tables.
        record: also write the numbers, with data, versions and commit, to this JSON file.
    """
    if not files:
        raise CtaError("name at least one dataset")
    found, searched = [], []
    for file in files:
        wanted = held_out(file, pairs=pairs, env=None, threshold=threshold, event_threshold=event_threshold)
        found.append(measure_rates(file, wanted, dataset_dir=dataset_dir))
        searched += search_lines(file, wanted, dataset_dir=dataset_dir) if search else []
    lines = [line for rates in found for line in rate_lines(rates)]
    _show(HEADER, lines, as_text=markdown)
    console = Console(highlight=False, soft_wrap=True)
    for rates in found:
        pressed = "" if rates.presses is None else f", {rates.presses:,.0f} presses per million"
        console.print(f"{rates.dataset}: {rates.episodes:,} episodes, {rates.transitions:,} transitions{pressed}")
    if search:
        _show(SEARCH_HEADER, searched, as_text=markdown)
    if record is not None:
        facts = {"commit": provenance.commit(), "versions": provenance.versions(), "hardware": provenance.hardware()}
        content = {"command": provenance.command(), **facts, "table": [list(HEADER), *lines]}
        content["rates"] = [rates.record() for rates in found]
        if search:
            content["search"] = [dict(zip(SEARCH_HEADER, line, strict=True)) for line in searched]
        write_whole(record, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return 0


def _show(header: Sequence[str], lines: Sequence[Sequence[str]], *, as_text: bool) -> None:
    if as_text:
        print(as_markdown([header, *lines]))
        return
    table = Table(*header, box=box.SIMPLE_HEAD)
    for line in lines:
        table.add_row(*line)
    Console(highlight=False, soft_wrap=True).print(table)
