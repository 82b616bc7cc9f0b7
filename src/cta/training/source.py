"""Where a learner's batches come from: a dataset on the device, or one too large for it, streamed from the host.

A source is bound to a learner once and then advances states. Which rows a step sees is decided by its key alone, so
the two kinds give the same numbers; only where the observations wait differs.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cta.agents.base import Metrics
from cta.compilation import loop_options
from cta.data import TrajectoryDataset
from cta.goals import RowTable
from cta.training.executable_cache import KeptProgram
from cta.training.learner import DeviceData, Keys, Learner, Slice, TrainState, row_table, seed_keys, to_device

SLICE_BYTES = 1 << 28
"""Observations fetched at a time, for all seeds together; up to three such slices exist at once."""
AHEAD = 2
"""Slices fetched ahead of the one in training."""
CHUNK = 250
"""Steps of the program of fixed length that does most of the work on an accelerator."""


class StreamedSource:
    """A dataset whose observations stay on the host, in memory or in a mapped file; the rest lies on the device."""

    def __init__(self, dataset: TrajectoryDataset, *, slice_bytes: int = SLICE_BYTES):
        self.observations, self.slice_bytes = dataset.observations, slice_bytes
        self.actions: Float[Array, "rows act"] = jnp.asarray(dataset.actions)
        self.table = row_table(dataset)


Source = DeviceData | StreamedSource


def open_source(dataset: TrajectoryDataset, *, streamed: bool | None = None, budget: int | None = None) -> Source:
    """A dataset for training: on the device if its observations take at most `budget` bytes, else streamed.

    `streamed` forces the choice; `budget` defaults to `device_budget()`.
    """
    if streamed is None:
        streamed = dataset.observations.nbytes > (device_budget() if budget is None else budget)
    return StreamedSource(dataset) if streamed else to_device(dataset)


def device_budget() -> int:
    """Bytes of observations that leave room to train: half of an accelerator's memory, a quarter of a CPU's."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return (stats["bytes_limit"] - stats.get("bytes_in_use", 0)) // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def bind(source: Source, learner: Learner, *, seeds: int, stacked: bool, graph: bool) -> "_Resident | _Streamed":
    """Compile for `seeds` seeds: `stacked` in one state along a leading axis, or in as many lanes."""
    if isinstance(source, StreamedSource):
        return _Streamed(learner, source, seeds, stacked)
    return _Resident(learner, source, stacked, loop_options(learner.compiler_options, graph=graph))


def _over_seeds(function: Callable, learner: Learner, stacked: bool, *axes: int | None) -> Callable:
    """Of stacked seeds, `axes` says which arguments have an axis of seeds, 0, and which are shared, None.

    Images go seed by seed: the convolutions of several seeds at once would be one with groups, which is slow.
    """
    if not stacked:
        return function
    if learner.spec.image_shape is None:
        return jax.vmap(function, in_axes=axes)

    def each(*arguments: Any) -> Any:
        def one(own: dict[int, Any]) -> Any:
            return function(*[own.get(i, argument) for i, argument in enumerate(arguments)])

        return jax.lax.map(one, {i: arguments[i] for i, axis in enumerate(axes) if axis == 0})

    return each


def _one_by_one(learner: Learner, stacked: bool) -> bool:
    """Whether every step is a call: a CPU's convolutions inside a loop are ten times as slow as outside of it."""
    return learner.spec.image_shape is not None and not stacked and jax.default_backend() == "cpu"


class _Resident:
    """A source bound to a learner. Steps are best taken in multiples of `grain`."""

    def __init__(self, learner: Learner, data: DeviceData, stacked: bool, options: dict[str, str] | None):
        self._data = data
        self.grain = CHUNK if stacked and learner.block >= CHUNK else 1
        self._fixed = self.grain > 1 or _one_by_one(learner, stacked)
        """Whether whole grains have a program of their own."""

        def run_chunk(state: TrainState, keys: Keys, data: DeviceData) -> TrainState:
            return learner.run(state, keys, data, self.grain)

        self._run = jax.jit(_over_seeds(learner.run, learner, stacked, 0, 0, None, None), donate_argnums=0)
        chunk = _over_seeds(run_chunk, learner, stacked, 0, 0, None)
        recipe = f"{type(learner)} {learner.agent!r} {learner.spec} {self.grain} {stacked} {options}"
        self._run_chunk = KeptProgram(jax.jit(chunk, donate_argnums=0, compiler_options=options), recipe)
        self._validate = jax.jit(_over_seeds(learner.validate, learner, stacked, 0, 0, None))

    def run(self, lane: int, state: TrainState, keys: Keys, step: int, count: int) -> TrainState:
        """Advance a state that stands at `step` by `count` steps and wait for it. One lane for each state."""
        while self._fixed and count >= self.grain:
            state = self._run_chunk(state, keys, self._data)
            count -= self.grain
        if count:
            state = self._run(state, keys, self._data, count)
        return jax.block_until_ready(state)

    def validate(self, state: TrainState, keys: Keys, step: int) -> Metrics:
        """Metrics of one batch of this source."""
        return self._validate(state, keys, self._data)

    def text(self, state: TrainState, keys: Keys) -> str:
        return self._run_chunk.lower(state, keys, self._data).compile().as_text() or ""


class _Streamed:
    """The same in slices of steps, fetched in the background and trained on one after the other."""

    grain = 1

    def __init__(self, learner: Learner, source: StreamedSource, seeds: int, stacked: bool):
        self._source = source
        batch = jax.eval_shape(learner.draw_validation, seed_keys(0), 0, source.table)
        step_bytes = sum(rows.size for rows in batch.values()) * source.observations[:1].nbytes * seeds
        self.steps = max(1, min(learner.block, source.slice_bytes // step_bytes))

        def draw_slice(keys: Keys, step: Array, table: RowTable) -> dict[str, Array]:
            return learner.draw(keys, step, table, self.steps)

        self._one_by_one = _one_by_one(learner, stacked)
        run = _over_seeds(learner.run_slice, learner, stacked, 0, 0, None, 0, None, None)
        self._run = jax.jit(run, donate_argnums=0, static_argnums=5 if self._one_by_one else ())
        self._validate = jax.jit(_over_seeds(learner.validate_slice, learner, stacked, 0, 0, None, 0))
        self._draw_slice = jax.jit(_over_seeds(draw_slice, learner, stacked, 0, None, None))
        self._draw_one = jax.jit(_over_seeds(learner.draw_validation, learner, stacked, 0, None, None))
        # One thread a lane: fetching is memory (or disk) bound, and lanes train at the same time.
        self._threads = ThreadPoolExecutor(1 if stacked else seeds, thread_name_prefix="fetch")
        self._lanes: dict[int, _Lane] = {}

    def run(self, lane: int, state: TrainState, keys: Keys, step: int, count: int) -> TrainState:
        reader = self._lanes.get(lane)
        if reader is None or reader.step != step:  # the first run, or one after a restore
            reader = self._lanes[lane] = _Lane(self, keys, step)
        while count:
            part, first, size = reader.take(1 if self._one_by_one else count)
            state = self._run(state, keys, self._source.actions, part, first, size)
            # Waiting bounds how many slices are alive; the next ones are fetched meanwhile.
            jax.block_until_ready(state)
            count -= size
        return state

    def validate(self, state: TrainState, keys: Keys, step: int) -> Metrics:
        part = self.fetch(self._draw_one(keys, step, self._source.table))
        return self._validate(state, keys, self._source.actions, part)

    def request(self, keys: Keys, step: int) -> "Future[Slice]":
        """The slice from `step` on, drawn now and fetched in the background.

        Drawing is queued here, on the caller's thread, so that the device does it before the steps queued next.
        """
        return self._threads.submit(self.fetch, self._draw_slice(keys, step, self._source.table))

    def fetch(self, rows: dict[str, Array]) -> Slice:
        """The observations at these rows, on the device."""
        # `take` copies whole rows, several times faster than indexing does.
        found = {name: np.take(self._source.observations, at, axis=0) for name, at in jax.device_get(rows).items()}
        return jax.block_until_ready(Slice(rows, jax.device_put(found)))


class _Lane:
    """One state's slices in order: the one in use and how far, and those on their way."""

    def __init__(self, program: _Streamed, keys: Keys, step: int):
        self.step = step
        """The next step to be taken."""
        self._program, self._keys = program, keys
        self._requested = step
        self._coming: deque[Future[Slice]] = deque()
        self._part: Slice | None = None
        self._used = program.steps
        for _ in range(AHEAD):
            self._request()

    def _request(self) -> None:
        self._coming.append(self._program.request(self._keys, self._requested))
        self._requested += self._program.steps

    def take(self, count: int) -> tuple[Slice, int, int]:
        """A slice, where in it to begin, and how many of the `count` steps it has."""
        if self._used == self._program.steps:
            self._part = None  # frees the device's memory before the next slice is asked for
            self._request()
            self._part, self._used = self._coming.popleft().result(), 0
        assert self._part is not None
        first, size = self._used, min(count, self._program.steps - self._used)
        self._used += size
        self.step += size
        return self._part, first, size
