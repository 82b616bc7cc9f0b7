"""Worlds to be stepped one by one: OGBench's environments, and Gymnasium's of one's own.

All that happens in OGBench's is made a function of (task, seed, actions). There manipulation worlds take their settling
steps from a new, unseeded action space; mazes and oracles draw from NumPy's global generator. Here the action space is
one seeded object, and that generator is seeded and put back. OpenGL without a display is chosen only when a frame is
asked for: MuJoCo reads MUJOCO_GL once, when it is imported.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cta.data.other_formats import goal_vector, join
from cta.envs.names import is_visual
from cta.errors import CtaError, did_you_mean
from cta.plugins import PYTHON, load_plugin
from cta.units import Bounds

BACKENDS = ("egl", "osmesa")
GL_VARIABLES = ("MUJOCO_GL", "PYOPENGL_PLATFORM")
_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"


@cache
def find_backend() -> str | None:
    """The first backend that can open a context, in a fresh process: PyOpenGL binds to one platform for its life."""
    asked = os.environ.get("MUJOCO_GL", "").lower()
    for backend in (asked,) if asked in BACKENDS else BACKENDS:
        environment = os.environ | dict.fromkeys(GL_VARIABLES, backend)
        if subprocess.run([*PYTHON, "-c", _PROBE], env=environment, capture_output=True).returncode == 0:
            return backend
    return None


def enable_rendering() -> str:
    """Make MuJoCo of this process, and of the processes it starts, draw off screen; returns the backend's name."""
    backend = find_backend()
    if backend is None:
        advice = "run `make system`, or install libegl1 and libgl1-mesa-dri (EGL) or libosmesa6 (OSMesa) with apt"
        raise CtaError(f"no OpenGL library that can draw without a display: {advice}")
    os.environ.update(dict.fromkeys(GL_VARIABLES, backend))
    if "mujoco" in sys.modules:  # imported before anybody asked for frames, so with another backend
        import_module("mujoco.gl_context").__dict__["GLContext"] = import_module(f"mujoco.{backend}").GLContext
    return backend


@contextmanager
def global_numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator for a while, then put back what was there."""
    shared = np.random.mtrand._rand  # the generator behind np.random.uniform and its kin, which OGBench draws from
    before = shared.get_state()
    shared.seed(seed)
    try:
        yield
    finally:
        shared.set_state(before)


def spread_seed(seed: int | Sequence[int], count: int) -> list[int]:
    return np.random.SeedSequence(seed).generate_state(count).tolist()


def _environment_spec(env_name: str) -> Any:
    import_module("ogbench")
    registry = import_module("gymnasium").registry
    if env_name not in registry or "ogbench" not in str(registry[env_name].entry_point):
        known = [name for name, spec in registry.items() if "ogbench" in str(spec.entry_point)]
        raise CtaError(f"no OGBench environment '{env_name}'; {did_you_mean(env_name, known, 'none is like it')}")
    return registry[env_name]


def make_env(env_name: str, *, data_collection: bool = False, lean: bool = True, **options: Any) -> Any:
    """An OGBench environment without Gymnasium's wrappers, with one `action_space` that can be seeded (`seeded_reset`).

    `data_collection` is the mode of OGBench's generators: no tasks in manipulation worlds, and no end at the goal.
    `lean` makes the same steps faster in manipulation worlds (`cta.envs.lean`); without it they are OGBench's own.
    `options` are OGBench's. Lean worlds draw only if `width` and `height` of frames are among them, or of observations.
    """
    spec = _environment_spec(env_name)
    settings = options | dict(spec.kwargs)
    if is_visual(env_name):
        enable_rendering()
    module, attribute = spec.entry_point.split(":")
    with warnings.catch_warnings():  # dm_control looks for a display, which nobody here needs
        warnings.filterwarnings("ignore", message=".*DISPLAY environment variable is missing")
        builder = getattr(import_module(module), attribute)
    if data_collection:
        settings["terminate_at_goal"] = False
    if not isinstance(builder, type):  # mazes: a factory, whose environments have an ordinary action space
        env = builder(**settings)
        Path(env.fullpath).unlink(missing_ok=True)  # the maze's model, left behind in the temporary folder
        return env
    if data_collection:
        settings["mode"] = "data_collection"
    bases = (import_module("cta.envs.lean_worlds").LEAN[builder.__name__], builder) if lean else (builder,)
    env = type(builder.__name__, bases, {"action_space": None, "_draws": "width" in settings})(**settings)
    env.action_space = import_module("gymnasium.spaces").Box(-1.0, 1.0, shape=(5,), dtype=np.float32)
    return env


@contextmanager
def seeded(env: Any, seed: int | Sequence[int]) -> Iterator[int]:
    """Every generator that an environment draws from is fixed by `seed`, for a while; gives the seed of its reset."""
    scene, actions, shared = spread_seed(seed, 3)
    env.action_space.seed(actions)
    with global_numpy_seed(shared):
        yield scene


def seeded_reset(env: Any, seed: int, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
    with seeded(env, seed) as scene:
        return env.reset(seed=scene, options=options)


class OgbenchWorld:
    """One OGBench environment and its tasks; (task, seed, actions) fix all it shows. It draws with width and height."""

    def __init__(self, env_name: str, **size: Any) -> None:
        self.env_name, self._size = env_name, size
        self.max_episode_steps = int(_environment_spec(env_name).max_episode_steps)
        self._env = make_env(env_name, **size)
        self.task_names: tuple[str, ...] = tuple(info["task_name"] for info in self._env.task_infos)
        self.action_dim = int(self._env.action_space.shape[0])
        self.observation_dtype = np.dtype(np.uint8 if is_visual(env_name) else np.float32)
        self.observation_shape: tuple[int, ...] = seeded_reset(self._env, 0, {"task_id": 1})[0].shape
        self.goal_frame: np.ndarray | None = None
        self._steps = 0

    def twin(self) -> "OgbenchWorld":
        """Another such world, to be stepped in turns with this one; where neither draws, they share memory."""
        if getattr(self._env, "_draws", True):
            return OgbenchWorld(self.env_name, **self._size)
        twin = copy(self)
        twin._env = self._env.twin()
        return twin

    def reset(self, task: Any, seed: int, *, render_goal: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(observation, goal) of task 1 … 5, or of a pair of one's own in the form of OGBench's `task_info`."""
        if isinstance(task, int) and not 1 <= task <= len(self.task_names):
            raise CtaError(f"{self.env_name} has tasks 1 to {len(self.task_names)}, not {task}")
        if render_goal:
            enable_rendering()
        options = {"task_id": task} if isinstance(task, int) else {"task_info": task}
        observation, info = seeded_reset(self._env, seed, options | {"render_goal": render_goal})
        self.goal_frame = np.asarray(info["goal_rendered"]) if render_goal else None
        self._steps = 0
        return self._observed(observation), self._observed(info["goal"])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """One step with an action clipped to [-1, 1]: (observation, success, done), done on success or at the limit."""
        observation, _, _, _, info = self._env.step(np.clip(action, -1.0, 1.0))
        self._steps += 1
        success = bool(info["success"])
        return self._observed(observation), success, success or self._steps >= self.max_episode_steps

    def render(self) -> np.ndarray:
        enable_rendering()
        return np.asarray(self._env.render())

    def close(self) -> None:
        close_env(self._env)

    def _observed(self, observation: np.ndarray) -> np.ndarray:
        return np.array(observation, dtype=self.observation_dtype)


def close_env(env: Any) -> None:
    """Close an environment and the renderer that OGBench's worlds leave open."""
    for attribute in ("_renderer", "custom_renderer"):
        if renderer := getattr(env, attribute, None):
            renderer.close()
            setattr(env, attribute, None)
    env.close()


class OwnWorld:
    """A Gymnasium environment of one's own, `module:factory`, with the interface of `OgbenchWorld`.

    `reset` must give the goal, as an observation in info["goal"] (as OGBench does) or as `desired_goal` in a dictionary
    of observations (a GoalEnv), and `step` info["success"] or info["is_success"]. Actions come from a Box; with `unit`
    they are in [-1,1] and stretched to its bounds. Tasks may be listed in `task_infos`, as OGBench does, and `reset`
    then takes options={"task_id": n}.
    """

    def __init__(self, name: str, *, unit: bool = True) -> None:
        self.env_name, self._label, self._unit = name, f"--env {name}", unit
        self._env = _make(name)
        space = getattr(self._env, "action_space", None)
        low, high = getattr(space, "low", None), getattr(space, "high", None)
        if low is None or high is None or np.ndim(low) != 1 or not np.size(low):
            raise CtaError(f"{self._label}: actions are {space}; this package acts in a Box of one axis")
        self._low, self._high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        self.action_dim = int(self._low.size)
        self.max_episode_steps = int(getattr(getattr(self._env, "spec", None), "max_episode_steps", None) or 1000)
        tasks = getattr(getattr(self._env, "unwrapped", self._env), "task_infos", None)
        self._tasks = len(tasks) if tasks else 0
        self.task_names = tuple(f"task{i}" for i in range(1, max(1, self._tasks) + 1))
        self._shape: tuple[int, ...] | None = None
        self._steps = 0

    def twin(self) -> "OwnWorld":
        return OwnWorld(self.env_name, unit=self._unit)

    def reset(self, task: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin a task (a number from 1 on): (observation, goal), unknown parts of the goal NaN."""
        self._env.action_space.seed(seed)
        observation, info = self._env.reset(seed=seed, options={"task_id": task} if self._tasks else None)
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
        key = next((key for key in ("success", "is_success") if key in info), None)
        if key is None:
            known = ", ".join(sorted(map(str, info))) or "nothing"
            raise CtaError(f"{self._label}: step's info has {known}, but neither success nor is_success")
        value = np.asarray(info[key])
        if not value.size or value.dtype.kind not in "biuf" or np.isnan(value).any():
            raise CtaError(f"{self._label}: info['{key}'] is {info[key]!r}; it must be true or false")
        success = bool(value.all())
        done = success or bool(terminated or truncated) or self._steps >= self.max_episode_steps
        return self._observed(observation), success, done

    def _observed(self, observation: Any) -> np.ndarray:
        found = join(observation, rows=False, label=self._label)
        self._shape = self._shape or found.shape
        if found.shape != self._shape:
            raise CtaError(f"{self._label}: observations of shape {found.shape} follow some of {self._shape}")
        if found.dtype.kind == "f" and (bad := found[~np.isfinite(found)]).size:
            raise CtaError(f"{self._label}: the observation at step {self._steps} has {bad[0]}")
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
        raise CtaError(f"--env {name}: making the environment failed ({type(error).__name__}: {error})") from error
    if not (hasattr(env, "reset") and hasattr(env, "step")):
        raise CtaError(f"--env {name} made a {type(env).__name__}, which has no reset and step: return an environment")
    return env
