"""The lean step beside OGBench's own: the same bits in all manipulation worlds."""

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest

from cta.envs import worlds
from cta.envs.lean import LeanWorld
from cta.envs.lean_control import multiply, turn, yaw_terms
from cta.envs.names import STATE_DIMS, family
from cta.envs.simulated_data import LeanPlan, ManipulationEpisodes, _make_oracles
from cta.envs.worlds import OgbenchWorld, close_env, global_numpy_seed, make_env, seeded_reset

pytestmark = pytest.mark.filterwarnings("ignore:.*DISPLAY environment variable is missing")
needs_gl = pytest.mark.skipif(worlds.find_backend() is None, reason="no OpenGL library (make system)")
WORLDS = tuple(STATE_DIMS)


@pytest.fixture(scope="module", params=WORLDS)
def pair(request) -> Iterator[SimpleNamespace]:
    """The same world twice: OGBench's own, and with the lean step."""
    plain, lean = make_env(request.param, lean=False), make_env(request.param)
    yield SimpleNamespace(name=request.param, plain=plain, lean=lean)
    close_env(plain)
    close_env(lean)


def assert_same(one: Any, two: Any, what: object) -> None:
    one, two = np.asarray(one), np.asarray(two)
    assert (one.shape, one.dtype.kind) == (two.shape, two.dtype.kind), what
    assert one.tobytes() == two.tobytes(), what


def assert_same_world(pair: SimpleNamespace) -> None:
    for name in ("qpos", "qvel", "ctrl", "qacc_warmstart", "time"):
        assert_same(getattr(pair.plain._data, name), getattr(pair.lean._data, name), name)
    assert_same(colours(pair.plain._model), colours(pair.lean._model), "colours")


def colours(model: Any) -> np.ndarray:
    """Of everything but the arm."""
    return np.stack([g.rgba for g in map(model.geom, range(model.ngeom)) if not g.name.startswith("ur5e/")])


def step_both(pair: SimpleNamespace, action: np.ndarray) -> tuple[np.ndarray, dict, dict]:
    plain, lean = pair.plain.step(action), pair.lean.step(action)
    assert_same(pair.plain._data.ctrl, pair.lean._data.ctrl, "control")  # a last bit lost here may not show elsewhere
    assert_same(plain[0], lean[0], "observation")
    assert plain[1:4] == lean[1:4]
    for key, value in lean[4].items():
        assert_same(plain[4][key], value, key)
    assert plain[4]["success"] == lean[4]["success"]
    return lean[0], plain[4], lean[4]


def reset_both(pair: SimpleNamespace, seed: int, options: dict | None) -> tuple[np.ndarray, dict]:
    observation, info = seeded_reset(pair.plain, seed, options)
    other, other_info = seeded_reset(pair.lean, seed, options)
    assert_same(observation, other, "first observation")
    assert set(info) == set(other_info)
    for key, value in info.items():
        assert_same(value, other_info[key], key)
    assert_same_world(pair)
    return other, other_info


def test_tasks(pair):
    rng = np.random.default_rng(0)
    for task, dtype in ((1, np.float32), (4, np.float64)):
        reset_both(pair, task, {"task_id": task})
        for scale in (1.0, 1.0, 1e-6, 0.0, *np.linspace(0, 1, 16)):
            step_both(pair, (scale * rng.uniform(-1, 1, 5)).astype(dtype))
        assert_same_world(pair)


def test_success_and_its_colours(pair):
    reset_both(pair, 3, {"task_id": 2})
    for env in (pair.plain, pair.lean):
        reach_goal(env)
    assert step_both(pair, np.zeros(5, np.float32))[2]["success"]
    assert_same_world(pair)


def reach_goal(env: Any) -> None:
    """Everything where the task wants it, the arm where it is."""
    for i, mocap in enumerate(getattr(env, "_cube_target_mocap_ids", ())):
        env._data.joint(f"object_joint_{i}").qpos[:3] = env._data.mocap_pos[mocap]
    if hasattr(env, "_target_drawer_pos"):
        env._data.joint("drawer_slide").qpos[:] = env._target_drawer_pos
        env._data.joint("window_slide").qpos[:] = env._target_window_pos
    if hasattr(env, "_cur_button_states"):
        env.set_state(env._data.qpos.copy(), env._data.qvel.copy(), env._target_button_states)
    else:
        env.set_state(env._data.qpos.copy(), env._data.qvel.copy())


@pytest.mark.parametrize("kind", ["play", "noisy"])
def test_data_by_the_oracles(pair, kind):
    for env in (pair.plain, pair.lean):
        env._mode, env._terminate_at_goal = "data_collection", False
    oracles = _make_oracles(pair.lean, family(pair.name), kind)
    before, switches = None, 0
    with global_numpy_seed(7):
        observation, info = reset_both(pair, 5, None)
        oracle = oracles[info["privileged/target_task"]]
        oracle.reset(observation, info)
        for _ in range(70):
            action = np.clip(oracle.select_action(observation, info), -1, 1)
            observation, everything, info = step_both(pair, action)
            before = everything["qpos"] if before is None else before
            if oracle.done:
                switches += 1
                for env in (pair.plain, pair.lean):
                    env.set_new_target(return_info=False, p_stack=0.5)
                    target = env.get_reset_info()
                oracle = oracles[target["privileged/target_task"]]
                oracle.reset(None, target)
    assert_same_world(pair)
    assert_same(pair.plain._model.site_pos, pair.lean._model.site_pos, "targets")
    if family(pair.name) == "puzzle":
        assert switches
    for env in (pair.plain, pair.lean):
        env._mode, env._terminate_at_goal = "task", True


def test_buttons_pressed_and_a_cube_lost(pair, capfd):
    if family(pair.name) == "cube":
        pytest.skip("no buttons, and lost cubes stay lost")
    reset_both(pair, 9, {"task_id": 1})
    lights = pair.lean._cur_button_states.copy()
    for force in (-20.0, 0.0):
        for env in (pair.plain, pair.lean):
            env._data.qfrc_applied[env._model.joint("buttonbox_joint_1").dofadr[0]] = force
        for _ in range(2):
            step_both(pair, np.zeros(5, np.float32))
            assert_same_world(pair)
    assert (pair.lean._cur_button_states != lights).any()
    if pair.name == "scene-v0":
        for env in (pair.plain, pair.lean):
            env._data.joint("object_joint_0").qpos[:3] = (0.4, 0.0, 3.0)
        step_both(pair, np.zeros(5, np.float32))
        assert capfd.readouterr().out.count("Numerical instability") == 2
        assert_same_world(pair)


def contacts(env: Any, body: str) -> set[str]:
    """The bodies that touch `body`."""
    model, data = env._model, env._data
    mujoco.mj_forward(model, data)
    touching = set()
    for contact in data.contact[: data.ncon]:
        names = [model.body(model.geom_bodyid[geom]).name for geom in (contact.geom1, contact.geom2)]
        if body in names:
            touching |= set(names) - {body}
    return touching


def test_bodies_excused_from_the_floor_never_touch_it(pair):
    excused = pair.lean._off_the_floor()
    assert len(excused) == {"cube": 0, "scene": 4}.get(family(pair.name), getattr(pair.plain, "_num_buttons", 0))
    for body in {excused[0], excused[-1]} if excused else ():
        reset_both(pair, 1, {"task_id": 1})
        joint = pair.plain._model.body(body).jntadr[0]
        place = pair.plain._model.jnt_qposadr[joint]
        reach = np.linspace(-0.08, 0.08, 9) if body.startswith("button") else np.linspace(-0.5, 0.5, 9)
        met = set()
        for position in reach:
            pair.plain._data.qpos[place] = position
            met |= contacts(pair.plain, body)
        assert "world" not in met
        if body.startswith("button"):  # its own box stops it, more than 5 cm above the floor
            pair.plain._data.qpos[place] = -0.03
            assert contacts(pair.plain, body) == {body.replace("button", "buttonbox")}


def test_covers_that_nobody_sees_are_off_and_weigh_nothing(pair):
    reset_both(pair, 0, {"task_id": 1})
    plain, lean = pair.plain._model, pair.lean._model
    assert lean.nbvh < plain.nbvh / 2
    with pytest.raises(TypeError, match="draw"):
        pair.lean.render()
    for part in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_invweight0", "body_invweight0"):
        assert_same(getattr(plain, part), getattr(lean, part), part)


def test_evaluation_and_generation_are_lean():
    world, episodes = OgbenchWorld("cube-single-v0"), ManipulationEpisodes("cube-single-v0", "noisy")
    assert isinstance(world._env, LeanWorld)
    assert isinstance(episodes._env, LeanWorld)
    world.close()
    episodes.close()


@needs_gl
@pytest.mark.gl
def test_pictures():
    worlds.enable_rendering()
    pair = SimpleNamespace(
        plain=make_env("puzzle-3x3-v0", lean=False, width=64, height=48),
        lean=make_env("puzzle-3x3-v0", width=64, height=48),
    )
    reset_both(pair, 0, {"task_id": 1})
    for _ in range(3):
        step_both(pair, np.full(5, 0.5, np.float32))
    np.testing.assert_array_equal(pair.plain.render(), pair.lean.render())
    step_both(pair, np.full(5, 0.5, np.float32))
    assert_same_world(pair)  # drawing left no trace
    close_env(pair.plain)
    close_env(pair.lean)


@pytest.mark.parametrize("target", ["cube", "button", "drawer", "window"])
def test_plans(target):
    module = import_module(f"ogbench.manipspace.oracles.plan.{target}_plan")
    plain = getattr(module, f"{target.title()}PlanOracle")
    lean = type("Lean", (LeanPlan, plain), {})
    settings = SimpleNamespace(
        _control_timestep=0.05, _arm_sampling_bounds=np.array([[0.2, -0.3, 0.2], [0.6, 0.3, 0.3]])
    )
    rng = np.random.default_rng(3)
    for seed in range(12):
        info: dict[str, Any] = {"privileged/target_block": 0, "time": rng.uniform(0, 9, 1)}
        for name in (
            "proprio/effector",
            "privileged/block_0",
            "privileged/target_block",
            "privileged/target_button_top",
        ):
            info |= {f"{name}_pos": rng.uniform(-0.3, 0.6, 3), f"{name}_yaw": rng.uniform(-3, 3, 1)}
        for name in ("drawer_handle", "target_drawer_handle", "window_handle", "target_window_handle"):
            info |= {f"privileged/{name}_pos": rng.uniform(-0.3, 0.6, 3), f"privileged/{name}_yaw": np.zeros(1)}
        if seed == 0:  # a turn that is none: the series near zero
            info["privileged/block_0_yaw"] = info["privileged/target_block_yaw"] = info["proprio/effector_yaw"]
        plans = []
        for kind in (plain, lean):
            oracle = kind(env=SimpleNamespace(unwrapped=settings))
            with global_numpy_seed(seed):
                oracle.reset(None, info)
                plans.append((oracle._plan, np.random.random()))  # noqa: NPY002 - the draws that follow, too
        assert len(plans[0][0]) > 20
        assert_same(plans[0][0], plans[1][0], target)
        assert plans[0][1] == plans[1][1]


def test_rotations():
    lie = import_module("ogbench.manipspace.lie")
    rng = np.random.default_rng(0)
    for angle in (*rng.uniform(-4, 4, 2000).tolist(), 0.0, -0.0, 1e-6, -9.9e-6, 1.01e-5):
        ours, theirs = turn(angle), lie.SO3.from_z_radians(angle)
        assert_same(ours, theirs.wxyz, angle)
        other = lie.SO3(rng.standard_normal(4)).normalize()
        product = multiply(ours, other.wxyz.tolist())
        assert_same(product, (theirs @ other).wxyz, angle)
        assert_same(np.arctan2(*yaw_terms(product)), (theirs @ other).compute_yaw_radians(), angle)


def test_inverse_kinematics(pair):
    if pair.name != WORLDS[0]:
        pytest.skip("the arm is the same everywhere")
    rng = np.random.default_rng(0)
    for step in np.linspace(0, 0.3, 40):  # from no step at all to one that takes many iterations
        start = pair.plain._home_qpos + rng.uniform(-0.5, 0.5, 6)
        site = pair.plain._ik._site_ids[0]
        pair.plain._ik._data.qpos[:] = start
        pair.plain._ik._forward_kinematics()
        pos = pair.plain._ik._data.site_xpos[site] + rng.uniform(-step, step, 3)
        quat = rng.standard_normal(4)
        goal = {"pos": pos, "quat": quat / np.linalg.norm(quat), "curr_qpos": start}
        assert_same(pair.plain._ik.solve(**goal), pair.lean._ik.solve(**goal), step)
