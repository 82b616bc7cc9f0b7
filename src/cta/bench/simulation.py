"""Rates of simulation: the lean step beside OGBench's own, and workers beside processes that only step.

The step is measured by processor time, in turns of a few steps each in one process, so that whatever else the machine
does falls on both. Workers are measured by the clock and need a quiet machine: in turns, N processes that only step
OGBench's own world, N that only step the lean one, and generation or evaluation with N workers. All take the same kind
of episodes.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from cta.data.progress import progress
from cta.envs.generate import default_workers, make_parts, plan_job
from cta.envs.manipulation_data import ManipulationEpisodes
from cta.envs.names import STATE_DIMS, known_spec
from cta.envs.ogbench import OgbenchWorld, close_env, make_env, seeded_reset
from cta.errors import CtaError
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import Policy

Entry = dict[str, Any]
BLOCK = 25
"""Steps of a turn."""
ROUNDS = 2
"""Turns of everything that is measured by the clock."""
COURSES = 3
"""Generated episodes that the processes beside generation repeat."""
MANY = 5000
"""Episodes to generate: more than there is time for."""


def measure(
    what: Sequence[str], *, worlds: Sequence[str] | None = None, workers: int | None = None, seconds: float = 20.0
) -> list[Entry]:
    """Entries for `what` of simulate, generate and evaluate, on the worlds by name (puzzle-4x4-v0, …; default: all).

    `seconds` is the time for each world, and for each of the three rates that generate and evaluate compare.
    """
    worlds = list(worlds or STATE_DIMS)
    if unknown := [name for name in worlds if name not in STATE_DIMS]:
        raise CtaError(f"no simulated world {', '.join(unknown)}: choose from {', '.join(STATE_DIMS)}")
    count = workers or default_workers()
    entries: list[Entry] = []
    with progress(", ".join(what), total=len(what) * len(worlds), unit="worlds") as advance:
        for kind in what:
            for name in worlds:
                if kind == "simulate":
                    entries.append(measure_step(name, seconds=seconds))
                else:
                    rate = {"generate": generation_rate, "evaluate": evaluation_rate}[kind]
                    entries.append(measure_workers(kind, rate, name, workers=count, seconds=seconds))
                advance(1)
            if kind == "simulate":
                mean = exp(statistics.fmean(log(entry["ratio"]) for entry in entries if entry["what"] == kind))
                entries.append({"what": kind, "env": "geometric mean", "ratio": mean})
    return entries


def measure_step(env_name: str, *, seconds: float) -> Entry:
    """Steps per second of processor time, plain and lean; `ratio` is the median over the turns."""
    worlds = _Turns(env_name, lean=False), _Turns(env_name, lean=True)
    pairs: list[tuple[float, float]] = []
    begin = time.perf_counter()
    while len(pairs) < 4 or time.perf_counter() - begin < seconds:
        order = worlds if len(pairs) % 2 else worlds[::-1]  # neither always comes first
        spent = {world.lean: world.turn() for world in order}
        pairs.append((spent[False], spent[True]))
        if worlds[0].last.tobytes() != worlds[1].last.tobytes():
            raise CtaError(f"{env_name}: the lean step and OGBench's own have come apart: a rate would mean nothing")
    for world in worlds:
        close_env(world.env)
    plain, lean = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "what": "simulate",
        "env": env_name,
        "plain_steps_per_s": BLOCK / plain,
        "lean_steps_per_s": BLOCK / lean,
        "ratio": statistics.median(a / b for a, b in pairs),
        "turns": len(pairs),
    }


class _Turns:
    """A world that takes a few steps at a time with random actions."""

    def __init__(self, env_name: str, *, lean: bool) -> None:
        self.lean = lean
        self.env = make_env(env_name, lean=lean)
        self._actions = np.random.default_rng(0)
        self.last, _ = seeded_reset(self.env, 0, {"task_id": 1})
        self.turn()

    def turn(self) -> float:
        """The processor time of the next steps."""
        actions = self._actions.uniform(-1, 1, (BLOCK, 5)).astype(np.float32)
        begin = time.process_time()
        for action in actions:
            self.last = self.env.step(action)[0]
        return time.process_time() - begin


def measure_workers(
    kind: str, rate: Callable[["Request"], float], env_name: str, *, workers: int, seconds: float
) -> Entry:
    """Steps per second of `workers` processes: OGBench's own step, the lean step, and `kind`, in turns.

    `efficiency` is the last over the second, `over_plain` over the first: medians over the turns.
    """
    request = Request(env_name, workers, seconds / ROUNDS)
    rates: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        plain, lean = (stepping_rate(request, lean=lean, data=kind == "generate") for lean in (False, True))
        rates.append((plain, lean, rate(request)))
    plain, lean, ours = (statistics.median(column) for column in zip(*rates, strict=True))
    return {
        "what": kind,
        "env": env_name,
        "workers": workers,
        "plain_steps_per_s": plain,
        "lean_steps_per_s": lean,
        "steps_per_s": ours,
        "efficiency": statistics.median(row[2] / row[1] for row in rates),
        "over_plain": statistics.median(row[2] / row[0] for row in rates),
    }


@dataclass(frozen=True)
class Request:
    """A rate to be measured: a world, how many processes, and for how long."""

    env_name: str
    workers: int
    seconds: float


def stepping_rate(request: Request, *, lean: bool, data: bool) -> float:
    """Steps per second of all processes together that do nothing but step, beside each other."""
    context = get_context("spawn")
    barrier, answers = context.Barrier(request.workers), context.SimpleQueue()
    arguments = (request, lean, data, barrier, answers)
    processes = [context.Process(target=_step, args=arguments, daemon=True) for _ in range(request.workers)]
    for process in processes:
        process.start()
    total = sum(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return total


def _step(request: Request, lean: bool, data: bool, barrier: Any, answers: Any) -> None:
    """Step through the kind of episodes that generation or evaluation steps through; resets are not counted."""
    env = make_env(request.env_name, lean=lean, data_collection=data)
    courses = _generated(request.env_name) if data else _evaluated(request.env_name)
    barrier.wait()
    spent, steps = 0.0, 0
    for seed, options, actions in cycle(courses):
        seeded_reset(env, seed, options)
        begin = time.perf_counter()
        for action in actions:
            env.step(action)
        spent, steps = spent + time.perf_counter() - begin, steps + len(actions)
        if spent >= request.seconds:
            break
    answers.put(steps / spent)


Course = tuple[np.random.SeedSequence, dict[str, Any] | None, np.ndarray]
"""Seed and options of a reset, and the actions after it."""


def _generated(env_name: str) -> list[Course]:
    """The first episodes that generation makes: an arm that holds something costs more than one that waves about."""
    source, steps = ManipulationEpisodes(env_name, "play"), known_spec(_dataset(env_name)).episode_steps
    rows = [source.episode((0, 0, index), steps)["actions"] for index in range(COURSES)]
    source.close()
    return [(np.random.SeedSequence((0, 0, index, 0)), None, actions) for index, actions in enumerate(rows)]


def _evaluated(env_name: str) -> list[Course]:
    """An episode of each task at full length, with the random actions that `evaluation_rate` takes."""
    world = OgbenchWorld(env_name)
    rng = np.random.default_rng(0)

    def course(task: int) -> Course:
        actions = rng.uniform(-1, 1, (world.max_episode_steps, 5)).astype(np.float32)
        return np.random.SeedSequence(task), {"task_id": task}, actions

    return [course(task + 1) for task in range(len(world.task_names))]


def _dataset(env_name: str) -> str:
    return env_name.replace("-v0", "-play-v0")


def generation_rate(request: Request) -> float:
    """Rows per second of `cta data generate`, counted from when every worker has made an episode."""
    with tempfile.TemporaryDirectory(prefix="cta-bench-data-") as folder:
        name = _dataset(request.env_name)
        job = plan_job(name, folder=Path(folder), episodes=MANY)
        job.workshop().mkdir(parents=True)
        ends: list[float] = []

        def note(_: int) -> None:
            ends.append(time.perf_counter())
            if len(ends) > request.workers and ends[-1] - ends[request.workers - 1] >= request.seconds:
                raise _Enough

        with suppress(_Enough):
            make_parts(job, [("train", index) for index in range(MANY)], workers=request.workers, advance=note)
    rows = known_spec(name).episode_steps + 1
    return (len(ends) - request.workers) * rows / (ends[-1] - ends[request.workers - 1])


class _Enough(BaseException):
    """Ends a generation that has been watched for long enough."""


def evaluation_rate(request: Request) -> float:
    """Steps per second of evaluations with random actions, one after the other, resets and last episodes included."""
    actions = np.random.default_rng(0)

    def make_policy(slots: int) -> Policy:
        return lambda *_: actions.uniform(-1, 1, (slots, 5)).astype(np.float32)

    with Evaluator(_dataset(request.env_name), workers=request.workers) as evaluator:
        evaluator.run(make_policy, run_seed=0, episodes=4 * request.workers)  # starts the workers and fills every slot
        begin, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - begin < request.seconds:
            results = evaluator.run(make_policy, run_seed=0, episodes=4 * request.workers)
            steps += sum(result.steps for result in results)
        return steps / (time.perf_counter() - begin)
