"""What a pair of states means, read from the simulator's state: what changes (the task), what else holds (the context).

A dataset is read once into `Semantics`; tasks and contexts of any pairs then follow. A pair in which exactly one event
happened is named after it ("open the drawer", "press 5"); the others are "nothing changes" and "several changes".
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cta.analysis import states
from cta.data import TrajectoryDataset
from cta.envs.names import family
from cta.errors import CtaError
from cta.ooc.components import Layout, Rule, find_layout

NOTHING, SEVERAL, UNKNOWN = "nothing changes", "several changes", "unlabelled"
MOVED = 0.04
"""A cube has moved when it lies this far off, in metres: the tolerance of OGBench's success test."""
LIFTED = 0.05
"""A cube above this height is held or stands on another."""
TABLE_MIDDLE = 0.425
MAZE_UNIT, MAZE_MOVE = 4.0, 1.0
"""Side of a maze cell, and the shortest displacement that has a direction."""
DIRECTIONS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")

Happened = tuple[np.ndarray, np.ndarray]
"""Which events happened in each pair (N, E) bool, and whether anything changed (N,) bool."""
Events = Callable[[np.ndarray, np.ndarray], Happened]
"""(state rows, goal rows) → what happened between them."""


@dataclass(frozen=True)
class Labels:
    """Names, and for each pair the number of its name."""

    names: tuple[str, ...]
    codes: np.ndarray


@dataclass(frozen=True)
class Semantics:
    """A dataset's rows as a reader of the simulator sees them."""

    event_names: tuple[str, ...] = ()
    events: Events | None = None
    sides: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Discrete components of every row, (rows, C): the context of a pair is its state's."""
    words: tuple[tuple[str, ...], ...] = ()
    """words[c][v] says that component c has value v."""
    joiner: str = ", "

    @property
    def known(self) -> bool:
        """Whether tasks and contexts can be told at all."""
        return self.events is not None

    def tasks(self, states: np.ndarray, goals: np.ndarray) -> Labels:
        """What happens between these rows."""
        if self.events is None:
            return Labels((UNKNOWN,), np.zeros(len(states), np.int64))
        happened, changed = self.events(states, goals)
        names = (*self.event_names, NOTHING, SEVERAL)
        one = happened.sum(axis=1) == 1
        codes = np.where(one, happened.argmax(axis=1), np.where(changed, len(names) - 1, len(names) - 2))
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
            return _cubes(states.objects(dataset_name, data).cubes)
        if kind.endswith("maze"):
            return _maze(data)
        layout = find_layout(dataset_name)
        seen = data.observations if len(data.observation_shape) == 1 else None
        sides = Rule().values(layout, layout.measure(seen, data.info)).astype(np.int64)
        if layout.patterns:
            return _lights(layout, sides)
        if kind == "scene":
            return _with_cube(_parts(layout, sides), states.objects(dataset_name, data).cubes[:, 0])
        return _parts(layout, sides)
    except CtaError:
        return Semantics()


def _lights(layout: Layout, lights: np.ndarray) -> Semantics:
    """One event for each button: the lights that differ are exactly those it flips."""
    count = len(layout.components)
    patterns = np.array([[light in flips for light in range(count)] for flips in layout.patterns], np.int64)

    def events(states: np.ndarray, goals: np.ndarray) -> Happened:
        flipped = lights[states] ^ lights[goals]
        return np.all(flipped[:, None] == patterns[None], axis=-1), np.asarray(flipped.any(axis=1))

    names = tuple(f"press {i}" for i in range(len(patterns)))
    return Semantics(names, events, lights, (("0", "1"),) * count, joiner="")


def _parts(layout: Layout, sides: np.ndarray) -> Semantics:
    """Two events for each component: becoming 1 and becoming 0."""
    names, words = [], []
    for component in layout.components:
        thing = component.name.removesuffix("_lock")
        if component.name == "cube":
            names += ["put the cube into the drawer", "take the cube out of the drawer"]
        else:
            verbs = ("open", "close") if component.travel is not None else ("unlock", "lock")
            names += [f"{verb} the {thing}" for verb in verbs]
        words.append(tuple(f"{thing} {value}" for value in component.values))

    def events(states: np.ndarray, goals: np.ndarray) -> Happened:
        step = sides[goals] - sides[states]
        happened = np.stack([step == 1, step == -1], axis=-1).reshape(len(states), -1)
        return happened, np.asarray(happened.any(axis=1))

    return Semantics(tuple(names), events, sides, tuple(words))


def _with_cube(scene: Semantics, cube: np.ndarray) -> Semantics:
    """Also moving the cube about on the table."""
    inside = scene.sides[:, -1] == 1
    within = scene.events
    assert within is not None

    def events(states: np.ndarray, goals: np.ndarray) -> Happened:
        happened, changed = within(states, goals)
        moved = np.linalg.norm(cube[goals] - cube[states], axis=1) > MOVED
        # A cube that lies in the drawer travels with it, and going in or out has its own name.
        moved &= ~(inside[states] | inside[goals])
        return np.concatenate([happened, moved[:, None]], axis=1), changed | moved

    return Semantics((*scene.event_names, "move the cube"), events, scene.sides, scene.words)


def _cubes(cubes: np.ndarray) -> Semantics:
    """Moving one of the cubes (rows, n, 3); a context says where on the table each of them is, roughly."""
    x, y, z = np.moveaxis(cubes, -1, 0)
    sides = np.stack([x > TABLE_MIDDLE, y > 0, z > LIFTED], axis=-1).astype(np.int64).reshape(len(cubes), -1)

    def events(states: np.ndarray, goals: np.ndarray) -> Happened:
        moved = np.linalg.norm(cubes[goals] - cubes[states], axis=-1) > MOVED
        return moved, moved.any(axis=1)

    numbers = range(cubes.shape[1])
    words = tuple(
        pair for i in numbers for pair in ((f"cube {i} near", f"cube {i} far"), ("right", "left"), ("down", "up"))
    )
    return Semantics(tuple(f"move cube {i}" for i in numbers), events, sides, words)


def _maze(data: TrajectoryDataset) -> Semantics:
    """A task is a direction, a context the cell it starts from."""
    xy = states.places(data)
    cells = np.floor(xy / MAZE_UNIT + 0.5).astype(np.int64)
    cells -= cells.min(axis=0)

    def events(states: np.ndarray, goals: np.ndarray) -> Happened:
        step = xy[goals] - xy[states]
        far = np.linalg.norm(step, axis=1) > MAZE_MOVE
        octant = np.round(np.arctan2(step[:, 1], step[:, 0]) / (np.pi / 4)).astype(np.int64) % len(DIRECTIONS)
        return (octant[:, None] == np.arange(len(DIRECTIONS))) & far[:, None], far

    words = tuple(tuple(f"{axis} {i}" for i in range(int(cells[:, c].max()) + 1)) for c, axis in enumerate("xy"))
    return Semantics(tuple(f"go {direction}" for direction in DIRECTIONS), events, cells, words)
