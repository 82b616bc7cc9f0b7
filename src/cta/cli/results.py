"""`cta results`: collect and list score files, keep the weights of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from cta.cli import DONE
from cta.errors import CtaError
from cta.results.protocol import short_list, short_steps, task_matrix
from cta.results.store import Results

Folders = Annotated[tuple[Path, ...], Positional, arg(metavar="DIR…")]
Folder = Annotated[Path, arg(metavar="DIR")]


def add_command(folders: Folders, *, to: Folder = Path("results"), replace: bool = False) -> int:
    """Add the results of other folders, such as those a machine brought back.

    What is there already stays; the same seed and step with another result is refused, or with --replace takes its
    place. Nothing is counted twice, and each cell is written in one piece.

    For example:

    cta results add /tmp/slot1/results /tmp/slot2/results

    Args:
        folders: folders with result files and their records.
        to: the folder to add to.
        replace: let the new results win.
    """
    target = Results(to)
    console = Console(highlight=False, soft_wrap=True)
    for folder in folders:
        cells = target.merge(Results(folder).existing(), replace=replace)
        if not cells:
            raise CtaError(f"{folder}: no results in it")
        for cell in cells:
            console.print(f"{cell.name}: {'complete' if cell.complete else cell.missing()}")
    for notice in target.notices():
        console.print(f"notice: {notice}")
    return DONE


def list_command(folder: Annotated[Path, Positional, arg(metavar="DIR")] = Path("results")) -> int:
    """Show the cells of a results folder and what is missing of each.

    For example:

    cta results list

    Args:
        folder: the results folder.
    """
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("dataset", "agent", "seeds", "steps", "success, %", "state"):
        table.add_column(column, overflow="fold")
    for cell in Results(folder).existing().all_cells():
        seeds, _, rates = task_matrix(cell.counted())
        scores = [100 * sum(rate) / len(rate) for rate in rates]
        steps = sorted({row.step for row in cell.rows})
        table.add_row(
            cell.dataset + (", held-out pairs" if cell.held_out else ""),
            cell.agent,
            short_list(seeds) or "–",
            ", ".join(short_steps(step) for step in steps) or "–",
            f"{sum(scores) / len(scores):.1f}" if scores else "–",
            "complete" if cell.complete else cell.missing(),
        )
    Console(highlight=False).print(table if table.row_count else "No results yet.")
    return DONE


def pack_command(
    run: Annotated[Path, Positional, arg(metavar="RUN")],
    *,
    step: str,
    weights: str = "float32",
    results: Folder = Path("results"),
    episodes: int = 50,
) -> int:
    """Keep what acting needs of a run's checkpoints, in files that `cta evaluate` scores on any machine.

    One file a seed and step, in RESULTS/weights. float32 is what was trained. float16 and bfloat16 halve the files and
    round every weight; scores of such a file say so in their record.

    For example:

    cta results pack RUN --step 800000,900000,1000000 --weights float16

    Args:
        run: the run directory.
        step: steps separated by commas.
        weights: float32, float16 or bfloat16.
        results: results folder; seeds scored there with enough episodes are left out.
        episodes: how many are enough.
    """
    import os

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from cta.cli.evaluate_results import numbers
    from cta.experiment import Run
    from cta.results.packing import pack_run
    from cta.results.weights import DTYPES

    if weights not in DTYPES:
        raise CtaError(f"--weights {weights}: choose {', '.join(DTYPES)}")
    steps = numbers(step, "--step")
    if not steps:
        raise CtaError("--step: name at least one step, such as 1000000")
    options: dict[str, Any] = {"results": Results(results), "episodes": episodes, "precision": weights}
    packed = pack_run(Run(run), steps, **options)
    print(f"{packed} in {results}")
    return DONE


COMMANDS: dict[str, Any] = {"add": add_command, "list": list_command, "pack": pack_command}


def main(argv: Sequence[str]) -> int:
    """Run `cta results …`; returns the exit code."""
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="cta results",
        args=list(argv),
        description="Collect and list score files, keep the weights of runs.",
    )
