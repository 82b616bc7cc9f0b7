"""cta analogies"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg

from cta.cli import DONE

DESCRIPTION = """\
Map what an agent takes for "what has to change": state–goal pairs of the validation data, their dual analogies
ψ(g) − ψ(s) placed by t-SNE, coloured by the task that happens between state and goal.

Beside the picture stand numbers: how often a pair's ten nearest analogies, from other episodes, are of its task, and
how often they are so in another context; for the difference of the observations, ψ(g), the analogy and its code η,
trained and untrained, beside shuffled labels.

Writes map.png, neighbours-*.png, purity.csv, purity.json, map.json and frames/ to RUN/analogies.

  cta analogies RUN                               20,000 pairs
  cta analogies RUN --pairs 5000                  a quicker map
  cta analogies RUN --query "open the drawer"     nearest analogies of a pair of this task
  cta analogies RUN --query ooc --query 806:813   the world's held-out pairs, and two rows of the data
"""


@dataclass(frozen=True)
class Settings:
    """What to map."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory."""
    pairs: int = 20_000
    """State–goal pairs."""
    steps_apart: tuple[int, int] | None = None
    """Least and most steps from a state to its goal (default: 5 30, on the embedded worlds 3 10)."""
    query: Annotated[tuple[str, ...], UseAppendAction] = ()
    """What to show the nearest analogies of: a task's name, STATE:GOAL rows, or `ooc`; may be repeated (default: one
    random pair of each task)."""
    seed: int | None = None
    """Seed whose analogies are mapped (default: the run's first); purity is measured for all."""
    step: int | None = None
    """Checkpoint (default: the newest)."""
    data: str | None = None
    """Dataset name or file to take pairs from (default: the run's)."""
    split: Literal["validation", "train"] = "validation"
    """Part of the data."""
    frames: int = 120
    """Points that get pictures of state and goal, queries and their nearest first (at most 300)."""
    perplexity: float = 30.0
    """Of t-SNE."""
    iterations: int = 500
    """Of t-SNE."""
    draw_seed: int = 0
    """Seed of the pairs, the map and the random queries."""
    out: Path | None = None
    """Folder to write to (default: RUN/analogies)."""


def main(argv: list[str]) -> int:
    settings = tyro.cli(Settings, args=argv, prog="cta analogies", description=DESCRIPTION)
    from cta.analysis.analogies import MapOptions, make_map
    from cta.experiment import Run

    run = Run(settings.run)
    options = MapOptions(
        pairs=settings.pairs,
        apart=settings.steps_apart,
        seed=settings.seed,
        step=settings.step,
        split=settings.split,
        data=settings.data,
        queries=settings.query,
        frames=settings.frames,
        perplexity=settings.perplexity,
        iterations=settings.iterations,
        draw_seed=settings.draw_seed,
    )
    out = settings.out or run.path / "analogies"
    console = Console(highlight=False, soft_wrap=True)
    contents = make_map(run, options, out, say=console.print)
    print_purity(console, contents)
    size = (out / "map.json").stat().st_size
    images = sum(file.stat().st_size for file in (out / "frames").glob("*")) if contents["frames"] else 0
    console.print(
        f"{out}: map.json {size / 1e6:.1f} MB with {contents['pairs']:,} pairs, "
        f"{len(contents['frames'])} of them with frames ({images / 1e6:.1f} MB)"
    )
    names = ("map.png", *(("neighbours-cosine.png", "neighbours-l2.png") if settings.frames else ()))
    console.print(f"pictures: {', '.join(str(out / name) for name in names)}")
    return DONE


def print_purity(console: Console, contents: dict[str, Any]) -> None:
    """The purity tables on a terminal."""
    if not contents["purity"]:
        console.print("no pair could be named after one event, so there is no purity to measure")
        return
    for title, rows in (
        (f"ten nearest {contents['among']}, by cosine, %", contents["purity"]),
        (f"{contents['representation']} by task, %", contents["purity_by_task"]),
    ):
        table = Table(title=title)
        names = [name for name in rows[0] if not name.endswith("_sd")]
        for name in names:
            table.add_column(name.replace("_%", "").replace("_", " "), justify="left" if name in TEXT else "right")
        for row in rows:
            table.add_row(*(_cell(row, name) for name in names))
        console.print(table)


TEXT = ("representation", "network", "task")


def _cell(row: dict[str, Any], name: str) -> str:
    spread = row.get(name.replace("_%", "_sd"))
    return f"{row[name]} ± {spread}" if name.endswith("_%") and spread is not None else str(row[name])
