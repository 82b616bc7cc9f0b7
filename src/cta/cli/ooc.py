"""cta ooc: the out-of-combination study."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tyro.conf import Positional, arg

from cta.cli import INTERRUPTED
from cta.cli.ooc_data import cut_command, rates_command
from cta.cli.ooc_options import DataFolder, Levels, PairsFile, Workers, held_out
from cta.envs.names import KNOWN


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
    from cta.experiment.chosen import choose_steps
    from cta.ooc.scoring import evaluate_run, held_out_of_run, table_name
    from cta.results.study_table import summarise

    opened = Run(run)
    wanted = held_out_of_run(opened, pairs)
    name = table_name(opened, wanted, pairs)
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
            name=name,
        )
    console = _wide_console()
    for number, pair in wanted.numbered():
        console.print(f"pair{number}: {pair.describe(wanted.layout)}")
    _print_lines(console, summarise(rows, data=_data_kind(opened)), as_markdown=markdown)
    console.print(f"rows: {opened.path / name}.csv, event logs: {opened.path / name}")
    return 0


def _wide_console() -> Console:
    """Standard output; a file takes tables of any width."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)


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
    from cta.results.study_table import as_table, markdown

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
    from cta.results.study_table import merge, paper_lines, summarise

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
    except KeyboardInterrupt:
        print("cta ooc study: interrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    console = _wide_console()
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
