"""Rates of a piece of work that is repeated."""

import time
from collections.abc import Callable
from dataclasses import dataclass

LEAST = 10
"""Steps asked for at a time, as in training."""


@dataclass(frozen=True)
class Span:
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


class Stopwatch:
    """Wall clock and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def span(self, steps: int) -> Span:
        """What `steps` steps have taken."""
        return Span(steps, time.perf_counter() - self._wall, time.process_time() - self._cpu)


def repeat(run: Callable[[int], None], *, seconds: float, largest: int, least: int = LEAST) -> Span:
    """`run(count)`, which waits for its work, again and again for `seconds`; about a second's steps at a time.

    The first two calls only warm up: they compile, and tell how many steps a second holds. Like training, it never
    asks for fewer than `least` steps: drawing rows is done for ten at least, and an accelerator runs whole chunks.
    """
    count = _warm(run, largest, least)
    watch, steps = Stopwatch(), 0
    while steps == 0 or watch.span(steps).wall_s < seconds:
        lap = Stopwatch()
        run(count)
        steps += count
        count = _per_second(lap.span(count), largest, least)
    return watch.span(steps)


def _warm(run: Callable[[int], None], largest: int, least: int) -> int:
    """Compile; then the number of steps that takes about a second."""
    once, again = (least, least) if least > LEAST else (1, 2)
    run(once)
    watch = Stopwatch()
    run(again)
    return _per_second(watch.span(again), largest, least)


def _per_second(span: Span, largest: int, least: int) -> int:
    return min(largest, max(least, int(span.steps_per_s)))


def interleave(
    first: Callable[[int], None], second: Callable[[int], None], *, seconds: float, largest: int, least: int = LEAST
) -> list[tuple[Span, Span]]:
    """The two in turns, so that whatever else the machine does falls on both; one pair of spans a turn.

    `least` is for the first, as in `repeat`.
    """
    runs = (first, second)
    counts = [_warm(first, largest, least), _warm(second, largest, LEAST)]
    begin, pairs = Stopwatch(), []
    while len(pairs) < 3 or begin.span(1).wall_s < seconds:
        spans = []
        for run, count in zip(runs, counts, strict=True):
            watch = Stopwatch()
            run(count)
            spans.append(watch.span(count))
        pairs.append((spans[0], spans[1]))
    return pairs
