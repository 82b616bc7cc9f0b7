"""One episode at a time, with pictures: what videos and film strips are made from."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from cta.data.files import environment_name
from cta.envs.names import DESK_DATASETS
from cta.envs.protocol import Episode, Step
from cta.evaluation.episodes import EpisodeResult
from cta.evaluation.rollout import Policy

FRAME_SIZE = (320, 320)
LEAST_HEIGHT = 160


class Scene(Protocol):
    """A world that holds one episode and can draw it with its goal beside it."""

    max_episode_steps: int
    control_rate: float
    """Steps a second at which a video shows the world at its natural speed."""

    def reset(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        """(observation, goal) of a new episode."""
        ...

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        """(observation, success, done)."""
        ...

    def frame(self) -> np.ndarray:
        """The present state, left, and the goal, right, as an image (height, width, 3) uint8 with even sides."""
        ...

    def close(self) -> None: ...


class DeskScene:
    """An embedded world, drawn."""

    control_rate = 6.0

    def __init__(self, dataset_name: str, *, max_episode_steps: int | None = None) -> None:
        from cta.envs.desk import EPISODE_LIMIT, find_world
        from cta.envs.desk_vector import DeskVectorWorld

        world = find_world(dataset_name)
        assert world is not None
        self.world = world
        self.max_episode_steps = max_episode_steps or EPISODE_LIMIT
        self._vector = DeskVectorWorld(world, slots=1, max_episode_steps=self.max_episode_steps)
        self._title = ""
        self._steps = 0
        self._now: Step | None = None
        self._goal_image: np.ndarray | None = None

    def reset(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        self._vector.send(np.zeros((1, self._vector.action_dim), np.float32), {0: episode})
        self._now = self._vector.receive()
        self._title = self._vector.task_names[episode.task - 1]
        self._steps = 0
        self._goal_image = None
        return self._now.observations[0], self._now.goals[0]

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        self._vector.send(action[None], {})
        self._now = self._vector.receive()
        self._steps += 1
        return self._now.observations[0], bool(self._now.success[0]), bool(self._now.done[0])

    def frame(self) -> np.ndarray:
        from cta.envs.desk_draw import frame

        if self._now is None:
            raise RuntimeError("a frame needs an episode")
        if self._goal_image is None:
            self._goal_image = frame(self.world, self._now.goals[0], title="goal")
        present = frame(self.world, self._now.observations[0], title=f"{self._title}, step {self._steps}")
        return np.concatenate([present, self._goal_image], axis=1)

    def close(self) -> None:
        """Nothing to release."""


class OgbenchScene:
    """An OGBench world, rendered."""

    control_rate = 20.0

    def __init__(self, dataset_name: str, *, max_episode_steps: int | None = None) -> None:
        from cta.envs import gl
        from cta.envs.ogbench import OgbenchWorld

        gl.enable_rendering()  # before anything slow, so that a machine that cannot draw says so at once
        self._world = OgbenchWorld(environment_name(dataset_name), render_size=FRAME_SIZE)
        self._world.max_episode_steps = max_episode_steps or self._world.max_episode_steps
        self.max_episode_steps = self._world.max_episode_steps

    def reset(self, episode: Episode) -> tuple[np.ndarray, np.ndarray]:
        return self._world.reset(episode.task, episode.seed, render_goal=True)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool, bool]:
        return self._world.step(action)

    def frame(self) -> np.ndarray:
        if self._world.goal_frame is None:
            raise RuntimeError("a frame needs an episode")
        image = np.concatenate([self._world.render(), self._world.goal_frame], axis=1)
        times = -(-LEAST_HEIGHT // image.shape[0])
        return image.repeat(times, axis=0).repeat(times, axis=1)

    def close(self) -> None:
        self._world.close()


def open_scene(dataset_name: str, *, max_episode_steps: int | None = None) -> Scene:
    """The world of a dataset as a scene."""
    kind = DeskScene if dataset_name in DESK_DATASETS else OgbenchScene
    return kind(dataset_name, max_episode_steps=max_episode_steps)


def play_scene(
    scene: Scene, policy: Policy, planned: EpisodeResult
) -> Iterator[tuple[np.ndarray, np.ndarray, bool, bool]]:
    """Play an episode with a policy of one slot; yields (observation, goal, success, done) for every state, from the
    first to the last."""
    observation, goal = scene.reset(Episode(planned.task, planned.seed))
    success = done = False
    first = True
    while True:
        yield observation, goal, success, done
        if done:
            return
        actions = policy(observation[None], goal[None], np.array([first]))
        observation, success, done = scene.step(np.asarray(actions, np.float32)[0])
        first = False
