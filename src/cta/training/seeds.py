"""Several seeds of one learner, advanced together."""

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from cta.agents import Networks
from cta.training.learner import Keys, Learner, TrainState, loss_names, seed_keys
from cta.training.source import Source, bind


def all_finite(networks: Networks) -> Bool[Array, ""]:
    """Whether all weights are numbers."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(networks)]).all()


def split_seeds(stacked: Networks, count: int) -> list[Networks]:
    """Each seed's networks in host memory, from those with a leading axis of seeds."""
    return [jax.tree.map(lambda x, i=i: np.asarray(x[i]), stacked) for i in range(count)]


class SeedGroup:
    """One program for all seeds.

    On an accelerator the seeds are an array axis (`vmap`). On a CPU, where batched products are slow, the single-seed
    program runs once per seed, as many at a time as there are cores; seed 3 of 8 then equals seed 3 alone bit for bit.
    `graph` as in `loop_options`.
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
        self._validation = None if validation is None else bind(validation, learner, **how)
        self._init = jax.vmap(learner.init) if self._stacked else learner.init
        self._finite = jax.jit(jax.vmap(all_finite) if self._stacked else all_finite)
        keys = [seed_keys(seed) for seed in self.seeds]
        self._keys: list[Keys] = [jax.tree.map(lambda *k: jnp.stack(k), *keys)] if self._stacked else keys

    @functools.cached_property
    def _states(self) -> list[TrainState]:
        """Initial ones are made when they are needed: a run that is resumed compiles no program for them."""
        init = jax.jit(self._init)
        return [init(k) for k in self._keys]

    @property
    def grain(self) -> int:
        """Steps are best taken in multiples of this."""
        return self._training.grain

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
        """Do not train this seed any further. (Stacked seeds are one program: there it runs along, for nothing.)"""
        self._stopped.add(index)

    def bad(self) -> list[dict[str, int]]:
        """For each seed, by loss, the first step at which it was bad; empty while all is well.

        Weights that are no numbers can hide from the losses: they count as bad from the next step on.
        """
        names = loss_names(self._states[0].sums)
        steps = np.concatenate([np.atleast_2d(bad) for bad in jax.device_get([state.bad for state in self._states])])
        found = [{name: int(step) for name, step in zip(names, seed, strict=True) if step} for seed in steps]
        finite = np.concatenate([np.atleast_1d(self._finite(state.networks)) for state in self._states])
        return [
            losses or ({} if good else {"weights": self.step + 1}) for losses, good in zip(found, finite, strict=True)
        ]

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
        return self._per_seed([self._validation.validate(state, keys, self.step) for state, keys in pairs])

    def _per_seed(self, metrics: list[Any]) -> list[dict[str, float]]:
        host = jax.device_get(metrics)
        if self._stacked:
            host = [{name: values[i] for name, values in host[0].items()} for i in range(len(self.seeds))]
        return [{name: float(value) for name, value in seed.items()} for seed in host]

    def networks(self) -> list[Networks]:
        """Each seed's networks, copied to host memory (a running block reuses the device's buffers)."""
        return split_seeds(self.snapshot(lambda state: state.networks), len(self.seeds))

    def snapshot(self, part: Any = lambda state: state) -> Any:
        """A host copy of (a part of) the state with a leading axis of seeds, whatever the layout here."""
        parts = [part(state) for state in self._states]
        if self._stacked:
            return jax.tree.map(np.array, parts[0])
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    def restore(self, snapshot: TrainState) -> None:
        """Continue from `snapshot()`'s output."""
        if self._stacked:
            self._states = [jax.tree.map(jnp.array, snapshot)]
        else:
            self._states = [jax.tree.map(lambda x, i=i: jnp.array(x[i]), snapshot) for i in range(len(self.seeds))]
        self.step = int(np.asarray(snapshot.step).max())

    @functools.cached_property
    def structure(self) -> TrainState:
        """Shapes of a state of the right structure, to read a stored one into."""
        return jax.eval_shape(self._init, self._keys[0])
