"""OGBench's environments behind the adapter: an episode is a function of task, seed and actions."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from cta.data import TrajectoryDataset
from cta.envs import worlds
from cta.envs.datasets import check_fits
from cta.envs.names import expected_shapes, known_spec
from cta.envs.worlds import OgbenchWorld, global_numpy_seed, make_env, spread_seed
from cta.errors import CtaError
from ooc_arm import state_of

needs_gl = pytest.mark.skipif(worlds.find_backend() is None, reason="no OpenGL library (make system)")


def rollout(world: OgbenchWorld, task: int, seed: int, *, steps: int = 20) -> np.ndarray:
    """(steps + 2, D): the goal, the start and what random actions lead to."""
    observation, goal = world.reset(task, seed)
    rng = np.random.default_rng(seed)
    rows = [goal, observation]
    for _ in range(steps):
        rows.append(world.step(rng.uniform(-1, 1, world.action_dim))[0])
    return np.stack(rows)


@pytest.mark.parametrize("env_name", ["scene-v0", "puzzle-3x3-v0", "cube-double-v0", "pointmaze-medium-v0"])
def test_an_episode_is_a_function_of_task_and_seed(env_name):
    used, fresh = OgbenchWorld(env_name), OgbenchWorld(env_name)
    for task, seed in ((5, 2), (4, 3)):  # leave a locked drawer, pressed buttons and moved cubes behind
        rollout(used, task, seed, steps=30)
    np.random.seed(12)  # noqa: NPY002 - must not matter
    first = rollout(used, 2, 7)
    np.random.seed(13)  # noqa: NPY002
    np.testing.assert_array_equal(first, rollout(fresh, 2, 7))
    np.testing.assert_array_equal(first, rollout(used, 2, 7))
    other = rollout(used, 2, 8)
    assert (other[0] != first[0]).any()  # another seed, another goal (the arm's settling)
    assert (other[1] != first[1]).any()  # and another start
    for world in (used, fresh):
        world.close()


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")  # OGBench's own action space
@pytest.mark.filterwarnings("ignore:.*is not within the observation space:UserWarning")
def test_starts_and_steps_are_those_of_ogbench():
    world, reference = OgbenchWorld("scene-v0"), gymnasium.make("scene-v0")
    observation, goal = world.reset(3, 11)
    seed, _, _ = spread_seed(11, 3)
    start, info = reference.reset(seed=seed, options={"task_id": 3})
    np.testing.assert_allclose(observation, start, atol=1e-5)
    still = np.r_[19:22, 28:30, 32:34]  # the cube's place and the lights do not depend on the unseeded settling steps
    np.testing.assert_allclose(goal[still], info["goal"][still], atol=1e-3)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 5)):
        ours, success, done = world.step(action)
        theirs, _, terminated, truncated, info = reference.step(action)
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        assert (success, done) == (bool(info["success"]), terminated or truncated)
    world.close()
    reference.close()


def test_the_global_generator_is_left_alone():
    world = OgbenchWorld("pointmaze-medium-v0")
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    world.reset(1, 5)
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002
    with pytest.raises(ZeroDivisionError), global_numpy_seed(3):
        np.random.seed(1)  # noqa: NPY002
        raise ZeroDivisionError


@pytest.mark.parametrize("env_name", ["scene-v0", "cube-single-v0", "antmaze-medium-v0", "humanoidmaze-medium-v0"])
def test_what_a_world_says_about_itself(env_name):
    world = OgbenchWorld(env_name)
    shapes = expected_shapes(env_name)
    assert shapes == (world.observation_shape, world.action_dim)
    assert len(world.task_names) == 5
    observation, goal = world.reset(1, 0)
    assert observation.shape == goal.shape == world.observation_shape
    assert observation.dtype == goal.dtype == world.observation_dtype == np.float32
    with pytest.raises(CtaError, match="tasks 1 to 5, not 6"):
        world.reset(6, 0)
    world.close()


def test_an_episode_ends_at_the_limit_or_on_success():
    world = OgbenchWorld("pointmaze-medium-v0")
    world.reset(1, 0)
    ends = [world.step(np.zeros(2))[1:] for _ in range(world.max_episode_steps)]
    assert not any(done for _, done in ends[:-1])
    assert ends[-1] == (False, True)
    _, goal = world.reset(1, 0)
    world._env.set_state(**(state_of(world) | {"qpos": goal.astype(np.float64)}))
    _, success, done = world.step(np.zeros(2))
    assert success
    assert done
    world.close()


def test_a_pair_of_ones_own_instead_of_a_task():
    world = OgbenchWorld("puzzle-3x3-v0")
    pair = {"init_button_states": np.zeros(9, int), "goal_button_states": np.arange(9) % 2}
    observation, goal = world.reset(pair, 0)
    lights = slice(20, None, 4)  # the second entry of each button's one-hot
    np.testing.assert_array_equal(observation[lights], np.zeros(9))
    np.testing.assert_array_equal(goal[lights], np.arange(9) % 2)
    world.close()


def test_unknown_names_get_one_line():
    with pytest.raises(CtaError, match="did you mean scene-v0"):
        make_env("scen-v0")
    with pytest.raises(CtaError, match="no OGBench environment 'CartPole-v1'"):
        make_env("CartPole-v1")
    with pytest.raises(CtaError, match="did you mean scene-play-v0"):
        known_spec("scene-pla-v0")


def test_a_world_of_ones_own_has_no_expected_shape():
    assert expected_shapes("mine-v0") is None


@needs_gl
@pytest.mark.gl
def test_frames():
    world = OgbenchWorld("scene-v0", width=64, height=48)
    world.reset(1, 0, render_goal=True)
    frame = world.render()
    assert frame.shape == (48, 64, 3)
    assert frame.dtype == np.uint8
    assert world.goal_frame is not None
    assert (world.goal_frame != frame).any()
    world.reset(1, 0)
    assert world.goal_frame is None
    world.close()


def test_no_opengl_says_what_to_install(monkeypatch):
    monkeypatch.setattr(worlds, "find_backend", lambda: None)
    with pytest.raises(CtaError, match="make system"):
        worlds.enable_rendering()
    with pytest.raises(CtaError, match="make system"):
        make_env("visual-cube-single-v0")


def test_shapes_that_do_not_fit_get_one_line():
    def dataset(size: int, actions: int) -> TrajectoryDataset:
        return TrajectoryDataset.from_arrays(
            np.zeros((3, size), np.float32), np.zeros((3, actions), np.float32), episode_lengths=[3], name="mine"
        )

    check_fits(dataset(40, 5), "scene-v0")
    check_fits(dataset(7, 1), "some-world-of-mine-v0")
    with pytest.raises(
        CtaError, match=r"mine has observations of shape \(39,\) and 5 actions, scene-v0 has \(40,\) and 5"
    ):
        check_fits(dataset(39, 5), "scene-v0")
    with pytest.raises(CtaError, match="scene-v0"):
        check_fits(dataset(40, 4), "scene-v0")


def test_stepping_needs_no_jax():
    code = "import sys, cta.envs.datasets; from cta.envs.worlds import OgbenchWorld as W; W('pointmaze-medium-v0')"
    subprocess.run([sys.executable, "-c", code + "; assert 'jax' not in sys.modules"], check=True)
