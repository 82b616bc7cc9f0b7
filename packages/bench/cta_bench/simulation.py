"""Rates of simulation: the lean step beside OGBench's own, and frames of the embedded worlds.

Measured by processor time, in turns of a few steps each in one process, so that whatever else the machine does falls on
both.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from cta.data.progress import progress
from cta.envs.names import STATE_DIMS, VISUAL_DESK_DATASETS
from cta.envs.worlds import close_env, make_env, seeded_reset
from cta.errors import CtaError
from cta_bench import Entry

BLOCK = 25
"""Steps of a turn."""
LEAST_TURNS = 4


def measure_worlds(worlds: Sequence[str], *, seconds: float) -> Iterator[Entry]:
    """An entry for each world by name: `simulate` (puzzle-4x4-v0, …; none: all of these, and their geometric mean),
    or `draw` for the worlds that are drawn (visual-desk, …)."""
    drawn = [name.removesuffix("-play-v0") for name in VISUAL_DESK_DATASETS]
    if unknown := [name for name in worlds if name not in (*STATE_DIMS, *drawn)]:
        raise CtaError(f"no simulated world {', '.join(unknown)}: choose from {', '.join((*STATE_DIMS, *drawn))}")
    yield from (measure_drawing(name, seconds=seconds) for name in worlds if name in drawn)
    if worlds and not (worlds := [name for name in worlds if name in STATE_DIMS]):
        return
    worlds = worlds or [*STATE_DIMS]
    ratios: list[float] = []
    with progress("simulate", total=len(worlds), unit="worlds") as advance:
        for name in worlds:
            entry = measure_step(name, seconds=seconds)
            ratios.append(entry["ratio"])
            yield entry
            advance(1)
    yield {"what": "simulate", "env": "geometric mean", "ratio": statistics.geometric_mean(ratios)}


def measure_drawing(name: str, *, seconds: float) -> Entry:
    """Frames of play data per second of processor time, of all threads together: what one core draws."""
    from cta.envs.desk import WORLDS, decode  # JAX
    from cta.envs.desk_play import generate_play
    from cta.envs.desk_vector import see_all

    world, states = WORLDS[name], WORLDS[name.removeprefix("visual-")]
    rows = generate_play(states.name, episodes=50, validation_episodes=1)[0].observations
    frames, wall, cpu = decode(states, rows), 0.0, 0.0
    see_all(world, frames)
    turns = 0
    while turns < LEAST_TURNS or wall < seconds:
        begin = time.perf_counter(), time.process_time()
        see_all(world, frames)
        wall, cpu, turns = wall + time.perf_counter() - begin[0], cpu + time.process_time() - begin[1], turns + 1
    count = turns * len(rows)
    return {"what": "draw", "env": name, "frames_per_s": count / wall, "frames_per_core_s": count / cpu, "turns": turns}


def measure_step(env_name: str, *, seconds: float) -> Entry:
    """Steps per second of processor time, plain and lean; `ratio` is the median over the turns."""
    pairs: list[tuple[float, float]] = []
    with ExitStack() as stack:
        plain, lean = (_turns(stack, make_env(env_name, lean=lean)) for lean in (False, True))
        begin = time.perf_counter()
        while len(pairs) < LEAST_TURNS or time.perf_counter() - begin < seconds:
            if len(pairs) % 2:  # neither always comes first
                (slow, ends), (fast, also) = plain(), lean()
            else:
                (fast, also), (slow, ends) = lean(), plain()
            pairs.append((slow, fast))
            if ends != also:
                raise CtaError(f"{env_name}: the lean step and OGBench's own differ: a rate would mean nothing")
    plain_s, lean_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "what": "simulate",
        "env": env_name,
        "plain_steps_per_s": BLOCK / plain_s,
        "lean_steps_per_s": BLOCK / lean_s,
        "ratio": statistics.median(a / b for a, b in pairs),
        "turns": len(pairs),
    }


def _turns(stack: ExitStack, env: Any) -> Callable[[], tuple[float, bytes]]:
    """A world's turns, which the stack closes: (processor time of the next random steps, the last observation)."""
    stack.callback(close_env, env)
    seeded_reset(env, 0, {"task_id": 1})
    random = np.random.default_rng(0)

    def turn() -> tuple[float, bytes]:
        actions = random.uniform(-1, 1, (BLOCK, 5)).astype(np.float32)
        begin = time.process_time()
        for action in actions[:-1]:
            env.step(action)
        last = env.step(actions[-1])[0]
        return time.process_time() - begin, last.tobytes()

    turn()
    return turn
