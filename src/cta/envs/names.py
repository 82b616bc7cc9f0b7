"""The datasets this project knows: names, sizes, shapes, and who can make them."""

import re
from typing import NamedTuple

from cta.data import environment_name
from cta.errors import CtaError, did_you_mean

CONTROL_DIMS = {"cube": 5, "scene": 5, "puzzle": 5, "pointmaze": 2, "antmaze": 8, "humanoidmaze": 21}
# 19 numbers of the arm, 9 of each cube, 4 of each button, 4 of drawer and window.
STATE_DIMS = {f"cube-{size}-v0": 19 + 9 * count for count, size in enumerate(("single", "double", "triple"), 1)}
STATE_DIMS |= {"scene-v0": 19 + 9 + 2 * 4 + 4}
STATE_DIMS |= {f"puzzle-{r}x{c}-v0": 19 + 4 * r * c for r, c in ((3, 3), (4, 4), (4, 5), (4, 6))}
MAZE_STATE_DIMS = {"pointmaze": 2, "antmaze": 29, "humanoidmaze": 69}
LIGHTS_SIZES = tuple((rows, columns) for rows in range(2, 5) for columns in range(2, 7))
LIGHTS_DATASETS = tuple(f"lights-{rows}x{columns}-play-v0" for rows, columns in LIGHTS_SIZES)
VISUAL_DESK_DATASETS = ("visual-desk-play-v0", "visual-lights-3x3-play-v0")
DESK_DATASETS = ("desk-play-v0", *LIGHTS_DATASETS, *VISUAL_DESK_DATASETS)  # of the embedded worlds


class DatasetSpec(NamedTuple):
    """What a full-size dataset is: `episodes` of `episode_steps` transitions (one row more each)."""

    name: str
    episodes: int
    episode_steps: int

    @property
    def env_name(self) -> str:
        return environment_name(self.name)

    @property
    def needs_expert(self) -> bool:
        return family(self.name) in ("antmaze", "humanoidmaze")


def validation_count(episodes: int) -> int:
    """OGBench's split: a tenth as many validation episodes, beside the training ones; never none."""
    return max(1, episodes // 10)


def is_visual(name: str) -> bool:
    return name.startswith("visual-")


def family(name: str) -> str:
    """cube, scene, puzzle, pointmaze, antmaze, humanoidmaze, or the first word of any other name."""
    return name.removeprefix("visual-").split("-")[0]


def lights_patterns(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """Lights out: which lights, columns·row + column, each button flips: itself and its 4-neighbours."""
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    return tuple(tuple(j for j, (s, d) in enumerate(cells) if abs(r - s) + abs(c - d) <= 1) for r, c in cells)


def _known() -> dict[str, DatasetSpec]:
    episodes = {"cube-triple-v0": 3000, "puzzle-4x5-v0": 3000, "puzzle-4x6-v0": 5000}
    boards = {"lights-4x4-play-v0": 5000, "lights-4x5-play-v0": 15_000, "lights-4x6-play-v0": 25_000}
    specs = []
    for env_name in STATE_DIMS:
        stem, count = env_name.removesuffix("-v0"), episodes.get(env_name, 1000)
        names = f"{stem}-play-v0", f"{stem}-noisy-v0", f"visual-{stem}-play-v0"
        specs += [DatasetSpec(name, count, 1000) for name in names]
    for body, long in (("pointmaze", 1), ("antmaze", 1), ("humanoidmaze", 2)):
        specs += [DatasetSpec(f"{body}-{size}-navigate-v0", 1000, 1000 * long) for size in ("medium", "large")]
        specs.append(DatasetSpec(f"{body}-giant-navigate-v0", 1000 if long == 2 else 500, 2000 * long))
    # 75k transitions in all on the desk and small boards; 1M, 3M and 5M from 4x4 on.
    specs += [DatasetSpec(name, boards.get(name, 500), 200 if name in boards else 149) for name in DESK_DATASETS]
    return {spec.name: spec for spec in specs}


KNOWN = _known()


def known_spec(name: str) -> DatasetSpec:
    if name not in KNOWN:
        board = re.match(r"lights-(\d+)x(\d+)(?!\d)", name)
        if board and (int(board[1]), int(board[2])) not in LIGHTS_SIZES:
            raise CtaError(f"unknown dataset '{name}': a lights board has 2 to 4 rows and 2 to 6 columns")
        hint = did_you_mean(name, KNOWN, "`cta data list` shows the known ones")
        raise CtaError(f"unknown dataset '{name}': {hint}")
    return KNOWN[name]


def expected_shapes(env_name: str) -> tuple[tuple[int, ...], int] | None:
    """Observation shape and action size of an environment; None if the environment is not one of the known ones."""
    kind = family(env_name)
    if kind not in CONTROL_DIMS:
        return None
    if is_visual(env_name):
        return (64, 64, 3), CONTROL_DIMS[kind]
    size = STATE_DIMS.get(env_name) or MAZE_STATE_DIMS.get(kind)
    return None if size is None else ((size,), CONTROL_DIMS[kind])
