"""Composition: success against the least number of presses, over many random starts and goals for each number.

The list of starts and goals is the same for every method, seed and checkpoint, and a longer list begins with a shorter
one. Boards of the embedded lights and of OGBench's puzzles are asked in the same way.
"""

from typing import Any

import numpy as np

from cta.envs.lights import board_of
from cta.envs.names import DESK_DATASETS, family
from cta.envs.protocol import Episode
from cta.errors import CtaError
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import EPISODES, MakePolicy, Progress, scores

MOST_EPISODES = 1_000_000


def press_numbers(dataset_name: str, most: int | None = None) -> range:
    """1, 2, … up to what the hardest goal of the board needs, or to the `most` that are wanted."""
    hardest = board_of(dataset_name).hardest
    return range(1, min(hardest, most or hardest) + 1)


def press_names(dataset_name: str) -> tuple[str, ...]:
    """The tasks of their scores: presses1, presses2, …"""
    return tuple(f"presses{number}" for number in press_numbers(dataset_name))


def draw_boards(dataset_name: str, presses: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and goals, (count, lights) each: fair coins, and what exactly so many presses at least lead to."""
    board = board_of(dataset_name)
    starts = np.random.default_rng((seed, presses, 0)).integers(0, 2, (count, board.lights), np.uint8)
    return starts, starts ^ board.draw(presses, count, np.random.default_rng((seed, presses, 1)))


def plan_presses(dataset_name: str, *, episodes: int, seed: int = 0, most: int | None = None) -> list[Episode]:
    """All episodes, sorted by number of presses, which is an episode's task."""
    if not 1 <= episodes <= MOST_EPISODES or seed < 0:
        raise CtaError(f"an evaluation has 1 to {MOST_EPISODES} episodes per number of presses, and a seed from 0 on")
    planned = []
    for number in press_numbers(dataset_name, most):
        noise = np.random.default_rng((seed, number, 2)).integers(0, 2**32, episodes).tolist()
        pairs = zip(*draw_boards(dataset_name, number, episodes, seed), strict=True)
        for episode, (start, goal) in enumerate(pairs):
            own = _task(dataset_name, f"presses{number}_episode{episode}", start, goal)
            planned.append(Episode(number, noise[episode], own, episode))
    return planned


def _task(dataset_name: str, name: str, start: np.ndarray, goal: np.ndarray) -> Any:
    """As the world is asked for it: a `DeskTask`, or OGBench's `task_info`."""
    if dataset_name not in DESK_DATASETS:
        return {"task_name": name, "init_button_states": start.astype(int), "goal_button_states": goal.astype(int)}
    from cta.envs.desk import DeskTask  # JAX

    return DeskTask(name, (), tuple(start.tolist()), (), tuple(goal.tolist()))


def with_lights(dataset_name: str, observations: np.ndarray, boards: np.ndarray) -> np.ndarray:
    """State observations (N, …) with other lights (N, lights) and all else as it was."""
    changed = np.array(observations, np.float32)
    count = board_of(dataset_name).lights
    if family(dataset_name) == "lights":
        changed[:, -count:] = 2.0 * boards - 1.0
    else:
        shown = changed[:, 19 : 19 + 4 * count]
        shown[:, 0::4], shown[:, 1::4] = 1.0 - boards, boards
    return changed


class PressEvaluator(Evaluator):
    """An `Evaluator` with the fixed list of starts and goals of a board."""

    def __init__(
        self, dataset_name: str, *, episodes: int = EPISODES, seed: int = 0, most: int | None = None, **options: Any
    ) -> None:
        self.planned = plan_presses(dataset_name, episodes=episodes, seed=seed, most=most)
        super().__init__(dataset_name, **options)

    def ask(self, make_policy: MakePolicy, *, progress: Progress | None = None) -> dict[str, tuple[int, int]]:
        """{presses1: (episodes, successes), …} of a policy."""
        found = scores(self.play(make_policy, self.planned, progress=progress))
        return {f"presses{number}": counts for number, counts in found.items()}
