"""The lean step of each of OGBench's manipulation worlds."""

from typing import Any

import numpy as np

from cta.envs.lean import REACHED, LeanWorld

SLIDES = 4
"""Entries of an observation for drawer and window."""
DRAWER_SCALE, WINDOW_SCALE = 18.0, 15.0


class LeanCubes(LeanWorld):
    """Cubes on a table."""

    def _succeeded(self, cubes: list[bool]) -> bool:
        return all(cubes) if self._mode == "task" else cubes[self._target_block]

    def _add_targets(self, info: dict[str, Any]) -> None:
        self._add_target_cube(info)


class LeanPuzzle(LeanWorld):
    """A board of buttons."""

    def _succeeded(self, cubes: list[bool]) -> bool:
        right = self._cur_button_states == self._target_button_states
        return bool(right.all() if self._mode == "task" else right[self._target_button])

    def _add_targets(self, info: dict[str, Any]) -> None:
        self._add_target_button(info)


class LeanScene(LeanWorld):
    """A cube, two buttons, a drawer and a window."""

    def _off_the_floor(self) -> list[str]:
        return [*super()._off_the_floor(), "drawer_link", "windowb_a"]

    def _find_objects(self) -> None:
        super()._find_objects()
        self._slides = self._state_of("drawer_slide"), self._state_of("window_slide")
        self._slide_dofs = [int(self._model.joint(name).dofadr[0]) for name in ("drawer_slide", "window_slide")]
        self._damping = self._model.dof_damping
        self._observation_size += SLIDES
        bounds = self._workspace_bounds
        self._lost_below, self._lost_above = bounds[0] - 0.2, bounds[1] + 0.2
        sites = self._drawer_site_id, self._window_site_id, self._drawer_target_site_id, self._window_target_site_id
        self._handles = [self._data.site_xpos[site] for site in sites]
        self._handle_mats = [self._data.site_xmat[site] for site in sites[:2]]

    def _apply_button_states(self) -> None:
        super()._apply_button_states()
        self._locks = self._damping[self._slide_dofs]

    def pre_step(self) -> None:
        """OGBench locks drawer and window by their damping, which is the model's: a twin may have changed it."""
        self._damping[self._slide_dofs] = self._locks
        super().pre_step()

    def _pressed(self) -> bool:
        """Or, in tasks, whether the cube left the table, after which OGBench puts it back."""
        lost = ((cube[:3] <= self._lost_below).any() or (cube[:3] >= self._lost_above).any() for cube in self._cubes)
        return super()._pressed() or (self._mode == "task" and any(lost))

    def _succeeded(self, cubes: list[bool]) -> bool:
        (drawer, _), (window, _) = self._slides
        right = (self._cur_button_states == self._target_button_states).tolist()
        wanted = (drawer, self._target_drawer_pos), (window, self._target_window_pos)
        slid = [abs(float(slide[0]) - target) <= REACHED for slide, target in wanted]
        if self._mode == "task":
            return all(cubes) and all(right) and all(slid)
        kinds = {"cube": cubes[self._target_block], "button": right[self._target_button]}
        return (kinds | {"drawer": slid[0], "window": slid[1]})[self._target_task]

    def compute_observation(self) -> np.ndarray:
        observation = super().compute_observation()
        if self._ob_type != "pixels":
            (drawer, drawer_speed), (window, window_speed) = self._slides
            slides = drawer[0] * DRAWER_SCALE, drawer_speed[0], window[0] * WINDOW_SCALE, window_speed[0]
            observation[self._buttons_end :] = slides
        return observation

    def _add_targets(self, info: dict[str, Any]) -> None:
        self._add_target_cube(info)
        self._add_target_button(info)
        yaws = np.arctan2(*zip(*map(self._yaw_terms_of, self._handle_mats), strict=True))
        drawer, window, drawer_target, window_target = (place.copy() for place in self._handles)
        info["privileged/drawer_handle_pos"], info["privileged/drawer_handle_yaw"] = drawer, yaws[:1]
        info["privileged/window_handle_pos"], info["privileged/window_handle_yaw"] = window, yaws[1:]
        info["privileged/target_drawer_handle_pos"] = drawer_target
        info["privileged/target_window_handle_pos"] = window_target


LEAN = {"CubeEnv": LeanCubes, "PuzzleEnv": LeanPuzzle, "SceneEnv": LeanScene}
"""The mixin for each of OGBench's classes."""
