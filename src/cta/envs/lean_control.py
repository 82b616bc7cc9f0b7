"""The arm's controller as OGBench computes it, without the objects around the arithmetic.

Bit for bit the same numbers: plain floats round as NumPy's scalars do, in the same order of operations. What libraries
do not agree on stays where OGBench has it: angles come from NumPy (its arctan2 and the C library's differ in the last
bit), products and solves from NumPy's BLAS and LAPACK, everything else from MuJoCo. A square is `q**2`, because the C
library's `pow` and `q * q` differ in the last bit too.
"""

from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np

mujoco: Any = import_module("mujoco")  # compiled, without types

Quaternion = tuple[float, float, float, float]
SMALL_ANGLE_SQUARED = 1e-10
"""Below this OGBench expands cosine and sine into series."""
ITERATIONS = 20
CLOSE = 1e-4
"""Metres and radians at which the inverse kinematics is content."""


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """The product of two quaternions (w, x, y, z)."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        -ax * bx - ay * by - az * bz + aw * bw,
        ax * bw + ay * bz - az * by + aw * bx,
        -ax * bz + ay * bw + az * bx + aw * by,
        ax * by - ay * bx + az * bw + aw * bz,
    )


def half_turn(squared: float) -> tuple[float, float]:
    """For a rotation by an angle, given its square: cos(angle / 2), and sin(angle / 2) / angle."""
    if squared < SMALL_ANGLE_SQUARED:
        fourth = squared * squared
        return 1.0 - squared / 8.0 + fourth / 384.0, 0.5 - squared / 48.0 + fourth / 3840.0
    angle = sqrt(squared)
    half = 0.5 * angle
    return float(np.cos(half)), float(np.sin(half)) / angle


def turn(angle: float) -> Quaternion:
    """The rotation by `angle` about the vertical."""
    real, factor = half_turn(angle * angle)
    return real, factor * 0.0, factor * 0.0, factor * angle


def yaw_terms(q: Quaternion | list[float]) -> tuple[float, float]:
    """The two numbers whose arctan2 is the yaw of a rotation."""
    w, x, y, z = q
    return 2 * (w * z + x * y), 1 - 2 * (y**2 + z**2)


def limited(value: float, low: float, high: float) -> float:
    """NumPy's clip for one number, down to the sign of zero."""
    value = value if value > low else low
    return value if value < high else high


def compact(indices: Any) -> slice | np.ndarray:
    """A slice where indices are consecutive: reading through it makes no copy and looks nothing up."""
    indices = np.asarray(indices, dtype=int)
    first = int(indices[0]) if len(indices) else 0
    if (indices == np.arange(first, first + len(indices))).all():
        return slice(first, first + len(indices))
    return indices


class LeanArm:
    """Turns an action into joint targets: the work of OGBench's `set_control` and of its inverse kinematics.

    `solve` takes the place of the controller's own `solve`, which begins an episode too.
    """

    def __init__(self, controller: Any) -> None:
        self._model, self._data = controller._model, controller._data
        hinges = set(self._model.jnt_type.tolist()) == {int(mujoco.mjtJoint.mjJNT_HINGE)}
        if controller._ns != 1 or controller._qp0 is not None or not hinges:
            raise TypeError("OGBench's inverse kinematics is no longer the one this class knows")
        self._site = int(controller._site_ids[0])
        self._qpos = self._data.qpos
        self._site_pos, self._site_mat = self._data.site_xpos[self._site], self._data.site_xmat[self._site]
        self._damping, self._most = controller._damping, controller._max_angle_change
        self._jacobian = np.empty((6, self._model.nv))
        self._jacobian_parts = self._jacobian[:3], self._jacobian[3:]
        self._error = np.empty(6)
        self._error_parts = self._error[:3], self._error[3:]
        self._quaternions = np.empty(4), np.empty(4), np.empty(4)

    def solve(self, pos: np.ndarray, quat: np.ndarray, curr_qpos: np.ndarray) -> np.ndarray:
        """Joint angles near `curr_qpos` that put the site at `pos` and `quat`: damped least squares, step by step."""
        model, data, qpos, error, jacobian = self._model, self._data, self._qpos, self._error, self._jacobian
        place, rotation = self._error_parts
        here, inverse, difference = self._quaternions
        qpos[:] = curr_qpos
        for _ in range(ITERATIONS):
            mujoco.mj_kinematics(model, data)
            np.subtract(pos, self._site_pos, out=place)
            mujoco.mju_mat2Quat(here, self._site_mat)
            mujoco.mju_negQuat(inverse, here)
            mujoco.mju_mulQuat(difference, quat, inverse)
            mujoco.mju_quat2Vel(rotation, difference, 1.0)
            if sqrt(place.dot(place)) <= CLOSE and sqrt(rotation.dot(rotation)) <= CLOSE:
                break
            mujoco.mj_comPos(model, data)  # what the Jacobian needs
            mujoco.mj_jacSite(model, data, *self._jacobian_parts, self._site)
            update = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + self._damping, error)
            largest = max(map(abs, update.tolist()))
            if largest > self._most:
                update *= self._most / largest
            qpos += update  # every joint is a hinge
        return qpos.copy()
