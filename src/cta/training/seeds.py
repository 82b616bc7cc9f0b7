"""Several seeds of one learner, advanced together, on batches from a dataset on the device or streamed from the host.

Which rows a step sees is decided by its key alone, so both give the same numbers.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cta.agents import Networks
from cta.agents.base import Metrics
from cta.compilation import loop_options
from cta.data import TrajectoryDataset
from cta.training.executable_cache import KeptProgram
from cta.training.learner import DeviceData, Keys, Learner, Slice, TrainState, loss_names, rows_of, seed_keys, to_device

SLICE_BYTES = 1 << 28  # observations fetched at a time, for all seeds together; up to three such slices exist at once
AHEAD = 2  # slices fetched ahead of the one in training
CHUNK = 250  # steps of the program of fixed length that does most of the work on an accelerator


class StreamedSource:
    """A dataset whose observations stay on the host, in memory or in a mapped file; the rest lies on the device."""

    def __init__(self, dataset: TrajectoryDataset, *, slice_bytes: int = SLICE_BYTES):
        self.observations, self.slice_bytes = dataset.observations, slice_bytes
        self.actions: Float[Array, "rows act"] = jnp.asarray(dataset.actions)
        self.table = rows_of(dataset)


Source = DeviceData | StreamedSource


def open_source(dataset: TrajectoryDataset, *, streamed: bool | None = None, budget: int | None = None) -> Source:
    """On the device if the observations take at most `budget` bytes, else streamed; `streamed` forces the choice."""
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
        self.grain = grain = CHUNK if stacked and learner.block >= CHUNK else 1
        # Whether whole grains have a program of their own.
        self._fixed = self.grain > 1 or _one_by_one(learner, stacked)
        self._run = jax.jit(_over_seeds(learner.run, learner, stacked, 0, 0, None, None), donate_argnums=0)
        chunk = _over_seeds(lambda state, key, data: learner.run(state, key, data, grain), learner, stacked, 0, 0, None)
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
        return self._validate(state, keys, self._data)

    def text(self, state: TrainState, keys: Keys) -> str:
        return self._run_chunk.function.lower(state, keys, self._data).compile().as_text() or ""


class _Streamed:
    """The same in slices of steps, fetched in the background and trained on one after the other."""

    grain = 1

    def __init__(self, learner: Learner, source: StreamedSource, seeds: int, stacked: bool):
        self._source = source
        batch = jax.eval_shape(learner.draw_validation, seed_keys(0), 0, source.table)
        step_bytes = sum(rows.size for rows in batch.values()) * source.observations[:1].nbytes * seeds
        self.steps = max(1, min(learner.block, source.slice_bytes // step_bytes))
        self._one_by_one = _one_by_one(learner, stacked)
        run = _over_seeds(learner.run_slice, learner, stacked, 0, 0, None, 0, None, None)
        self._run = jax.jit(run, donate_argnums=0, static_argnums=5 if self._one_by_one else ())
        self._validate = jax.jit(_over_seeds(learner.validate_slice, learner, stacked, 0, 0, None, 0))
        draw = partial(learner.draw, count=self.steps)
        self._draw_slice = jax.jit(_over_seeds(draw, learner, stacked, 0, None, None))
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
        """The slice from `step` on: drawn now, before the steps that are queued next; fetched by a thread."""
        return self._threads.submit(self.fetch, self._draw_slice(keys, step, self._source.table))

    def fetch(self, rows: dict[str, Array]) -> Slice:
        """The observations at these rows, on the device."""
        # `take` copies whole rows, several times faster than indexing does.
        found = {name: np.take(self._source.observations, at, axis=0) for name, at in jax.device_get(rows).items()}
        return jax.block_until_ready(Slice(rows, jax.device_put(found)))


class _Lane:
    """One state's slices in order: the one in use and how far, and those on their way."""

    def __init__(self, program: _Streamed, keys: Keys, step: int):
        self.step, self._steps = step, program.steps
        self._requests = (program.request(keys, first) for first in itertools.count(step, program.steps))
        self._coming = deque(itertools.islice(self._requests, AHEAD))
        self._part: Slice | None = None
        self._used = program.steps

    def take(self, count: int) -> tuple[Slice, int, int]:
        """A slice, where in it to begin, and how many of the `count` steps it has; `step` is then the next one."""
        if self._used == self._steps:
            self._part = None  # frees the device's memory before the next slice is asked for
            self._coming.append(next(self._requests))
            self._part, self._used = self._coming.popleft().result(), 0
        assert self._part is not None
        first, size = self._used, min(count, self._steps - self._used)
        self._used += size
        self.step += size
        return self._part, first, size


def all_finite(networks: Networks) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(networks)]).all()


def split_seeds(stacked: Networks) -> list[Networks]:
    """Each seed's networks in host memory, from those with a leading axis of seeds."""
    count = len(jax.tree.leaves(stacked)[0])
    return [jax.tree.map(lambda x, i=i: np.asarray(x[i]), stacked) for i in range(count)]


class SeedGroup:
    """One program for all seeds; `graph` as in `loop_options`.

    On an accelerator the seeds are an array axis (`vmap`). On a CPU, where batched products are slow, the single-seed
    program runs once per seed, as many at a time as there are cores; seed 3 of 8 then equals seed 3 alone bit for bit.
    """

    def __init__(
        self,
        learner: Learner,
        seeds: Sequence[int],
        data: Source,
        validation: Source | None = None,
        *,
        stacked: bool | None = None,
        graph: bool = True,
    ):
        self.seeds = tuple(seeds)
        self.step = 0
        self._stopped: set[int] = set()
        self._stacked = jax.default_backend() != "cpu" if stacked is None else stacked
        self._pool = ThreadPoolExecutor(1 if self._stacked else min(len(seeds), os.cpu_count() or 1))
        how: Any = {"seeds": len(seeds), "stacked": self._stacked, "graph": graph}
        self._training: Any = bind(data, learner, **how)
        self.grain: int = self._training.grain  # steps are best taken in multiples of this
        self._validation = None if validation is None else bind(validation, learner, **how)
        self._init = jax.vmap(learner.init) if self._stacked else learner.init
        self._finite = jax.jit(jax.vmap(all_finite) if self._stacked else all_finite)
        keys = [seed_keys(seed) for seed in self.seeds]
        self._keys: list[Keys] = [jax.tree.map(lambda *k: jnp.stack(k), *keys)] if self._stacked else keys

    @cached_property
    def _states(self) -> list[TrainState]:
        """Initial ones are made when they are needed: a run that is resumed compiles no program for them."""
        init = jax.jit(self._init)
        return [init(k) for k in self._keys]

    def run(self, count: int) -> None:
        """Advance every seed by `count` steps and wait for them."""

        def advance(i: int) -> TrainState:
            if i in self._stopped and not self._stacked:
                return self._states[i]
            return self._training.run(i, self._states[i], self._keys[i], self.step, count)

        self._states = list(self._pool.map(advance, range(len(self._states))))
        self.step += count

    def program_text(self) -> str:
        """The compiled program of a chunk of steps on resident data: what its kernels are made of."""
        return self._training.text(self._states[0], self._keys[0])

    def stop(self, index: int) -> None:
        """Train this seed no further. (Stacked seeds are one program: there it runs along, for nothing.)"""
        self._stopped.add(index)

    def bad(self) -> list[dict[str, int]]:
        """For each seed, by loss, the first step at which it was bad; empty while all is well."""
        names, steps = loss_names(self._states[0].sums), self.snapshot(lambda state: state.bad)
        found = [{name: int(step) for name, step in zip(names, seed, strict=True) if step} for seed in steps]
        finite = self.snapshot(lambda state: self._finite(state.networks))
        # Weights that are no numbers can hide from the losses: they count as bad from the next step on.
        hidden = {"weights": self.step + 1}
        return [losses or ({} if good else hidden) for losses, good in zip(found, finite, strict=True)]

    def read_metrics(self, count: int) -> list[dict[str, float]]:
        """Each seed's metrics, averaged over the `count` steps since they were last read; then start afresh."""
        means = self._per_seed([jax.tree.map(lambda x: x / count, state.sums) for state in self._states])
        self._states = [s._replace(sums=jax.tree.map(jnp.zeros_like, s.sums)) for s in self._states]
        return means

    def validate(self) -> list[dict[str, float]]:
        """Each seed's metrics on one batch of held-out data; empty without held-out data."""
        if self._validation is None:
            return [{} for _ in self.seeds]
        pairs = zip(self._states, self._keys, strict=True)
        return self._per_seed([self._validation.validate(*pair, self.step) for pair in pairs])

    def _per_seed(self, metrics: list[Any]) -> list[dict[str, float]]:
        host = self._gather(metrics)
        return [{name: float(values[i]) for name, values in host.items()} for i in range(len(self.seeds))]

    def networks(self) -> list[Networks]:
        """Each seed's networks, copied to host memory (a running block reuses the device's buffers)."""
        return split_seeds(self.snapshot(lambda state: state.networks))

    def snapshot(self, part: Any = lambda state: state) -> Any:
        """A host copy of (a part of) the state with a leading axis of seeds, whatever the layout here."""
        return self._gather([part(state) for state in self._states])

    def _gather(self, parts: list[Any]) -> Any:
        if self._stacked:
            return jax.tree.map(np.array, parts[0])
        return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(parts))

    def restore(self, snapshot: TrainState) -> None:
        """Continue from `snapshot()`'s output."""
        if self._stacked:
            self._states = [jax.tree.map(jnp.array, snapshot)]
        else:
            self._states = [jax.tree.map(lambda x, i=i: jnp.array(x[i]), snapshot) for i in range(len(self.seeds))]
        self.step = int(np.asarray(snapshot.step).max())

    @cached_property
    def structure(self) -> TrainState:
        """Shapes of a state of the right structure, to read a stored one into."""
        return jax.eval_shape(self._init, self._keys[0])
