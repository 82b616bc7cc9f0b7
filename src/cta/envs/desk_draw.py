"""Pictures of a desk. matplotlib is loaded when the first one is drawn."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cta.envs.desk import CLOSED, TRAVEL, DeskState, DeskWorld, decode

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4c78a8", "#54a24b", "#e0812b", "#9467bd")
INK, RAIL, WOOD, SHUT, LIT, DARK = "#2f3640", "#c9c2b4", "#faf7f0", "#c0392b", "#f6c945", "#59616d"


def draw(ax: "Axes", world: DeskWorld, shown: np.ndarray | DeskState, *, title: str = "", labels: bool = True) -> None:
    """Draw one state (or its observation) into `ax`; leave the words out with `labels=False` where it is small.

    A locked part is hollow behind a red bar. A lock button has the colour of its part and is filled while the part is
    unlocked; a light is yellow while it is on. The gripper's jaws show how far it is closed; its middle is dark then.
    """
    state = shown if isinstance(shown, DeskState) else decode(world, shown)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", xticks=[], yticks=[], facecolor=WOOD)
    for spine in ax.spines.values():
        spine.set_color(RAIL)
    if title:
        ax.set_title(title, fontsize=9, color=INK)
    bits = np.asarray(state.bits)
    _draw_buttons(ax, world, bits, labels=labels)
    for i, part in enumerate(world.parts):
        free = all(bits[j] for j in part.locks)
        _draw_part(ax, world, i, float(state.parts[i]), free=free, name=part.name if labels else "")
    _draw_gripper(ax, np.asarray(state.gripper), float(state.grip), width=2.8 if labels else 1.4)


def _draw_buttons(ax: "Axes", world: DeskWorld, bits: np.ndarray, *, labels: bool) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch

    for j, place in enumerate(world.places):
        gated = [i for i, part in enumerate(world.parts) if j in part.locks]
        if gated:
            colour = COLOURS[gated[0] % len(COLOURS)]
            ax.add_patch(Circle(place, 0.055, facecolor=colour if bits[j] else WOOD, edgecolor=colour, linewidth=2.5))
            word = ("unlocked" if bits[j] else "locked") if labels else ""
            ax.text(place[0], place[1] - 0.075, word, ha="center", va="top", fontsize=6.5, color=INK)
        else:
            half = 0.36 / np.sqrt(len(world.buttons))
            corners = {"boxstyle": "round,pad=0.01,rounding_size=0.03", "edgecolor": INK, "linewidth": 1}
            colour = LIT if bits[j] else DARK
            ax.add_patch(FancyBboxPatch(place - half, 2 * half, 2 * half, facecolor=colour, **corners))


def _draw_part(ax: "Axes", world: DeskWorld, i: int, position: float, *, free: bool, name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour, direction = COLOURS[i % len(COLOURS)], world.directions[i]
    base, end = world.bases[i], world.bases[i] + TRAVEL * direction
    side = np.array([-direction[1], direction[0]])
    ax.plot(*zip(base, end, strict=True), color=RAIL, linewidth=5, solid_capstyle="round", zorder=1)
    for stop in (base, end):
        ax.plot(*zip(stop - 0.035 * side, stop + 0.035 * side, strict=True), color=RAIL, linewidth=2, zorder=1)
    handle = base + position * TRAVEL * direction
    size = np.where(np.abs(direction) > 0.5, 0.075, 0.13)
    look = {"facecolor": colour if free else WOOD, "edgecolor": colour, "linewidth": 2, "zorder": 2}
    ax.add_patch(FancyBboxPatch(handle - size / 2, *size, boxstyle="round,pad=0.005,rounding_size=0.02", **look))
    if not free:
        ax.plot(*zip(handle - 0.06 * side, handle + 0.06 * side, strict=True), color=SHUT, linewidth=2.5, zorder=3)
    x, y = (base + end) / 2 - 0.1 * np.abs(side)
    turn = 90 if abs(direction[1]) > 0.5 else 0
    ax.text(x, y, name, ha="center", va="center", rotation=turn, fontsize=7, color=colour, zorder=1)


def _draw_gripper(ax: "Axes", place: np.ndarray, grip: float, *, width: float) -> None:
    from matplotlib.patches import Circle

    gap = 0.02 + 0.035 * (1 - grip)
    for side in (-1, 1):
        x = place[0] + side * gap
        jaw = [x - side * 0.012, x, x, x - side * 0.012]
        height = place[1] + np.array([0.035, 0.025, -0.025, -0.035])
        ax.plot(jaw, height, color="white", linewidth=1.8 * width, solid_capstyle="round", zorder=4)
        ax.plot(jaw, height, color=INK, linewidth=width, solid_capstyle="round", zorder=5)
    ax.add_patch(Circle(tuple(place), 0.011, facecolor=INK if grip > CLOSED else WOOD, edgecolor=INK, zorder=5))


def frame(world: DeskWorld, shown: np.ndarray | DeskState, *, title: str = "now") -> np.ndarray:
    """An image (320, 320, 3) uint8 of a state."""
    return canvas(draw, 320, (0.04, 0.04, 0.92, 0.86))(world, shown, title=title)


def canvas(
    drawing: Callable[..., None], pixels: int, place: tuple[float, float, float, float] = (0.01, 0.01, 0.98, 0.98)
) -> Callable[..., np.ndarray]:
    """Calls `drawing(axes, …)` on one small figure, again and again, and returns an image (pixels, pixels, 3) uint8."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(pixels / 100, pixels / 100), dpi=100, facecolor="white")
    drawn = FigureCanvasAgg(figure)

    def paint(*what: object, **how: object) -> np.ndarray:
        figure.clear()
        drawing(figure.add_axes(place), *what, **how)
        drawn.draw()
        return np.asarray(drawn.buffer_rgba())[..., :3].copy()

    return paint
