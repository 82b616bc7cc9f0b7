"""The analogy map of a run, compact enough for a page."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from cta.errors import CtaError
from cta.experiment.run_dir import read_json
from cta.report.pack import pack_integers, pack_numbers

FORMAT = 1
FRAME_PIXELS = 144
FRAME_QUALITY = 72
TITLES = {
    "same_task_other_context_%": "Same task, other context, %",
    "purity_across_contexts_%": "Across contexts, %",
    "purity_shuffled_labels_%": "Shuffled labels, %",
}


def read_map(run: Path) -> dict[str, Any] | None:
    """RUN/analogies/map.json with its arrays packed, without frames; None where `cta analogies` was not run."""
    where = run / "analogies" / "map.json"
    if not where.exists():
        return None
    stored = read_json(where)
    if stored.get("format") != FORMAT:
        raise CtaError(
            f"{where}: format {stored.get('format')!r}, this version reads {FORMAT}; run `cta analogies` again"
        )
    try:
        return _packed(stored)
    except (KeyError, TypeError, ValueError) as error:
        raise CtaError(f"{where} is not a map that `cta analogies` wrote ({error!r}); run it again") from error


def _packed(stored: dict[str, Any]) -> dict[str, Any]:
    schematic = stored["schematic"]
    count = len(stored["x"])
    columns = [stored["y"], stored["task"], stored["context"], schematic["state"], schematic["goal"]]
    columns += list(stored["neighbours"].values())
    if any(len(column) != count for column in columns):
        raise ValueError("columns of different lengths")
    kept = (
        "dataset",
        "agent",
        "seed",
        "step",
        "method",
        "tasks",
        "contexts",
        "queries",
        "purity",
        "purity_by_task",
        "representation",
        "among",
    )
    return {
        **{name: stored.get(name) for name in kept},
        "pairs": count,
        "places": pack_numbers(np.column_stack([stored["x"], stored["y"]])),
        "task": pack_integers(stored["task"]),
        "context": pack_integers(stored["context"]),
        # A pair may have fewer neighbours than there is room for: −1 becomes a number that no pair has.
        "neighbours": {
            metric: pack_integers(np.where(np.asarray(rows) < 0, count, rows))
            for metric, rows in stored["neighbours"].items()
        },
        "schematic": {
            "kind": schematic["kind"],
            "meaning": schematic["meaning"],
            "state": pack_numbers(schematic["state"]),
            "goal": pack_numbers(schematic["goal"]),
        },
        "frames": {},
    }


def frame_files(run: Path) -> dict[int, tuple[Path, Path]]:
    """{point: (state image, goal image)}, the named queries and their neighbours first.

    None for the desk, which the page draws just as well from its numbers.
    """
    stored = read_json(run / "analogies" / "map.json")
    if stored["schematic"]["kind"] == "desk":
        return {}
    folder = run / "analogies"
    listed = {int(point): (folder / pair["state"], folder / pair["goal"]) for point, pair in stored["frames"].items()}
    first: dict[int, None] = {}
    for query in stored.get("queries") or []:
        point = int(query["point"])
        for near in (point, *(other for rows in stored["neighbours"].values() for other in rows[point])):
            first[int(near)] = None
    order = [point for point in first if point in listed] + [point for point in listed if point not in first]
    return {point: listed[point] for point in order}


def small_image(file: Path) -> str:
    """An image file as a data address of a small WebP."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            image = image.convert("RGB")
            image.thumbnail((FRAME_PIXELS, FRAME_PIXELS))
            buffer = io.BytesIO()
            image.save(buffer, "WEBP", quality=FRAME_QUALITY, method=4)
    except OSError as error:
        raise CtaError(f"{file}: cannot be read as an image ({error})") from error
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def words(found: dict[str, Any]) -> dict[str, Any]:
    """What stands below a map: how it was made in a line, and the tables of neighbour purity."""
    method = found.get("method") or {}
    name = str(method.get("name", "t-SNE"))
    rest = ", ".join(
        phrase.format(method[key])
        for key, phrase in (("library", "{}"), ("perplexity", "perplexity {:g}"), ("iterations", "{} iterations"))
        if key in method
    )
    tables = [
        ("Are near analogies the same task?", found.get("purity") or []),
        (f"The same for {found.get('representation') or 'the analogies'}, by task", found.get("purity_by_task") or []),
    ]
    return {
        "about": f"Placed by {name} ({rest})." if rest else f"Placed by {name}.",
        "tables": [{"title": title, **_purity_table(rows)} for title, rows in tables if rows],
    }


def _purity_table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns and rows for the page; a column NAME_sd goes into NAME_%."""
    names = [name for name in rows[0] if not name.endswith("_sd")]

    def cell(row: dict[str, Any], name: str) -> Any:
        value, spread = row.get(name), row.get(name.replace("_%", "_sd"))
        if not name.endswith("_%") or value is None:
            return "–" if value == "none" else value
        return {"text": f"{value:.1f} ± {spread:.1f}" if isinstance(spread, float) else f"{value:.1f}", "sort": value}

    columns = [
        {
            "title": TITLES.get(name) or name.replace("_%", ", %").replace("_", " ").capitalize(),
            "number": not isinstance(rows[0][name], str),
        }
        for name in names
    ]
    return {"columns": columns, "rows": [[cell(row, name) for name in names] for row in rows]}
