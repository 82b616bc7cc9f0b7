"""Worlds that share a compiled model: each as if it were alone."""

import numpy as np
import pytest

from cta.envs import worlds
from cta.envs.names import STATE_DIMS
from cta.envs.worlds import OgbenchWorld, make_env

needs_gl = pytest.mark.skipif(worlds.find_backend() is None, reason="no OpenGL library (make system)")
EPISODES = ((1, 0), (5, 1), (3, 2), (4, 3), (2, 4))
PUSHES = {"buttonbox_joint_0": -20.0, "buttonbox_joint_1": -20.0, "drawer_slide": -5.0, "window_slide": 5.0}
"""Forces that press buttons, and move what a pressed button locks or frees."""


class Played:
    """An episode under way, and everything seen of it."""

    def __init__(self, world: OgbenchWorld, task: int, seed: int) -> None:
        self._world, self._rng = world, np.random.default_rng(seed)
        self.seen = [*world.reset(task, seed)]
        env = world._env
        names = [env._model.joint(i).name for i in range(env._model.njnt)]
        for name, force in PUSHES.items():
            if name in names:
                # Not in every world at once: they must differ while they take turns.
                env._data.qfrc_applied[env._model.joint(name).dofadr[0]] = force * self._rng.integers(0, 2)

    def step(self) -> None:
        observation, success, _ = self._world.step(self._rng.uniform(-1, 1, 5))
        self.seen += [observation, np.array(success), self._world._env._data.qacc_warmstart.copy()]


@pytest.mark.parametrize("name", STATE_DIMS)
def test_twins_that_take_turns_are_as_each_alone(name):
    alone, first = OgbenchWorld(name), OgbenchWorld(name)
    worlds = [first, *(first.twin() for _ in EPISODES[1:])]
    assert len({id(world._env._model) for world in worlds}) == 1
    for shift in range(2):  # new worlds and used ones
        episodes = [EPISODES[(i + shift) % len(EPISODES)] for i in range(len(worlds))]
        together = [Played(world, *episode) for world, episode in zip(worlds, episodes, strict=True)]
        for _ in range(25):
            for played in together:
                played.step()
        for played, episode in zip(together, episodes, strict=True):
            expected = Played(alone, *episode)
            for _ in range(25):
                expected.step()
            for ours, theirs in zip(played.seen, expected.seen, strict=True):
                assert ours.tobytes() == theirs.tobytes()
    first.close()
    alone.close()


@needs_gl
@pytest.mark.gl
@pytest.mark.parametrize("name", ["cube-single-v0", "scene-v0", "puzzle-3x3-v0"])
def test_a_frame_has_its_own_colours_beside_twins(name):
    drawn, first = OgbenchWorld(name, width=64, height=48), OgbenchWorld(name)
    other = first.twin()
    drawn.reset(1, 0)
    frame = drawn.render()
    for world, task in ((first, 2), (other, 4)):
        world.reset(task, 0)
        for _ in range(3):
            world.step(np.ones(5))
        with pytest.raises(TypeError, match="draw"):
            world.render()
    np.testing.assert_array_equal(frame, drawn.render())
    drawn.close()


@needs_gl
@pytest.mark.gl
def test_worlds_seen_as_pixels_share_nothing():
    world = OgbenchWorld("visual-cube-single-v0")
    twin = world.twin()
    assert twin._env._model is not world._env._model
    with pytest.raises(TypeError):
        world._env.twin()
    for each in (world, twin):
        each.close()


def test_mazes_share_nothing():
    world = OgbenchWorld("pointmaze-medium-v0")
    assert world.twin()._env is not world._env


def test_data_are_made_by_worlds_without_twins():
    env = make_env("cube-single-v0", data_collection=True)
    with pytest.raises(TypeError, match="tasks"):
        env.twin()
