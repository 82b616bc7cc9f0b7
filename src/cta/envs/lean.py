"""A lean control step for OGBench's manipulation worlds: the same numbers, computed once.

OGBench's step reads every quantity three times by name, and repaints and recomputes what has not changed. The classes
here stand before OGBench's own and override its hooks, never its step. Whenever something visible happens (a button
pressed, a cube reaching or leaving its place, a cube lost), they hand over to OGBench's own code. Observations,
rewards, successes and episodes are equal bit for bit; the `info` of a step holds what the oracles and the recorder
read, and nothing else.
"""

from copy import copy, deepcopy
from math import sqrt
from typing import Any, Self, cast

import numpy as np

from cta.envs.lean_control import LeanArm, compact, limited, mujoco, multiply, turn, yaw_terms

CENTRE, SCALE = np.array([0.425, 0.0, 0.0]), 10.0
GRIPPER_SCALE, BUTTON_SCALE = 3.0, 120.0
GRIPPER_RANGE, FIRM_GRIP = 0.8, 50.0
LIGHTS = np.eye(2)
PRESSED, REACHED = -0.02, 0.04
ARM, CUBE, BUTTON = 19, 9, 4
"""Entries of an observation: of the arm, of each cube, of each button."""

OgbenchEnv = cast(Any, object)
"""For the types: the class of OGBench that a mixin stands before."""


class LeanWorld(OgbenchEnv):
    """The arm, cubes and buttons: control, observation and info. A mixin, put before a class of OGBench.

    Each world adds `_succeeded` and `_add_targets`.
    """

    _draws = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ik = LeanArm(self._ik)
        self._picture_is_due = False
        self._seen: Any = None

    def twin(self) -> Self:
        """A world for tasks on the same compiled model, which takes a millisecond and next to no memory.

        Twins begin with a reset and take turns within one thread. They do not draw: colours are the model's.
        """
        if self._mode != "task" or self._draws:
            raise TypeError("only worlds for tasks, made without a size of frames, have twins")
        twin = copy(self)
        twin._data = mujoco.MjData(self._model)
        twin.action_space = deepcopy(self.action_space)
        mujoco.mj_forward(twin._model, twin._data)
        twin.post_compilation()
        return twin

    def build_mjcf_model(self) -> Any:
        """OGBench's model, told which bodies cannot come near the floor: a fifth of the physics is looking for that.

        Drawer and window slide level above it; a button meets its own box 5 cm before. No contact is lost.
        """
        model = super().build_mjcf_model()
        for name in self._off_the_floor():
            model.contact.add("exclude", body1="world", body2=model.find("body", name))
        if not self._draws:
            _undress(model)
        return model

    def _off_the_floor(self) -> list[str]:
        return [f"button_{i}" for i in range(getattr(self, "_num_buttons", 0))]

    def post_compilation(self) -> None:
        """Look every name up once. The arrays are views: they stay current as long as the compiled model does."""
        super().post_compilation()
        model, data = self._model, self._data
        self._qpos, self._qvel, self._ctrl = data.qpos, data.qvel, data.ctrl
        self._arm = compact(self._arm_joint_ids)
        self._arm_actuators = compact(self._arm_actuator_ids)
        self._pinch_pos, self._pinch_mat = data.site_xpos[self._pinch_site_id], data.site_xmat[self._pinch_site_id]
        self._pad_force = data.cfrc_ext[model.body("ur5e/robotiq/right_pad").id]
        self._site_quat = np.empty(4)
        self._down = tuple(self._effector_down_rotation.wxyz.tolist())
        self._up = tuple(self._effector_down_rotation.inverse().wxyz.tolist())
        self._wrist = tuple(self._T_pa.rotation().wxyz.tolist())
        self._wrist_pos = (0.0, *self._T_pa.translation().tolist())
        self._action_span = self.action_high - self.action_low
        self._bounds = self._workspace_bounds.T.tolist()
        self._find_objects()

    def _find_objects(self) -> None:
        cubes, buttons = getattr(self, "_num_cubes", 0), getattr(self, "_num_buttons", 0)
        self._cubes = [self._state_of(f"object_joint_{i}", 7)[0] for i in range(cubes)]
        self._cube_targets = [self._data.mocap_pos[self._cube_target_mocap_ids[i]] for i in range(cubes)]
        joints = [self._model.joint(f"buttonbox_joint_{i}") for i in range(buttons)]
        self._button_qpos = compact([joint.qposadr[0] for joint in joints])
        self._button_qvel = compact([joint.dofadr[0] for joint in joints])
        self._has_buttons = buttons > 0
        self._cubes_end = ARM + CUBE * cubes
        self._observation_size = self._buttons_end = self._cubes_end + BUTTON * buttons

    def _state_of(self, joint: str, size: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Views of a joint's position and velocity."""
        found = self._model.joint(joint)
        place, speed = int(found.qposadr[0]), int(found.dofadr[0])
        return self._qpos[place : place + size], self._qvel[speed : speed + size]

    def initialize_episode(self) -> None:
        self._seen = None  # the first step after it is OGBench's own, which paints everything
        super().initialize_episode()

    def set_control(self, action: np.ndarray) -> None:
        """Joint and gripper targets for an action: a displacement of the hand, a turn and an opening."""
        *move, spin, grip = (0.5 * (action + 1) * self._action_span + self.action_low).tolist()
        place = [
            limited(here + step, low, high)
            for here, step, (low, high) in zip(self._pinch_pos.tolist(), move, self._bounds, strict=True)
        ]
        yaw = float(np.arctan2(*self._yaw_terms_of(self._pinch_mat)))
        wanted = multiply(multiply(turn(spin), turn(yaw)), self._up)
        hand = multiply(turn(float(np.arctan2(*yaw_terms(wanted)))), self._down)
        opposite = (hand[0], -hand[1], -hand[2], -hand[3])
        _, *offset = multiply(multiply(hand, self._wrist_pos), opposite)
        self._ctrl[self._arm_actuators] = self._ik.solve(
            pos=np.array([there + here for there, here in zip(offset, place, strict=True)]),
            quat=np.array(multiply(hand, self._wrist)),
            curr_qpos=self._qpos[self._arm],
        )
        self._ctrl[self._gripper_actuator_ids] = 255.0 * limited(self._gripper_opening() + grip, 0.0, 1.0)

    def pre_step(self) -> None:
        """Keep the state before the step, which decides what is a press."""
        self._prev_qpos, self._prev_qvel = self._qpos.copy(), self._qvel.copy()
        if self._has_buttons:
            self._prev_button_states = self._cur_button_states.copy()

    def post_step(self) -> None:
        """Success. Where something visible changed, OGBench's own hook finds out and paints it."""
        cubes = self._cubes_in_place()
        if cubes != self._seen or self._pressed():
            joints = self._prev_qpos[self._button_qpos]
            self._prev_ob_info = {f"privileged/button_{i}_pos": [joint] for i, joint in enumerate(joints)}
            super().post_step()
            self._seen = self._cubes_in_place()
            self._picture_is_due = False
            return
        if self._has_buttons:  # sites have to follow the last physics step; pictures can wait for the rest
            mujoco.mj_kinematics(self._model, self._data)
            self._picture_is_due = True
        self._success = self._succeeded(cubes)

    def compute_observation(self) -> np.ndarray:
        """OGBench's observation, written into one array."""
        if self._ob_type == "pixels":
            return self.get_pixel_observation()
        observation = np.empty(self._observation_size)
        yaws = self._yaws = self._measure_yaws()
        cosines, sines = np.cos(yaws).tolist(), np.sin(yaws).tolist()
        observation[:6], observation[6:12] = self._qpos[self._arm], self._qvel[self._arm]
        observation[12:15] = (self._pinch_pos - CENTRE) * SCALE
        observation[15:17] = cosines[0], sines[0]
        observation[17:ARM] = self._gripper_opening() * GRIPPER_SCALE, self._gripper_contact()
        for i, cube in enumerate(self._cubes):
            row = observation[ARM + CUBE * i : ARM + CUBE * (i + 1)]
            row[:3], row[3:7] = (cube[:3] - CENTRE) * SCALE, cube[3:]
            row[7:] = cosines[i + 1], sines[i + 1]
        if self._has_buttons:
            rows = observation[self._cubes_end : self._buttons_end].reshape(-1, BUTTON)
            rows[:, :2] = LIGHTS[self._cur_button_states]
            np.multiply(self._qpos[self._button_qpos], BUTTON_SCALE, out=rows[:, 2])
            rows[:, 3] = self._qvel[self._button_qvel]
        return observation

    def get_step_info(self) -> dict[str, Any]:
        """For tasks nothing (OGBench adds success); for data what the recorder keeps and the oracles look at."""
        if self._mode == "task":
            return {}
        if self._ob_type == "pixels":
            self._yaws = self._measure_yaws()
        info = {
            "proprio/effector_pos": self._pinch_pos.copy(),
            "proprio/effector_yaw": self._yaws[:1],
            "proprio/gripper_opening": np.array([self._gripper_opening()]),
            "proprio/gripper_contact": np.array([self._gripper_contact()]),
            "prev_qpos": self._prev_qpos,
            "prev_qvel": self._prev_qvel,
            "time": np.array([self._data.time]),
            "privileged/target_task": self._target_task,
        }
        self._add_targets(info)
        return info

    def render(self, *args: Any, **options: Any) -> np.ndarray:
        """A frame. What only pictures show is brought up to date here instead of in every step."""
        if not self._draws:
            raise TypeError("a world that was made without a size of frames does not draw")
        if self._picture_is_due:
            mujoco.mj_forward(self._model, self._data)
            self._picture_is_due = False
        return super().render(*args, **options)

    def _yaw_terms_of(self, site_mat: np.ndarray) -> tuple[float, float]:
        mujoco.mju_mat2Quat(self._site_quat, site_mat)
        return yaw_terms(self._site_quat.tolist())

    def _gripper_opening(self) -> float:
        return limited(float(self._qpos[self._gripper_opening_joint_id]) / GRIPPER_RANGE, 0.0, 1.0)

    def _gripper_contact(self) -> float:
        return limited(sqrt(self._pad_force.dot(self._pad_force)) / FIRM_GRIP, 0.0, 1.0)

    def _measure_yaws(self) -> np.ndarray:
        """The yaw of the hand and of every cube."""
        terms = [self._yaw_terms_of(self._pinch_mat), *(yaw_terms(cube[3:].tolist()) for cube in self._cubes)]
        return np.arctan2(*zip(*terms, strict=True))

    def _cubes_in_place(self) -> list[bool]:
        in_place = []
        for cube, target in zip(self._cubes, self._cube_targets, strict=True):
            apart = cube[:3] - target
            in_place.append(sqrt(apart.dot(apart)) <= REACHED)
        return in_place

    def _pressed(self) -> bool:
        if not self._has_buttons:
            return False
        before, now = self._prev_qpos[self._button_qpos], self._qpos[self._button_qpos]
        return bool(((before > PRESSED) & (now <= PRESSED)).any())

    def _add_target_cube(self, info: dict[str, Any]) -> None:
        wanted = self._target_block
        mocap = self._data.mocap_quat[self._cube_target_mocap_ids[wanted]]
        info["privileged/target_block"] = wanted
        info[f"privileged/block_{wanted}_pos"] = self._cubes[wanted][:3].copy()
        info[f"privileged/block_{wanted}_yaw"] = self._yaws[wanted + 1 : wanted + 2]
        info["privileged/target_block_pos"] = self._cube_targets[wanted].copy()
        info["privileged/target_block_yaw"] = np.array([np.arctan2(*yaw_terms(mocap.tolist()))])

    def _add_target_button(self, info: dict[str, Any]) -> None:
        wanted = self._target_button
        info["privileged/target_button"] = wanted
        info["privileged/target_button_state"] = self._target_button_states[wanted]
        info["privileged/target_button_top_pos"] = self._data.site_xpos[self._button_site_ids[wanted]].copy()
        info[f"privileged/button_{wanted}_state"] = self._cur_button_states[wanted]
        info["prev_button_states"] = self._prev_button_states


def _undress(model: Any) -> None:
    """Take the arm's covers off, which only pictures show: every physics step would clear a mark for each of their
    120,000 triangles. The hand's stay, because MuJoCo compares boxes before shapes only where a body has two.
    """
    covers = [geom for geom in model.find_all("geom") if getattr(geom.dclass, "full_identifier", "") == "ur5e/visual"]
    for cover in covers:
        cover.mesh.remove()
        cover.remove()
