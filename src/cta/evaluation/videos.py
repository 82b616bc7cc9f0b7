"""Videos of evaluation episodes, with the goal beside the rollout."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cta.errors import CtaError
from cta.evaluation.episodes import TASKS, EpisodeResult, plan_episodes
from cta.evaluation.rollout import Policy, Progress
from cta.evaluation.scenes import Scene, open_scene, play_scene

MOST_FRAMES = 100
"""About this many frames an episode by default: without a GPU the simulator draws 3 to 5 a second."""
LAST_SECONDS = 1.0
BAR = 6
SUCCESS_COLOUR, FAILURE_COLOUR = (84, 162, 75), (150, 150, 150)


def record_videos(
    dataset_name: str,
    make_policy: Callable[[int], Policy],
    *,
    run_seed: int,
    folder: str | Path,
    tasks: Sequence[int] = TASKS,
    episodes: int = 1,
    eval_seed: int = 0,
    frame_skip: int | None = None,
    max_episode_steps: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Play the first `episodes` evaluation episodes of each task and write each as an mp4 (H.264, yuv420p).

    The episodes have the seeds, and so the starts and goals, of an evaluation with the same `run_seed` and `eval_seed`.
    Files are called like `task1_episode0_success.mp4`; a bar below the last frame is green after a success. Every
    `frame_skip`-th state is drawn, and the last one always.
    """
    planned = plan_episodes(run_seed=run_seed, tasks=tasks, episodes=episodes, eval_seed=eval_seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    scene = open_scene(dataset_name, max_episode_steps=max_episode_steps)
    skip = frame_skip or max(1, scene.max_episode_steps // MOST_FRAMES)
    # Long episodes are shown faster than they are rather than as a slide show.
    rate = max(6.0, scene.control_rate / skip)
    files = []
    try:
        policy = make_policy(1)
        for number, episode in enumerate(planned):
            frames, success = _film(scene, policy, episode, skip=skip)
            frames += [frames[-1]] * int(LAST_SECONDS * rate)
            outcome = "success" if success else "failure"
            file = folder / f"task{episode.task}_episode{episode.episode}_{outcome}.mp4"
            write_video(file, frames, rate=rate)
            files.append(file)
            if progress is not None:
                progress(number + 1, len(planned))
    finally:
        scene.close()
    return files


def _film(scene: Scene, policy: Policy, episode: EpisodeResult, *, skip: int) -> tuple[list[np.ndarray], bool]:
    """The frames of one episode and its outcome."""
    frames, success = [], False
    for number, (_, _, success, done) in enumerate(play_scene(scene, policy, episode)):
        if number % skip == 0 or done:
            colour = (SUCCESS_COLOUR if success else FAILURE_COLOUR) if done else (255, 255, 255)
            image = scene.frame()
            frames.append(np.concatenate([image, np.full((BAR, image.shape[1], 3), colour, np.uint8)]))
    return frames, success


def write_video(path: Path, frames: Sequence[np.ndarray], *, rate: float) -> None:
    """Write frames (height, width, 3) uint8 with even sides as H.264, under the final name only when complete."""
    from imageio_ffmpeg import get_ffmpeg_exe

    height, width = frames[0].shape[:2]
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate:g} -i -"
    target = "-an -c:v libx264 -crf 20 -pix_fmt yuv420p -movflags +faststart"
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *source.split(), *target.split(), str(partial)]
    try:
        # Not imageio's own writer: it forks, which JAX warns about; and this needs no more than one command.
        done = subprocess.run(command, input=np.stack(frames).tobytes(), capture_output=True, check=False)
        if done.returncode != 0:
            raise CtaError(f"could not write {path}: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}")
        os.replace(partial, path)
    except OSError as error:
        raise CtaError(f"could not write {path}: {error}") from None
    finally:
        partial.unlink(missing_ok=True)
