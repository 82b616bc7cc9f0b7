"""OGBench's open-loop plans, all moments at once instead of one by one: the same numbers and the same random draws.

A plan has a row for every control step to come, so that this is a tenth of the time of making play data otherwise.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from scipy.interpolate import interp1d
from scipy.ndimage import gaussian_filter1d

from cta.envs.lean_control import half_turn, limited, multiply, yaw_terms

NOISE_SCALES = np.array([0.05, 0.05, 0.05, 0.3, 1.0])
"""Of a plan's columns: three of position, yaw, gripper."""

PlanOracle = cast(Any, object)
"""For the types: the oracle of OGBench that the mixin stands before."""


class LeanPlan(PlanOracle):
    """A mixin before one of OGBench's plan oracles."""

    def compute_plan(self, times: Sequence[float], poses: Sequence[Any], grasps: Sequence[float]) -> np.ndarray:
        """(moments, 5): hand position, yaw and gripper between the keyframes, with smooth noise."""
        moments, moment = [], 0.0
        while moment < self._t_max:  # added up as in OGBench: a product would round differently
            moments.append(moment)
            moment += self._env_dt
        plan = np.empty((len(moments), 5))
        options = {"kind": "linear", "axis": 0, "assume_sorted": True}
        plan[:, :3] = interp1d(times, [pose.translation() for pose in poses], **options)(moments)
        plan[:, 3] = _yaws(times, [pose.rotation() for pose in poses], moments)
        plan[:, 4] = interp1d(times, grasps, **options)(moments)
        if self._noise > 0:
            noise = np.random.mtrand._rand.normal(0, 1, size=plan.shape) * NOISE_SCALES * self._noise
            plan += gaussian_filter1d(noise, axis=0, sigma=self._noise_smoothing)
        return plan


def _yaws(times: Sequence[float], rotations: Sequence[Any], moments: Sequence[float]) -> np.ndarray:
    """The yaw at each moment, on the shortest way between the rotations around it."""
    between: dict[int, np.ndarray] = {}
    terms = []
    segments = np.searchsorted(times, moments, side="right") - 1
    for moment, k in zip(moments, segments.tolist(), strict=True):
        if k not in between:
            between[k] = (rotations[k].inverse() @ rotations[k + 1]).log()
        part = limited((moment - times[k]) / (times[k + 1] - times[k]), 0.0, 1.0) * between[k]
        real, factor = half_turn(float(part @ part))
        x, y, z = part.tolist()
        terms.append(yaw_terms(multiply(rotations[k].wxyz.tolist(), (real, factor * x, factor * y, factor * z))))
    return np.arctan2(*zip(*terms, strict=True))
