"""Training as the product does it: whole steps, the sampler alone, the update alone, compilation and memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cta.bench.cases import Case
from cta.bench.clock import LEAST, Span, Stopwatch, repeat
from cta.bench.compiling import CompileClock
from cta.compilation import loop_options
from cta.data import TrajectoryDataset
from cta.goals import Batch, gather
from cta.training.learner import DeviceData, Keys, Learner, Slice, TrainState, seed_keys, to_device
from cta.training.memory import peak_device_bytes, peak_host_bytes
from cta.training.seeds import SeedGroup
from cta.training.source import CHUNK, open_source

BLOCK = 500
"""Steps of a block at most, as in training."""

Entry = dict[str, Any]


def measure_training(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """Entries `train`, `compile` and `memory` of a case, through the seed group that training runs."""
    data_bytes = dataset.observations.nbytes + dataset.actions.nbytes
    data_bytes += dataset.valid_rows.nbytes + dataset.goal_limits.nbytes
    learner = case.learner(dataset, block=BLOCK)
    start, group = _start(case, learner, dataset)
    parameters = sum(x[0].size for x in jax.tree.leaves(group.snapshot(lambda state: state.networks)))

    def run(count: int) -> None:
        group.run(count)

    span = repeat(run, seconds=case.seconds, largest=BLOCK, least=least_steps())
    group.read_metrics(1)  # a blocking read: the steps have been taken, not only queued
    facts = case.facts()
    return [
        {"what": "train", **facts, **rates(span, case.seeds), "parameters": parameters},
        {"what": "compile", **facts, **start},
        {"what": "memory", **facts, **_memory(data_bytes)},
    ]


def measure_start(case: Case, dataset: TrajectoryDataset) -> Entry:
    """Seconds from an opened dataset to the first finished steps, with whatever the compilation cache holds."""
    return _start(case, case.learner(dataset, block=BLOCK), dataset)[0]


def _start(case: Case, learner: Learner, dataset: TrajectoryDataset) -> tuple[Entry, SeedGroup]:
    """The first steps: one, or on an accelerator a whole chunk, which has a program of its own."""
    source = open_source(dataset)
    watch, phases = Stopwatch(), CompileClock()
    group = SeedGroup(learner, range(case.seeds), source)
    group.run(1 if jax.default_backend() == "cpu" else CHUNK)
    span = watch.span(1)
    return {"start_s": round(span.wall_s, 2), "start_cpu_s": round(span.cpu_s, 2), **phases.read()}, group


def least_steps() -> int:
    """Steps asked for at a time at least: on an accelerator a block of whole chunks."""
    return LEAST if jax.default_backend() == "cpu" else BLOCK


def measure_parts(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """Entries `sampler` (rows drawn and gathered) and `update` (losses, Adam, EMA on one batch), each alone.

    The seeds are an array axis on an accelerator, as in training; on a CPU, where they run beside each other, one is
    measured.
    """
    stacked = jax.default_backend() != "cpu"
    learner = case.learner(dataset, block=BLOCK)
    data = to_device(dataset)
    seeds = case.seeds if stacked else 1
    keys = jax.vmap(seed_keys)(jnp.arange(seeds)) if stacked else seed_keys(0)
    facts = {**case.facts(), "seeds": seeds}
    size = CHUNK if stacked else LEAST
    programs = {
        what: make(learner, data, keys, stacked, size) for what, make in (("sampler", _sampler), ("update", _updates))
    }
    spans = {what: repeat(run, seconds=case.seconds / 4, largest=size, least=size) for what, run in programs.items()}
    return [{"what": what, **facts, **rates(span, seeds)} for what, span in spans.items()]


def rates(span: Span, seeds: int) -> Entry:
    """Speed in the words of a record: steps of the group, seed-steps, processor time of a seed-step."""
    return {
        "steps": span.steps,
        "seconds": round(span.wall_s, 2),
        "steps_per_s": round(span.steps_per_s, 2),
        "seed_steps_per_s": round(seeds * span.steps_per_s, 2),
        "cpu_ms_per_seed_step": round(span.cpu_ms_per_step / seeds, 3),
    }


def _memory(data_bytes: int) -> Entry:
    device = peak_device_bytes()
    return {
        "host_peak_bytes": peak_host_bytes(),
        "device_peak_bytes": device,
        "data_bytes": data_bytes,
        "device_beside_data_bytes": None if device is None else device - data_bytes,
    }


def _sampler(learner: Learner, data: DeviceData, keys: Keys, stacked: bool, size: int) -> Callable[[int], None]:
    def draw_batches(keys: Keys, data: DeviceData) -> Batch:
        rows = learner.draw(keys, 0, data.table, size)

        def batch_of(i: jax.Array) -> Batch:
            return gather(data.observations, data.actions, {name: index[i] for name, index in rows.items()})

        # Carrying each batch to the next round keeps the compiler from dropping the earlier ones.
        return jax.lax.fori_loop(1, size, lambda i, _: batch_of(i), batch_of(jnp.int32(0)))

    every = jax.vmap(draw_batches, in_axes=(0, None)) if stacked else draw_batches
    program = jax.jit(every, compiler_options=loop_options())

    def run(count: int) -> None:
        batch = None
        for _ in range(0, count, size):
            batch = program(keys, data)
        jax.block_until_ready(batch)

    return run


def _updates(learner: Learner, data: DeviceData, keys: Keys, stacked: bool, size: int) -> Callable[[int], None]:
    """Steps whose observations have been fetched already: the same `size` again and again."""

    def fetch(keys: Keys, data: DeviceData) -> Slice:
        rows = learner.draw(keys, 0, data.table, size)
        return Slice(rows, {name: data.observations[index] for name, index in rows.items()})

    def updates(state: TrainState, keys: Keys, actions: jax.Array, part: Slice) -> TrainState:
        return learner.run_slice(state, keys, actions, part, 0, size)

    axes = jax.vmap if stacked else (lambda f, **_: f)
    part = jax.jit(axes(fetch, in_axes=(0, None)))(keys, data)
    state = jax.jit(axes(learner.init))(keys)
    every = axes(updates, in_axes=(0, 0, None, 0))
    program = jax.jit(every, donate_argnums=0, compiler_options=loop_options())

    def run(count: int) -> None:
        nonlocal state
        for _ in range(0, count, size):
            state = program(state, keys, data.actions, part)
        jax.block_until_ready(state)

    return run
