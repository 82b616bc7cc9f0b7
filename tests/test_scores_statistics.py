"""The arithmetic of scores, and how often its intervals hold."""

from statistics import fmean, pstdev

import numpy as np
import pytest
from scipy.stats import ttest_ind

from cta.scores.schema import Score
from cta.scores.statistics import curve, difference, iqm, mean_interval, missing_seeds, seed_scores, summarise


def score(seed, step, task, wins, episodes=10, **pair):
    return Score("d", "a", "", "whole", seed, step, str(task), episodes, wins, **pair)


def test_a_seeds_score_is_the_mean_over_tasks_of_its_last_three_evaluations():
    rows = [score(0, step, task, wins) for step, wins in ((1, 9), (2, 3), (3, 6), (4, 0)) for task in (1, 2)]
    rows += [score(5, 4, 1, 1), score(5, 4, 2, 0)]
    assert seed_scores(rows) == {0: pytest.approx(30), 5: pytest.approx(5)}
    assert seed_scores(rows, last=1) == {0: 0, 5: pytest.approx(5)}
    assert missing_seeds([*rows, score(0, 5, 1, 1)], (0, 5, 6)) == [5, 6]


def test_rates_of_pairs():
    rows = [score(seed, 1, "pair1", 8, direct=2 + 2 * seed, lenient=5) for seed in (0, 1)]
    assert (summarise(rows, "direct").mean, summarise(rows, "direct").std) == (30, 10)
    assert summarise(rows).mean == 80 and summarise(rows, "lenient").std == 0


def test_a_curve_has_the_evaluations_with_every_task():
    rows = [score(seed, step, task, 5 + seed) for seed in (0, 1) for step in (1, 2) for task in (1, 2)][:-1]
    assert curve(rows) == [(1, 55, 5), (2, 50, 0)]


def test_the_interquartile_mean_by_hand():
    # Of 0, 1, …, 7 the middle half is 2, 3, 4, 5.
    assert iqm([7, 0, 1, 6, 2, 5, 3, 4]) == 3.5
    found = summarise([score(seed, 1, task, 4 * seed + task - 1, 100) for seed in (0, 1) for task in (1, 2, 3, 4)])
    assert found.iqm == pytest.approx(3.5) and found.mean == pytest.approx(3.5) and found.std == pytest.approx(2.0)
    assert found.interval is not None and found.interval[0] == 0.0 and found.interval[1] > 20
    assert mean_interval([50.0]) is None and str(summarise([score(0, 1, 1, 5)])) == "50.0"


def test_the_interval_of_a_difference_is_that_of_welchs_test():
    ours, theirs = [76.0, 78, 80, 82], [81.0, 83, 84, 84, 85, 87, 80, 88]
    gap, interval = difference(*((fmean(scores), pstdev(scores), len(scores)) for scores in (ours, theirs)))
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    assert gap == pytest.approx(fmean(ours) - fmean(theirs)) and interval == pytest.approx(tuple(expected))
    assert difference((80, 0, 4), (78, 0, 8)) == (2, (2, 2)) and difference((80, 0, 1), (78, 1, 8))[1] is None


def stratified_bootstrap(rates, generator, repetitions=400):
    """What the tables had before: seeds resampled for each task independently."""
    seeds, tasks = rates.shape
    drawn = generator.integers(seeds, size=(repetitions, seeds, tasks))
    return np.percentile(rates[drawn, np.arange(tasks)].mean(axis=(1, 2)), [2.5, 97.5])


def test_the_interval_covers_and_the_former_one_did_not():
    """Four seeds whose tasks rise and fall together: of 1,500 intervals 95 % must hold the true mean."""
    generator = np.random.default_rng(0)
    held = {"t": 0, "bootstrap": 0}
    trials = 1500
    for _ in range(trials):
        seeds = generator.normal(60, 6, size=(4, 1)) + generator.normal(0, 3, size=(4, 5))
        low, high = mean_interval(seeds.mean(axis=1).tolist())
        held["t"] += low <= 60 <= high
        low, high = stratified_bootstrap(seeds, generator, 200)
        held["bootstrap"] += low <= 60 <= high
    assert 0.935 <= held["t"] / trials <= 0.965
    assert held["bootstrap"] / trials < 0.8
