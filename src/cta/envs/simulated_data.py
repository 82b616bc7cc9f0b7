"""One episode of simulated data: play or noisy data by OGBench's own oracles, wandering in a point maze."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np
from scipy.interpolate import interp1d
from scipy.ndimage import gaussian_filter1d

from cta.envs.lean_control import half_turn, limited, multiply, yaw_terms
from cta.envs.names import family
from cta.envs.worlds import close_env, make_env, seeded
from cta.errors import CtaError

PLAN_NOISE, PLAN_SMOOTHING = 0.1, 0.5
PLAN_SCALES = np.array([0.05, 0.05, 0.05, 0.3, 1.0])  # noise of a plan's columns: three of position, yaw, gripper
MARKOV_MIN_NORM, MARKOV_NOISE = 0.4, 0.1
NOISE_SCALES = np.array([1.0, 1.0, 1.0, 3.0, 10.0])
RANDOM_ACTIONS = {"cube": 0.1, "scene": 0.1, "puzzle": 0.2}
STACKING = {"double": (0.0, 0.25), "triple": (0.05, 0.35)}  # what its probability is drawn between
TARGETS = {"cube": "cube", "puzzle": "button"}
HEALTHY_ATTEMPTS = 100
MAZE_NOISE = 0.5
PlanOracle = cast(Any, object)  # for the types: the oracle of OGBench that the mixin stands before


class ManipulationEpisodes:
    """Makes episodes of one dataset; each is a function of its seed, whatever was made before."""

    def __init__(self, env_name: str, kind: str) -> None:
        self.env_name, self.kind = env_name, kind
        self._env = make_env(env_name, data_collection=True)
        self._env.reset(seed=0)  # compiles the model
        self._oracles = _make_oracles(self._env, family(env_name), kind)
        self._random = RANDOM_ACTIONS[family(env_name)] if kind == "noisy" else 0.0

    def episode(self, seed: tuple[int, ...], steps: int) -> dict[str, np.ndarray]:
        """`steps` transitions as `steps + 1` rows; in the scene an unhealthy episode is discarded and made anew."""
        for attempt in range(HEALTHY_ATTEMPTS):
            with seeded(self._env, (*seed, attempt)) as scene:
                rows = self._play(scene, steps + 1)
            if family(self.env_name) != "scene" or healthy(rows["qpos"]):
                return rows
        raise CtaError(f"{self.env_name}: {HEALTHY_ATTEMPTS} attempts at an episode all lost the cube (seed {seed})")

    def close(self) -> None:
        close_env(self._env)

    def _play(self, scene_seed: int, rows: int) -> dict[str, np.ndarray]:
        env, made = self._env, []
        shared = np.random.mtrand._rand  # the oracles' generator, seeded by the caller
        forget_targets(env)
        observation, info = env.reset(seed=scene_seed)
        size = self.env_name.split("-")[-2]
        stacking = 0.0 if size == "single" else 0.5
        if size in STACKING:
            stacking = shared.uniform(*STACKING[size])
        noise = shared.uniform(0, MARKOV_NOISE) * NOISE_SCALES if self.kind == "noisy" else None
        oracle = self._oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        for _ in range(rows):
            if shared.random_sample() < self._random:
                action = env.action_space.sample()
            else:
                action = np.array(oracle.select_action(observation, info))
                if noise is not None:
                    action = action + shared.normal(0, noise)
            action = np.clip(action, -1, 1)
            following, _, _, _, info = env.step(action)
            if oracle.done:
                # As in OGBench the step's `info` stays in use: a Markov oracle's first action looks at the old target.
                env.set_new_target(return_info=False, p_stack=stacking)
                target = env.get_reset_info()
                oracle = self._oracles[target["privileged/target_task"]]
                oracle.reset(None, target)
            made.append(_row(observation, action, info))
            observation = following
        return _arrays(made)


def _row(observation: np.ndarray, action: np.ndarray, info: dict[str, Any]) -> dict[str, np.ndarray]:
    """The observation, the action, and the simulator's state before the step."""
    row = {"observations": observation, "actions": action, "qpos": info["prev_qpos"], "qvel": info["prev_qvel"]}
    return row | ({"button_states": info["prev_button_states"]} if "prev_button_states" in info else {})


def _arrays(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    pixels = rows[0]["observations"].dtype == np.uint8
    dtypes = {"button_states": np.int64} | ({"observations": np.uint8} if pixels else {})
    return {key: np.asarray([row[key] for row in rows], dtypes.get(key, np.float32)) for key in rows[0]}


def healthy(qpos: np.ndarray) -> bool:
    """Whether the scene's cube stayed in sight: never far to one side, and in the drawer's range only at its height."""
    y, z = qpos[:, 15], qpos[:, 16]
    lost = (y >= 0.29) | ((y <= -0.3) & ((z < 0.06) | (z > 0.08)))
    return not lost.any()


def _make_oracles(env: Any, world: str, kind: str) -> dict[str, Any]:
    """The oracle of each target type: open-loop plans for play, closed-loop Markov policies for noisy data."""
    style, settings = "markov", {"min_norm": MARKOV_MIN_NORM}
    if kind == "play":
        style, settings = "plan", {"noise": PLAN_NOISE, "noise_smoothing": PLAN_SMOOTHING}
    extra = {"gripper_always_closed": True} if world == "puzzle" else {}
    oracles = {}
    for target in ("cube", "button", "drawer", "window") if world == "scene" else (TARGETS[world],):
        module = import_module(f"ogbench.manipspace.oracles.{style}.{target}_{style}")
        oracle = getattr(module, f"{target.title()}{style.title()}Oracle")
        if kind == "play":
            oracle = type(oracle.__name__, (LeanPlan, oracle), {})
        oracles[target] = oracle(env=env, **settings, **extra)
    return oracles


def forget_targets(env: Any) -> None:
    """Clear a scene's old targets: a reset leaves all kinds but one, and a Markov oracle's first look is at them."""
    if hasattr(env, "_target_window_pos"):
        env._target_block, env._target_button = 0, 0
        env._target_button_states[:] = 0
        env._target_drawer_pos, env._target_window_pos = 0.0, 0.0
        env.model.site("drawer_handle_center_target").pos[1] = 0.0
        env.model.site("window_handle_center_target").pos[0] = 0.0


class LeanPlan(PlanOracle):
    """A mixin: OGBench's plans, all moments at once instead of one by one; the same numbers and draws in less time."""

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
            noise = np.random.mtrand._rand.normal(0, 1, size=plan.shape) * PLAN_SCALES * self._noise
            plan += gaussian_filter1d(noise, axis=0, sigma=self._noise_smoothing)
        return plan


def _yaws(times: Sequence[float], rotations: Sequence[Any], moments: Sequence[float]) -> np.ndarray:
    """The yaw at each moment, on the shortest way between the rotations around it."""
    between, terms = {}, []
    segments = np.searchsorted(times, moments, side="right") - 1
    for moment, k in zip(moments, segments.tolist(), strict=True):
        if k not in between:
            between[k] = (rotations[k].inverse() @ rotations[k + 1]).log()
        part = limited((moment - times[k]) / (times[k + 1] - times[k]), 0.0, 1.0) * between[k]
        real, factor = half_turn(float(part @ part))
        x, y, z = part.tolist()
        terms.append(yaw_terms(multiply(rotations[k].wxyz.tolist(), (real, factor * x, factor * y, factor * z))))
    return np.arctan2(*zip(*terms, strict=True))


class PointMazeEpisodes:
    """Wanders from goal to goal along shortest paths; each episode is a function of its seed."""

    def __init__(self, env_name: str) -> None:
        self._env = make_env(env_name, data_collection=True)
        self._cells, self._vertices = maze_cells(self._env.maze_map)

    def episode(self, seed: tuple[int, ...], steps: int) -> dict[str, np.ndarray]:
        """`steps` transitions as `steps + 1` rows: the unit direction to the next cell, plus N(0, σ²), clipped."""
        env, rows = self._env, []
        with seeded(env, seed) as scene:
            shared = np.random.mtrand._rand
            start = self._cells[shared.randint(len(self._cells))]
            goal = self._vertices[shared.randint(len(self._vertices))]
            observation, _ = env.reset(seed=scene, options={"task_info": {"init_ij": start, "goal_ij": goal}})
            for _ in range(steps + 1):
                place = env.get_xy()
                toward = env.get_oracle_subgoal(place, env.cur_goal_xy)[0] - place
                direction = toward / (np.linalg.norm(toward) + 1e-6)
                action = np.clip(direction + shared.normal(0, MAZE_NOISE, size=2), -1, 1)
                following, _, _, _, info = env.step(action)
                if info["success"]:
                    goal = self._vertices[shared.randint(len(self._vertices))]
                    env.set_goal(goal_xy=env.add_noise(env.ij_to_xy(goal)))
                rows.append(_row(observation, action, info))
                observation = following
        return _arrays(rows)

    def close(self) -> None:
        close_env(self._env)


def maze_cells(maze: np.ndarray) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """All free cells, and the vertices: free cells that are not the inside of a straight corridor."""
    cells = [(i, j) for i, j in np.argwhere(maze == 0).tolist()]
    around = {(i, j): (maze[i - 1, j], maze[i + 1, j], maze[i, j - 1], maze[i, j + 1]) for i, j in cells}
    return cells, [cell for cell in cells if around[cell] not in ((0, 0, 1, 1), (1, 1, 0, 0))]
