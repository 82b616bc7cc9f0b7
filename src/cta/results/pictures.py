"""Pictures of results that say which scores they show."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cta.data.files import write_whole
from cta.results.protocol import Cell

COLOURS = ("#1f4e9e", "#c2571a", "#3d7a3a", "#7b4a9e", "#8a6d1f", "#2c7f8c", "#a03050", "#555555")


def colours(cells: Sequence[Cell]) -> dict[str, str]:
    """One for each agent."""
    return {agent: COLOURS[i % len(COLOURS)] for i, agent in enumerate(sorted({cell.agent for cell in cells}))}


def seeds_note(cell: Cell) -> str:
    """For a legend."""
    count = len(cell.seeds)
    return f"{count} seed{'s' * (count > 1)}" + ("" if cell.complete else ", incomplete")


def digest(cells: Sequence[Cell]) -> str:
    """A fingerprint of the scores; a PNG picture carries that of the scores it shows."""
    return hashlib.sha256(repr([tuple(row) for cell in cells for row in cell.rows]).encode()).hexdigest()


def drawn_from(path: Path) -> str | None:
    """The fingerprint in a picture; None if there is no picture or none in it."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return picture.info.get("Description")
    except OSError:
        return None


def panels(count: int, width: float) -> tuple[Any, list[Any]]:
    """A figure with panels side by side, `width` inches each."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, count, figsize=(width * count, 3.2), squeeze=False, sharey=True)
    for axis in axes[0]:
        axis.set_ylim(0, 100)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, list(axes[0])


def save(figure: Any, path: Path, cells: Sequence[Cell]) -> None:
    """Write a figure of these cells, whole or not at all, and close it."""
    from matplotlib import pyplot

    figure.tight_layout()
    content = io.BytesIO()
    kind = path.suffix.lstrip(".") or "png"
    figure.savefig(content, format=kind, dpi=150, metadata={"Description": digest(cells)} if kind == "png" else None)
    pyplot.close(figure)
    write_whole(path, content.getvalue())
