"""Rates of simulation: the lean step beside OGBench's own, and workers beside processes that only step.

The step is measured by processor time, in turns of a few steps each in one process, so that whatever else the machine
does falls on both. Workers are measured by the clock and need a quiet machine: in turns, N processes that only step
OGBench's own world, N that only step the lean one, and generation or evaluation with N workers. All take the same kind
of episodes.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np

from cta.data.progress import progress
from cta.envs.generate import default_workers, make_parts, plan_job
from cta.envs.manipulation_data import ManipulationEpisodes
from cta.envs.names import STATE_DIMS, known_spec
from cta.envs.ogbench import OgbenchWorld, close_env, make_env, seeded_reset
from cta.errors import CtaError
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import Policy
from cta.presets import agent_preset

Entry = dict[str, Any]
Turn = Callable[[float], float]
"""(seconds) → steps per second."""
BLOCK = 25
"""Steps of a turn."""
COURSES = 3
"""Generated episodes that the processes beside generation repeat."""
SETTLED = 6
"""Calls of the policy after which a turn of evaluation is timed."""
MANY = 5000
"""Episodes to generate: more than there is time for."""


def measure(
    what: Sequence[str], *, worlds: Sequence[str] | None = None, workers: int | None = None, seconds: float = 20.0
) -> Iterator[Entry]:
    """Entries as they come: `what` of simulate, generate, evaluate, on worlds by name (puzzle-4x4-v0, …; default: all).

    `seconds` is the time for each world, and for each of the three rates that generate and evaluate compare.
    """
    worlds = list(worlds or STATE_DIMS)
    if unknown := [name for name in worlds if name not in STATE_DIMS]:
        raise CtaError(f"no simulated world {', '.join(unknown)}: choose from {', '.join(STATE_DIMS)}")
    count = workers or default_workers()
    ratios: list[float] = []
    with progress(", ".join(what), total=len(what) * len(worlds), unit="worlds") as advance:
        for kind in what:
            for name in worlds:
                if kind == "simulate":
                    entry = measure_step(name, seconds=seconds)
                    ratios.append(entry["ratio"])
                else:
                    entry = measure_workers(kind, name, workers=count, seconds=seconds)
                yield entry
                advance(1)
            if kind == "simulate":
                yield {"what": kind, "env": "geometric mean", "ratio": exp(statistics.fmean(map(log, ratios)))}


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


def measure_workers(kind: str, env_name: str, *, workers: int, seconds: float) -> Entry:
    """Steps per second of `workers` processes: OGBench's own step, the lean step, and `kind`, in turns.

    `efficiency` is the last over the second, `over_plain` over the first: medians over the turns. For evaluation that
    is with random actions; `acting` is the same with an untrained CTA, which computes on the same cores.
    """
    ours = {"generate": Generation, "evaluate": Evaluation}[kind](env_name, workers)
    count = max(ours.least, round(seconds / ours.turn))
    rates: list[tuple[float, ...]] = []
    with ExitStack() as stack:
        sides = [Steppers(env_name, workers, lean=lean, data=kind == "generate") for lean in (False, True)]
        turns = [stack.enter_context(side).take for side in (*sides, ours)]
        turns += ours.further
        for _ in range(ours.warm + count):
            rates.append(tuple(take(ours.turn) for take in turns))
    rates = rates[ours.warm :]  # the first may have made worlds
    columns = ("plain_steps_per_s", "lean_steps_per_s", "steps_per_s", "acting_steps_per_s")
    medians = map(statistics.median, zip(*rates, strict=True))
    entry = {
        "what": kind,
        "env": env_name,
        "workers": workers,
        "turns": count,
        "turn_s": ours.turn,
        **dict(zip(columns, medians, strict=False)),
        "efficiency": statistics.median(row[2] / row[1] for row in rates),
        "over_plain": statistics.median(row[2] / row[0] for row in rates),
    }
    if len(rates[0]) > 3:
        entry["acting_over_plain"] = statistics.median(row[3] / row[0] for row in rates)
    return entry


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
    """An episode of each task at full length, with the random actions that `evaluation_rate` takes."""
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
    """An evaluation by the protocol, again and again, that stands still between its turns."""

    turn, least, warm = 2.0, 5, 1

    def __init__(self, env_name: str, workers: int):
        self._dataset, self._workers = _dataset(env_name), workers
        self._may, self._over, self._acting = threading.Event(), False, False
        self.further: list[Turn] = [self.take_acting]
        self._calls = self._steps = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._may.set()
        self._thread.join()

    def take(self, seconds: float) -> float:
        """Steps per second with random actions, resets included.

        Rounds that were on their way when the last turn ended do not count.
        """
        before = self._calls
        self._may.set()
        while self._calls < before + SETTLED and self._thread.is_alive():
            time.sleep(0.002)
        steps, begin = self._steps, time.perf_counter()
        time.sleep(seconds)
        found = (self._steps - steps) / (time.perf_counter() - begin)
        self._may.clear()
        if self._failure is not None:
            raise self._failure
        return found

    def take_acting(self, seconds: float) -> float:
        """The same with the actions of CTA."""
        self._acting = True
        try:
            return self.take(seconds)
        finally:
            self._acting = False

    def _run(self) -> None:
        try:
            with Evaluator(self._dataset, workers=self._workers) as evaluator:
                while True:
                    evaluator.run(self._policy, run_seed=0)
        except _Enough:
            pass
        except BaseException as error:
            self._failure = error

    def _policy(self, slots: int) -> Policy:
        rng, cta = np.random.default_rng(slots), _untrained(self._dataset)

        def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
            self._steps += int(np.sum(~first))  # the others' last round was a reset
            self._calls += 1
            self._may.wait()
            if self._over:
                raise _Enough
            if self._acting:
                return cta(observations, goals, first)
            return rng.uniform(-1, 1, (slots, 5)).astype(np.float32)

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
