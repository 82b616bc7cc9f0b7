"""The units of an environment, beside those of the networks, which act in [-1,1] and may see them normalised."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cta.errors import CtaError
from cta.io.json_files import check_shape

ROUNDING = 1e-5
"""What an action may lie outside its bounds, as a part of half their distance."""
CONSTANT = 1e-6
"""A number whose standard deviation is a smaller part of its size than this does not change: the rest is rounding."""
FACTS = ("action_low", "action_high", "observation_mean", "observation_scale")


class Bounds(NamedTuple):
    """The lowest and the highest value of each action, (A,) float32."""

    low: np.ndarray
    high: np.ndarray

    def to_unit(self, actions: np.ndarray) -> np.ndarray:
        """Actions between the bounds as numbers in [-1,1], float32; clipped, because of rounding."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        return np.clip(2 * (actions.astype(np.float64) - low) / (high - low) - 1, -1, 1).astype(np.float32)

    def from_unit(self, actions: Any) -> Any:
        """The inverse, of NumPy's arrays and of JAX's."""
        half = (self.high - self.low) / 2
        return actions * half + (self.low + half)

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Which numbers lie outside by more than rounding."""
        slack = ROUNDING * (self.high - self.low) / 2
        return (actions < self.low - slack) | (actions > self.high + slack)

    @property
    def middle(self) -> np.ndarray:
        """The action that is 0 to the networks."""
        return self.low + (self.high - self.low) / 2


def make_bounds(low: Any, high: Any, size: int, *, label: str) -> Bounds | None:
    """Bounds of `size` actions from numbers or arrays; None if they are not stated."""
    if low is None and high is None:
        return None
    try:
        if low is None or high is None:
            raise TypeError
        ends = [np.asarray(np.broadcast_to(np.asarray(end), (size,)), np.float32) for end in (low, high)]
    except (ValueError, TypeError):
        raise CtaError(f"{label}: action_low and action_high must both be a number, or {size} numbers each") from None
    with np.errstate(over="ignore", invalid="ignore"):
        distance = ends[1] - ends[0]
    if not (np.isfinite(distance).all() and (distance > 0).all()):
        raise CtaError(f"{label}: actions need finite bounds, action_low below action_high")
    return Bounds(*ends)


class Normalisation(NamedTuple):
    """Mean and standard deviation of each number of an observation, (D,) float32."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def measured(cls, observations: np.ndarray, *, label: str) -> "Normalisation":
        """Of the rows (N, D) of a dataset; a number that never changes is only shifted."""
        if observations.ndim != 2:
            raise CtaError(f"{label}: observations are images, which are not normalised")
        mean = observations.mean(axis=0, dtype=np.float64)
        # Column by column: in float64 all of them together would be twice the data.
        spread = np.array([column.std(dtype=np.float64) for column in observations.T])
        moves = spread > CONSTANT * np.abs(observations).max(axis=0)
        return cls(mean.astype(np.float32), np.where(moves, spread, 1).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Units:
    """What stands between an environment and the networks of a policy."""

    bounds: Bounds | None = None
    """Of the environment's actions; None if nobody stated them, and then actions are in [-1,1]."""
    normalisation: Normalisation | None = None
    """Of its observations, goals among them; None if the networks see them as they are."""

    def see(self, observations: Any) -> Any:
        """Observations (or goals) of the environment as the networks see them; NumPy's arrays or JAX's."""
        if self.normalisation is None:
            return observations
        return (observations - self.normalisation.mean) / self.normalisation.scale

    def unsee(self, seen: np.ndarray) -> np.ndarray:
        """The inverse."""
        return seen if self.normalisation is None else seen * self.normalisation.scale + self.normalisation.mean

    def act(self, actions: Any) -> Any:
        """The networks' actions, in [-1,1], as the environment's; [-1,1] itself stays as it is, bit for bit."""
        bounds = self.bounds
        if bounds is None or (np.all(bounds.low == -1) and np.all(bounds.high == 1)):
            return actions
        return bounds.from_unit(actions)

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        arrays = [*(self.bounds or (None, None)), *(self.normalisation or (None, None))]
        return {key: None if array is None else array.tolist() for key, array in zip(FACTS, arrays, strict=True)}

    @classmethod
    def of_facts(cls, facts: Any, observation_shape: Sequence[int], size: int, *, unit: bool, where: str) -> "Units":
        """What `facts` wrote for `size` actions, if it did; with `unit` they lie in [-1,1], whatever it wrote."""
        facts = {} if facts is None else facts
        check_shape(facts, dict.fromkeys(FACTS, ([float], None)), f"{where}: units")
        low, high, mean, scale = (facts.get(key) for key in FACTS)
        bounds = make_bounds(-1.0 if unit else low, 1.0 if unit else high, size, label=where)
        if mean is None and scale is None:
            return cls(bounds)
        with np.errstate(over="ignore"):
            found = Normalisation(np.array(mean, np.float32), np.array(scale, np.float32))
        shape = tuple(observation_shape)
        if any(part.shape != shape for part in found) or not (np.isfinite(found).all() and (found.scale > 0).all()):
            raise CtaError(f"{where}: units have no mean and positive scale for each of {shape} numbers")
        return cls(bounds, found)


UNKNOWN = Units()
"""Actions in [-1,1], of an environment that nobody described."""
