"""Interquartile means with bootstrap confidence intervals, by rliable."""

import warnings
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

REPETITIONS = 2000
BOOTSTRAP_SEED = 0


class Interval(TypedDict):
    """IQM over seeds × tasks in %, and a 95% interval from resampling the seeds within each task."""

    iqm: float
    low: float
    high: float


def iqm_intervals(by_series: Sequence[dict[int, dict[int, float]]]) -> list[Interval | None]:
    """For each {seed: {task: rate}}: its IQM and interval, or None with fewer than two seeds.

    A bootstrap over one seed would return an interval of no width, which says the opposite of what is known.
    """
    results: list[Interval | None] = []
    for last in by_series:
        tasks = {task for by_task in last.values() for task in by_task}
        complete = [by_task for by_task in last.values() if set(by_task) == tasks]
        results.append(
            _interval(np.array([[at[task] for task in sorted(tasks)] for at in complete]))
            if len(complete) > 1
            else None
        )
    return results


def _interval(matrix: np.ndarray) -> Interval:
    """`matrix` is (seeds, tasks)."""
    from rliable import library, metrics  # seconds to import

    with warnings.catch_warnings():
        # The library hands the random state on by a name its own dependency has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        point, interval = library.get_interval_estimates(
            {"": matrix},
            lambda scores: np.array([metrics.aggregate_iqm(scores)]),
            reps=REPETITIONS,
            random_state=np.random.RandomState(BOOTSTRAP_SEED),
        )
    low, high = 100 * interval[""][:, 0]
    return {"iqm": round(100 * float(point[""][0]), 2), "low": round(float(low), 2), "high": round(float(high), 2)}
