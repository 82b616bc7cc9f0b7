"""cta ooc: the out-of-combination study."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from cta.cli import INTERRUPTED
from cta.data.files import write_whole
from cta.envs.names import KNOWN
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
Workers = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: one a processor)")]
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


def evaluate_command(
    run: Annotated[Positional[str], arg(metavar="RUN")],
    *,
    step: str = "last",
    episodes: int = 50,
    pairs: PairsFile = None,
    eval_seed: int = 0,
    workers: Workers = None,
    markdown: bool = False,
) -> int:
    """Ask a run's agents for held-out pairs: success, and direct success, strict and lenient.

    The pairs are those that were cut out of the run's data, or the world's own. Each has one fixed list of starts and
    goals, the same for every method, seed and step. Direct means that the task itself was carried out: strictly, that
    nothing else changed on the way; leniently, that its last completion happened in the pair's context. Both are
    counted from event logs, which stay in RUN/ooc; the counts go to RUN/ooc.csv.

    For example:

    cta ooc evaluate runs/desk-play-v0/cta-20260101-120000

    cta ooc evaluate RUN --step last3

    Args:
        run: run directory.
        step: checkpoints: `last`, `last3`, `all`, or steps separated by commas.
        episodes: episodes a pair.
        pairs: a TOML file of pairs of your own (docs/ooc.md).
        eval_seed: seed of the lists of starts and goals.
        workers: processes that step the simulator.
        markdown: print a Markdown table.
    """
    from cta.experiment import Run
    from cta.ooc.scoring import choose_steps, evaluate_run, held_out_of_run
    from cta.ooc.table import summarise

    opened = Run(run)
    wanted = held_out_of_run(opened, pairs)
    steps = choose_steps(opened, step)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        rows = evaluate_run(
            opened,
            wanted,
            steps=steps,
            episodes=episodes,
            eval_seed=eval_seed,
            workers=workers,
            progress=_episode_bar(bar),
        )
    console = Console(highlight=False, soft_wrap=True)
    for number, pair in wanted.numbered():
        console.print(f"pair{number}: {pair.describe(wanted.layout)}")
    _print_lines(console, summarise(rows, data=_data_kind(opened)), as_markdown=markdown)
    console.print(f"rows: {opened.path / 'ooc.csv'}, event logs: {opened.path / 'ooc'}")
    return 0


def _data_kind(run: Any) -> str:
    """What was done to a run's data: held-out, random or uncut."""
    record = (run.files.provenance().get("dataset", {}).get("provenance") or {}).get("ooc")
    return "uncut" if record is None else str(record.get("kind"))


def _episode_bar(bar: Progress) -> Callable[[int, int, int, int], None]:
    task = bar.add_task("episodes", total=None)

    def show(step: int, seed: int, done: int, total: int) -> None:
        bar.update(task, completed=done, total=total, description=f"step {step:,}, seed {seed}")

    return show


def _print_lines(console: Console, lines: Sequence[Any], *, as_markdown: bool) -> None:
    from cta.ooc.table import as_table, markdown

    header, *rows = as_table(lines)
    if as_markdown:
        print(markdown([header, *rows]))
        return
    table = Table(title="direct success (success), %")
    for column in header:
        table.add_column(column, justify="left" if column in ("agent", "data") else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def study_command(
    env: Annotated[Positional[str], arg(metavar="ENV")],
    *,
    agents: str = "cta,hiql-analogy,hiql-dual,gciql-dual,hiql",
    seeds: str = "4",
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the paper's)")] = None,
    controls: str = "",
    per_pair: bool = False,
    episodes: int = 50,
    pairs: PairsFile = None,
    threshold: Levels = (),
    event_threshold: Levels = (),
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/ooc/DATASET)")] = None,
    workers: Workers = None,
    dataset_dir: DataFolder = None,
    markdown: bool = False,
) -> int:
    """Cut the pairs out, train, ask, and print the table beside the paper's.

    Everything lands in DIR: data/, runs/, and results/ with one CSV and one record for each agent. Stopped anywhere,
    the same command goes on; agents and controls may be added later.

    For example:

    cta ooc study desk --seeds 1 --steps 2000

    cta ooc study scene-play-v0 --agents cta,hiql-analogy --seeds 4

    cta ooc study desk --controls uncut,random

    Args:
        env: a dataset name (scene-play-v0), its world (scene, desk), or an npz file.
        agents: separated by commas.
        seeds: a count (4 means 0…3), a list (0,3), or one alone (`3,`).
        steps: optimiser steps.
        controls: also train on data without a cut (`uncut`), with as many random windows cut (`random`), or both.
        per_pair: one training for each pair, on data without that pair alone.
        episodes: episodes a pair.
        pairs: a TOML file of pairs of your own (docs/ooc.md).
        threshold: how near to its end a part counts as open or closed, for the cut.
        event_threshold: how near to its new end a part's crossing counts as the event, for the cut.
        out: folder of the study.
        workers: processes that step the simulator.
        dataset_dir: the data folder.
        markdown: print a Markdown table.
    """
    from cta.cli.train import parse_seeds
    from cta.experiment import Interrupted
    from cta.ooc.study import Study, read_results, run_study
    from cta.ooc.table import merge, paper_lines, summarise

    dataset = env if env in KNOWN or f"{env}-play-v0" not in KNOWN else f"{env}-play-v0"
    study = Study(
        dataset,
        held_out(dataset, pairs=pairs, env=None, threshold=threshold, event_threshold=event_threshold),
        (out or Path("runs") / "ooc" / Path(dataset).name.removesuffix(".npz")).expanduser(),
        agents=tuple(agents.split(",")),
        seeds=parse_seeds(seeds),
        steps=steps,
        controls=tuple(control for control in controls.split(",") if control),
        per_pair=per_pair,
        episodes=episodes,
        workers=workers,
        dataset_dir=None if dataset_dir is None else str(dataset_dir),
    )
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        run_study(study, say=errors.print, progress=_spoken(errors))
    except Interrupted as stop:
        print(f"cta ooc study: {stop}; the same command continues the study", file=sys.stderr)
        return INTERRUPTED
    console = Console(highlight=False, soft_wrap=True)
    for number, pair in study.held_out.numbered():
        console.print(f"pair{number}: {pair.describe(study.held_out.layout)}")
    ours = [line for kind, rows in read_results(study.out).items() for line in summarise(rows, data=kind)]
    own_pairs = pairs is not None
    _print_lines(console, merge(ours, [] if own_pairs else paper_lines(study.name)), as_markdown=markdown)
    console.print(f"results: {study.out / 'results'}")
    return 0


def _spoken(console: Console) -> Callable[[int, int, int, int], None]:
    """A line when a checkpoint's episodes are through: training has its own bar, which leaves the terminal to us."""

    def show(step: int, seed: int, done: int, total: int) -> None:
        if done == total:
            console.print(f"asked for {total} episodes: step {step:,}, seed {seed}")

    return show


def rates_command(
    files: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME|FILE…")],
    *,
    pairs: PairsFile = None,
    threshold: Levels = (),
    event_threshold: Levels = (),
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
        dataset_dir: the data folder.
        markdown: print a Markdown table.
        record: also write the numbers, with data, versions and commit, to this JSON file.
    """
    from cta import provenance
    from cta.ooc.rates import HEADER, measure_rates, rate_lines
    from cta.ooc.table import markdown as as_markdown

    if not files:
        raise CtaError("name at least one dataset")
    found = []
    for file in files:
        wanted = held_out(file, pairs=pairs, env=None, threshold=threshold, event_threshold=event_threshold)
        found.append(measure_rates(file, wanted, dataset_dir=dataset_dir))
    lines = [line for rates in found for line in rate_lines(rates)]
    console = Console(highlight=False, soft_wrap=True)
    if markdown:
        print(as_markdown([HEADER, *lines]))
    else:
        table = Table(*HEADER)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for rates in found:
        pressed = "" if rates.presses is None else f", {rates.presses:,.0f} presses per million"
        console.print(f"{rates.dataset}: {rates.episodes:,} episodes, {rates.transitions:,} transitions{pressed}")
    if record is not None:
        facts = {"command": provenance.command(), "commit": provenance.commit(), "versions": provenance.versions()}
        content = {**facts, "rates": [rates.record() for rates in found]}
        write_whole(record, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return 0


COMMANDS: dict[str, Any] = {
    "cut": cut_command,
    "evaluate": evaluate_command,
    "study": study_command,
    "rates": rates_command,
}


def main(argv: Sequence[str]) -> int:
    """Run `cta ooc …`; returns the exit code."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="cta ooc", args=list(argv), description="Hold pairs of context and task out, train, and ask."
    )
