"""The evaluator on a real simulator: worker processes, their failures, and that neither can be seen in the results."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cta.envs.protocol import Episode
from cta.errors import CtaError
from cta.evaluation import EpisodeResult, Evaluator
from cta.evaluation.evaluator import default_slots

# Mazes start in a second; manipulation worlds, with their meshes, take several.
CUBE, MAZE = "cube-single-play-v0", "pointmaze-medium-navigate-v0"
STEPS = 12
RUN = {"run_seed": 1, "tasks": (1, 4), "episodes": 2}


def make_policy(slots: int):
    """Row by row, so that a row's action does not depend on the rows beside it."""

    def policy(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
        assert len(observations) == len(first) == slots
        size = observations.shape[1]
        weights = np.random.default_rng(0).normal(size=(size, 2 if size == 2 else 5))
        return np.stack([np.tanh((g - o) @ weights) for o, g in zip(observations, goals, strict=True)])

    return policy


class Recorder:
    """A policy that also keeps every observation, goal and action it saw, and does something at its n-th call."""

    def __init__(self, at: int | None = None, action=None) -> None:
        self.seen: list[np.ndarray] = []
        self._at, self._action = at, action

    def __call__(self, slots: int):
        policy = make_policy(slots)

        def recording(observations, goals, first):
            if len(self.seen) == self._at and self._action is not None:
                self._action()
            actions = policy(observations, goals, first)
            self.seen.append(np.concatenate([observations, goals, actions], axis=1))
            return actions

        return recording


def worker_pids(evaluator: Evaluator) -> list[int]:
    return [worker.pid for worker in evaluator._running.values()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def undisturbed_run(name: str) -> tuple[list[EpisodeResult], list[np.ndarray], list[int]]:
    """Results, everything a policy saw, and the worker's process, of one worker that nobody disturbs."""
    recorder = Recorder()
    with Evaluator(name, workers=1, max_episode_steps=STEPS) as evaluator:
        results = evaluator.run(recorder, **RUN)
        pids = worker_pids(evaluator)
        maps = Path(f"/proc/{pids[0]}/maps").read_text()
        assert "mujoco" in maps and "jaxlib" not in maps
        assert evaluator.task_names[0].startswith("task1") and evaluator.retries == 0
    return results, recorder.seen, pids


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[list[EpisodeResult], list[np.ndarray], list[int]]]:
    return {name: undisturbed_run(name) for name in (CUBE, MAZE)}


def test_results_are_sorted_and_workers_end_with_the_evaluator(undisturbed) -> None:
    results, _, pids = undisturbed[CUBE]
    assert [(result.task, result.episode) for result in results] == [(1, 0), (1, 1), (4, 0), (4, 1)]
    assert all(result.steps == STEPS and not result.success for result in results)
    assert len(pids) == 1 and not alive(pids[0])


def test_two_workers_give_the_results_of_one_and_keep_running_between_calls(undisturbed) -> None:
    results, seen, _ = undisturbed[CUBE]
    recorder = Recorder()
    with Evaluator(CUBE, workers=2, slots_per_worker=1, max_episode_steps=STEPS) as evaluator:
        assert evaluator.run(recorder, **RUN) == results
        first_pids = worker_pids(evaluator)
        # With two slots instead of four the rounds differ, but every state that was seen is the same.
        rows = {row.tobytes() for block in seen for row in block}
        assert {row.tobytes() for block in recorder.seen for row in block} <= rows
        assert evaluator.run(make_policy, **RUN) == results
        assert worker_pids(evaluator) == first_pids


@pytest.mark.parametrize(
    ("name", "how"), [(CUBE, signal.SIGKILL), (MAZE, signal.SIGKILL), (MAZE, signal.SIGSTOP)], ids=str
)
def test_a_lost_worker_is_replaced_without_a_trace(undisturbed, name: str, how: signal.Signals) -> None:
    results, seen, _ = undisturbed[name]
    with Evaluator(name, workers=1, max_episode_steps=STEPS, timeout=2.0) as evaluator:
        recorder = Recorder(at=9, action=lambda: os.kill(evaluator._running[0].pid, how))
        assert evaluator.run(recorder, **RUN) == results
        assert evaluator.retries == 1
    for block, expected in zip(recorder.seen, seen, strict=True):
        np.testing.assert_array_equal(block, expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_in_the_policy_leaves_no_process_behind(undisturbed, error: type[BaseException]) -> None:
    pids: list[int] = []
    evaluator = Evaluator(MAZE, workers=1, max_episode_steps=STEPS)

    def fail() -> None:
        pids.extend(worker_pids(evaluator))
        raise error

    with pytest.raises(error):
        evaluator.run(Recorder(at=2, action=fail), run_seed=0, tasks=(1,), episodes=1)
    assert len(pids) == 1 and not alive(pids[0]) and worker_pids(evaluator) == []
    with evaluator:  # it can be used again, with a new process
        assert evaluator.run(make_policy, **RUN) == undisturbed[MAZE][0]


def test_closing_from_another_thread_stops_a_run_and_its_processes() -> None:
    pids: list[int] = []
    evaluator = Evaluator(MAZE, workers=1)

    def close_soon() -> None:
        pids.extend(worker_pids(evaluator))
        threading.Timer(0.2, evaluator.close).start()

    with pytest.raises(CtaError, match="the evaluation was stopped"):
        evaluator.run(Recorder(at=2, action=close_soon), run_seed=0, tasks=(1,), episodes=50)
    assert len(pids) == 1 and not alive(pids[0]) and worker_pids(evaluator) == []


def test_a_simulator_that_keeps_failing_is_one_line() -> None:
    with Evaluator(MAZE, workers=1, retries=1) as evaluator:
        (world,) = evaluator._worlds(1)
        world.send(np.zeros((1, 2)), {0: Episode(1, 0)})
        world.receive()
        world.send(np.zeros((1, 7)), {})
        with pytest.raises(
            CtaError, match=r"^pointmaze-medium-v0: the simulator failed 2 times in one evaluation: .*Error: "
        ):
            world.receive()
        assert evaluator.retries == 1
    assert worker_pids(evaluator) == []


def test_an_unknown_world_is_one_line() -> None:
    with pytest.raises(CtaError, match="no OGBench environment 'sofa-v0'"):
        Evaluator("sofa-play-v0", workers=1).run(make_policy, run_seed=0)


def test_workers_end_when_their_parent_is_killed() -> None:
    script = (
        f"from cta.evaluation import Evaluator; import time; evaluator = Evaluator('{MAZE}', workers=1);"
        "evaluator.about; print(evaluator._running[0].pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert wait_until_gone([pid], 10)


def test_worlds_are_many_enough_for_the_policy_and_few_enough_for_the_episodes() -> None:
    assert default_slots(workers=2, episodes=250) == 32
    assert [default_slots(workers=n, episodes=250, alone=True) for n in (1, 2, 4, 16)] == [16, 16, 8, 4]
    assert default_slots(workers=1, episodes=250) == 64
    assert default_slots(workers=4, episodes=250) == 16
    assert default_slots(workers=16, episodes=250) == 4
    assert default_slots(workers=2, episodes=75) == 12  # three episodes each, at least
    assert default_slots(workers=2, episodes=4) == 4


@pytest.mark.parametrize(("dataset", "worlds"), [("cube-single-play-v0", 64), ("visual-cube-single-play-v0", 32)])
def test_worlds_that_share_no_model_are_fewer(dataset: str, worlds: int) -> None:
    groups, slots = Evaluator(dataset, workers=2).groups_and_slots(250)
    assert groups * slots == worlds
