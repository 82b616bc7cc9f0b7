"""A Gymnasium environment of one's own as a world with goals: `module:factory`, where factory() makes it.

What it must do. `reset` gives the goal, as an observation in info["goal"] (as OGBench does) or as `desired_goal` in a
dictionary of observations (as in a GoalEnv). `step` says whether it is reached, in info["success"] or
info["is_success"]. Actions come from a Box. What it may do: list tasks in `task_infos`, as OGBench does, and take
options={"task_id": n}.
"""

from typing import Any

import numpy as np

from cta.data.observations import goal_vector, join
from cta.errors import CtaError
from cta.plugins import load_plugin
from cta.units import Bounds

DEFAULT_LIMIT = 1000
SUCCESS = ("success", "is_success")


class OwnWorld:
    """One environment; the same interface as `OgbenchWorld`.

    Actions are its own; with `unit` they are in [-1,1], and stretched to its bounds.
    """

    def __init__(self, name: str, *, unit: bool = True) -> None:
        self.env_name, self._label, self._unit = name, f"--env {name}", unit
        self._env = _make(name)
        self._low, self._high = self._action_range()
        self.action_dim = int(self._low.size)
        spec = getattr(self._env, "spec", None)
        self.max_episode_steps = int(getattr(spec, "max_episode_steps", None) or DEFAULT_LIMIT)
        tasks = getattr(getattr(self._env, "unwrapped", self._env), "task_infos", None)
        self._tasks = len(tasks) if tasks else 0
        self.task_names = tuple(f"task{i}" for i in range(1, max(1, self._tasks) + 1))
        self._shape: tuple[int, ...] | None = None
        self._steps = 0

    def twin(self) -> "OwnWorld":
        return OwnWorld(self.env_name, unit=self._unit)

    def _action_range(self) -> tuple[np.ndarray, np.ndarray]:
        space = getattr(self._env, "action_space", None)
        low, high = getattr(space, "low", None), getattr(space, "high", None)
        if low is None or high is None or np.ndim(low) != 1 or not np.size(low):
            raise CtaError(f"{self._label}: actions are {space}; this package acts in a Box of one axis")
        return np.asarray(low, np.float64), np.asarray(high, np.float64)

    def reset(self, task: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin a task (a number from 1 on): (observation, goal), unknown parts of the goal NaN."""
        options = {"task_id": task} if self._tasks else None
        self._env.action_space.seed(seed)
        observation, info = self._env.reset(seed=seed, options=options)
        self._steps = 0
        goal = goal_vector(observation, info, label=self._label)
        observed = self._observed(observation)
        if goal.shape != observed.shape:
            raise CtaError(f"{self._label}: the goal has shape {goal.shape}, observations have {observed.shape}")
        if goal.dtype.kind == "f" and (np.isnan(goal).all() or np.isinf(goal).any()):
            raise CtaError(f"{self._label}: the goal of the episode is {'inf' if np.isinf(goal).any() else 'all NaN'}")
        return observed, goal.astype(observed.dtype)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """One step: (observation, success, done), done on success, at the limit, or when the environment says so."""
        if self._unit:
            bounded = np.isfinite(self._low).all() and np.isfinite(self._high).all()
            action = Bounds(self._low, self._high).from_unit(action) if bounded else np.clip(action, -1, 1)
        taken = np.clip(action, self._low, self._high).astype(getattr(self._env.action_space, "dtype", np.float32))
        observation, _, terminated, truncated, info = self._env.step(taken)
        self._steps += 1
        key = next((key for key in SUCCESS if key in info), None)
        if key is None:
            known = ", ".join(sorted(map(str, info))) or "nothing"
            raise CtaError(f"{self._label}: step's info has {known}, but neither success nor is_success")
        value = np.asarray(info[key])
        if not value.size or value.dtype.kind not in "biuf" or np.isnan(value).any():
            raise CtaError(f"{self._label}: info['{key}'] is {info[key]!r}; it must be true or false")
        success = bool(value.all())
        ended = bool(terminated or truncated) or self._steps >= self.max_episode_steps
        return self._observed(observation), success, success or ended

    def _observed(self, observation: Any) -> np.ndarray:
        found = join(observation, rows=False, label=self._label)
        if self._shape is None:
            self._shape = found.shape
        if found.shape != self._shape:
            raise CtaError(f"{self._label}: observations of shape {found.shape} follow some of {self._shape}")
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            bad = found[~np.isfinite(found)][0]
            raise CtaError(f"{self._label}: the observation at step {self._steps} has {bad}")
        return found

    def close(self) -> None:
        self._env.close()


def _make(name: str) -> Any:
    factory = load_plugin(name, flag="--env")
    if not callable(factory):
        module, _, attribute = name.partition(":")
        raise CtaError(f"--env {name}: {module} has no function {attribute} that makes an environment")
    try:
        env = factory()
    except CtaError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise CtaError(f"--env {name}: making the environment failed ({reason})") from error
    if not (hasattr(env, "reset") and hasattr(env, "step")):
        raise CtaError(f"--env {name} made a {type(env).__name__}, which has no reset and step: return an environment")
    return env
