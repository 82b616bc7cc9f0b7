from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from cta.analysis import MapOptions
from cta.cli.options import WEIGHTS, Opening
from cta.io.files import check_writable, user_path
from cta.io.text_tables import print_table

TEXT = ("representation", "network", "task")
SHORT = {
    "same_task_other_context_%": "other context",
    "purity_across_contexts_%": "across contexts",
    "purity_shuffled_labels_%": "shuffled labels",
}


@dataclass(frozen=True, kw_only=True)
class Command(Opening, MapOptions):
    """Map what an agent takes for "what has to change".

    State–goal pairs of the validation data, their dual analogies ψ(g) − ψ(s) placed by t-SNE, coloured by the task that
    happens between them. And purity: how often a pair's ten nearest analogies, from other episodes, are of its task,
    also in another context; of the difference of observations, ψ(g), the analogy and its code η, trained and untrained,
    beside shuffled labels. Writes map.png, neighbours-*.png (or .pdf, .svg), purity.*, map.json, frames/.

      cta analogies RUN                               20,000 pairs
      cta analogies RUN --pairs 5000                  a quicker map
      cta analogies RUN --query "open the drawer"     nearest analogies of a pair of this task
      cta analogies RUN --query ooc --query 806:813   the world's held-out pairs, and two rows of the data
      cta analogies NAME.safetensors                  a policy that somebody kept, on the dataset it is named after
    """

    run: Annotated[Positional[str], arg(metavar="RUN|WEIGHTS")]
    """Run directory, or a file of weights."""

    out: Path | None = None
    """Folder to write to (default: RUN/analogies; of weights: NAME/analogies)."""

    def __call__(self) -> None:
        from cta.analysis.analogy_map import make_map

        source = user_path(self.run) if self.run.endswith(WEIGHTS) else self.open_run(self.run)
        options = MapOptions(**{field.name: getattr(self, field.name) for field in fields(MapOptions)})
        out = self.out or user_path(self.run.removesuffix(WEIGHTS)) / "analogies"
        check_writable(out)
        console = Console(highlight=False, soft_wrap=True)
        contents = make_map(source, options, out, say=console.print)
        _print_purity(console, contents)
        size = (out / "map.json").stat().st_size
        images = sum(file.stat().st_size for file in (out / "frames").glob("*")) if contents["frames"] else 0
        frames = f"{len(contents['frames'])} of them with frames ({images / 1e6:.1f} MB)"
        console.print(f"{out}: map.json {size / 1e6:.1f} MB with {contents['pairs']:,} pairs, {frames}")
        names = ("map", *(("neighbours-cosine", "neighbours-l2") if contents["frames"] else ()))
        console.print(f"pictures: {', '.join(str(out / f'{name}.{options.format}') for name in names)}")


def _print_purity(console: Console, contents: dict[str, Any]) -> None:
    if not contents["purity"]:
        console.print("no pair could be named after one event, so there is no purity to measure")
        return
    for title, rows in (
        (f"ten nearest {contents['among']}, by cosine, %", contents["purity"]),
        (f"{contents['representation']} by task, %", contents["purity_by_task"]),
    ):
        names = [name for name in rows[0] if not name.endswith("_sd")]
        header = [SHORT.get(name) or name.removesuffix("_%") for name in names]
        # On a narrow terminal the count of seeds goes first, then what chance would give.
        drop = [names.index("seeds"), len(names) - 1] if "seeds" in names else []
        lines = [[_cell(row, name) for name in names] for row in rows]
        print_table([header, *lines], left=sum(name in TEXT for name in names), drop=drop, title=title)


def _cell(row: dict[str, Any], name: str) -> str:
    spread = row.get(name.replace("_%", "_sd"))
    return f"{row[name]} ± {spread}" if name.endswith("_%") and spread is not None else str(row[name])
