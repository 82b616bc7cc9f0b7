"""OGBench's environments, made reproducible: everything that happens is a function of (task, seed, actions).

OGBench leaves two sources of randomness open. Manipulation worlds build a new, unseeded action space at every access
and take their settling steps from it; mazes and oracles draw from NumPy's global generator. Here the action space is
one seeded object, and the global generator is seeded and put back.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cta.envs import gl
from cta.envs.names import is_visual
from cta.errors import CtaError


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


def spread_seed(seed: int | np.random.SeedSequence, count: int) -> list[int]:
    """Independent 32-bit seeds from one seed."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return [int(word) for word in sequence.generate_state(count)]


def _environment_spec(env_name: str) -> Any:
    gymnasium = import_module("gymnasium")
    import_module("ogbench")
    registry = gymnasium.registry
    if env_name not in registry or "ogbench" not in str(registry[env_name].entry_point):
        known = [name for name, spec in registry.items() if "ogbench" in str(spec.entry_point)]
        near = get_close_matches(env_name, known, n=3)
        raise CtaError(
            f"no OGBench environment '{env_name}'" + (f": did you mean {' or '.join(near)}?" if near else "")
        )
    return registry[env_name]


def make_env(
    env_name: str,
    *,
    data_collection: bool = False,
    render_size: tuple[int, int] | None = None,
    lean: bool = True,
    **options: Any,
) -> Any:
    """An OGBench environment without Gymnasium's wrappers, with one `action_space` object that can be seeded.

    `data_collection` is the mode of OGBench's generators: no tasks in manipulation worlds, and no end at the goal.
    `render_size` is (width, height) of frames, for worlds whose observations are not themselves frames. Without it lean
    worlds do not draw.
    `lean` makes the same steps faster in manipulation worlds (`cta.envs.lean`); without it they are OGBench's own.
    Use `seeded_reset` to begin an episode.
    """
    spec = _environment_spec(env_name)
    settings = dict(spec.kwargs) | options
    if is_visual(env_name):
        gl.enable_rendering()
    elif render_size is not None:
        settings |= {"width": render_size[0], "height": render_size[1]}
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
    spaces = import_module("gymnasium.spaces")
    bases = (import_module("cta.envs.lean_worlds").LEAN[builder.__name__], builder) if lean else (builder,)
    draws = is_visual(env_name) or render_size is not None
    env = type(builder.__name__, bases, {"action_space": None, "_draws": draws})(**settings)
    env.action_space = spaces.Box(-1.0, 1.0, shape=(5,), dtype=np.float32)
    return env


def seeded_reset(
    env: Any, seed: int | np.random.SeedSequence, options: dict[str, Any] | None = None
) -> tuple[np.ndarray, dict]:
    """`env.reset` with every generator it draws from fixed by `seed`."""
    scene, actions, shared = spread_seed(seed, 3)
    env.action_space.seed(actions)
    with global_numpy_seed(shared):
        return env.reset(seed=scene, options=options)


class OgbenchWorld:
    """One OGBench environment with its five evaluation tasks.

    `reset(task, seed)` fixes start, goal and settling steps; the same actions then give the same observations, whether
    the world is new or has been used. Worlds that are to draw frames need a `render_size`.
    """

    def __init__(self, env_name: str, *, render_size: tuple[int, int] | None = None) -> None:
        self.env_name, self._render_size = env_name, render_size
        self.max_episode_steps = int(_environment_spec(env_name).max_episode_steps)
        self._env = make_env(env_name, render_size=render_size)
        self.task_names: tuple[str, ...] = tuple(info["task_name"] for info in self._env.task_infos)
        self.action_dim = int(self._env.action_space.shape[0])
        self.observation_dtype = np.dtype(np.uint8 if is_visual(env_name) else np.float32)
        first, _ = seeded_reset(self._env, 0, {"task_id": 1})
        self.observation_shape: tuple[int, ...] = first.shape
        self.goal_frame: np.ndarray | None = None
        self._steps = 0

    def twin(self) -> "OgbenchWorld":
        """Another such world, to be stepped in turns with this one; where neither draws, they share memory."""
        if getattr(self._env, "_draws", True):
            return OgbenchWorld(self.env_name, render_size=self._render_size)
        twin = copy(self)
        twin._env = self._env.twin()
        return twin

    def reset(
        self, task: int | Mapping[str, Any], seed: int, *, render_goal: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Begin task 1 … 5, or a start–goal pair of one's own in the form of OGBench's `task_info`.

        Returns (observation, goal), both of `observation_shape`; with `render_goal`, `goal_frame` holds the goal drawn.
        """
        if isinstance(task, int) and not 1 <= task <= len(self.task_names):
            raise CtaError(f"{self.env_name} has tasks 1 to {len(self.task_names)}, not {task}")
        if render_goal:
            gl.enable_rendering()
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
        """The current frame, (height, width, 3) uint8."""
        gl.enable_rendering()
        return np.asarray(self._env.render())

    def close(self) -> None:
        close_env(self._env)

    def _observed(self, observation: np.ndarray) -> np.ndarray:
        return np.array(observation, dtype=self.observation_dtype)


def close_env(env: Any) -> None:
    """Close an environment and the renderer that OGBench's worlds leave open."""
    for attribute in ("_renderer", "custom_renderer"):
        renderer = getattr(env, attribute, None)
        if renderer is not None:
            renderer.close()
            setattr(env, attribute, None)
    env.close()
