"""Pictures of states: drawn for the embedded worlds, rendered for OGBench's; and the figures of an analogy map."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cta.analysis.semantics import NOTHING, SEVERAL, UNKNOWN, Labels
from cta.data import TrajectoryDataset, environment_name
from cta.envs.desk import find_world
from cta.envs.desk_draw import canvas, draw
from cta.envs.names import KNOWN, family
from cta.errors import CtaError
from cta.io.files import save_figure as save

DRAWN_PIXELS, RENDERED_PIXELS = 160, 200
IMAGE_TIMES = 2  # how much larger than life an image observation is shown

INK = "#2f3640"
PALE = {NOTHING: "#d8dce1", SEVERAL: "#b4bac2", UNKNOWN: "#8fb0d0"}
HUES = ("#4c78a8", "#54a24b", "#e0812b", "#9467bd", "#c0392b", "#2a9d8f", "#8c6d31", "#d6618f")
PALER = ("#9ecae9", "#a3d694", "#ffbf79", "#cbb1e0", "#ef9a92", "#8ed6cc", "#d9c48c", "#f2b3cd")
PALETTE = [shade for pair in zip(HUES, PALER, strict=True) for shade in pair]
GAP, WIDE = 4, 18  # pixels between a state and its goal, and between pairs
Queries = Sequence[Mapping[str, Any]]  # [{point, name}]
Pictures = dict[int, tuple[np.ndarray, np.ndarray]]  # {point: (state, goal)}


def draw_map(path: Path, places: np.ndarray, tasks: Labels, queries: Queries, *, title: str) -> None:
    """Every pair a dot coloured by its task; the queries numbered."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 7), dpi=130, facecolor="white", layout="constrained")
    ax = figure.add_subplot()
    size = float(np.clip(60_000 / len(places), 3, 30))
    # Opposite tasks, which stand side by side, are shades of one hue.
    plain = [name for name in tasks.names if name not in PALE]
    colours = PALE | {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(plain)}
    # What is unnamed lies below what is named, and comes last in the legend.
    for code in sorted(range(len(tasks.names)), key=lambda i: tasks.names[i] in PALE):
        mine, name = tasks.codes == code, tasks.names[code]
        style = {"s": size, "color": colours[name], "linewidths": 0, "zorder": 1 + (name not in PALE)}
        ax.scatter(*places[mine].T, label=f"{name} ({int(mine.sum()):,})", rasterized=True, **style)
    for number, query in enumerate(queries, 1):
        x, y = places[query["point"]]
        ax.plot(x, y, "o", markersize=13, markerfacecolor="white", markeredgecolor=INK, markeredgewidth=1.2, zorder=5)
        ax.text(x, y, str(number), ha="center", va="center_baseline", fontsize=7.5, color=INK, zorder=6)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=11, color=INK, loc="left")
    look = {"frameon": False, "fontsize": 8, "markerscale": float(np.sqrt(40 / size)), "labelcolor": INK}
    figure.legend(loc="outside right upper", **look)
    save(figure, path)


def draw_neighbours(
    path: Path, queries: Queries, nearest: np.ndarray, pictures: Pictures, tasks: Labels, *, title: str
) -> int:
    """A row for each query: the pair, then its nearest pairs; green marks the same task. Returns how many are shown."""
    from matplotlib.figure import Figure

    rows = [query for query in queries if query["point"] in pictures]
    if not rows:
        return 0
    side = next(iter(pictures.values()))[0].shape[0]
    cell = 2 * side + GAP
    shown = nearest[[query["point"] for query in rows]]
    # Ranks of which some query has no picture are left out whole.
    whole = [set(ranked) <= pictures.keys() for ranked in shown.T.tolist()]
    columns = 1 + [*whole, False].index(False)
    height, width = side + 2 * WIDE, cell + WIDE
    canvas = np.full((len(rows) * height, columns * width + WIDE, 3), 255, np.uint8)
    for r, query in enumerate(rows):
        points = [query["point"], *nearest[query["point"]].tolist()]
        for c, point in enumerate(points[:columns]):
            top, left = r * height + WIDE, c * width + (0 if c == 0 else WIDE)
            canvas[top : top + side, left : left + side] = pictures[point][0]
            canvas[top : top + side, left + side + GAP : left + cell] = pictures[point][1]
            if c:
                same = tasks.codes[point] == tasks.codes[query["point"]]
                canvas[top + side + 3 : top + side + 8, left : left + cell] = (84, 162, 75) if same else (216, 220, 225)
    figure = Figure(figsize=(canvas.shape[1] / 190, canvas.shape[0] / 190 + 0.4), dpi=100, facecolor="white")
    share = 0.4 / (canvas.shape[0] / 190 + 0.4)
    ax = figure.add_axes((0, 0, 1, 1 - share))
    ax.imshow(canvas, interpolation="antialiased")
    ax.axis("off")
    for r, query in enumerate(rows):
        name = f"{r + 1}  {query['name']}"
        ax.text(2, r * height + WIDE - 4, name, fontsize=8, color=INK, va="bottom", weight="bold")
    figure.text(0.005, 1 - share / 2, title, fontsize=10, color=INK, va="center")
    save(figure, path)
    return columns - 1


@contextmanager
def open_painter(dataset_name: str, data: TrajectoryDataset) -> Iterator[tuple[Callable[[int], np.ndarray], str]]:
    """What makes an image (side, side, 3) uint8 of a row's state, and how: drawn, observed, rendered by a simulator."""
    if len(data.observation_shape) == 3:
        larger = np.ones((IMAGE_TIMES, IMAGE_TIMES, 1), np.uint8)
        yield lambda row: np.kron(data.observations[row][..., :3], larger), "observed"
    elif (world := find_world(dataset_name)) is not None:
        yield canvas(lambda ax, row: draw(ax, world, data.observations[row], labels=False), DRAWN_PIXELS), "drawn"
    else:
        from cta.envs.worlds import close_env, enable_rendering, make_env, seeded_reset

        if dataset_name not in KNOWN:
            raise CtaError(f"{dataset_name} belongs to no known environment")
        if not {"qpos", "qvel"} <= data.info.keys():
            raise CtaError(f"{data.name} has no qpos and qvel to put the simulator into its states")
        enable_rendering()
        # Targets and success colours belong to an evaluation; a state of the data has neither.
        options = {} if family(dataset_name).endswith("maze") else {"visualize_info": False}
        env = make_env(environment_name(dataset_name), width=RENDERED_PIXELS, height=RENDERED_PIXELS, **options)
        seeded_reset(env, 0, {"task_id": 1})
        kinds = {"qpos": float, "qvel": float, "button_states": None}

        def rendered(row: int) -> np.ndarray:
            env.set_state(**{key: np.asarray(data.info[key][row], kinds[key]) for key in kinds if key in data.info})
            return np.asarray(env.render())[..., :3]

        try:
            yield rendered, "rendered"
        finally:
            close_env(env)
