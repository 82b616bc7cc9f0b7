"""Drawings of the desk: what changes in the world changes in the picture."""

import subprocess
import sys

import numpy as np
import pytest

from cta.envs.desk import WORLDS, DeskState, observe
from cta.envs.desk_draw import frame
from cta.envs.desk_vector import start_and_goal

DESK = WORLDS["desk"]


def changed(a: DeskState, b: DeskState) -> int:
    return int((frame(DESK, a) != frame(DESK, b)).any(axis=-1).sum())


def test_every_part_of_a_state_can_be_seen() -> None:
    state, _ = start_and_goal(DESK.tasks[0], 0)
    assert changed(state, state) == 0
    assert changed(state, state._replace(gripper=np.array([0.9, 0.9], np.float32))) > 50
    assert changed(state, state._replace(grip=np.float32(1))) > 20
    for i in range(3):
        assert changed(state, state._replace(parts=np.eye(3, dtype=np.float32)[i])) > 200
    for j in range(2):
        assert changed(state, state._replace(bits=1 - np.eye(2, dtype=np.int32)[j])) > 200


@pytest.mark.parametrize("name", list(WORLDS))
def test_a_state_and_its_observation_look_alike(name: str) -> None:
    world = WORLDS[name]
    state, goal = start_and_goal(world.tasks[1], 5)
    image = frame(world, state)
    assert image.shape == (320, 320, 3) and image.dtype == np.uint8
    np.testing.assert_array_equal(image, frame(world, np.asarray(observe(state))))
    assert (image != frame(world, goal)).any()


def test_matplotlib_is_not_loaded_before_something_is_drawn() -> None:
    code = "import sys, cta.envs.desk_draw, cta.envs.desk_vector; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
