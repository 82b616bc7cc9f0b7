"""Rates of simulation: the lean step beside OGBench's own, and workers beside processes that only step.

The step is measured by processor time, in turns of a few steps each in one process, so that whatever else the machine
does falls on both. Workers are measured by the clock and need a quiet machine: in turns, N processes that only step
OGBench's own world, N that only step the lean one, and generation or evaluation with N workers. All take the same kind
of episodes.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import exp, log
from typing import Any

import numpy as np

from cta.bench.workers import Evaluation, Generation, Steppers
from cta.data.progress import progress
from cta.envs.generate import default_workers
from cta.envs.names import STATE_DIMS
from cta.envs.ogbench import close_env, make_env, seeded_reset
from cta.errors import CtaError

Entry = dict[str, Any]
BLOCK = 25
"""Steps of a turn."""


def measure(
    what: Sequence[str], *, worlds: Sequence[str] | None = None, workers: int | None = None, seconds: float = 20.0
) -> Iterator[Entry]:
    """Entries as they come: `what` of simulate, generate, evaluate, on worlds by name (puzzle-4x4-v0, …; default: all).

    `seconds` is the time for each world, and for each of the three rates that generate and evaluate compare.
    """
    worlds = list(worlds or STATE_DIMS)
    if unknown := [name for name in worlds if name not in STATE_DIMS]:
        raise CtaError(f"no simulated world {', '.join(unknown)}: choose from {', '.join(STATE_DIMS)}")
    if workers is not None and workers < 1:
        raise CtaError(f"--workers is at least 1, not {workers}")
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
    pairs: list[tuple[float, float]] = []
    with _turns(env_name, lean=False) as first, _turns(env_name, lean=True) as second:
        worlds = first, second
        begin = time.perf_counter()
        while len(pairs) < 4 or time.perf_counter() - begin < seconds:
            order = worlds if len(pairs) % 2 else worlds[::-1]  # neither always comes first
            spent = {world.lean: world.turn() for world in order}
            pairs.append((spent[False], spent[True]))
            if first.last.tobytes() != second.last.tobytes():
                raise CtaError(
                    f"{env_name}: the lean step and OGBench's own have come apart: a rate would mean nothing"
                )
    plain, lean = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "what": "simulate",
        "env": env_name,
        "plain_steps_per_s": BLOCK / plain,
        "lean_steps_per_s": BLOCK / lean,
        "ratio": statistics.median(a / b for a, b in pairs),
        "turns": len(pairs),
    }


@contextmanager
def _turns(env_name: str, *, lean: bool) -> Iterator["_Turns"]:
    env = make_env(env_name, lean=lean)
    try:
        yield _Turns(env, lean=lean)
    finally:
        close_env(env)


class _Turns:
    """A world that takes a few steps at a time with random actions."""

    def __init__(self, env: Any, *, lean: bool) -> None:
        self.lean = lean
        self._env = env
        self._actions = np.random.default_rng(0)
        self.last, _ = seeded_reset(env, 0, {"task_id": 1})
        self.turn()

    def turn(self) -> float:
        """The processor time of the next steps."""
        actions = self._actions.uniform(-1, 1, (BLOCK, 5)).astype(np.float32)
        begin = time.process_time()
        for action in actions:
            self.last = self._env.step(action)[0]
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
