"""All arithmetic of scores: a seed's score, mean and deviation over seeds, intervals, interquartile mean. In %."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev

from cta.scores.schema import Score

LAST_EVALUATIONS = 3
"""A seed's score is the mean over this many evaluations at the end of training."""
KINDS = ("direct", "successes", "lenient")
"""What is counted of held-out pairs."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Summary:
    """Mean ± standard deviation over seeds, the 95% interval of the mean, and the interquartile mean."""

    mean: float
    std: float
    seeds: int
    interval: Interval | None
    iqm: float

    def __str__(self) -> str:
        return mean_text(self.mean, self.std, self.seeds)


def mean_text(mean: float, std: float, seeds: int) -> str:
    """Mean ± deviation; one seed has no deviation."""
    return f"{mean:.1f}" + (f" ± {std:.1f}" if seeds > 1 else "")


def by_evaluation(scores: Iterable[Score], kind: str = "successes") -> dict[int, dict[int, float]]:
    """{seed: {step: mean over tasks}}, in order of steps."""
    rates: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for score in scores:
        rates[score.seed][score.step].append(100 * getattr(score, kind) / score.episodes)
    return {
        seed: {step: fmean(found) for step, found in sorted(by_step.items())} for seed, by_step in sorted(rates.items())
    }


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
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    for score in scores:
        found[score.seed, score.step].add(score.task)
    steps: dict[int, list[float]] = defaultdict(list)
    for seed, by_step in by_evaluation(scores).items():
        for step, rate in by_step.items():
            if found[seed, step] == tasks:
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


def difference(ours: tuple[float, float, int], theirs: tuple[float, float, int]) -> tuple[float, Interval | None]:
    """Ours − theirs and its 95% interval, each a mean and a deviation over n seeds (divided by n, as ours; of the
    paper's that is not known).

    Welch's: the two may spread differently and have different numbers of seeds.
    """
    gap = ours[0] - theirs[0]
    if min(ours[2], theirs[2]) < 2:
        return gap, None
    # Variance of each mean; a deviation divided by n is too small by the factor √((n−1)/n).
    parts = [(std**2 / (seeds - 1), seeds - 1) for _, std, seeds in (ours, theirs)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return gap, (gap, gap)
    half = _quantile(variance**2 / sum(part**2 / degrees for part, degrees in parts)) * variance**0.5
    return gap, (gap - half, gap + half)


def seeds_to_tell(ours: tuple[float, float, int], theirs: tuple[float, float, int], most: int = 1000) -> int | None:
    """The fewest seeds of each whose `difference` would have an interval without zero, if mean and spread stayed."""
    if min(ours[2], theirs[2]) < 2:
        return None
    spread = [(mean, std * (seeds / (seeds - 1)) ** 0.5) for mean, std, seeds in (ours, theirs)]
    for count in range(2, most + 1):
        # As `difference` takes them: divided by n, not by n − 1.
        _, interval = difference(*((mean, std * ((count - 1) / count) ** 0.5, count) for mean, std in spread))
        if interval and not interval[0] <= 0 <= interval[1]:
            return count
    return None


def iqm(values: Sequence[float]) -> float:
    """The mean of the middle half."""
    ordered = sorted(values)
    cut = len(ordered) // 4
    return fmean(ordered[cut : len(ordered) - cut])


def _quantile(freedom: float) -> float:
    from scipy.stats import t  # a second to import

    return float(t.ppf(0.975, freedom))
