"""Which episodes an evaluation consists of, and what is made of their outcomes. No simulator and no JAX in here."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cta.envs.protocol import Episode
from cta.errors import CtaError

TASKS = (1, 2, 3, 4, 5)
EPISODES = 50
LAST_EVALUATIONS = 3
"""A seed's score is the mean over this many evaluations at the end of training."""


@dataclass(frozen=True, order=True)
class EpisodeResult:
    """One evaluation episode: `success` is the flag of its last step, number `steps`; `seed` replays it."""

    task: int
    episode: int
    seed: int
    success: bool
    steps: int


def episode_seed(eval_seed: int, run_seed: int, task: int, episode: int) -> int:
    """The seed of an episode: the same start, goal and settling steps at every checkpoint and for every method."""
    return int(np.random.SeedSequence((eval_seed, run_seed, task, episode)).generate_state(1)[0])


def plan_episodes(
    *, run_seed: int, tasks: Sequence[int] = TASKS, episodes: int = EPISODES, eval_seed: int = 0
) -> list[EpisodeResult]:
    """All episodes of an evaluation, not played yet, sorted by task and number."""
    if not tasks or episodes < 1:
        raise CtaError("an evaluation needs at least one task and one episode")
    numbers = [(task, episode) for task in sorted(set(tasks)) for episode in range(episodes)]
    return [
        EpisodeResult(task, episode, episode_seed(eval_seed, run_seed, task, episode), success=False, steps=0)
        for task, episode in numbers
    ]


def as_episode(planned: EpisodeResult) -> Episode:
    """What a world needs to know to begin it."""
    return Episode(task=planned.task, seed=planned.seed)


def scores(results: Iterable[EpisodeResult]) -> dict[int, tuple[int, int]]:
    """{task: (episodes, successes)}, in order of task."""
    counts: dict[int, list[bool]] = defaultdict(list)
    for result in results:
        counts[result.task].append(result.success)
    return {task: (len(counts[task]), sum(counts[task])) for task in sorted(counts)}


def overall_success(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """{(seed, step): mean over tasks of successes / episodes} from rows of `eval.csv` (values may still be text)."""
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows:
        try:
            seed, step, successes, episodes = (int(row[key]) for key in ("seed", "step", "successes", "episodes"))
            if not 0 <= successes <= episodes or episodes == 0:
                raise ValueError(f"{successes} successes in {episodes} episodes")
        except (KeyError, ValueError) as error:
            reason = f"it has no column {error}" if isinstance(error, KeyError) else error
            raise CtaError(f"a row of scores cannot be read ({reason}): mend or remove it") from None
        rates[seed, step].append(successes / episodes)
    return {key: sum(values) / len(values) for key, values in sorted(rates.items())}


def seed_scores(rows: Iterable[Mapping[str, Any]], *, last: int = LAST_EVALUATIONS) -> dict[int, float]:
    """{seed: score in [0, 1]}: the mean of the overall success at the last three evaluations (or as many as there are).

    `rows` are those of one agent on one dataset, with the columns of `eval.csv`: seed, step, task, episodes, successes.
    """
    curves: dict[int, list[float]] = defaultdict(list)
    for (seed, _), rate in overall_success(rows).items():
        curves[seed].append(rate)
    return {seed: sum(curve[-last:]) / len(curve[-last:]) for seed, curve in curves.items()}


def missing_seeds(rows: Sequence[Mapping[str, Any]], seeds: Iterable[int]) -> list[int]:
    """The seeds of a run without a score at its newest evaluation: they cannot count in its mean."""
    last = max((int(row["step"]) for row in rows), default=0)
    return sorted(set(seeds) - {int(row["seed"]) for row in rows if int(row["step"]) == last})
