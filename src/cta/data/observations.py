"""One vector (or image) from whatever an environment calls an observation, the same for data and for rollouts.

Arrays are taken as they are. Of a dictionary the parts are joined, `observation` first and the others by name;
`desired_goal` is left out, because it says what is wanted and not what is the case, and so is an `achieved_goal` of the
shape of `observation`, where states themselves are goals.
"""

from typing import Any

import numpy as np

from cta.errors import CtaError

STATE, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"


def leaves(observation: Any, path: str = "") -> dict[str, np.ndarray]:
    """The arrays of an observation by their paths, such as `arm/joints`, in the order they are joined."""
    if isinstance(observation, tuple):
        observation = {str(i): part for i, part in enumerate(observation)}
    if not isinstance(observation, dict):
        return {path or STATE: np.asarray(observation)}
    parts = {key: part for key, part in observation.items() if key != DESIRED}
    if STATE in parts and ACHIEVED in parts and _shapes(parts[STATE]) == _shapes(parts[ACHIEVED]):
        del parts[ACHIEVED]
    found = {}
    for key in sorted(parts, key=lambda key: (key != STATE, str(key))):
        inner = leaves(parts[key], f"{path}/{key}" if path else str(key))
        for name in inner.keys() & found.keys():
            raise CtaError(f"two parts of an observation are called {name}: rename one")
        found |= inner
    return found


def _shapes(observation: Any) -> list[tuple[int, ...]]:
    return [array.shape for array in leaves(observation).values()]


def join(observation: Any, *, rows: bool, label: str) -> np.ndarray:
    """float32 vectors, or one uint8 image; with `rows` every part has a leading axis of rows."""
    return _joined(leaves(observation), rows=rows, label=label)


def _joined(parts: dict[str, np.ndarray], *, rows: bool, label: str) -> np.ndarray:
    lead = 1 if rows else 0
    for name, part in parts.items():
        if part.dtype.kind not in "iufb":
            raise CtaError(f"{label}: {name} has dtype {part.dtype}; observations are numbers")
    (first, *others) = parts.values() or [np.zeros(0)]
    if not others and first.dtype == np.uint8 and first.ndim == lead + 3:
        return first
    pictures = [name for name, part in parts.items() if part.ndim - lead > 1]
    if others and pictures:
        raise CtaError(
            f"{label}: {pictures[0]} has shape {parts[pictures[0]].shape}; images and vectors cannot be mixed"
        )
    if rows and len({len(part) for part in parts.values()}) > 1:
        raise CtaError(f"{label}: the parts of its observations disagree in length")
    with np.errstate(over="ignore"):  # what overflows becomes infinite, which is reported where data is checked
        flat = [part.reshape(*part.shape[:lead], -1).astype(np.float32) for part in parts.values()]
    return np.concatenate(flat, axis=-1)


def goal_vector(observation: Any, info: dict[str, Any], *, label: str) -> np.ndarray:
    """The goal of an episode as an observation, from `info["goal"]` or from the `desired_goal` of a GoalEnv.

    Where the desired goal is only a part of a state, as `achieved_goal` is, the rest of the vector is NaN: unknown.
    """
    if info.get("goal") is not None:
        return join(info["goal"], rows=False, label=f"{label}: info['goal']")
    if not isinstance(observation, dict) or DESIRED not in observation:
        raise CtaError(
            f"{label}: reset gives no goal: put an observation of the goal into info['goal'], or return a dictionary "
            "with observation, achieved_goal and desired_goal"
        )
    wanted = np.asarray(observation[DESIRED])
    parts = leaves(observation)
    place = ACHIEVED if ACHIEVED in parts else STATE
    if place not in parts or parts[place].shape != wanted.shape:
        raise CtaError(
            f"{label}: desired_goal has shape {wanted.shape}, but no part of the observation has: add an achieved_goal"
        )
    unknown = {name: np.full(part.shape, np.nan, np.float32) for name, part in parts.items()}
    if len(parts) == 1 and wanted.ndim == 3:
        return wanted
    return _joined({**unknown, place: wanted}, rows=False, label=label)
