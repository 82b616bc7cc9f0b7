"""A state in a few numbers, enough to draw it without a simulator."""

from dataclasses import dataclass

import numpy as np

from cta.data import TrajectoryDataset
from cta.envs.desk import decode, find_world
from cta.envs.names import family
from cta.errors import CtaError

ORIGIN, SCALE = np.array([0.425, 0.0, 0.0], np.float32), 10.0
"""Positions in an observation of OGBench are (p − origin)·scale."""
ARM_JOINTS, PROPRIOCEPTION = 14, 19
"""Where objects begin in `qpos`, and in an observation."""
CUBES = {"single": 1, "double": 2, "triple": 3, "quadruple": 4}
DRAWER_TRAVEL, WINDOW_TRAVEL = -0.16, 0.2
SHOWN_NUMBERS = 8
"""How much of an observation stands for a state of which nothing else is known."""


@dataclass(frozen=True)
class Schematic:
    """How a state is drawn (desk, puzzle, scene, cube, maze, vector), what its numbers mean, and the numbers."""

    kind: str
    meaning: tuple[str, ...]
    numbers: np.ndarray
    """(rows, len(meaning)). Parts, drawer and window: 0 shut, 1 open. Bits and lights: 0, 1. Places as in the world."""


@dataclass(frozen=True)
class Objects:
    """What lies around the arm in OGBench's manipulation worlds, row by row."""

    cubes: np.ndarray
    """Places in metres, (rows, cubes, 3)."""
    buttons: np.ndarray
    """(rows, buttons), 0 or 1."""
    slides: np.ndarray
    """Drawer and window, (rows, 2) or (rows, 0), in metres."""
    effector: np.ndarray | None
    """Place and gripper opening, (rows, 4), where observations are numbers."""


def puzzle_size(name: str) -> tuple[int, int]:
    """(rows, columns) of `puzzle-4x6-play-v0` or `lights-3x3-play-v0`."""
    rows, columns = name.removeprefix("visual-").split("-")[1].split("x")
    return int(rows), int(columns)


def places(data: TrajectoryDataset) -> np.ndarray:
    """xy in a maze, (rows, 2)."""
    if len(data.observation_shape) != 1:
        raise CtaError(f"{data.name}: images do not show the place in numbers")
    return np.asarray(data.observations[:, :2], np.float64)


def objects(dataset_name: str, data: TrajectoryDataset) -> Objects:
    """From `qpos` and `button_states` where the file has them, else from the observation's layout."""
    kind, word = family(dataset_name), dataset_name.removeprefix("visual-").split("-")[1]
    cubes = CUBES[word] if kind == "cube" else int(kind == "scene")
    buttons = {"scene": 2, "puzzle": int(np.prod(puzzle_size(dataset_name))) if kind == "puzzle" else 0}.get(kind, 0)
    slides = 2 if kind == "scene" else 0
    rows, joints = data.num_rows, 7 * cubes + buttons + slides
    seen = None
    if data.observation_shape == (PROPRIOCEPTION + 9 * cubes + 4 * buttons + 2 * slides,):
        seen = _seen(data.observations, cubes, buttons, slides)
    qpos, pressed = data.info.get("qpos"), data.info.get("button_states")
    if qpos is None or qpos.shape != (rows, ARM_JOINTS + joints) or (buttons and pressed is None):
        if seen is None:
            raise CtaError(f"{data.name}: neither observations nor qpos and button_states show the state in numbers")
        return seen
    things = qpos[:, ARM_JOINTS:]
    return Objects(
        cubes=things[:, : 7 * cubes].reshape(rows, cubes, 7)[..., :3],
        buttons=np.zeros((rows, 0), np.int64) if pressed is None else pressed.astype(np.int64),
        slides=things[:, joints - slides :] if slides else things[:, :0],
        effector=None if seen is None else seen.effector,
    )


def _seen(observations: np.ndarray, cubes: int, buttons: int, slides: int) -> Objects:
    """An observation is proprioception, 9 numbers a cube, 4 a button, 2 a slide."""
    rows, at = len(observations), PROPRIOCEPTION
    blocks = observations[:, at : at + 9 * cubes].reshape(rows, cubes, 9)
    at += 9 * cubes
    lights = observations[:, at : at + 4 * buttons].reshape(rows, buttons, 4)
    at += 4 * buttons
    moved = observations[:, at : at + 2 * slides].reshape(rows, slides, 2)[..., 0]
    return Objects(
        cubes=blocks[..., :3] / SCALE + ORIGIN,
        buttons=(lights[..., 1] > lights[..., 0]).astype(np.int64),
        slides=moved / np.array([18.0, 15.0], np.float32)[:slides],
        effector=np.column_stack([observations[:, 12:15] / SCALE + ORIGIN, observations[:, 17] / 3]),
    )


def schematic(dataset_name: str, data: TrajectoryDataset) -> Schematic:
    """The numbers of every row; of an unknown world the beginning of its observations, of its images nothing."""
    try:
        if find_world(dataset_name) is not None:
            return _desk(dataset_name, data)
        if family(dataset_name).endswith("maze"):
            return Schematic("maze", ("x", "y"), places(data).astype(np.float32))
        if family(dataset_name) in ("cube", "puzzle", "scene"):
            return _arm(dataset_name, data)
    except CtaError:
        pass
    flat = data.observations if len(data.observation_shape) == 1 else np.zeros((data.num_rows, 0), np.float32)
    shown = min(SHOWN_NUMBERS, flat.shape[1])
    return Schematic("vector", tuple(f"observation {i}" for i in range(shown)), np.asarray(flat[:, :shown]))


def _desk(dataset_name: str, data: TrajectoryDataset) -> Schematic:
    world = find_world(dataset_name)
    assert world is not None
    gripper, grip, parts, bits = decode(world, data.observations)
    locked = {bit: part.name for part in world.parts for bit in part.locks}
    names = [f"{locked[i]} unlocked" if i in locked else f"light {i}" for i in range(len(world.buttons))]
    meaning = ("gripper x", "gripper y", "grip", *(part.name for part in world.parts), *names)
    numbers = np.column_stack([np.asarray(values, np.float32) for values in (gripper, grip, parts, bits)])
    return Schematic("desk" if world.parts else "puzzle", meaning, numbers)


def _arm(dataset_name: str, data: TrajectoryDataset) -> Schematic:
    kind, found = family(dataset_name), objects(dataset_name, data)
    columns, meaning = [found.cubes.reshape(data.num_rows, -1)], []
    count = found.cubes.shape[1]
    meaning += [f"cube {axis}" if kind == "scene" else f"cube {i} {axis}" for i in range(count) for axis in "xyz"]
    if kind == "scene":
        columns += [found.slides / np.array([DRAWER_TRAVEL, WINDOW_TRAVEL], np.float32)]
        meaning += ["drawer", "window", "drawer unlocked", "window unlocked"]
    columns += [found.buttons]
    if kind == "puzzle":
        meaning += [f"light {i}" for i in range(found.buttons.shape[1])]
    if found.effector is not None:
        columns, meaning = [found.effector, *columns], ["effector x", "effector y", "effector z", "gripper", *meaning]
    return Schematic(kind, tuple(meaning), np.column_stack(columns).astype(np.float32))
