"""Generating datasets: seeded episode by episode, whatever the workers, the order and the interruptions."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import ogbench
import pytest
from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

from cta.cli import carry_out
from cta.data import TrajectoryDataset
from cta.data.npz import column, write_npz
from cta.envs import generate as generate_module
from cta.envs import worlds as worlds_module
from cta.envs.datasets import open_dataset
from cta.envs.generate import generate, make_episode, plan_job
from cta.envs.simulated_data import ManipulationEpisodes, PointMazeEpisodes, healthy, maze_cells
from cta.envs.worlds import global_numpy_seed, spread_seed
from cta.errors import CtaError
from cta.io.files import file_lock
from ogbench_forms import compact, regular

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*DISPLAY environment variable is missing"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning"),  # OGBench's own action space
]
needs_gl = pytest.mark.skipif(worlds_module.find_backend() is None, reason="no OpenGL library (make system)")
MAZE = "pointmaze-medium-navigate-v0"


def run(*words: object) -> int:
    return carry_out("data", [str(word) for word in words])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def assert_same_episode(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert list(one) == list(two)
    for key in one:
        np.testing.assert_array_equal(one[key], two[key], err_msg=key)


def test_one_worker_and_two_give_the_same_bytes_and_ogbench_loads_them(tmp_path, capsys):
    size = ("--episodes", 2, "--episode-steps", 30)
    for workers in (1, 2):
        assert run("generate", "puzzle-3x3-play-v0", *size, "--workers", workers, "--out", tmp_path / str(workers)) == 0
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert list(contents(tmp_path / "1")) == ["puzzle-3x3-play-v0-val.npz", "puzzle-3x3-play-v0.npz"]
    assert str(tmp_path / "2" / "puzzle-3x3-play-v0.npz") in capsys.readouterr().out

    env, train, val = ogbench.make_env_and_datasets(
        "puzzle-3x3-play-v0", dataset_dir=str(tmp_path / "1"), compact_dataset=True, add_info=True
    )
    name, ours, ours_val = open_dataset("puzzle-3x3-play-v0", dataset_dir=tmp_path / "1", info=True)
    assert name == "puzzle-3x3-play-v0"
    assert ours_val is not None
    for theirs, mine in ((train, ours), (val, ours_val)):
        view = compact(mine, info=True)
        assert set(theirs) == set(view)
        for key, values in theirs.items():
            np.testing.assert_array_equal(values, view[key], err_msg=key)
    assert (ours.num_episodes, ours.num_rows, ours_val.num_episodes) == (2, 62, 1)
    assert set(ours.info) == {"qpos", "qvel", "button_states"}
    # The stored state is the one the observation shows, so OGBench can put it back.
    env.reset()
    env.unwrapped.set_state(*(ours.info[key][40] for key in ("qpos", "qvel", "button_states")))
    lights = slice(20, None, 4)
    np.testing.assert_array_equal(env.unwrapped.compute_observation()[lights], ours.observations[40, lights])
    np.testing.assert_allclose(env.unwrapped.compute_observation()[:6], ours.observations[40, :6], atol=1e-6)
    env.close()
    theirs, _ = ogbench.make_env_and_datasets(
        "puzzle-3x3-play-v0", dataset_path=str(tmp_path / "1" / "puzzle-3x3-play-v0.npz"), dataset_only=True
    )
    np.testing.assert_array_equal(theirs["next_observations"], regular(ours)["next_observations"])


def test_an_episode_does_not_depend_on_what_its_process_did_before():
    fresh, used = ManipulationEpisodes("scene-v0", "noisy"), ManipulationEpisodes("scene-v0", "noisy")
    used.episode((0, 0, 1), 60)
    # What an unlucky earlier episode would leave: a Markov oracle's first look is at the old targets.
    used._env._target_button, used._env._target_button_states[:] = 1, 1
    used._env.model.site("drawer_handle_center_target").pos[1] = -0.16
    expected = fresh.episode((0, 0, 7), 120)
    assert_same_episode(used.episode((0, 0, 7), 120), expected)
    other = fresh.episode((0, 0, 8), 5)
    assert (other["observations"][0] != expected["observations"][0]).any()
    fresh.close()
    used.close()


def test_targets_of_earlier_episodes_are_forgotten():
    maker = ManipulationEpisodes("scene-v0", "noisy")
    env = maker._env
    infos = []
    for leftover in (0, 1):
        env._target_button, env._target_button_states[:] = leftover, leftover
        env._target_drawer_pos = -0.16 * leftover
        env.model.site("window_handle_center_target").pos[0] = 0.2 * leftover
        maker.episode((3, 0, 0), 1)
        infos.append(env.get_reset_info())
    for key, value in infos[0].items():
        np.testing.assert_array_equal(value, infos[1][key], err_msg=key)
    maker.close()


@pytest.mark.parametrize(
    ("env_name", "kind"),
    [("cube-triple-v0", "noisy"), ("cube-single-v0", "play"), ("puzzle-4x6-v0", "noisy"), ("scene-v0", "play")],
)
def test_the_settings_are_those_of_ogbench(env_name, kind):
    maker = ManipulationEpisodes(env_name, kind)
    world = env_name.split("-")[0]
    for oracle in maker._oracles.values():
        if kind == "play":
            assert (oracle._noise, oracle._noise_smoothing, oracle._dt) == (0.1, 0.5, 0.4)
        else:
            assert oracle._min_norm == 0.4
    assert maker._random == {"play": 0.0, "noisy": 0.2 if world == "puzzle" else 0.1}[kind]
    if world != "cube":
        assert maker._oracles["button"]._gripper_always_closed == (world == "puzzle")
    if world == "scene":
        assert set(maker._oracles) == {"cube", "button", "drawer", "window"}
    rows = maker.episode((0, 0, 0), 9)
    assert {len(values) for values in rows.values()} == {10}
    assert ("button_states" in rows) == (world != "cube")
    assert np.abs(rows["actions"]).max() <= 1
    assert {rows[key].dtype for key in ("observations", "actions", "qpos", "qvel")} == {np.dtype(np.float32)}
    maker.close()


def episode_through_gymnasium(env_name: str, seed: tuple[int, ...], rows: int) -> dict[str, list[np.ndarray]]:
    """Cube play data by OGBench's public interface alone: Gymnasium's wrappers, returned targets, time limit."""
    env = gymnasium.make(env_name, mode="data_collection", terminate_at_goal=False, max_episode_steps=rows)
    oracle = CubePlanOracle(env=env, noise=0.1, noise_smoothing=0.5)
    scene, _, shared = spread_seed((*seed, 0), 3)
    record = {key: [] for key in ("observations", "actions", "qpos", "qvel")}
    with global_numpy_seed(shared):
        observation, info = env.reset(seed=scene)
        stacking = np.random.uniform(0, 0.25)  # noqa: NPY002 - the oracles' generator
        oracle.reset(observation, info)
        truncated = False
        while not truncated:
            np.random.rand()  # noqa: NPY002 - the draw that decides for a random action, never one in play
            action = np.clip(oracle.select_action(observation, info), -1, 1)
            following, _, _, truncated, info = env.step(action)
            if oracle.done:
                oracle.reset(*env.unwrapped.set_new_target(p_stack=stacking))
            for key, value in zip(record, (observation, action, info["prev_qpos"], info["prev_qvel"]), strict=True):
                record[key].append(value)
            observation = following
    env.close()
    return record


def test_play_data_equal_those_of_ogbench_s_public_interface():
    maker = ManipulationEpisodes("cube-double-v0", "play")
    ours = maker.episode((0, 0, 2), 250)
    theirs = episode_through_gymnasium("cube-double-v0", (0, 0, 2), 251)
    assert_same_episode(ours, {key: np.asarray(values, np.float32) for key, values in theirs.items()})
    maker.close()


def test_rows_are_the_state_before_the_action():
    maker = ManipulationEpisodes("cube-single-v0", "play")
    rows = maker.episode((5, 0, 0), 20)
    np.testing.assert_allclose(rows["observations"][:, :6], rows["qpos"][:, :6], atol=1e-6)  # joint angles
    np.testing.assert_allclose(rows["observations"][:, 6:12], rows["qvel"][:, :6], atol=1e-6)
    maker.close()


def test_health_check_of_the_scene():
    qpos = np.zeros((4, 25))
    qpos[:, 16] = 0.02
    assert healthy(qpos)
    lost, low, inside = qpos.copy(), qpos.copy(), qpos.copy()
    lost[2, 15] = 0.29
    low[1, 15] = -0.3
    inside[1, 15:17] = (-0.35, 0.066)
    assert not healthy(lost)
    assert not healthy(low)
    assert healthy(inside)


def test_vertices_are_the_free_cells_that_are_not_inside_a_corridor():
    maze = np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    cells, vertices = maze_cells(maze)
    assert len(cells) == 6
    assert vertices == [(1, 1), (1, 3), (2, 3), (3, 1)]


def test_point_maze_walks_through_free_cells_towards_goals():
    maker = PointMazeEpisodes("pointmaze-medium-v0")
    rows = maker.episode((0, 0, 0), 400)
    cells = [maker._env.xy_to_ij(xy) for xy in rows["observations"]]
    assert all(maker._env.maze_map[cell] == 0 for cell in cells)
    assert len(set(cells)) > 8
    assert np.abs(rows["actions"]).max() <= 1
    assert_same_episode(PointMazeEpisodes("pointmaze-medium-v0").episode((0, 0, 0), 400), rows)
    maker.close()


def test_an_interrupted_generation_continues_where_it_stopped(tmp_path, monkeypatch, capsys):
    command = ("generate", MAZE, "--episodes", 3, "--episode-steps", 20, "--workers", 1, "--out")
    assert run(*command, tmp_path / "whole") == 0
    made = []

    def remembered(job, source, *item):
        made.append(item)
        make_episode(job, source, *item)

    def interrupted(*of_episode):
        if len(made) == 2:
            raise KeyboardInterrupt
        remembered(*of_episode)

    monkeypatch.setattr(generate_module, "make_episode", interrupted)
    assert run(*command, tmp_path / "cut") == 3
    assert "the same command continues" in capsys.readouterr().err
    assert [path.suffix for path in (tmp_path / "cut").iterdir()] == [".parts"]
    monkeypatch.setattr(generate_module, "make_episode", remembered)
    assert run(*command, tmp_path / "cut") == 0
    assert sorted(made) == [("train", 0), ("train", 1), ("train", 2), ("validation", 0)]
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 3), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_end_from_outside_keeps_the_episodes_and_leaves_no_process(tmp_path, sent, code):
    program = (
        "import signal, sys; from cta.cli import carry_out\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs are born deaf to it
        "sys.exit(carry_out('data', sys.argv[1:]))"
    )
    words = ["generate", MAZE, "--episodes", "5000", "--episode-steps", "50", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*.parts/train-*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=30)  # the workers hold the other end: this waits for them too
    assert process.returncode == code
    if sent == signal.SIGINT:
        assert errors.strip().splitlines()[-1].startswith("interrupted")
        assert "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline + 10:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    parts = list(tmp_path.glob(".*.parts/*.npz"))
    assert 0 < len(parts) < 5000
    assert TrajectoryDataset.from_npz(parts[0]).num_transitions == 50


def test_another_seed_is_another_dataset_and_validation_is_not_training(tmp_path):
    for seed in (0, 1):
        run(
            "generate",
            MAZE,
            "--episodes",
            1,
            "--episode-steps",
            5,
            "--workers",
            1,
            "--seed",
            seed,
            "--out",
            tmp_path / str(seed),
        )
    _, zero, zero_val = open_dataset(tmp_path / "0" / f"{MAZE}.npz")
    _, one, _ = open_dataset(tmp_path / "1" / f"{MAZE}.npz")
    assert zero_val is not None
    assert (zero.observations != one.observations).any()
    assert (zero.observations != zero_val.observations).any()


def test_provenance_is_inside_and_says_what_fixes_the_bytes(tmp_path):
    run("generate", MAZE, "--episodes", 1, "--episode-steps", 5, "--seed", 4, "--workers", 1, "--out", tmp_path)
    record = TrajectoryDataset.from_npz(tmp_path / f"{MAZE}.npz").provenance
    assert record is not None
    assert record["command"] == f"cta data generate {MAZE} --episodes 1 --episode-steps 5 --seed 4"
    assert (record["seed"], record["episodes"], record["episode_steps"], record["split"]) == (4, 1, 5, "train")
    assert set(record["versions"]) >= {"python", "cta", "mujoco", "dm-control", "ogbench", "gymnasium", "numpy"}
    json.dumps(record)


def test_nothing_is_overwritten(tmp_path):
    command = ("generate", MAZE, "--episodes", 1, "--episode-steps", 5, "--workers", 1, "--out", tmp_path)
    assert run(*command) == 0
    before = contents(tmp_path)
    assert run(*command) == 0  # the same request again finds its own work
    with pytest.raises(CtaError, match="never overwritten"):
        run(*command, "--seed", 1)
    assert contents(tmp_path) == before


def test_only_the_full_size_goes_to_the_data_folder(tmp_path, monkeypatch):
    with pytest.raises(CtaError, match="--out DIR"):
        run("generate", MAZE, "--episodes", 2, "--dataset-dir", tmp_path)
    monkeypatch.setenv("OGBENCH_DATA_DIR", str(tmp_path / "data"))
    assert run("generate", "desk-play-v0") == 0
    assert sorted(contents(tmp_path / "data")) == ["desk-play-v0-val.npz", "desk-play-v0.npz"]
    assert open_dataset("desk-play-v0")[1].num_episodes == 500


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("antmaze-large-navigate-v0",), "cta data download antmaze-large-navigate-v0"),
        (("humanoidmaze-giant-navigate-v0",), "needs a trained humanoid expert"),
        (("puzle-3x3-play-v0",), "did you mean puzzle-3x3-play-v0"),
        ((MAZE, "--episodes", "0"), "at least 1"),
        ((MAZE, "--workers", "0"), "--workers must be at least 1"),
        ((MAZE, "--seed", "-1"), "not negative"),
        ((MAZE, "--episodes", "99999999999"), "--episodes must be at most"),
        ((MAZE, "--episodes", "2000000000"), "more rows than a dataset can have"),
    ],
)
def test_requests_that_make_no_sense_get_one_line(tmp_path, words, complaint):
    with pytest.raises(CtaError, match=complaint) as caught:
        run("generate", *words, "--out", tmp_path)
    assert "\n" not in str(caught.value)


def test_two_processes_make_one_dataset(tmp_path):
    """The second waits, finds what the first has made, and succeeds like it."""
    words = ["data", "generate", MAZE, "--episodes", "3", "--episode-steps", "200", "--out", str(tmp_path)]
    processes = [
        subprocess.Popen([sys.executable, "-m", "cta", *words], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{MAZE}-val.npz", f"{MAZE}.npz"]


def test_who_waited_for_another_makes_nothing(tmp_path, monkeypatch, capsys):
    job = plan_job(MAZE, folder=tmp_path, episodes=1, episode_steps=5)
    made = []
    monkeypatch.setattr(generate_module, "make_parts", lambda *args, **_: made.append(args))
    with file_lock(job.target("train")):
        waiting = threading.Thread(target=generate, args=(job,))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        for split in ("train", "validation"):
            write_npz(job.target(split), {"x": column(np.zeros(1))}, job.record(split))
    waiting.join(20)
    assert not made and f"waiting for another process that generates {job.target('train')}" in capsys.readouterr().err


def test_desk_data_that_is_cut_short_has_no_training_file_yet(tmp_path, monkeypatch):
    job = plan_job("desk-play-v0", folder=tmp_path, episodes=10, episode_steps=9)

    def full(*args):
        if list(tmp_path.glob("*.npz")):
            raise CtaError("the disk is full")
        write_npz(*args)

    monkeypatch.setattr(generate_module, "write_npz", full)
    with pytest.raises(CtaError, match="full"):
        generate(job)
    assert [path.name for path in tmp_path.glob("*.npz")] == ["desk-play-v0-val.npz"]
    monkeypatch.undo()
    assert all(path.exists() for path in generate(job))


def test_desk_data_is_generated_on_first_use_and_kept(tmp_path):
    name, train, val = open_dataset("desk-play-v0", dataset_dir=tmp_path / "data")
    assert name == "desk-play-v0"
    assert val is not None
    assert (train.num_episodes, val.num_episodes, train.info) == (500, 50, {})
    before = contents(tmp_path / "data")
    again = open_dataset("desk-play-v0", dataset_dir=tmp_path / "data", info=True)[1]
    assert again.fingerprint() == train.fingerprint()
    assert again.provenance == train.provenance is not None
    assert "button_states" in again.info
    assert run("generate", "desk-play-v0", "--dataset-dir", tmp_path / "data") == 0
    assert contents(tmp_path / "data") == before


def test_desk_data_is_used_from_memory_where_nothing_can_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    _, train, _ = open_dataset("desk-play-v0", dataset_dir=tmp_path / "file" / "data")
    assert train.num_episodes == 500
    assert "used from memory" in capsys.readouterr().err


def test_a_missing_dataset_names_both_ways(tmp_path):
    with pytest.raises(CtaError, match=r"cta data generate scene-play-v0.*cta data download scene-play-v0"):
        open_dataset("scene-play-v0", dataset_dir=tmp_path)
    with pytest.raises(CtaError) as caught:
        open_dataset("antmaze-large-navigate-v0", dataset_dir=tmp_path)
    assert "generate" not in str(caught.value)
    with pytest.raises(CtaError, match="no such file"):
        open_dataset(tmp_path / "mine.npz")


@needs_gl
@pytest.mark.gl
def test_visual_data_are_frames(tmp_path):
    job = plan_job("visual-cube-single-play-v0", folder=tmp_path, episodes=1, episode_steps=2)
    train_path, _ = generate(job)
    train = TrajectoryDataset.from_npz(train_path, info=True)
    assert train.observations.shape == (3, 64, 64, 3)
    assert train.observations.dtype == np.uint8
    assert train.observations.std() > 10
    assert (train.observations[0] != train.observations[2]).any()
    assert set(train.info) == {"qpos", "qvel"}
    assert "rendering" in (train.provenance or {})


def test_visual_data_without_opengl_get_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(worlds_module, "find_backend", lambda: None)
    with pytest.raises(CtaError, match="make system"):
        run("generate", "visual-scene-play-v0", "--episodes", 1, "--out", tmp_path)


def test_workers_need_no_jax():
    code = "import sys, cta.envs.generate, cta.envs.simulated_data, cta.cli.data"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'jax' not in sys.modules"], check=True)
