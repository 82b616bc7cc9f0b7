"""One episode at a time, with pictures: videos with the goal beside the rollout, and what film strips are made from."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np

from cta.data.locations import environment_name
from cta.envs import gl
from cta.envs.names import DESK_DATASETS
from cta.envs.ogbench import OgbenchWorld
from cta.envs.protocol import Episode, Step, VectorWorld
from cta.errors import CtaError
from cta.evaluation.rollout import TASKS, EpisodeResult, MakePolicy, Policy, plan_episodes, play

FRAME_SIZE = (320, 320)
LEAST_HEIGHT = 160
MOST_FRAMES = 100
"""About this many frames per episode by default: without a GPU the simulator draws 3 to 5 a second."""
LAST_SECONDS = 1.0
BAR = 6
SUCCESS_COLOUR, FAILURE_COLOUR = (84, 162, 75), (150, 150, 150)


Draw = Callable[[Step, str], np.ndarray]
"""(a world of one slot, a title) → state and goal side by side, an image (height, width, 3) uint8 with even sides."""


class RenderedWorld(OgbenchWorld):
    """An OGBench world that can be drawn, as a `VectorWorld` of one slot."""

    slots = 1

    def __init__(self, dataset_name: str) -> None:
        gl.enable_rendering()  # before anything slow, so that a machine that cannot draw says so at once
        super().__init__(environment_name(dataset_name), render_size=FRAME_SIZE)

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        success = done = False
        if start:
            observation, self._goal = self.reset(start[0].task, start[0].seed, render_goal=True)
        else:
            observation, success, done = self.step(np.asarray(actions, np.float32)[0])
        self._now = Step(observation[None], self._goal[None], np.array([success]), np.array([done]))

    def receive(self) -> Step:
        return self._now

    def draw(self, step: Step, title: str) -> np.ndarray:
        assert self.goal_frame is not None
        return _enlarged(np.concatenate([self.render(), self.goal_frame], axis=1))


def _enlarged(image: np.ndarray) -> np.ndarray:
    """As many times as large as a person needs it."""
    times = -(-LEAST_HEIGHT // image.shape[0])
    return image.repeat(times, axis=0).repeat(times, axis=1)


@contextmanager
def open_scene(dataset_name: str) -> Iterator[tuple[VectorWorld, Draw, float]]:
    """A world with one slot, what draws it, and the steps a second at which it is shown at its natural speed."""
    if dataset_name not in DESK_DATASETS:
        with closing(RenderedWorld(dataset_name)) as rendered:
            yield rendered, rendered.draw, 20.0
        return
    from cta.envs.desk_draw import frame
    from cta.envs.desk_vector import DeskVectorWorld, world_of

    world = world_of(dataset_name)

    @lru_cache(2)  # the goal is drawn once
    def picture(seen: bytes, title: str) -> np.ndarray:
        return frame(world, np.frombuffer(seen, np.float32), title=title)

    def draw(step: Step, title: str) -> np.ndarray:
        if world.pixels:
            return _enlarged(np.concatenate([step.observations[0], step.goals[0]], axis=1))
        shown = picture(step.observations[0].tobytes(), title), picture(step.goals[0].tobytes(), "goal")
        return np.concatenate(shown, axis=1)

    yield DeskVectorWorld(world, slots=1), draw, 6.0


def record_videos(
    dataset_name: str,
    make_policy: MakePolicy,
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
    files = []
    with open_scene(dataset_name) as (world, draw, natural_rate):
        world.max_episode_steps = max_episode_steps or world.max_episode_steps
        skip = frame_skip or max(1, world.max_episode_steps // MOST_FRAMES)
        # Long episodes are shown faster than they are rather than as a slide show.
        rate = max(6.0, natural_rate / skip)
        policy = make_policy(1)
        for episode in planned:
            frames, result = film(world, draw, policy, episode, skip=skip)
            frames += [frames[-1]] * int(LAST_SECONDS * rate)
            outcome = "success" if result.success else "failure"
            files.append(folder / f"task{episode.task}_episode{episode.episode}_{outcome}.mp4")
            write_video(files[-1], frames, rate=rate)
    return files


def film(
    world: VectorWorld, draw: Draw, policy: Policy, episode: Episode, *, skip: int = 1
) -> tuple[list[np.ndarray], EpisodeResult]:
    """Play an episode: frames of every `skip`-th state and of the last, and the result."""
    frames, numbers = [], count()

    def watch(_: Mapping[int, Episode], step: Step) -> None:
        number = next(numbers)
        if number % skip == 0 or step.done[0]:
            colour = (SUCCESS_COLOUR if step.success[0] else FAILURE_COLOUR) if step.done[0] else (255, 255, 255)
            image = draw(step, f"{world.task_names[episode.task - 1]}, step {number}")
            frames.append(np.concatenate([image, np.full((BAR, image.shape[1], 3), colour, np.uint8)]))

    [result] = play([world], lambda _: policy, [episode], watch=watch)
    return frames, result


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
