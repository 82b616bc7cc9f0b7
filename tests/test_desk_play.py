"""Play data on the desk, and the five tasks of each world."""

import time

import jax
import numpy as np
import pytest

from cta.envs.desk import WORLDS, DeskWorld, decode, find_world
from cta.envs.desk_play import Subtask, generate_play, oracle_action
from cta.envs.desk_vector import DeskVectorWorld, start_and_goal
from cta.envs.protocol import Episode
from cta.errors import CtaError

NAMES = ["desk", "lights-3x3"]


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> DeskWorld:
    return WORLDS[request.param]


@pytest.fixture(scope="module")
def data(world: DeskWorld):
    return generate_play(world.name)


def by_episode(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1, 150, *array.shape[1:])


def test_datasets_have_ogbench_arrays(world: DeskWorld, data) -> None:
    train, validation = data
    assert (train.name, validation.name) == (f"{world.name}-play-v0", f"{world.name}-play-v0-val")
    assert (train.num_episodes, validation.num_episodes) == (500, 50)
    assert train.observations.shape == (75_000, world.observation_dim)
    assert train.observations.dtype == train.actions.dtype == train.info["qpos"].dtype == np.float32
    assert train.actions.shape == (75_000, 3)
    assert np.flatnonzero(train.terminals).tolist() == list(range(149, 75_000, 150))
    assert train.info["button_states"].dtype == np.int64
    state = decode(world, train.observations)
    qpos = np.concatenate([state.gripper, np.asarray(state.grip)[:, None], state.parts], axis=1)
    np.testing.assert_allclose(train.info["qpos"], qpos, atol=1e-6)
    np.testing.assert_array_equal(train.info["button_states"], state.bits)
    assert not np.array_equal(train.observations[:7500], validation.observations)


def test_start_is_a_fair_coin_everywhere(world: DeskWorld, data) -> None:
    start = decode(world, by_episode(data[0].observations)[:, 0])
    assert np.all(np.asarray(start.grip) == 0)
    coins = np.concatenate([start.parts, start.bits], axis=1)
    assert set(np.unique(coins)) == {0, 1}
    # 500 fair coins: four standard deviations are 0.09.
    assert np.all(np.abs(coins.mean(axis=0) - 0.5) < 0.09)
    assert np.all(np.abs(np.asarray(start.gripper).mean(axis=0) - 0.5) < 0.06)


def test_every_subtask_happens_about_every_six_steps(world: DeskWorld, data) -> None:
    state = decode(world, by_episode(data[0].observations))
    bits, parts = np.asarray(state.bits), np.asarray(state.parts) > 0.5
    flips = bits[:, 1:] ^ bits[:, :-1]
    presses = np.array([(flips == row).all(axis=-1).sum() for row in world.toggles])
    moves = (parts[:, 1:] != parts[:, :-1]).sum(axis=(0, 1))
    events = np.concatenate([moves, presses])
    assert flips.any(axis=-1).sum() == presses.sum()
    assert events.min() > 0.05 * events.sum()
    assert 5 < 500 * 149 / events.sum() < 8


def test_locked_parts_never_move(data, world: DeskWorld) -> None:
    state = decode(world, by_episode(data[0].observations))
    bits, parts = np.asarray(state.bits), np.asarray(state.parts)
    for i, part in enumerate(world.parts):
        locked = ~bits[:, :-1, list(part.locks)].all(axis=-1)
        moved = np.abs(parts[:, 1:, i] - parts[:, :-1, i])
        assert not part.locks or locked.any()
        assert moved[locked].max(initial=0) < 1e-6 < moved[~locked].max()


def test_actions_carry_noise_and_are_clipped(data) -> None:
    actions = data[0].actions
    assert np.abs(actions).max() == 1
    closing = actions[actions[:, 2] > 0, 2]
    # Closing happens near an anchor: min(1, 1 + 0.075·N) falls short of 1 by 0.075·√(1/2π) = 0.030 on average.
    assert abs((1 - closing).mean() - 0.030) < 0.003


def test_the_seed_decides_and_episodes_do_not_depend_on_their_number() -> None:
    few, _ = generate_play("desk", episodes=3, validation_episodes=1, episode_steps=20, seed=5)
    more, held_out = generate_play("desk", episodes=5, validation_episodes=2, episode_steps=20, seed=5)
    other, _ = generate_play("desk", episodes=3, validation_episodes=1, episode_steps=20, seed=6)
    np.testing.assert_array_equal(few.observations, more.observations[:60])
    np.testing.assert_array_equal(few.actions, more.actions[:60])
    assert not np.array_equal(few.observations, other.observations)
    assert not np.array_equal(few.observations[:20], held_out.observations[:20])


def test_a_compiled_generation_takes_about_a_second(data, world: DeskWorld) -> None:
    begin = time.perf_counter()
    generate_play(world.name, seed=1)
    assert time.perf_counter() - begin < 3


def test_unknown_worlds_and_empty_data_are_refused() -> None:
    with pytest.raises(CtaError, match="no embedded world 'sofa'"):
        generate_play("sofa")
    with pytest.raises(CtaError, match="at least one episode"):
        generate_play("desk", episodes=0)


def script(world: DeskWorld, task: int) -> list[tuple[int, float]]:
    """A plan for a task: subtasks (number among parts, then buttons; target of a part) in an order the locks allow."""
    m = len(world.parts)
    if not m:
        presses = ((4,), (0, 8), (1, 3, 7), (0, 2, 6, 8), (1, 3, 5, 7))[task - 1]
        return [(press, 0.0) for press in presses]
    drawer, window, tray = range(3)
    unlock_drawer, unlock_window = (m, 0.0), (m + 1, 0.0)
    return [
        [(tray, 1.0)],
        [unlock_drawer, (drawer, 1.0)],
        [(drawer, 1.0), (tray, 1.0)],
        [unlock_drawer, unlock_window, (drawer, 1.0), (window, 1.0), (tray, 0.0)],
        [(drawer, 0.0), (window, 0.0), (tray, 0.0), unlock_drawer, unlock_window],
    ][task - 1]


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
def test_a_scripted_plan_solves_the_task(world: DeskWorld, task: int) -> None:
    """The plan acts through the vector world on observations: this also tests start, goal, success and done."""
    vector = DeskVectorWorld(world, slots=3)
    plan = script(world, task)
    act = jax.jit(lambda state, subtask: oracle_action(world, state, subtask)[0])
    vector.send(np.zeros((3, 3), np.float32), {1: Episode(task, seed=7)})
    step = vector.receive()
    start, goal = start_and_goal(world.tasks[task - 1], 7)
    np.testing.assert_allclose(decode(world, step.observations[1]).gripper, start.gripper, atol=1e-6)
    np.testing.assert_allclose(decode(world, step.goals[1]).gripper, goal.gripper, atol=1e-6)
    assert step.done.tolist() == [True, False, True]

    releasing, taken, previous = False, 0, decode(world, step.observations[1])
    while not step.done[1]:
        state = decode(world, step.observations[1])
        which, target = plan[0]
        if releasing and state.grip < 0.3:
            releasing = False
            plan = plan[1:]
            which, target = plan[0]
        actions = np.zeros((3, 3), np.float32)
        subtask = Subtask(np.int32(which), np.float32(target), np.bool_(releasing))  # pyright: ignore
        actions[1] = act(state, subtask)
        vector.send(actions, {})
        step, previous, taken = vector.receive(), state, taken + 1
        after = decode(world, step.observations[1])
        pressed = bool(np.any(np.asarray(after.bits) != np.asarray(previous.bits)))
        arrived = which < len(world.parts) and abs(float(after.parts[which]) - target) < 0.06
        releasing = releasing or pressed or arrived
    assert bool(step.success[1]) and 2 <= taken < 60
    # The success is that of the last subtask, not of an earlier one.
    assert len(plan) == 1


def test_vector_world_ends_at_the_limit_and_restarts_a_slot() -> None:
    vector = DeskVectorWorld(WORLDS["desk"], slots=2, max_episode_steps=3)
    still = np.zeros((2, 3), np.float32)
    vector.send(still, {0: Episode(1, 1), 1: Episode(2, 2)})
    begin = vector.receive()
    dones = []
    for _ in range(3):
        vector.send(still, {})
        dones.append(vector.receive().done.tolist())
    assert dones == [[False, False], [False, False], [True, True]]
    vector.send(still + 1, {0: Episode(1, 1)})
    again = vector.receive()
    np.testing.assert_array_equal(again.observations[0], begin.observations[0])
    np.testing.assert_array_equal(again.goals, begin.goals)
    assert not np.array_equal(again.observations[1], begin.observations[1])
    assert again.done.tolist() == [False, True]


def test_a_task_out_of_range_is_one_line() -> None:
    world = find_world("desk")
    assert world is not None
    with pytest.raises(CtaError, match="tasks 1 to 5, not 6"):
        DeskVectorWorld(world, slots=1).send(np.zeros((1, 3)), {0: Episode(6, 0)})
