"""The embedded worlds as images: drawn without OpenGL, whole states in one picture, from data to scores."""

import json
import tracemalloc
from pathlib import Path
from time import process_time

import jax
import numpy as np
import pytest

import cta
from cta.cli import run
from cta.envs.desk import WORLDS, DeskState, decode
from cta.envs.desk_play import generate_play
from cta.envs.desk_vector import SIDE, draw, see, see_all
from cta.envs.generate import generate, generate_desk, plan_job
from cta.envs.names import VISUAL_DESK_DATASETS, is_visual
from cta.evaluation import Evaluator

NAMES = [name.removesuffix("-play-v0") for name in VISUAL_DESK_DATASETS]


def random_states(world, count, seed=0):
    rng = np.random.default_rng(seed)
    real = rng.random((count, 3 + len(world.parts)), np.float32)
    bits = rng.integers(0, 2, (count, len(world.buttons)), np.int32)
    return DeskState(real[:, :2], real[:, 2], real[:, 3:], bits)


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_the_same_episodes_as_the_states(name):
    """The visual dataset is the state dataset, seen: same actions, same infos, and a picture of every row."""
    seen, _ = generate_play(name, episodes=3, validation_episodes=1, episode_steps=20)
    told, _ = generate_play(name.removeprefix("visual-"), episodes=3, validation_episodes=1, episode_steps=20)
    assert seen.observations.shape == (60, SIDE, SIDE, 3) and seen.observations.dtype == np.uint8
    np.testing.assert_array_equal(seen.actions, told.actions)
    np.testing.assert_array_equal(seen.info["qpos"], told.info["qpos"])
    plain = WORLDS[name.removeprefix("visual-")]
    np.testing.assert_array_equal(seen.observations, see_all(WORLDS[name], decode(plain, told.observations)))


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_counts_is_in_the_picture(name):
    """Whatever changes in a state changes the image: a light, a part, the gripper's place, how far it is shut."""
    world = WORLDS[name]
    state = jax.tree.map(lambda x: x[0], random_states(world, 1))
    state = state._replace(gripper=np.float32((0.35, 0.6)), grip=np.float32(0.3), parts=np.full_like(state.parts, 0.4))
    others = [
        *(state._replace(bits=state.bits ^ (np.arange(len(state.bits)) == i)) for i in range(len(state.bits))),
        *(
            state._replace(parts=state.parts + 0.05 * (np.arange(len(state.parts)) == i))
            for i in range(len(state.parts))
        ),
        state._replace(gripper=state.gripper + np.float32((0.01, 0))),
        state._replace(gripper=state.gripper + np.float32((0, 0.01))),
        state._replace(grip=state.grip + np.float32(0.05)),
    ]
    here = np.asarray(draw(world, state), int)
    for other in others:
        assert np.abs(np.asarray(draw(world, other), int) - here).max() >= 5
    # Up is up: a gripper further up is in a higher row.
    tops = [np.argwhere(np.abs(np.asarray(draw(world, state._replace(gripper=np.float32((0.35, y)))), int) - here)
                        .sum(-1))[:, 0].min() for y in (0.9, 0.7)]  # fmt: skip
    assert tops[0] < tops[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_core_draws_five_thousand_frames_a_second(name):
    world, count = WORLDS[name], 8192
    states = random_states(world, count)
    see_all(world, states)
    began = process_time()  # of all threads
    see_all(world, states)
    assert count / (process_time() - began) > 5000


def test_goals_are_seen_too(tmp_path):
    with Evaluator("visual-lights-3x3-play-v0", max_episode_steps=3) as evaluator:
        steps = []

        def make(slots):
            def act(observations, goals, first):
                steps.append((observations, goals))
                return np.zeros((len(observations), 3), np.float32)

            return act

        results = evaluator.run(make, run_seed=0, tasks=(4,), episodes=2)
    assert [result.success for result in results] == [False, False]
    observations, goals = steps[0]
    assert observations.shape[1:] == goals.shape[1:] == (SIDE, SIDE, 3) and observations.dtype == np.uint8
    world = WORLDS["visual-lights-3x3"]
    lit = see(world, random_states(world, 1)._replace(bits=np.int32([world.tasks[3].goal_bits])))[0]
    # Away from the gripper, the goal is its lights.
    assert (np.abs(np.asarray(lit, int) - goals[0]).sum(-1) > 0).mean() < 0.05


def test_commands_on_images_of_an_embedded_world(tmp_path, capsys):
    """Generate, train, resume, evaluate with a video, a page: as on any other dataset."""
    name, data, folder = "visual-lights-3x3-play-v0", tmp_path / "data", tmp_path / "run"
    assert run(["data", "generate", name, "--episodes", "4", "--episode-steps", "20", "--out", str(data)]) == 0
    assert is_visual(name) and run(["data", "info", name, "--dataset-dir", str(data)]) == 0
    assert "(84, 64, 64, 3)" in capsys.readouterr().out
    words = ["--dataset", name, "--dataset-dir", str(data), "--agent", "gcbc", "--steps", "2", "--eval-interval", "2"]
    words += ["--eval-episodes", "1", "--agent.batch-size", "2", "--run-dir", str(folder), "--checkpoint-interval", "2"]
    assert run(["train", *words]) == 0
    assert run(["evaluate", str(folder), "--episodes", "1", "--tasks", "1", "--videos", "1"]) == 0
    assert list(folder.glob("videos/**/*.mp4"))
    scores = cta.Run(folder).scores()
    assert set(scores) == {0}
    assert run(["report", str(folder), "--out", str(tmp_path / "page")]) == 0


def test_frames_are_drawn_while_they_are_written(tmp_path):
    """The file is that of the whole dataset, and its frames were never in memory together."""
    size = {"episodes": 40, "episode_steps": 99, "seed": 0}
    name = "visual-lights-3x3-play-v0"
    whole = tmp_path / "whole"
    whole.mkdir()
    for part in generate_desk(name, **size):
        part.to_npz(whole / f"{part.name}.npz")
    job = plan_job(name, folder=tmp_path, **size)
    tracemalloc.start()
    files = generate(job)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(files) == 2
    for path in files:
        assert path.read_bytes() == (whole / path.name).read_bytes()
    assert most < 4000 * SIDE * SIDE * 3 / 1.5


def test_the_page_says_what_the_record_says():
    root = Path(__file__).parent.parent
    page, record = (root / "docs/pixels.md").read_text(), json.loads((root / "benchmarks/draw-cpu.json").read_text())
    for entry in record["entries"]:
        assert f"{round(entry['frames_per_core_s'], -3):,.0f}" in page and entry["frames_per_core_s"] > 5000


def test_memory_is_the_records():
    root = Path(__file__).parent.parent
    page, record = (root / "docs/pixels.md").read_text(), json.loads((root / "benchmarks/frames-cpu.json").read_text())
    for entry in record["entries"]:
        private, resident = (entry[f"{kind}_peak_bytes"] / 2**30 for kind in ("private", "resident"))
        assert f"| `{entry['measured']}` | {private:.2f} | {resident:.2f} |" in page
        assert private < 6 < 1_000_050 * SIDE * SIDE * 3 / 2**30
