"""What a pair of states means, read from the simulator's state: what changes (the task), what else holds (the context).

A pair in which exactly one event happened is named after it ("open the drawer", "press 5"); the others are "nothing
changes" and "several changes". A `Schematic` is a state in a few numbers, enough to draw it without a simulator.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from cta.data import TrajectoryDataset
from cta.envs.desk import DeskWorld, decode, find_world
from cta.envs.names import family
from cta.errors import CtaError
from cta.ooc.components import DRAWER_TRAVEL, SCENE, WINDOW_TRAVEL, Layout, Rule, find_layout

NOTHING, SEVERAL, UNKNOWN = "nothing changes", "several changes", "unlabelled"
MOVED = 0.04  # a cube has moved when it lies this far off, in metres: the tolerance of OGBench's success test
LIFTED = 0.05  # a cube above this height is held or stands on another
TABLE_MIDDLE = 0.425
MAZE_UNIT, MAZE_MOVE = 4.0, 1.0  # side of a maze cell, and the shortest displacement that has a direction
DIRECTIONS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")

ORIGIN, SCALE = np.array([0.425, 0.0, 0.0], np.float32), 10.0  # OGBench's observations show (p − origin)·scale
ARM_JOINTS, PROPRIOCEPTION = 14, 19  # where cubes begin, 7 numbers each, in `qpos`; and 9 each, in an observation
CUBES = {"single": 1, "double": 2, "triple": 3, "quadruple": 4}
SHOWN_NUMBERS = 8  # how much of an observation stands for a state of which nothing else is known


@dataclass(frozen=True)
class Labels:
    """Names, and for each pair the number of its name."""

    names: tuple[str, ...]
    codes: np.ndarray


@dataclass(frozen=True)
class Semantics:
    """A dataset's rows as a reader of the simulator sees them."""

    event_names: tuple[str, ...] = ()
    events: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None  # None where tasks cannot be told
    """(states, goals) → which events happened in each pair, (N, E) bool; a column more is a change with no name."""
    sides: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Discrete components of every row, (rows, C): the context of a pair is its state's."""
    words: tuple[tuple[str, ...], ...] = ()  # words[c][v] says that component c has value v
    joiner: str = ", "

    def tasks(self, states: np.ndarray, goals: np.ndarray) -> Labels:
        """What happens between these rows."""
        if self.events is None:
            return Labels((UNKNOWN,), np.zeros(len(states), np.int64))
        happened = self.events(states, goals)
        names, count = (*self.event_names, NOTHING, SEVERAL), happened.sum(axis=1)
        one = (count == 1) & happened[:, : len(self.event_names)].any(axis=1)
        codes = np.where(one, happened.argmax(axis=1), np.where(count, len(names) - 1, len(names) - 2))
        used, fresh = np.unique(codes, return_inverse=True)
        return Labels(tuple(names[i] for i in used.tolist()), fresh.reshape(-1))

    def contexts(self, states: np.ndarray) -> Labels:
        """What holds at these rows."""
        if not self.words:
            return Labels((UNKNOWN,), np.zeros(len(states), np.int64))
        found, codes = np.unique(self.sides[states], axis=0, return_inverse=True)
        names = [self.joiner.join(word[v] for word, v in zip(self.words, row, strict=True)) for row in found.tolist()]
        return Labels(tuple(names), codes.reshape(-1))


def is_single(tasks: Labels) -> np.ndarray:
    """Which pairs hold exactly one event, (N,) bool."""
    named = np.array([name not in (NOTHING, SEVERAL, UNKNOWN) for name in tasks.names], bool)
    return named[tasks.codes]


def read(dataset_name: str, data: TrajectoryDataset) -> Semantics:
    """The semantics of a dataset, by the world in its name; where the file or the name does not tell, none."""
    kind = family(dataset_name)
    try:
        if kind == "cube":
            return _cubes(cube_places(dataset_name, data))
        if kind.endswith("maze") and (seen := vectors(data)) is not None:  # images do not show the place
            return _maze(seen)
        layout = find_layout(dataset_name)
        sides = Rule().values(layout, layout.measure(vectors(data), data.info)).astype(np.int64)
        if layout.patterns:
            return _lights(layout, sides)
        return _parts(layout, sides, cube_places(dataset_name, data)[:, 0] if kind == "scene" else None)
    except CtaError:
        return Semantics()


def _lights(layout: Layout, lights: np.ndarray) -> Semantics:
    """One event for each button: the lights that differ are exactly those it flips."""

    def events(states: np.ndarray, goals: np.ndarray) -> np.ndarray:
        flipped = lights[states] != lights[goals]
        pressed = np.all(flipped[:, None] == layout.flips, axis=-1)
        return np.column_stack([pressed, flipped.any(axis=1) & ~pressed.any(axis=1)])

    names = tuple(f"press {i}" for i in range(len(layout.patterns)))
    return Semantics(names, events, lights, (("0", "1"),) * len(layout.names), joiner="")


def _parts(layout: Layout, sides: np.ndarray, cube: np.ndarray | None) -> Semantics:
    """Two events for each component, becoming 1 and becoming 0, and moving the cube about on the table."""
    names, words = [], []
    for component in layout.components:
        thing = component.name.removesuffix("_lock")
        verbs = ("open the {}", "close the {}") if component.travel is not None else ("unlock the {}", "lock the {}")
        if component.name == "cube":
            verbs = ("put the {} into the drawer", "take the {} out of the drawer")
        names += [verb.format(thing) for verb in verbs]
        words.append(tuple(f"{thing} {value}" for value in component.values))

    def events(states: np.ndarray, goals: np.ndarray) -> np.ndarray:
        step = sides[goals] - sides[states]
        happened = np.stack([step == 1, step == -1], axis=-1).reshape(len(states), -1)
        if cube is None:
            return happened
        # A cube that lies in the drawer travels with it, and going in or out has its own name.
        outside = (sides[states, -1] != 1) & (sides[goals, -1] != 1)
        moved = np.linalg.norm(cube[goals] - cube[states], axis=1) > MOVED
        return np.column_stack([happened, moved & outside])

    return Semantics((*names, *(["move the cube"] if cube is not None else [])), events, sides, tuple(words))


def _cubes(cubes: np.ndarray) -> Semantics:
    """Moving one of the cubes (rows, n, 3); a context says where on the table each of them is, roughly."""
    x, y, z = np.moveaxis(cubes, -1, 0)
    sides = np.stack([x > TABLE_MIDDLE, y > 0, z > LIFTED], axis=-1).astype(np.int64).reshape(len(cubes), -1)

    def events(states: np.ndarray, goals: np.ndarray) -> np.ndarray:
        return np.linalg.norm(cubes[goals] - cubes[states], axis=-1) > MOVED

    numbers = range(cubes.shape[1])
    rest = (("right", "left"), ("down", "up"))
    words = tuple(pair for i in numbers for pair in ((f"cube {i} near", f"cube {i} far"), *rest))
    return Semantics(tuple(f"move cube {i}" for i in numbers), events, sides, words)


def _maze(seen: np.ndarray) -> Semantics:
    """A task is a direction, a context the cell it starts from."""
    xy = np.asarray(seen[:, :2], np.float64)
    cells = np.floor(xy / MAZE_UNIT + 0.5).astype(np.int64)
    cells -= cells.min(axis=0)

    def events(states: np.ndarray, goals: np.ndarray) -> np.ndarray:
        step = xy[goals] - xy[states]
        far = np.linalg.norm(step, axis=1) > MAZE_MOVE
        octant = np.round(np.arctan2(step[:, 1], step[:, 0]) / (np.pi / 4)).astype(np.int64) % len(DIRECTIONS)
        return (octant[:, None] == np.arange(len(DIRECTIONS))) & far[:, None]

    words = tuple(tuple(f"{axis} {i}" for i in range(int(cells[:, c].max()) + 1)) for c, axis in enumerate("xy"))
    return Semantics(tuple(f"go {direction}" for direction in DIRECTIONS), events, cells, words)


@dataclass(frozen=True)
class Schematic:
    """How a state is drawn (desk, puzzle, scene, cube, maze, vector), what its numbers mean, and the numbers."""

    kind: str
    meaning: tuple[str, ...]
    numbers: np.ndarray
    """(rows, len(meaning)). Parts, drawer and window: 0 shut, 1 open. Bits and lights: 0, 1. Places as in the world."""


def vectors(data: TrajectoryDataset) -> np.ndarray | None:
    """The observations, where they are numbers and not images."""
    return data.observations if len(data.observation_shape) == 1 else None


def cube_places(dataset_name: str, data: TrajectoryDataset) -> np.ndarray:
    """Where the cubes of a manipulation world are, in metres, (rows, cubes, 3)."""
    kind, word = family(dataset_name), dataset_name.removeprefix("visual-").split("-")[1]
    count = CUBES[word] if kind == "cube" else int(kind == "scene")
    qpos, seen = data.info.get("qpos"), vectors(data)
    if qpos is not None and qpos.shape[1] >= ARM_JOINTS + 7 * count:
        return qpos[:, ARM_JOINTS : ARM_JOINTS + 7 * count].reshape(data.num_rows, count, 7)[..., :3]
    if seen is None or seen.shape[1] < PROPRIOCEPTION + 9 * count:
        raise CtaError(f"{data.name}: neither observations nor qpos show where the cubes are")
    cubes = seen[:, PROPRIOCEPTION : PROPRIOCEPTION + 9 * count].reshape(data.num_rows, count, 9)
    return cubes[..., :3] / SCALE + ORIGIN


def schematic(dataset_name: str, data: TrajectoryDataset) -> Schematic:
    """The numbers of every row; of an unknown world the beginning of its observations, of its images nothing."""
    world, kind, seen = find_world(dataset_name), family(dataset_name), vectors(data)
    with suppress(CtaError):
        if world is not None:
            return _desk(world, data)
        if kind.endswith("maze") and seen is not None:
            return Schematic("maze", ("x", "y"), np.asarray(seen[:, :2], np.float32))
        if kind in ("cube", "puzzle", "scene"):
            return _arm(dataset_name, data)
    flat = np.zeros((data.num_rows, 0), np.float32) if seen is None else np.asarray(seen[:, :SHOWN_NUMBERS])
    return Schematic("vector", tuple(f"observation {i}" for i in range(flat.shape[1])), flat)


def _desk(world: DeskWorld, data: TrajectoryDataset) -> Schematic:
    locked = {bit: part.name for part in world.parts for bit in part.locks}
    names = [f"{locked[i]} unlocked" if i in locked else f"light {i}" for i in range(len(world.buttons))]
    meaning = ("gripper x", "gripper y", "grip", *(part.name for part in world.parts), *names)
    numbers = np.column_stack(decode(world, data.observations)).astype(np.float32)
    return Schematic("desk" if world.parts else "puzzle", meaning, numbers)


def _arm(dataset_name: str, data: TrajectoryDataset) -> Schematic:
    """The effector where observations show it, the cubes, and the other parts of the world."""
    kind, cubes, seen = family(dataset_name), cube_places(dataset_name, data), vectors(data)
    columns, meaning = [], []
    if seen is not None and seen.shape[1] >= PROPRIOCEPTION:
        columns += [seen[:, 12:15] / SCALE + ORIGIN, seen[:, 17] / 3]
        meaning += ["effector x", "effector y", "effector z", "gripper"]
    columns += [cubes.reshape(data.num_rows, -1)]
    meaning += [f"cube {i} {axis}" for i in range(cubes.shape[1]) for axis in "xyz"]
    if kind == "scene":
        meaning = [name.replace("cube 0", "cube") for name in meaning]
        columns += [SCENE.measure(seen, data.info)[:, :4] / (DRAWER_TRAVEL, WINDOW_TRAVEL, 1, 1)]
        meaning += ["drawer", "window", "drawer unlocked", "window unlocked"]
    elif kind == "puzzle":
        columns += [find_layout(dataset_name).measure(seen, data.info)]
        meaning += [f"light {i}" for i in range(columns[-1].shape[1])]
    return Schematic(kind, tuple(meaning), np.column_stack(columns).astype(np.float32))
