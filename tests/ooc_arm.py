"""A scripted arm in the real simulator: does a list of chores with OGBench's closed-loop oracles."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from cta.envs.protocol import Episode, Step
from cta.envs.worlds import OgbenchWorld

Chore = tuple[str, float]
"""("press", button), ("drawer", slide), ("window", slide), or ("cube", 0): put the cube into the open drawer."""
IN_DRAWER = np.array([0.33, -0.24, 0.066])


def state_of(world: OgbenchWorld) -> dict[str, np.ndarray]:
    """The simulator's `qpos`, `qvel` and, where there are buttons, `button_states`; `_env.set_state` takes them."""
    env: Any = world._env
    state = {"qpos": env.data.qpos.copy(), "qvel": env.data.qvel.copy()}
    if hasattr(env, "_cur_button_states"):
        state["button_states"] = env._cur_button_states.copy()
    return state


class OneWorld:
    """One OGBench world as a vector world of one slot, in this process."""

    slots = 1

    def __init__(self, env_name: str) -> None:
        self.world = OgbenchWorld(env_name)
        self.task_names, self.action_dim = self.world.task_names, self.world.action_dim
        self.max_episode_steps = self.world.max_episode_steps
        self._step: Step | None = None

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        if start:
            observation, self._goal = self.world.reset(start[0].begin, start[0].seed)
            success = done = False
        else:
            observation, success, done = self.world.step(actions[0])
        self._step = Step(observation[None], self._goal[None], np.array([success]), np.array([done]))

    def receive(self) -> Step:
        assert self._step is not None
        return self._step

    def close(self) -> None:
        self.world.close()


class Arm:
    """A policy of one slot that looks at the simulator instead of the observation."""

    def __init__(self, world: OgbenchWorld, chores: list[Chore]) -> None:
        self._env: Any = world._env
        self._chores = list(chores)
        self._before = state_of(world)["button_states"]
        self._oracle: Any = None

    def __call__(self, observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
        info = self._env.compute_ob_info()
        if first[0]:
            self._begin()
        while self._chores and self._finished(info):
            self._chores.pop(0)
            self._begin()
        if not self._chores:
            return np.zeros((1, 5), np.float32)
        return np.array(self._oracle.select_action(None, info | self._target(info)), np.float32)[None]

    def _begin(self) -> None:
        self._before = np.array(self._env._cur_button_states)
        if not self._chores:
            return
        what = {"press": "button"}.get(self._chores[0][0], self._chores[0][0])
        module = import_module(f"ogbench.manipspace.oracles.markov.{what}_markov")
        extra = {"gripper_always_closed": True} if "puzzle" in type(self._env).__name__.lower() else {}
        self._oracle = getattr(module, f"{what.title()}MarkovOracle")(env=self._env, max_step=10_000, **extra)
        self._oracle.reset(None, {})
        # Up and to the side, clear of all buttons and handles; left alone, the oracles draw it from NumPy's own stream.
        self._oracle._final_pos, self._oracle._final_yaw = np.array([0.4, 0.0, 0.3]), 0.0

    def _target(self, info: dict[str, Any]) -> dict[str, Any]:
        what, value = self._chores[0]
        if what == "press":
            button = int(value)
            top = self._env._data.site_xpos[self._env._button_site_ids[button]].copy()
            return {
                "privileged/target_button": button,
                "privileged/target_button_top_pos": top,
                "privileged/target_button_state": 1 - self._before[button],
            }
        if what == "cube":
            place = {"block": 0, "block_pos": IN_DRAWER, "block_yaw": np.zeros(1)}
            return {f"privileged/target_{key}": held for key, held in place.items()}
        way = value - info[f"privileged/{what}_pos"][0]
        shift = np.array([0.0, -way, 0.0] if what == "drawer" else [way, 0.0, 0.0])
        return {f"privileged/target_{what}_handle_pos": info[f"privileged/{what}_handle_pos"] + shift}

    def _finished(self, info: dict[str, Any]) -> bool:
        """The chore is done and the arm is up again."""
        what, value = self._chores[0]
        if what == "press":
            done = self._env._cur_button_states[int(value)] != self._before[int(value)]
        elif what == "cube":
            done = np.abs(info["privileged/block_0_pos"] - IN_DRAWER).max() < 0.04
        else:
            done = abs(info[f"privileged/{what}_pos"][0] - value) < 0.015
        return bool(done) and info["proprio/effector_pos"][2] > (0.28 if what == "window" else 0.2)
