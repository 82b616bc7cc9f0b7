"""The analogy map of a run, compact enough for a page."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from cta.errors import CtaError
from cta.io.json_files import read_json
from cta.report.page import table

FORMAT = 1
DAMAGE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError)
"""What working with the wrong numbers and words raises."""
FRAME_PIXELS = 144
FRAME_QUALITY = 72
# What of map.json reaches the page as it is.
KEPT = ("dataset", "agent", "seed", "step", "method", "tasks", "contexts", "queries", "purity", "purity_by_task")
KEPT += ("representation", "among")
RAW, ACROSS = "g − s", "purity_across_contexts_%"
TITLES = {
    "same_task_other_context_%": "Same task, other context, %",
    "purity_across_contexts_%": "Across contexts, %",
    "purity_shuffled_labels_%": "Shuffled labels, %",
}


def read_map(run: Path) -> tuple[dict[str, Any], dict[int, list[Path]]] | None:
    """RUN/analogies/map.json, packed, and {point: [state image, goal image]}; None if `cta analogies` was not run."""
    where = run / "analogies" / "map.json"
    if not where.exists():
        return None
    stored = read_json(where)
    if stored.get("format") != FORMAT:
        told = f"format {stored.get('format')!r}, this version reads {FORMAT}"
        raise CtaError(f"{where}: {told}; run `cta analogies` again")
    try:
        packed = _packed(stored)
        return packed | words(packed), _frame_files(stored, where.parent)
    except DAMAGE as error:
        raise CtaError(f"{where} is not a map that `cta analogies` wrote ({error!r:.100}); run it again") from error


def _packed(stored: dict[str, Any]) -> dict[str, Any]:
    schematic, count = stored["schematic"], len(stored["x"])
    columns = [stored["y"], stored["task"], stored["context"], schematic["state"], schematic["goal"]]
    # Maps of earlier versions have neither neighbours from other contexts nor the steps from state to goal.
    near = {name: stored.get(name) or {} for name in ("neighbours", "neighbours_elsewhere")}
    columns += [rows for found in near.values() for rows in found.values()]
    if any(len(column) != count for column in columns):
        raise ValueError("columns of different lengths")
    # Without steps in between: first all states, then all goals. `state` and `goal`: rows where a pair begins and ends.
    both = [*schematic["state"], *schematic["goal"]]
    path = stored.get("path") or {"numbers": both, "state": range(count), "goal": range(count, 2 * count)}
    ends = {which: np.asarray(path[which]) for which in ("state", "goal")}
    if any(len(rows) != count or rows.max(initial=-1) >= len(path["numbers"]) for rows in ends.values()):
        raise ValueError("pairs outside the path")
    return {
        **{name: stored.get(name) for name in KEPT},
        "pairs": count,
        "places": pack_numbers(np.column_stack([stored["x"], stored["y"]])),
        "task": pack_integers(stored["task"]),
        "context": pack_integers(stored["context"]),
        # A pair may have fewer neighbours than there is room for: −1 becomes a number that no pair has.
        **{
            name: {metric: pack_integers(np.where(np.asarray(rows) < 0, count, rows)) for metric, rows in found.items()}
            for name, found in near.items()
        },
        "schematic": {
            "kind": schematic["kind"],
            "meaning": schematic["meaning"],
            "numbers": pack_numbers(path["numbers"]),
            **{which: pack_integers(rows) for which, rows in ends.items()},
        },
        "played": bool(stored.get("path")),
        "frames": {},
    }


def _frame_files(stored: dict[str, Any], folder: Path) -> dict[int, list[Path]]:
    """The named queries and their neighbours first; none for the desk, which the page draws from its numbers."""
    if stored["schematic"]["kind"] == "desk":
        return {}
    pairs = {int(point): pair for point, pair in stored["frames"].items()}
    first: list[int] = []
    for point in (query["point"] for query in stored.get("queries") or []):
        first += [point, *(near for rows in stored["neighbours"].values() for near in rows[point])]
    order = [point for point in dict.fromkeys([*first, *pairs]) if point in pairs]
    frames = {point: [folder / pairs[point][which] for which in ("state", "goal")] for point in order}
    if any(not file.resolve().is_relative_to(folder.resolve()) for pair in frames.values() for file in pair):
        raise ValueError("a frame that is not in its folder")
    return frames


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
    method, purity = found.get("method") or {}, found.get("purity") or []
    phrases = {"library": "{}", "perplexity": "perplexity {:g}", "iterations": "{} iterations"}
    rest = ", ".join(phrase.format(method[key]) for key, phrase in phrases.items() if key in method)
    by_task = found.get("purity_by_task") or []
    tables = {"Are near analogies the same task?": purity, "The same for the map's analogies, by task": by_task}
    return {
        "says": purity_words(purity),
        "about": f"Placed by {method.get('name', 't-SNE')}{f' ({rest})' if rest else ''}.",
        "tables": [{"title": title, **_purity_table(rows)} for title, rows in tables.items() if rows],
    }


def purity_words(rows: list[dict[str, Any]]) -> list[str]:
    """What the first table shows: a sentence on the raw difference, and how the learned representations compare."""
    rates = {row["representation"]: row for row in rows if row["network"] != "untrained"}
    raw = rates.pop(RAW, None)
    learned = {name: row for name, row in rates.items() if not name.startswith("ψ")}  # ψ(g) names the goal alone
    if raw is None or not learned:
        return []
    said = []
    for name, row in learned.items():
        gap, noise = row[ACROSS] - raw[ACROSS], max(1.0, 2 * row.get(ACROSS.replace("_%", "_sd"), 0.0))
        relation = "beats that" if gap > noise else "loses to that" if gap < -noise else "is level with that"
        said.append(f"{name} ({row[ACROSS]:.0f} %) {relation}")
    chance = raw.get("purity_shuffled_labels_%")
    near = f"a similar raw difference {RAW}" + ("" if chance is None else f" (chance: {chance:.0f} %)")
    intro = f"Of a pair's ten nearest from other contexts, {raw[ACROSS]:.0f} % have its task when near means {near}."
    return [intro, f"{', '.join(said)}."]


def _purity_table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns and rows for the page; a column NAME_sd goes into NAME_%."""
    names = [name for name in rows[0] if not name.endswith("_sd")]

    def text(row: dict[str, Any], name: str) -> str:
        value, spread = row.get(name), row.get(name.replace("_%", "_sd"))
        if value is None or value == "none":
            return "–"
        if not name.endswith("_%"):
            return str(value)
        return f"{value:.1f} ± {spread:.1f}" if isinstance(spread, float) else f"{value:.1f}"

    titles = [TITLES.get(name) or name.replace("_%", ", %").replace("_", " ").capitalize() for name in names]
    words = sum(isinstance(rows[0][name], str) for name in names)
    return table(titles, [[text(row, name) for name in names] for row in rows], words=words)


# Arrays of numbers as compact text: base64 of little-endian integers, which the page reads as typed arrays.


def pack_integers(values: Any) -> dict[str, Any]:
    """Non-negative integers, exactly, in the smallest unsigned type."""
    array = np.asarray(values, np.int64)
    if array.min(initial=0) < 0 or array.max(initial=0) >= 2**32:
        raise ValueError("a number that is negative or too large")
    size = np.min_scalar_type(array.max(initial=0)).itemsize
    data = base64.b64encode(array.astype(f"<u{size}").tobytes()).decode()
    return {"kind": f"u{8 * size}", "shape": list(array.shape), "data": data}


def pack_numbers(values: Any) -> dict[str, Any]:
    """Real numbers (rows, columns) with at most 16 bits each: column j is offset[j] + scale[j]·integer."""
    array = np.asarray(values, np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not (np.abs(array) < 1e30).all():
        raise ValueError("numbers that are no columns, or too large")
    low, high = (array.min(0), array.max(0)) if len(array) else (np.zeros(array.shape[1]),) * 2
    scale = np.where(high > low, (high - low) / (2**16 - 1), 1.0)
    offset, step = ([float(f"{value:.8g}") for value in values] for values in (low, scale))
    return pack_integers(np.rint((array - low) / scale)) | {"offset": offset, "scale": step}
