"""What an agent is asked to do: one fixed, seeded list of starts and goals for each held-out pair.

A start has the pair's context, a goal differs from it by the pair's task alone. What the context leaves open is either
forced (a drawer that is to be opened must be unlocked), drawn (the cube's place, other lights), or goes through all
combinations in turn, so that episode 0 has the first free component at 0, episode 1 at 1, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cta.errors import CtaError
from cta.ooc.components import DRAWER_TRAVEL, WINDOW_TRAVEL, Layout
from cta.ooc.pairs import PRESS, HeldOut, Pair

if TYPE_CHECKING:
    from cta.envs.desk import DeskTask

EPISODES, MOST_EPISODES = 50, 1_000_000
TABLE_LOW, TABLE_HIGH = (0.3, -0.07), (0.45, 0.18)
"""Where the cube lies on the table: OGBench's own bounds."""
CUBE_ON_TABLE, CUBE_IN_DRAWER = 0.02, 0.066
DRAWER_MIDDLE = {0: (0.33, -0.356), 1: (0.33, -0.24)}
"""Where a cube lies in the shut and in the open drawer."""


@dataclass(frozen=True)
class Trial:
    """One episode: the pair's number, the episode's, the seed of its noise, and all components at start and goal.

    `cube` is (start, goal) of the scene's cube, each (x, y, z).
    """

    pair: int
    episode: int
    seed: int
    start: Mapping[str, int]
    goal: Mapping[str, int]
    cube: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def make_trials(held_out: HeldOut, *, episodes: int = EPISODES, seed: int = 0) -> list[Trial]:
    """The list: `episodes` for every pair, the same for every method, seed and evaluation."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise CtaError(f"an evaluation needs at least one episode per pair and at most {MOST_EPISODES}, not {episodes}")
    if seed < 0:
        raise CtaError(f"the seed of starts and goals is 0 or more, not {seed}")
    layout = held_out.layout
    trials = []
    for number, pair in held_out.numbered():
        fixed = _fixed(pair, layout, number)
        for episode in range(episodes):
            rng = np.random.default_rng((seed, number, episode))
            start = _start(fixed, layout, rng, episode)
            goal = _goal(start, pair, layout)
            cube = _cube(start, goal, rng) if layout.name == "scene" else None
            trials.append(Trial(number, episode, int(rng.integers(2**32)), start, goal, cube))
    return trials


def _fixed(pair: Pair, layout: Layout, number: int) -> dict[str, int]:
    """What every start of a pair has in common; complains about a task that cannot be done in its context."""
    what, value = pair.event
    fixed = dict(pair.context)
    if what == PRESS:
        return fixed
    fixed[what] = 1 - value
    for name, needed in layout.needs.get(what, {}).items():
        if fixed.setdefault(name, needed) != needed:
            said, wanted = layout.say(name, fixed[name]), layout.say(name, needed)
            raise CtaError(
                f"pair {number} cannot be asked for: its context has {name} {said}, but {what} moves only with {wanted}"
            )
    return fixed


def _start(fixed: Mapping[str, int], layout: Layout, rng: np.random.Generator, episode: int) -> dict[str, int]:
    free = [name for name in layout.names if name not in fixed]
    if layout.patterns:
        drawn = dict(zip(free, rng.integers(0, 2, len(free)).tolist(), strict=True))
    else:
        free = [name for name in free if name != "cube"]  # it lies on the table
        drawn = {"cube": 0} if "cube" in layout.names else {}
        drawn |= {name: episode >> place & 1 for place, name in enumerate(free)}
    start = {**drawn, **fixed}
    return {name: start[name] for name in layout.names}


def _goal(start: Mapping[str, int], pair: Pair, layout: Layout) -> dict[str, int]:
    what, value = pair.event
    if what != PRESS:
        return {**start, what: value}
    return {**start, **{name: 1 - start[name] for name in (layout.names[i] for i in layout.patterns[value])}}


def _cube(
    start: Mapping[str, int], goal: Mapping[str, int], rng: np.random.Generator
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Where the scene's cube starts and ends: it stays where it is unless it is the task, or rides in the drawer."""

    def place(state: Mapping[str, int]) -> tuple[float, ...]:
        if state["cube"]:
            return (*DRAWER_MIDDLE[state["drawer"]], CUBE_IN_DRAWER)
        return (*rng.uniform(TABLE_LOW, TABLE_HIGH).tolist(), CUBE_ON_TABLE)

    first = place(start)
    if start["cube"] != goal["cube"]:
        return first, place(goal)
    if start["cube"]:
        ride = DRAWER_TRAVEL * (goal["drawer"] - start["drawer"])
        return first, (first[0], first[1] + ride, first[2])
    return first, first


def task_info(trial: Trial, layout: Layout) -> dict[str, Any]:
    """The trial as OGBench's `task_info`."""
    name = f"pair{trial.pair}_episode{trial.episode}"
    if trial.cube is None:
        states = [np.array([state[key] for key in layout.names]) for state in (trial.start, trial.goal)]
        return {"task_name": name, "init_button_states": states[0], "goal_button_states": states[1]}

    def scene(state: Mapping[str, int], cube: tuple[float, ...]) -> dict[str, Any]:
        return {
            "block_xyzs": np.array([cube]),
            "button_states": np.array([state["drawer_lock"], state["window_lock"]]),
            "drawer_pos": -DRAWER_TRAVEL * state["drawer"],
            "window_pos": WINDOW_TRAVEL * state["window"],
        }

    return {"task_name": name, "init": scene(trial.start, trial.cube[0]), "goal": scene(trial.goal, trial.cube[1])}


def desk_task(trial: Trial, layout: Layout) -> "DeskTask":
    """The trial as a task of an embedded world."""
    from cta.envs.desk import DeskTask

    parts = [c.name for c in layout.components if c.travel is not None]
    bits = [c.name for c in layout.components if c.travel is None]
    sides = [tuple(state[key] for key in keys) for state in (trial.start, trial.goal) for keys in (parts, bits)]
    return DeskTask(f"pair{trial.pair}_episode{trial.episode}", *sides)
