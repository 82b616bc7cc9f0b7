"""What is compared when simulation is measured by the clock: processes that only step, generation, evaluation.

Each takes turns: `take(seconds)` is the rate of a turn, and between its turns it takes no time from the others.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np

from cta.bench.paused import PausedEvaluation
from cta.envs.generate import make_parts, plan_job
from cta.envs.manipulation_data import ManipulationEpisodes
from cta.envs.names import STATE_DIMS, known_spec
from cta.envs.ogbench import OgbenchWorld, make_env, seeded_reset
from cta.errors import CtaError
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import Policy
from cta.presets import agent_preset

Turn = Callable[[float], float]
"""(seconds) → steps per second."""
COURSES = 3
"""Generated episodes that the processes beside generation repeat."""
MANY = 5000
"""Episodes to generate: more than there is time for."""


class Steppers:
    """Processes that do nothing but step, beside each other, when told to."""

    def __init__(self, env_name: str, workers: int, *, lean: bool, data: bool):
        context = get_context("spawn")
        self._env_name = env_name
        self._pipes = [context.Pipe() for _ in range(workers)]
        self._processes = [
            context.Process(target=_step, args=(env_name, lean, data, theirs), daemon=True) for _, theirs in self._pipes
        ]

    def __enter__(self) -> Self:
        for process, (_, theirs) in zip(self._processes, self._pipes, strict=True):
            process.start()
            theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def take(self, seconds: float) -> float:
        """Steps per second of all together, for so long."""
        try:
            for pipe, _ in self._pipes:
                pipe.send(seconds)
            return sum(pipe.recv() for pipe, _ in self._pipes)
        except (EOFError, OSError):
            raise CtaError(f"{self._env_name}: a process that was stepping it died (out of memory?)") from None


def _step(env_name: str, lean: bool, data: bool, pipe: Any) -> None:
    """Step through the kind of episodes that generation or evaluation steps through; resets are not counted."""
    env = make_env(env_name, lean=lean, data_collection=data)
    courses = cycle(_generated(env_name) if data else _evaluated(env_name))
    actions: Iterator[np.ndarray] = iter(())
    while True:
        wanted = pipe.recv()
        spent, steps = 0.0, 0
        while spent < wanted:
            action = next(actions, None)
            if action is None:
                seed, options, rows = next(courses)
                seeded_reset(env, seed, options)
                actions = iter(rows)
                continue
            begin = time.perf_counter()
            env.step(action)
            spent, steps = spent + time.perf_counter() - begin, steps + 1
        pipe.send(steps / spent)


Course = tuple[np.random.SeedSequence, dict[str, Any] | None, np.ndarray]
"""Seed and options of a reset, and the actions after it."""


def _generated(env_name: str) -> list[Course]:
    """The first episodes that generation makes: an arm that holds something costs more than one that waves about."""
    source, steps = ManipulationEpisodes(env_name, "play"), known_spec(_dataset(env_name)).episode_steps
    rows = [source.episode((0, 0, index), steps)["actions"] for index in range(COURSES)]
    source.close()
    return [(np.random.SeedSequence((0, 0, index, 0)), None, actions) for index, actions in enumerate(rows)]


def _evaluated(env_name: str) -> list[Course]:
    """An episode of each task at full length, with random actions, as `Evaluation` takes them."""
    world = OgbenchWorld(env_name)
    rng = np.random.default_rng(0)

    def course(task: int) -> Course:
        actions = rng.uniform(-1, 1, (world.max_episode_steps, 5)).astype(np.float32)
        return np.random.SeedSequence(task), {"task_id": task}, actions

    return [course(task + 1) for task in range(len(world.task_names))]


def _dataset(env_name: str) -> str:
    return env_name.replace("-v0", "-play-v0")


class Generation:
    """`cta data generate`, as often as it is wanted."""

    turn, least, warm = 10.0, 2, 0

    def __init__(self, env_name: str, workers: int):
        self._dataset, self._workers = _dataset(env_name), workers
        self.further: list[Turn] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing stays between the turns."""

    def take(self, seconds: float) -> float:
        """Rows per second, counted from when every worker has made an episode."""
        with tempfile.TemporaryDirectory(prefix="cta-bench-data-") as folder:
            job = plan_job(self._dataset, folder=Path(folder), episodes=MANY)
            job.workshop().mkdir(parents=True)
            ends: list[float] = []

            def note(_: int) -> None:
                ends.append(time.perf_counter())
                if len(ends) > self._workers and ends[-1] - ends[self._workers - 1] >= seconds:
                    raise _Enough

            with suppress(_Enough):
                make_parts(job, [("train", index) for index in range(MANY)], workers=self._workers, advance=note)
        rows = known_spec(self._dataset).episode_steps + 1
        return (len(ends) - self._workers) * rows / (ends[-1] - ends[self._workers - 1])


class _Enough(BaseException):
    """Ends what has been watched for long enough."""


class Evaluation:
    """An evaluation by the protocol, with random actions or those of an untrained CTA."""

    turn, least, warm = 2.0, 5, 1

    def __init__(self, env_name: str, workers: int):
        self._dataset, self._acting = _dataset(env_name), False
        self._evaluator = Evaluator(self._dataset, workers=workers)
        self._paused = PausedEvaluation(self._evaluator, self._policy)
        self.further: list[Turn] = [self.take_acting]

    def __enter__(self) -> Self:
        self._paused.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._paused.__exit__()
        self._evaluator.close()

    def take(self, seconds: float) -> float:
        """Steps per second with random actions, resets included."""
        with self._paused.turn():
            steps, begin = self._paused.steps, time.perf_counter()
            time.sleep(seconds)
            return (self._paused.steps - steps) / (time.perf_counter() - begin)

    def take_acting(self, seconds: float) -> float:
        """The same with the actions of CTA."""
        self._acting = True
        try:
            return self.take(seconds)
        finally:
            self._acting = False

    def _policy(self, slots: int) -> Policy:
        rng, cta = np.random.default_rng(slots), _untrained(self._dataset)

        def act(*seen: np.ndarray) -> np.ndarray:
            return cta(*seen) if self._acting else rng.uniform(-1, 1, (slots, 5)).astype(np.float32)

        return act


def _untrained(dataset: str) -> Policy:
    """CTA with the paper's networks for this dataset."""
    import jax

    from cta.agents import Spec, find
    from cta.agents.policy import Policy as AgentPolicy

    entry = find("cta")
    agent = entry.build(agent_preset(entry.config, dataset))
    spec = Spec.of((STATE_DIMS[known_spec(dataset).env_name],), 5)
    return AgentPolicy(agent, agent.init(jax.random.key(0), spec))
