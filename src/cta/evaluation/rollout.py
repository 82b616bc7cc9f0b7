"""Which episodes an evaluation consists of, playing them with a policy in groups of slots, videos of them. No JAX."""

import os
import subprocess
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cta.data import environment_name
from cta.envs.names import DESK_DATASETS
from cta.envs.protocol import Episode, Step, VectorWorld
from cta.envs.worlds import OgbenchWorld, enable_rendering
from cta.errors import CtaError

TASKS = (1, 2, 3, 4, 5)
EPISODES = 50

Policy = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(observations (slots, …), goals (slots, …), first (slots,) bool) → actions (slots, A).

`first` marks the slots that are at the first observation of an episode. Slots without an episode are passed along, so
that the number of rows never changes; their actions are ignored."""
MakePolicy = Callable[[int], Policy]  # gives a policy for so many slots
Progress = Callable[[int, int], None]  # called with (episodes done, episodes in total)
Watch = Callable[[dict[int, Episode], Step], None]  # called after a step with ({slot: its episode}, all slots)

FRAME_SIZE = {"width": 320, "height": 320}
LEAST_HEIGHT, BAR = 160, 6
MOST_FRAMES = 100  # about this many frames per episode by default: without a GPU the simulator draws 3 to 5 a second
LAST_SECONDS = 1.0
SUCCESS_COLOUR, FAILURE_COLOUR = (84, 162, 75), (150, 150, 150)

Draw = Callable[[Step, str], np.ndarray]  # (of one slot, a title) → state beside goal, an image with even sides


@dataclass(frozen=True, order=True)
class EpisodeResult:
    """One evaluation episode: `success` is the flag of its last step, number `steps`; `seed` replays it."""

    task: int
    episode: int
    seed: int
    success: bool
    steps: int


def episode_seed(eval_seed: int, run_seed: int, task: int, episode: int) -> int:
    """The seed of an episode: the same start, goal and settling steps at every checkpoint and for every method."""
    return int(np.random.SeedSequence((eval_seed, run_seed, task, episode)).generate_state(1)[0])


def plan_episodes(
    *, run_seed: int, tasks: Sequence[int] = TASKS, episodes: int = EPISODES, eval_seed: int = 0
) -> list[Episode]:
    """All episodes of an evaluation, sorted by task and number."""
    if not tasks or episodes < 1:
        raise CtaError("an evaluation needs at least one task and one episode")
    return [
        Episode(task, episode_seed(eval_seed, run_seed, task, episode), episode=episode)
        for task in sorted(set(tasks))
        for episode in range(episodes)
    ]


def scores(results: Iterable[EpisodeResult]) -> dict[int, tuple[int, int]]:
    """{task: (episodes, successes)}, in order of task."""
    counts = Counter((result.task, result.success) for result in results)
    return {task: (counts[task, True] + counts[task, False], counts[task, True]) for task, _ in sorted(counts)}


class NotANumber(CtaError):
    """The policy returned an action that is not a finite number."""


def _rounds(
    world: VectorWorld, policy: Policy, queue: Sequence[Episode], watch: Watch | None
) -> Iterator[list[EpisodeResult]]:
    """Play a queue of episodes in the slots of a world, given out by rounds, never by the clock; yields what ended."""
    waiting, playing, ended = deque(queue), dict[int, Episode](), list[EpisodeResult]()
    steps = np.zeros(world.slots, int)
    actions = np.zeros((world.slots, world.action_dim), np.float32)
    while True:
        start: dict[int, Episode] = {}
        for slot in range(world.slots):
            if slot not in playing and waiting:
                start[slot] = playing[slot] = waiting.popleft()
        steps += 1
        steps[list(start)] = 0
        if playing:
            world.send(actions, start)
        yield ended  # while the world is stepping
        if not playing:
            return
        step, ended = world.receive(), []
        if watch is not None:
            watch(playing, step)
        for slot in [slot for slot in playing if step.done[slot]]:
            one, success = playing.pop(slot), bool(step.success[slot])
            ended.append(EpisodeResult(one.task, one.episode, one.seed, success, int(steps[slot])))
        if playing:
            found = np.asarray(policy(step.observations, step.goals, steps == 0))
            if found.shape != actions.shape:
                raise CtaError(f"the policy returned actions of shape {found.shape}; this world needs {actions.shape}")
            if not np.isfinite(found[sorted(playing)]).all():
                raise NotANumber("the policy returned an action that is not a number: the networks have diverged")
            actions = found


def play(
    worlds: Sequence[VectorWorld],
    make_policy: MakePolicy,
    planned: Sequence[Episode],
    *,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> list[EpisodeResult]:
    """Play the planned episodes; results are sorted. While the policy computes for one world, the others step."""
    results: list[EpisodeResult] = []
    groups = [
        _rounds(world, make_policy(world.slots), planned[number :: len(worlds)], watch)
        for number, world in enumerate(worlds)
    ]
    for ended in zip_longest(*groups, fillvalue=()):
        before = len(results)
        results += chain.from_iterable(ended)
        if progress is not None and len(results) != before:
            progress(len(results), len(planned))
    return sorted(results)


class RenderedWorld(OgbenchWorld):
    """An OGBench world that can be drawn, as a `VectorWorld` of one slot."""

    slots = 1

    def __init__(self, dataset_name: str) -> None:
        enable_rendering()  # before anything slow, so that a machine that cannot draw says so at once
        super().__init__(environment_name(dataset_name), **FRAME_SIZE)

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
    # The goal is drawn once.
    picture = lru_cache(2)(lambda seen, title: frame(world, np.frombuffer(seen, np.float32), title=title))

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
    folder: str | Path,
    episodes: int = 1,
    frame_skip: int | None = None,
    max_episode_steps: int | None = None,
    **plan: Any,
) -> list[Path]:
    """`film` `episodes` of each task, as `plan_episodes` plans them, and write each as task1_episode0_success.mp4."""
    planned = plan_episodes(episodes=episodes, **plan)
    Path(folder).mkdir(parents=True, exist_ok=True)
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
            files.append(Path(folder, f"task{episode.task}_episode{episode.episode}_{outcome}.mp4"))
            write_video(files[-1], frames, rate=rate)
    return files


def film(
    world: VectorWorld, draw: Draw, policy: Policy, episode: Episode, *, skip: int = 1
) -> tuple[list[np.ndarray], EpisodeResult]:
    """Play an episode: frames of every `skip`-th state and of the last, its bar green after success; and the result."""
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
