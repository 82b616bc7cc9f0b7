"""All arithmetic of scores: a seed's score, mean and deviation over seeds, intervals, interquartile mean. In %."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev, stdev
from typing import NamedTuple

from cta.scores.schema import Score

LAST_EVALUATIONS = 3  # a seed's score is the mean over this many evaluations at the end of training
KINDS = ("direct", "successes", "lenient")  # what is counted of held-out pairs
Interval = tuple[float, float]
Measured = tuple[float, float, int]  # mean, standard deviation, number of seeds: how a `Summary` begins


class Summary(NamedTuple):
    """Mean ± standard deviation over seeds, the 95% interval of the mean, and the interquartile mean."""

    mean: float
    std: float
    seeds: int
    interval: Interval | None
    iqm: float

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.std:.1f}" if self.seeds > 1 else "")


def by_evaluation(scores: Iterable[Score], kind: str = "successes") -> dict[int, dict[int, float]]:
    """{seed: {step: mean over tasks}}, in order of steps."""
    rates: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for score in scores:
        rates[score.seed][score.step].append(100 * getattr(score, kind) / score.episodes)
    return {s: {step: fmean(found) for step, found in sorted(steps.items())} for s, steps in sorted(rates.items())}


def seed_scores(scores: Iterable[Score], kind: str = "successes", *, last: int = LAST_EVALUATIONS) -> dict[int, float]:
    """{seed: its score}: the mean over tasks, averaged over its last three evaluations, or as many as there are."""
    found = by_evaluation(scores, kind)
    return {seed: fmean([*by_step.values()][-last:]) for seed, by_step in found.items()}


def task_scores(scores: Iterable[Score], kind: str = "successes") -> dict[str, dict[int, float]]:
    """{task: {seed: score}}, in order of tasks."""
    tasks: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        tasks[score.task].append(score)
    return {task: seed_scores(tasks[task], kind) for task in sorted(tasks, key=lambda task: (len(task), task))}


def missing_seeds(scores: Sequence[Score], seeds: Iterable[int]) -> list[int]:
    """The seeds of a run without a score at its newest evaluation: they cannot count in its mean."""
    last = max((score.step for score in scores), default=0)
    return sorted(set(seeds) - {score.seed for score in scores if score.step == last})


def curve(scores: Sequence[Score]) -> list[tuple[int, float, float]]:
    """(step, mean, deviation over seeds) of the evaluations that have every task."""
    tasks = {score.task for score in scores}
    there = Counter((score.seed, score.step) for score in scores)
    steps: dict[int, list[float]] = defaultdict(list)
    for seed, by_step in by_evaluation(scores).items():
        for step, rate in by_step.items():
            if there[seed, step] == len(tasks):
                steps[step].append(rate)
    return [(step, fmean(rates), pstdev(rates)) for step, rates in sorted(steps.items())]


def summarise(scores: Iterable[Score], kind: str = "successes") -> Summary:
    """Of at least one score. The interval is over seeds; the interquartile mean over seeds and tasks."""
    scores = list(scores)
    found = [*seed_scores(scores, kind).values()]
    cells = [rate for by_seed in task_scores(scores, kind).values() for rate in by_seed.values()]
    return Summary(fmean(found), pstdev(found), len(found), mean_interval(found), iqm(cells))


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's 95% interval of the mean of seeds, within 0 and 100; a single seed has none."""
    if len(values) < 2:
        return None
    half = _quantile(len(values) - 1) * stdev(values) / len(values) ** 0.5
    return max(0.0, fmean(values) - half), min(100.0, fmean(values) + half)


def difference(ours: Measured, theirs: Measured) -> tuple[float, Interval | None]:
    """Ours − theirs and its 95% interval, Welch's; deviations are divided by n, as ours are (the paper's: unknown)."""
    gap, half = ours[0] - theirs[0], _half_width(ours, theirs, ours[2], theirs[2])
    return gap, None if half is None else (gap - half, gap + half)


def seeds_to_tell(ours: Measured, theirs: Measured, most: int = 1000) -> int | None:
    """The fewest seeds of each whose `difference` would have an interval without zero, if mean and spread stayed."""
    gap = abs(ours[0] - theirs[0])
    halves = ((count, _half_width(ours, theirs, count, count)) for count in range(2, most + 1))
    return next((count for count, half in halves if half is not None and half < gap), None)


def _half_width(ours: Measured, theirs: Measured, *counts: int) -> float | None:
    """Half of Welch's interval for so many seeds with the spread of these; a single seed has no spread."""
    if min(ours[2], theirs[2]) < 2:
        return None
    # A deviation divided by n is too small by the factor √((n−1)/n).
    variances = [std**2 * seeds / (seeds - 1) for _, std, seeds in (ours, theirs)]
    parts = [(variance / count, count - 1) for variance, count in zip(variances, counts, strict=True)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    return _quantile(variance**2 / sum(part**2 / degrees for part, degrees in parts)) * variance**0.5


def iqm(values: Sequence[float]) -> float:
    """The mean of the middle half."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])


def _quantile(freedom: float) -> float:
    from scipy.stats import t  # a second to import

    return float(t.ppf(0.975, freedom))
