"""The rules of the desk, one hand-worked step each."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.envs.desk import WORLDS, DeskState, decode, find_world, observe, step, success
from cta.errors import CtaError

DESK = WORLDS["desk"]
LIGHTS = WORLDS["lights-3x3"]
desk_step = jax.jit(partial(step, DESK))
lights_step = jax.jit(partial(step, LIGHTS))


def state(x=(0.5, 0.6), grip=0.0, parts=(0.0, 0.0, 0.0), bits=(1, 1)) -> DeskState:
    return DeskState(
        jnp.array(x, jnp.float32), jnp.float32(grip), jnp.array(parts, jnp.float32), jnp.array(bits, jnp.int32)
    )


def act(*values: float) -> jax.Array:
    return jnp.array(values, jnp.float32)


def close(actual, expected) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-6)


def test_free_gripper_moves_by_speed_and_grip_adds() -> None:
    after = desk_step(state(grip=0.2), act(0.5, -1.0, 0.3))
    close(after.gripper, [0.6, 0.4])
    close(after.grip, 0.5)
    close(after.parts, [0, 0, 0])
    close(after.bits, [1, 1])


def test_actions_and_state_are_clipped() -> None:
    after = desk_step(state(x=(0.95, 0.7), grip=0.9), act(7.0, 0.0, 3.0))
    close(after.gripper, [1.0, 0.7])
    close(after.grip, 1.0)
    after = desk_step(state(x=(0.5, 0.05), grip=0.1), act(0.0, -5.0, -9.0))
    close(after.gripper, [0.5, 0.0])
    close(after.grip, 0.0)


def test_held_part_moves_and_carries_the_gripper_along_its_rail_only() -> None:
    # The tray's handle is at (0.45 + 0.5·0.4, 0.4) = (0.65, 0.4); full speed is half a rail, 0.2.
    after = desk_step(state(x=(0.7, 0.35), grip=1.0, parts=(0, 0, 0.5)), act(0.5, 1.0, 0.0))
    close(after.parts, [0, 0, 0.75])
    close(after.gripper, [0.8, 0.35])


def test_a_closing_gripper_holds_in_the_same_step_and_an_opening_one_lets_go() -> None:
    closing = desk_step(state(x=(0.45, 0.4), grip=0.0), act(1.0, 0.0, 1.0))
    close(closing.parts, [0, 0, 0.5])
    opening = desk_step(state(x=(0.45, 0.4), grip=1.0), act(1.0, 0.0, -1.0))
    close(opening.parts, [0, 0, 0])
    close(opening.gripper, [0.65, 0.4])
    ajar = desk_step(state(x=(0.45, 0.4), grip=0.0), act(1.0, 0.0, 0.55))
    close(ajar.parts, [0, 0, 0])


def test_a_part_stops_at_the_end_of_its_rail_and_so_does_the_gripper() -> None:
    after = desk_step(state(x=(0.81, 0.4), grip=1.0, parts=(0, 0, 0.9)), act(1.0, 0.0, 0.0))
    close(after.parts, [0, 0, 1])
    close(after.gripper, [0.85, 0.4])
    after = desk_step(state(x=(0.15, 0.2), grip=1.0), act(0.0, -1.0, 0.0))
    close(after.parts, [0, 0, 0])
    close(after.gripper, [0.15, 0.2])


@pytest.mark.parametrize(
    ("part", "handle", "move"), [(0, (0.15, 0.2), (0, 1)), (1, (0.2, 0.85), (1, 0))], ids=["drawer", "window"]
)
def test_a_locked_part_stays_and_the_gripper_moves_freely(part: int, handle: tuple, move: tuple) -> None:
    locked, unlocked = [1, 1], [0, 0]
    locked[part], unlocked[part] = 0, 1
    after = desk_step(state(x=handle, grip=1.0, bits=locked), act(*move, 0.0))
    close(after.parts, [0, 0, 0])
    close(after.gripper, np.add(handle, 0.2 * np.array(move)))
    after = desk_step(state(x=handle, grip=1.0, bits=unlocked), act(*move, 0.0))
    close(after.parts, 0.5 * np.eye(3)[part])


def test_reach_is_the_largest_coordinate_difference() -> None:
    held = desk_step(state(x=(0.54, 0.49), grip=1.0), act(1.0, 0.0, 0.0))
    close(held.parts, [0, 0, 0.5])
    missed = desk_step(state(x=(0.45, 0.51), grip=1.0), act(1.0, 0.0, 0.0))
    close(missed.parts, [0, 0, 0])


def test_the_nearest_of_several_parts_is_held() -> None:
    # The desk's own parts never come that close, so a copy of the tray stands beside it.
    crowded = replace(DESK, parts=(DESK.parts[2], replace(DESK.parts[2], base=(0.5, 0.45)), DESK.parts[1]))
    after = step(crowded, state(x=(0.5, 0.43), grip=1.0), act(1.0, 0.0, 0.0))
    close(after.parts, [0, 0.5, 0])
    after = step(crowded, state(x=(0.46, 0.42), grip=1.0), act(1.0, 0.0, 0.0))
    close(after.parts, [0.5, 0, 0])


def test_a_locked_part_does_not_shadow_a_farther_unlocked_one() -> None:
    near_locked = replace(DESK, parts=(replace(DESK.parts[2], locks=(0,)), replace(DESK.parts[2], base=(0.5, 0.4))))
    before = state(x=(0.45, 0.4), grip=1.0, parts=(0, 0), bits=(0, 1))
    close(step(near_locked, before, act(1.0, 0.0, 0.0)).parts, [0, 0.5])


def test_a_press_needs_closing_and_reach_at_the_old_place() -> None:
    pressed = desk_step(state(x=(0.75, 0.15), grip=0.5, bits=(0, 1)), act(-1.0, 1.0, 0.2))
    close(pressed.bits, [1, 1])
    already_closed = desk_step(state(x=(0.8, 0.1), grip=0.7, bits=(0, 1)), act(0.0, 0.0, 1.0))
    close(already_closed.bits, [0, 1])
    not_enough = desk_step(state(x=(0.8, 0.1), grip=0.0, bits=(0, 1)), act(0.0, 0.0, 0.55))
    close(not_enough.bits, [0, 1])
    moving_in = desk_step(state(x=(0.65, 0.1), grip=0.0, bits=(0, 1)), act(1.0, 0.0, 1.0))
    close(moving_in.bits, [0, 1])
    second = desk_step(state(x=(0.85, 0.75), bits=(1, 1)), act(0.0, 0.0, 1.0))
    close(second.bits, [1, 0])


def test_lights_flip_themselves_and_their_neighbours() -> None:
    def lights(x, bits) -> DeskState:
        return state(x=x, parts=(), bits=bits)

    centre = lights_step(lights((0.5, 0.5), (1, 0, 0, 0, 1, 0, 0, 1, 0)), act(0, 0, 1))
    close(centre.bits, [1, 1, 0, 1, 0, 1, 0, 0, 0])
    # Row 0 is at the top: the corner light 2 is at (5/6, 5/6).
    corner = lights_step(lights((5 / 6, 5 / 6), (0,) * 9), act(0, 0, 1))
    close(corner.bits, [0, 1, 1, 0, 0, 1, 0, 0, 0])
    between = lights_step(lights((1 / 3, 0.5), (0,) * 9), act(0, 0, 1))
    close(between.bits, [0] * 9)


def test_observation_and_its_inverse() -> None:
    before = state(x=(0.75, 0.0), grip=0.25, parts=(0.0, 1.0, 0.5), bits=(0, 1))
    observation = observe(before)
    close(observation, [1, -2, -0.5, -1.5, 1.5, 0, -1, 1])
    assert observation.dtype == jnp.float32
    for value, expected in zip(decode(DESK, np.asarray(observation)), before, strict=True):
        close(value, expected)
    with pytest.raises(CtaError, match="has 8 numbers"):
        decode(DESK, np.zeros(12))


def test_success_asks_for_parts_and_bits_but_not_the_gripper() -> None:
    goal = state(x=(0, 0), grip=0.0, parts=(0, 1, 0), bits=(1, 0))
    reached = state(x=(1, 1), grip=1.0, parts=(0.14, 0.86, 0), bits=(1, 0))
    assert bool(success(reached, goal))
    assert not bool(success(reached._replace(parts=jnp.array([0.16, 1, 0])), goal))
    assert not bool(success(reached._replace(bits=jnp.array([1, 1])), goal))


def test_worlds_are_found_by_name_and_by_dataset() -> None:
    assert find_world("desk") is find_world("desk-play-v0") is DESK
    assert find_world("lights-3x3-play-v0") is LIGHTS
    assert find_world("puzzle-3x3-play-v0") is None
    assert (DESK.observation_dim, LIGHTS.observation_dim) == (8, 12)
    assert LIGHTS.tasks[1].goal_bits == (1, 1, 0, 1, 0, 1, 0, 1, 1)
