"""Mean, spread, interquartile mean and bootstrap intervals of success rates."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from cta.errors import CtaError

REPETITIONS = 2_000
BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Summary:
    """In %: mean ± standard deviation over seeds; 95% intervals of the mean and of the IQM, from resampling seeds."""

    mean: float
    std: float
    mean_interval: tuple[float, float] | None
    iqm: float
    iqm_interval: tuple[float, float] | None


def summarise(rates: Sequence[Sequence[float]], *, intervals: bool = True) -> Summary:
    """Of rates [seed][task] in [0,1]; one seed alone has no interval, since resampling it shows nothing."""
    import numpy as np

    matrix = 100 * np.asarray(rates, float)
    scores = matrix.mean(axis=1).tolist()
    mean_interval = iqm_interval = None
    iqm = _iqm(matrix)
    if intervals and len(matrix) > 1:
        mean_interval, iqm_interval = _bootstrap(matrix)
    return Summary(fmean(scores), pstdev(scores), mean_interval, iqm, iqm_interval)


def difference_interval(ours: tuple[float, float, int], theirs: tuple[float, float, int]) -> tuple[float, float, float]:
    """Ours − theirs and its 95% interval, each a mean and a deviation over n seeds (divided by n, as ours; of the
    paper's that is not known).

    Welch's: the two may spread differently and have different numbers of seeds.
    """
    from scipy.stats import t

    # Variance of each mean; a deviation divided by n is too small by the factor √((n−1)/n).
    parts = [(std**2 / (seeds - 1), seeds - 1) for _, std, seeds in (ours, theirs)]
    variance = sum(part for part, _ in parts)
    gap = ours[0] - theirs[0]
    if variance == 0:
        return gap, gap, gap
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = float(t.ppf(0.975, freedom)) * variance**0.5
    return gap, gap - half, gap + half


def _iqm(matrix) -> float:
    from scipy.stats import trim_mean

    return float(trim_mean(matrix.ravel(), 0.25))


def _bootstrap(matrix) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seeds are resampled within each task (rliable's stratified bootstrap)."""
    import numpy as np

    try:
        from rliable import library, metrics  # seconds to import
    except ImportError as error:
        raise CtaError(f"intervals need `pip install 'cta[report]'` ({error}); or give --no-intervals") from error

    def both(scores) -> np.ndarray:
        return np.array([metrics.aggregate_mean(scores), metrics.aggregate_iqm(scores)])

    # rliable draws from NumPy's global generator, whatever random state it is given.
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(BOOTSTRAP_SEED)  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            _, found = library.get_interval_estimates({"": matrix}, both, reps=REPETITIONS)
    finally:
        np.random.set_state(before)  # noqa: NPY002
    (mean_low, iqm_low), (mean_high, iqm_high) = found[""].tolist()
    return (mean_low, mean_high), (iqm_low, iqm_high)
