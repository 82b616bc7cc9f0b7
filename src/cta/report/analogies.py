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
    kept = ("dataset", "agent", "seed", "step", "method", "tasks", "contexts", "queries", "purity")
    return {
        **{name: stored.get(name) for name in kept},
        "pairs": count,
        "places": pack_numbers(np.column_stack([stored["x"], stored["y"]])),
        "task": pack_integers(stored["task"]),
        "context": pack_integers(stored["context"]),
        "neighbours": {metric: pack_integers(rows) for metric, rows in stored["neighbours"].items()},
        "schematic": {
            "kind": schematic["kind"],
            "meaning": schematic["meaning"],
            "state": pack_numbers(schematic["state"]),
            "goal": pack_numbers(schematic["goal"]),
        },
        "frames": {},
    }


def frame_files(run: Path) -> dict[int, tuple[Path, Path]]:
    """{point: (state image, goal image)}, the named queries and their neighbours first."""
    stored = read_json(run / "analogies" / "map.json")
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
    """What stands below a map: the method in a line, and the purity table if there is one."""
    method = ", ".join(f"{name} {value}" for name, value in (found.get("method") or {}).items())
    rows = found.get("purity") or []
    result: dict[str, Any] = {"about": f"Placed by {method}." if method else ""}
    if rows:
        names = list(rows[0])
        result["purity_table"] = {
            "columns": [
                {"title": name.replace("_", " "), "number": not isinstance(rows[0][name], str)} for name in names
            ],
            "rows": [[row.get(name) for name in names] for row in rows],
        }
        result["purity_notes"] = []
    return result
