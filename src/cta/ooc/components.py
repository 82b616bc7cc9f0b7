"""What a world's rows say in discrete terms: parts open or closed, locks, lights, and how presses flip lights.

A `Layout` measures a world's components from a dataset's `qpos` and `button_states` or, where those are missing, from
the observations: a sliding part by how far it is open, everything else by 0 or 1. A `Rule` turns that into values.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cta.envs.names import DESK_DATASETS, lights_patterns
from cta.errors import CtaError

Value = str | int

DRAWER_TRAVEL, WINDOW_TRAVEL = 0.16, 0.2
HANDLE_SHUT = -0.24  # y of the drawer's handle when the drawer is shut
DRAWER_LOW, DRAWER_HIGH = np.array([0.21, -0.27, 0.0]), np.array([0.45, -0.07, 0.15])  # inside; y from the handle


@dataclass(frozen=True)
class Component:
    """One discrete thing that can change: its name and what 0 and 1 mean; `travel` is the range of a sliding part."""

    name: str
    values: tuple[Value, Value]
    travel: float | None = None

    @property
    def span(self) -> float:
        """The largest measurement; whatever does not slide is measured by 0 or 1."""
        return self.travel or 1.0


@dataclass(frozen=True)
class Layout:
    """The components of a world and how to measure them."""

    name: str
    components: tuple[Component, ...]
    measure: Callable[[np.ndarray | None, Mapping[str, np.ndarray]], np.ndarray]
    """(observations or None, info arrays) → (N, C) float64, one column per component."""
    patterns: tuple[tuple[int, ...], ...] = ()  # patterns[i] are the lights that button i flips, where there are any
    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """needs[c] is {component: value} that must hold for component c to be moved at all."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(component.name for component in self.components)

    @cached_property
    def flips(self) -> np.ndarray:
        """flips[i, j] ⇔ button i flips light j."""
        return np.array([[light in lights for light in range(len(self.components))] for lights in self.patterns], bool)

    def index(self, name: str) -> int:
        return self.names.index(name)

    def say(self, name: str, value: int) -> Value:
        """The value in words: ("drawer", 1) → "open"."""
        return self.components[self.index(name)].values[value] if value >= 0 else "between"


@dataclass(frozen=True)
class Rule:
    """Where a sliding part counts as open or closed, and where its crossing counts as an event, in units of its travel.

    context[part] = τ: closed ⇔ opening ≤ τ, open ⇔ opening ≥ travel − τ. event[part] = e: in the event's step the
    distance to its end falls to e or less. Both are half the travel by default; the mid-point itself is closed.
    """

    context: Mapping[str, float] = field(default_factory=dict)
    event: Mapping[str, float] = field(default_factory=dict)

    def check(self, layout: Layout, where: str = "") -> None:
        """Complain about thresholds that no part has or that make no sense, in one line that begins with `where`."""
        travels = {part.name: part.travel for part in layout.components if part.travel is not None}
        for kind, chosen, share in (("threshold", self.context, 0.5), ("event threshold", self.event, 1.0)):
            for name, value in chosen.items():
                if name not in travels:
                    there = ", ".join(travels) or "none"
                    raise CtaError(f"{where}{kind} of '{name}': the sliding parts of {layout.name} are: {there}")
                largest = share * travels[name]
                if not 0 < value <= largest:
                    raise CtaError(f"{where}{kind} of '{name}': {value:g} is not in (0, {largest:g}]")

    def values(self, layout: Layout, measured: np.ndarray) -> np.ndarray:
        """(N, C) int8: the value of every component at every row; −1 is a part between its ends."""
        values = np.empty(measured.shape, np.int8)
        for column, component in enumerate(layout.components):
            extent, half = measured[:, column], component.span / 2
            tolerance = self.context.get(component.name, half)
            is_open = extent > half if tolerance >= half else extent >= component.span - tolerance
            values[:, column] = np.where(extent <= tolerance, 0, np.where(is_open, 1, -1))
        return values

    def reached(self, component: Component, extent: np.ndarray, value: int) -> np.ndarray:
        """(N,) bool: whether the component has completed the move to `value`, by the event's own threshold."""
        half = component.span / 2
        distance = self.event.get(component.name, half)
        if value == 0:
            return extent <= distance
        # At the mid-point "open" is exactly "not closed", whatever the rounding of travel − extent.
        return extent > half if distance == half else extent >= component.span - distance


def find_layout(dataset_name: str) -> Layout:
    """The layout of a dataset's world, also of its noisy and visual forms."""
    if dataset_name in DESK_DATASETS:
        return _desk_layout(dataset_name)
    named = re.fullmatch(r"(?:visual-)?(scene|puzzle-(\d)x(\d))-[^-]+-[^-]+", dataset_name)
    if named is None:
        raise CtaError(
            f"'{dataset_name}' is no dataset with pairs to hold out: these are scene-play-v0, puzzle-RxC-play-v0, "
            "desk-play-v0 and lights-RxC-play-v0; a file is known by its name (scene-play-v0.npz) or by --env"
        )
    return SCENE if named[1] == "scene" else _puzzle_layout(named[1], int(named[2]), int(named[3]))


def _puzzle_layout(name: str, rows: int, columns: int) -> Layout:
    count = rows * columns

    def measure(observations: np.ndarray | None, info: Mapping[str, np.ndarray]) -> np.ndarray:
        if "button_states" in info:
            return _wide(info["button_states"], count, "button_states", name)
        states = _wide(observations, 19 + 4 * count, "observations", name)
        return (states[:, 20::4] > states[:, 19::4]).astype(float)

    lights = tuple(Component(f"light{i}", (0, 1)) for i in range(count))
    return Layout(name, lights, measure, lights_patterns(rows, columns))


def _measure_scene(observations: np.ndarray | None, info: Mapping[str, np.ndarray]) -> np.ndarray:
    if {"qpos", "button_states"} <= set(info):
        qpos = np.asarray(info["qpos"], float)
        if qpos.ndim != 2 or qpos.shape[1] < 25:
            raise CtaError(f"qpos has shape {qpos.shape}; scene needs at least 25 columns")
        locks = _wide(info["button_states"], 2, "button_states", "scene")
        cube, drawer, window = qpos[:, 14:17], -qpos[:, 23], qpos[:, 24]
    else:
        states = _wide(observations, 40, "observations", "scene")
        cube, drawer, window = states[:, 19:22] / 10 + (0.425, 0.0, 0.0), -states[:, 36] / 18, states[:, 38] / 15
        locks = np.stack([states[:, 29] > states[:, 28], states[:, 33] > states[:, 32]], axis=1)
    handle = np.zeros_like(cube)
    handle[:, 1] = HANDLE_SHUT + drawer
    inside = ((cube - handle >= DRAWER_LOW) & (cube - handle <= DRAWER_HIGH)).all(axis=1)
    return np.stack([drawer, window, locks[:, 0], locks[:, 1], inside], axis=1).astype(float)


CLOSED_OPEN, LOCKED_UNLOCKED = ("closed", "open"), ("locked", "unlocked")
SCENE = Layout(
    "scene",
    (
        Component("drawer", CLOSED_OPEN, DRAWER_TRAVEL),
        Component("window", CLOSED_OPEN, WINDOW_TRAVEL),
        Component("drawer_lock", LOCKED_UNLOCKED),
        Component("window_lock", LOCKED_UNLOCKED),
        Component("cube", ("outside", "inside")),
    ),
    _measure_scene,
    needs={"drawer": {"drawer_lock": 1}, "window": {"window_lock": 1}, "cube": {"drawer": 1}},
)


def _desk_layout(dataset_name: str) -> Layout:
    """An embedded world: its parts, then its bits, each named after the part it locks, or as a light."""
    from cta.envs.desk import decode  # JAX
    from cta.envs.desk_vector import world_of

    world = world_of(dataset_name)
    names = {bit: f"{part.name}_lock" for part in world.parts for bit in part.locks}
    bits = tuple(
        Component(names[i], LOCKED_UNLOCKED) if i in names else Component(f"light{i}", (0, 1))
        for i in range(len(world.buttons))
    )
    parts = tuple(Component(part.name, CLOSED_OPEN, 1.0) for part in world.parts)

    def measure(observations: np.ndarray | None, info: Mapping[str, np.ndarray]) -> np.ndarray:
        if {"qpos", "button_states"} <= set(info):
            moved = _wide(info["qpos"], 3 + len(parts), "qpos", world.name)[:, 3:]
            return np.concatenate([moved, _wide(info["button_states"], len(bits), "button_states", world.name)], axis=1)
        state = decode(world, _wide(observations, world.observation_dim, "observations", world.name))
        return np.concatenate([state.parts, state.bits], axis=1).astype(float)

    patterns = tuple(tuple(sorted(button.toggles)) for button in world.buttons) if not world.parts else ()
    needs = {part.name: {names[bit]: 1 for bit in part.locks} for part in world.parts if part.locks}
    return Layout(world.name, parts + bits, measure, patterns, needs)


def _wide(array: np.ndarray | None, columns: int, key: str, world: str) -> np.ndarray:
    """An array of so many columns, as float64; complains about any other, and about images."""
    if array is None or (key == "observations" and array.ndim != 2):
        needed = "the file needs the arrays qpos and button_states"
        raise CtaError(f"{world}: images do not show the state in numbers: {needed}")
    if array.ndim != 2 or array.shape[1] != columns:
        raise CtaError(f"{key} has shape {array.shape}; {world} has {columns} columns")
    return np.asarray(array, float)
