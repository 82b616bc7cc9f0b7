"""Rates of a piece of work that is repeated."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Run = Callable[[int], None]
"""Takes so many steps and waits for them."""
LEAST = 10
"""Steps asked for at a time, as in training."""
BLOCK = 500
"""Steps of a block at most, as in training."""


when_warm: list[Callable[[], object]] = []
"""Called when everything is compiled and warm, before anything is measured: `cta bench --together` waits there."""


class Span(NamedTuple):
    """Steps taken, and the time they took: by the clock, and of all processor cores together."""

    steps: int
    wall_s: float
    cpu_s: float

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.wall_s

    @property
    def cpu_ms_per_step(self) -> float:
        return 1e3 * self.cpu_s / self.steps

    def rates(self, seeds: int) -> dict[str, Any]:
        """Speed in the words of a record: steps of the group, seed-steps, processor time of a seed-step."""
        return {
            "steps": self.steps,
            "seconds": round(self.wall_s, 2),
            "steps_per_s": round(self.steps_per_s, 2),
            "seed_steps_per_s": round(seeds * self.steps_per_s, 2),
            "cpu_ms_per_seed_step": round(self.cpu_ms_per_step / seeds, 3),
        }


def timed(run: Run, count: int) -> Span:
    """One call of `run`."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(count)
    return Span(count, time.perf_counter() - wall, time.process_time() - cpu)


def repeat(run: Run, *, seconds: float, largest: int = BLOCK) -> Span:
    """`run` again and again for `seconds`; about a second's steps at a time.

    The first two calls only warm up: they compile, and tell how many steps a second holds. Like training, it never
    asks for fewer than ten steps, for which rows are drawn together; an accelerator runs whole chunks.
    """
    least = _least()
    count = _warm(run, largest, least)
    _ready()
    steps, wall, cpu = 0, 0.0, 0.0
    while not steps or wall < seconds:
        span = timed(run, count)
        steps, wall, cpu = steps + span.steps, wall + span.wall_s, cpu + span.cpu_s
        count = _per_second(span, largest, least)
    return Span(steps, wall, cpu)


def interleave(
    first: Run, second: Run, *, seconds: float, largest: int = BLOCK, alike: bool = False
) -> list[tuple[Span, Span]]:
    """The two in turns, so that whatever else the machine does falls on both; one pair of spans per turn.

    The first asks for steps as `repeat` does, the second, unless they are `alike`, never for more than a CPU needs.
    """
    ours, theirs = _warm(first, largest, _least()), _warm(second, largest, _least() if alike else LEAST)
    _ready()
    begin, pairs = time.perf_counter(), []
    while len(pairs) < 3 or time.perf_counter() - begin < seconds:
        pairs.append((timed(first, ours), timed(second, theirs)))
    return pairs


def _ready() -> None:
    for call in when_warm:
        call()


def _least() -> int:
    return LEAST if jax.default_backend() == "cpu" else BLOCK


def _warm(run: Run, largest: int, least: int) -> int:
    """Compile; then the number of steps that takes about a second."""
    once, again = (least, least) if least > LEAST else (1, 2)
    run(once)
    return _per_second(timed(run, again), largest, least)


def _per_second(span: Span, largest: int, least: int) -> int:
    return min(largest, max(least, int(span.steps_per_s)))
