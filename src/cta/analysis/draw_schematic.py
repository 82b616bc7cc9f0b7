"""OGBench's worlds as simple drawings from above, made from a few numbers: no simulator, no OpenGL."""

from typing import TYPE_CHECKING

import numpy as np

from cta.analysis.states import Schematic, puzzle_size
from cta.envs.desk_draw import COLOURS, DARK, INK, LIT, RAIL, SHUT, WOOD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CUBE = 0.04
"""Side of a cube, in metres."""


def draw_schematic(ax: "Axes", schematic: Schematic, numbers: np.ndarray, dataset_name: str) -> None:
    """Draw one state into `ax`."""
    named = dict(zip(schematic.meaning, (float(value) for value in numbers), strict=True))
    ax.set(xticks=[], yticks=[], facecolor=WOOD)
    for spine in ax.spines.values():
        spine.set_color(RAIL)
    if schematic.kind == "puzzle":
        _lights(ax, named, *puzzle_size(dataset_name))
    elif schematic.kind == "maze":
        _place(ax, named, schematic.numbers)
    elif schematic.kind in ("cube", "scene"):
        _table(ax, named, parts=schematic.kind == "scene")
    else:
        ax.bar(range(len(numbers)), numbers, color=COLOURS[0])


def _lights(ax: "Axes", named: dict[str, float], rows: int, columns: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    ax.set(xlim=(-0.7, columns - 0.3), ylim=(rows - 0.3, -0.7), aspect="equal")
    for i in range(rows * columns):
        row, column = divmod(i, columns)
        colour = LIT if named[f"light {i}"] > 0.5 else DARK
        place = (column - 0.36, row - 0.36)
        ax.add_patch(FancyBboxPatch(place, 0.72, 0.72, boxstyle="round,pad=0.02", facecolor=colour, edgecolor=INK))


def _place(ax: "Axes", named: dict[str, float], everywhere: np.ndarray) -> None:
    low, high = everywhere.min(axis=0) - 2, everywhere.max(axis=0) + 2
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    # A few of the other rows show where the corridors are.
    ax.plot(*everywhere[:: max(1, len(everywhere) // 500)].T, ".", color=RAIL, markersize=1.5)
    ax.plot(named["x"], named["y"], "o", color=COLOURS[0], markersize=7, markeredgecolor=INK)


def _table(ax: "Axes", named: dict[str, float], *, parts: bool) -> None:
    """From above, the arm's base on the left: x to the right, y upwards."""
    from matplotlib.patches import Rectangle

    ax.set(xlim=(0.15, 0.75), ylim=(-0.45, 0.45), aspect="auto")
    if parts:
        _slide(ax, (0.33, -0.24), (0.0, 0.16), named["drawer"], named["drawer unlocked"], COLOURS[1])
        _slide(ax, (0.5, 0.3), (0.2, 0.0), named["window"], named["window unlocked"], COLOURS[2])
    for i, prefix in enumerate(sorted({name[:-2] for name in named if name.startswith("cube") and name.endswith("x")})):
        x, y, z = (named[f"{prefix} {axis}"] for axis in "xyz")
        size = CUBE * (1 + 2 * z)
        place = (x - size / 2, y - size / 2)
        ax.add_patch(Rectangle(place, size, size, facecolor=COLOURS[(3 * i) % 4], edgecolor=INK, zorder=3 + z))
    if "effector x" in named:
        style = {"marker": "+", "color": INK, "markersize": 9, "markeredgewidth": 1.6, "zorder": 5}
        ax.plot(named["effector x"], named["effector y"], **style)


def _slide(
    ax: "Axes", base: tuple[float, float], travel: tuple[float, float], opening: float, free: float, colour: str
) -> None:
    """A rail with a handle, hollow behind a red edge while it is locked."""
    (x, y), (dx, dy) = base, travel
    ax.plot([x, x + dx], [y, y + dy], color=RAIL, linewidth=4, solid_capstyle="round", zorder=1)
    face, edge = (colour, colour) if free > 0.5 else (WOOD, SHUT)
    ax.plot(x + opening * dx, y + opening * dy, "s", markersize=10, color=face, markeredgecolor=edge, zorder=2)
