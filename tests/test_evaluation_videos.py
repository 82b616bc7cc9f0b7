"""Videos of a run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import get_ffmpeg_exe

from cta.envs.worlds import find_backend
from cta.errors import CtaError
from cta.evaluation import Evaluator, record_videos
from cta.evaluation.rollout import film, open_scene, plan_episodes, write_video
from test_evaluation import pull_the_tray

needs_gl = [pytest.mark.gl, pytest.mark.skipif(find_backend() is None, reason="no OpenGL library (make system)")]


def read_video(path: Path) -> tuple[str, list[np.ndarray]]:
    """What ffmpeg says of the stream, and the frames."""
    command = [get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    run = subprocess.run(command, capture_output=True, check=True)
    line = next(line for line in run.stderr.decode().splitlines() if "Video:" in line)
    width, height = (640, 326)
    assert f"{width}x{height}" in line
    return line, list(np.frombuffer(run.stdout, np.uint8).reshape(-1, height, width, 3))


def test_desk_videos_show_the_episodes_of_the_evaluation(tmp_path: Path) -> None:
    files = record_videos(
        "desk-play-v0",
        pull_the_tray,
        run_seed=3,
        folder=tmp_path / "videos",
        tasks=(1, 2),
        max_episode_steps=10,
        frame_skip=4,
    )
    names = ["task1_episode0_success.mp4", "task2_episode0_failure.mp4"]
    assert [file.name for file in files] == sorted(os.listdir(tmp_path / "videos")) == names
    stream, frames = read_video(files[1])
    assert "h264" in stream and "yuv420p" in stream and " 6 fps" in stream
    # States 0, 4, 8 and the last, number 10, which then stands for a second.
    assert len(frames) == 4 + 6
    last = read_video(files[0])[1][-1]
    assert np.abs(last[-3].mean(axis=0) - (84, 162, 75)).max() < 12
    assert np.abs(frames[-1][-3].mean(axis=0) - 150).max() < 12


def test_a_scene_plays_the_evaluators_episode() -> None:
    with Evaluator("desk-play-v0") as evaluator:
        [result] = evaluator.run(pull_the_tray, run_seed=8, tasks=(1,), episodes=1)
    [episode] = plan_episodes(run_seed=8, tasks=(1,), episodes=1)
    with open_scene("desk-play-v0") as (world, draw, _):
        frames, filmed = film(world, draw, pull_the_tray(1), episode)
    assert filmed == result and len(frames) == result.steps + 1


@pytest.mark.parametrize(
    "name",
    [pytest.param("pointmaze-medium-navigate-v0", marks=needs_gl), pytest.param("cube-single-play-v0", marks=needs_gl)],
)
def test_ogbench_videos_have_the_goal_beside_the_rollout(tmp_path: Path, name: str) -> None:
    size = 2 if "maze" in name else 5
    [file] = record_videos(
        name,
        lambda slots: lambda observations, goals, first: np.full((slots, size), 0.5),
        run_seed=0,
        folder=tmp_path,
        tasks=(2,),
        max_episode_steps=3,
        frame_skip=2,
    )
    assert file.name == "task2_episode0_failure.mp4"
    _, frames = read_video(file)
    assert len(frames) == 3 + 10
    left, right = frames[0][:320, :320].astype(int), frames[0][:320, 320:].astype(int)
    assert min(left.std(), right.std()) > 10 and np.abs(left - right).max() > 60
    assert np.abs(frames[2][:320, :320].astype(int) - left).max() > 20


def test_without_opengl_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "from cta.errors import CtaError\n"
        "from cta.evaluation import record_videos\n"
        "try: record_videos('pointmaze-medium-navigate-v0', None, run_seed=0, folder='.')\n"
        "except CtaError as error: print(error)"
    )
    # A backend that cannot be loaded is as good as one that is not installed.
    libraries = {"PYOPENGL_PLATFORM": "", "LD_LIBRARY_PATH": str(tmp_path), "MUJOCO_GL": "osmesa"}
    for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so", "libGL.so.1", "libGL.so"):
        (tmp_path / name).write_bytes(b"not a library")
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | libraries,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "make system" in run.stdout and run.stdout.count("\n") == 1


def test_a_video_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CtaError, match="could not write"):
        write_video(tmp_path / "nowhere" / "a.mp4", [np.zeros((32, 32, 3), np.uint8)], rate=6)
    assert list(tmp_path.iterdir()) == []
