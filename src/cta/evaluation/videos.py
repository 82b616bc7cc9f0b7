"""One episode at a time, with pictures: videos with the goal beside the rollout, and what film strips are made from."""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from cta.data.locations import environment_name
from cta.envs.names import DESK_DATASETS
from cta.envs.protocol import Episode
from cta.errors import CtaError
from cta.evaluation.rollout import TASKS, Policy, plan_episodes

FRAME_SIZE = (320, 320)
LEAST_HEIGHT = 160
MOST_FRAMES = 100
"""About this many frames per episode by default: without a GPU the simulator draws 3 to 5 a second."""
LAST_SECONDS = 1.0
BAR = 6
SUCCESS_COLOUR, FAILURE_COLOUR = (84, 162, 75), (150, 150, 150)


class DeskScene:
    """An embedded world that holds one episode, drawn with its goal beside it."""

    control_rate = 6.0
    """Steps a second at which a video shows the world at its natural speed."""

    def __init__(self, dataset_name: str, *, max_episode_steps: int | None = None) -> None:
        from cta.envs.desk_vector import DeskVectorWorld, world_of

        self.world = world_of(dataset_name)
        self._vector = DeskVectorWorld(self.world, slots=1, max_episode_steps=max_episode_steps)
        self.max_episode_steps = self._vector.max_episode_steps

    def reset(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        """(observation, goal) of a new episode."""
        self._vector.send(np.zeros((1, self._vector.action_dim), np.float32), {0: episode})
        began = self._vector.receive()
        self._observation, self._steps = began.observations[0], 0
        self._title = self._vector.task_names[episode.task - 1]
        self._goal, self._goal_image = began.goals[0], None
        return self._observation, self._goal

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """(observation, success, done)."""
        self._vector.send(action[None], {})
        now = self._vector.receive()
        self._observation, self._steps = now.observations[0], self._steps + 1
        return self._observation, bool(now.success[0]), bool(now.done[0])

    def frame(self) -> np.ndarray:
        """The present state, left, and the goal, right, as an image (height, width, 3) uint8 with even sides."""
        from cta.envs.desk_draw import frame

        if self.world.pixels:
            return _enlarged(np.concatenate([self._observation, self._goal], axis=1))
        if self._goal_image is None:
            self._goal_image = frame(self.world, self._goal, title="goal")
        present = frame(self.world, self._observation, title=f"{self._title}, step {self._steps}")
        return np.concatenate([present, self._goal_image], axis=1)

    def close(self) -> None:
        """Nothing to release."""


class OgbenchScene:
    """The same of an OGBench world, rendered."""

    control_rate = 20.0

    def __init__(self, dataset_name: str, *, max_episode_steps: int | None = None) -> None:
        from cta.envs import gl
        from cta.envs.ogbench import OgbenchWorld

        gl.enable_rendering()  # before anything slow, so that a machine that cannot draw says so at once
        self._world = OgbenchWorld(environment_name(dataset_name), render_size=FRAME_SIZE)
        self.max_episode_steps = max_episode_steps or self._world.max_episode_steps
        self._world.max_episode_steps = self.max_episode_steps
        self.step, self.close = self._world.step, self._world.close

    def reset(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        return self._world.reset(episode.task, episode.seed, render_goal=True)

    def frame(self) -> np.ndarray:
        assert self._world.goal_frame is not None
        return _enlarged(np.concatenate([self._world.render(), self._world.goal_frame], axis=1))


def _enlarged(image: np.ndarray) -> np.ndarray:
    """As many times as large as a person needs it."""
    times = -(-LEAST_HEIGHT // image.shape[0])
    return image.repeat(times, axis=0).repeat(times, axis=1)


Scene = DeskScene | OgbenchScene


def open_scene(dataset_name: str, *, max_episode_steps: int | None = None) -> Scene:
    """The world of a dataset as a scene."""
    kind = DeskScene if dataset_name in DESK_DATASETS else OgbenchScene
    return kind(dataset_name, max_episode_steps=max_episode_steps)


def play_scene(scene: Scene, policy: Policy, planned: Episode) -> Iterator[tuple[np.ndarray, np.ndarray, bool, bool]]:
    """Play an episode with a policy of one slot; yields (observation, goal, success, done) for every state, from the
    first to the last."""
    observation, goal = scene.reset(Episode(planned.task, planned.seed))
    success, done, first = False, False, True
    while True:
        yield observation, goal, success, done
        if done:
            return
        actions = policy(observation[None], goal[None], np.array([first]))
        observation, success, done = scene.step(np.asarray(actions, np.float32)[0])
        first = False


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
        for episode in planned:
            frames, success = _film(scene, policy, episode, skip=skip)
            frames += [frames[-1]] * int(LAST_SECONDS * rate)
            outcome = "success" if success else "failure"
            file = folder / f"task{episode.task}_episode{episode.episode}_{outcome}.mp4"
            write_video(file, frames, rate=rate)
            files.append(file)
    finally:
        scene.close()
    return files


def _film(scene: Scene, policy: Policy, episode: Episode, *, skip: int) -> tuple[list[np.ndarray], bool]:
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
