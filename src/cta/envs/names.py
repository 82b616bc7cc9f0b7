"""The datasets this project knows: names, sizes, shapes, and who can make them."""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from cta.data.locations import environment_name
from cta.errors import CtaError

CONTROL_DIMS = {"cube": 5, "scene": 5, "puzzle": 5, "pointmaze": 2, "antmaze": 8, "humanoidmaze": 21}
STATE_DIMS = {
    "cube-single-v0": 28,
    "cube-double-v0": 37,
    "cube-triple-v0": 46,
    "scene-v0": 40,
    "puzzle-3x3-v0": 55,
    "puzzle-4x4-v0": 83,
    "puzzle-4x5-v0": 99,
    "puzzle-4x6-v0": 115,
}
MAZE_STATE_DIMS = {"pointmaze": 2, "antmaze": 29, "humanoidmaze": 69}
EXPERT_FAMILIES = ("antmaze", "humanoidmaze")
LIGHTS_SIZES = tuple((rows, columns) for rows in range(2, 5) for columns in range(2, 7))
"""Rows and columns of the boards of the embedded lights worlds."""
VISUAL_DESK_DATASETS = ("visual-desk-play-v0", "visual-lights-3x3-play-v0")
DESK_DATASETS = (
    "desk-play-v0",
    *(f"lights-{rows}x{columns}-play-v0" for rows, columns in LIGHTS_SIZES),
    *VISUAL_DESK_DATASETS,
)
"""Play data of the embedded worlds."""
PIXELS = (64, 64, 3)


@dataclass(frozen=True)
class DatasetSpec:
    """What a full-size dataset is: `episodes` of `episode_steps` transitions (one row more each)."""

    name: str
    episodes: int
    episode_steps: int

    @property
    def env_name(self) -> str:
        return environment_name(self.name)

    @property
    def kind(self) -> str:
        """play, noisy or navigate."""
        return self.name.split("-")[-2]

    @property
    def family(self) -> str:
        return family(self.name)

    @property
    def needs_expert(self) -> bool:
        return self.family in EXPERT_FAMILIES


def validation_count(episodes: int) -> int:
    """OGBench's split: a tenth as many validation episodes, beside the training ones; never none."""
    return max(1, episodes // 10)


def is_visual(name: str) -> bool:
    return name.startswith("visual-")


def family(name: str) -> str:
    """cube, scene, puzzle, pointmaze, antmaze, humanoidmaze, or the first word of any other name."""
    return name.removeprefix("visual-").split("-")[0]


def lights_patterns(rows: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """Lights out: button i = columns·row + column flips itself and its 4-neighbours."""

    def pattern(r: int, c: int) -> tuple[int, ...]:
        cells = [(r, c), (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
        return tuple(sorted(columns * i + j for i, j in cells if 0 <= i < rows and 0 <= j < columns))

    return tuple(pattern(r, c) for r in range(rows) for c in range(columns))


def _known() -> dict[str, DatasetSpec]:
    episodes = {"cube-triple-v0": 3000, "puzzle-4x5-v0": 3000, "puzzle-4x6-v0": 5000}
    boards = {"lights-4x4-play-v0": 5000, "lights-4x5-play-v0": 15_000, "lights-4x6-play-v0": 25_000}
    specs = []
    for env_name in STATE_DIMS:
        stem, version = env_name.rsplit("-", 1)
        for prefix, kind in (("", "play"), ("", "noisy"), ("visual-", "play")):
            specs.append(DatasetSpec(f"{prefix}{stem}-{kind}-{version}", episodes.get(env_name, 1000), 1000))
    for body, long in (("pointmaze", 1), ("antmaze", 1), ("humanoidmaze", 2)):
        specs += [DatasetSpec(f"{body}-{size}-navigate-v0", 1000, 1000 * long) for size in ("medium", "large")]
        specs.append(DatasetSpec(f"{body}-giant-navigate-v0", 1000 if long == 2 else 500, 2000 * long))
    # 75k transitions in all on the desk and small boards; 1M, 3M and 5M from 4x4 on.
    specs += [DatasetSpec(name, boards.get(name, 500), 200 if name in boards else 149) for name in DESK_DATASETS]
    return {spec.name: spec for spec in specs}


KNOWN = _known()


def known_spec(name: str) -> DatasetSpec:
    """The spec of a dataset name; an unknown one gets a line with the nearest known names."""
    if name not in KNOWN:
        board = re.match(r"lights-(\d+)x(\d+)(?!\d)", name)
        if board and (int(board[1]), int(board[2])) not in LIGHTS_SIZES:
            raise CtaError(f"unknown dataset '{name}': a lights board has 2 to 4 rows and 2 to 6 columns")
        near = get_close_matches(name, KNOWN, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`cta data list` shows the known ones"
        raise CtaError(f"unknown dataset '{name}': {hint}")
    return KNOWN[name]


def expected_shapes(env_name: str) -> tuple[tuple[int, ...], int] | None:
    """Observation shape and action size of an environment; None if the environment is not one of the known ones."""
    kind = family(env_name)
    if kind not in CONTROL_DIMS:
        return None
    if is_visual(env_name):
        return PIXELS, CONTROL_DIMS[kind]
    size = STATE_DIMS.get(env_name) or MAZE_STATE_DIMS.get(kind)
    return None if size is None else ((size,), CONTROL_DIMS[kind])
