"""The learner of agents that have a faster form on an accelerator: packed weights, fixed numbers of steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from cta.agents import Networks
from cta.agents.base import Metrics
from cta.fast.packing import low_copy, pack, unpack
from cta.fast.two_level import ROLES, Weights, loss
from cta.goals import Rows, labels
from cta.training.learner import DeviceData, Keys, Learner, TrainState, first_bad

DECAYS = (0.9, 0.999)
EPSILON = 1e-8


class Packed(NamedTuple):
    """`TrainState` while a chunk runs."""

    weights: Weights
    targets: Weights
    moments: tuple[Networks, Networks]
    step: Int[Array, ""]
    sums: Metrics
    bad: Int[Array, "losses"]


class FastLearner(Learner):
    """`Learner` with the merged loss of `cta.fast`, for resident data."""

    chunk = 250
    """Steps of a program whose length is fixed: without that the host must ask the device before every step."""

    def run_chunk(self, state: TrainState, keys: Keys, data: DeviceData, count: int) -> TrainState:
        """`count` updates, a number known when compiling."""
        rows = self.draw(keys, state.step, data.table, count)

        def body(packed: Packed, rows: dict[str, Rows]) -> tuple[Packed, None]:
            return self._packed_step(packed, data, rows), None

        return self._unpack(jax.lax.scan(body, self._pack(state), rows)[0], state)

    def run(self, state: TrainState, keys: Keys, data: DeviceData, count: int | Array) -> TrainState:
        """`count` ≤ `chunk` updates, a number known only when running."""
        rows = self.draw(keys, state.step, data.table, self.chunk)

        def body(i: Array, packed: Packed) -> Packed:
            return self._packed_step(packed, data, {name: index[i] for name, index in rows.items()})

        return self._unpack(jax.lax.fori_loop(0, count, body, self._pack(state)), state)

    def _pack(self, state: TrainState) -> Packed:
        adam = {name: slot[0] for name, slot in state.optimizer.items()}
        moments = (pack({n: a.mu for n, a in adam.items()}), pack({n: a.nu for n, a in adam.items()}))
        weights, targets = (Weights.of(pack(part)) for part in (state.networks, state.targets))
        return Packed(weights, targets, moments, state.step, state.sums, state.bad)

    def _unpack(self, packed: Packed, like: TrainState) -> TrainState:
        networks = unpack(packed.weights.networks, like.networks)
        mu, nu = (unpack(moment, like.networks) for moment in packed.moments)
        optimizer = {
            name: (slot[0]._replace(count=packed.step, mu=mu[name], nu=nu[name]), *slot[1:])
            for name, slot in like.optimizer.items()
        }
        targets = unpack(packed.targets.networks, like.targets)
        return TrainState(networks, targets, optimizer, packed.step, packed.sums, packed.bad)

    def _packed_step(self, packed: Packed, data: DeviceData, rows: dict[str, Rows]) -> Packed:
        assert_agent: Any = self.agent
        roles = data.observations[jnp.stack([rows[name] for name in ROLES])]
        batch = labels(data.actions, rows)

        def total(networks: Networks) -> tuple[Array, Metrics]:
            weights = Weights(networks, packed.weights.low)
            return loss(assert_agent, self.spec, weights, packed.targets, roles, batch)

        (value, metrics), grads = jax.value_and_grad(total, has_aux=True)(packed.weights.networks)
        metrics = {**metrics, "total_loss": value}
        step = packed.step + 1
        networks, moments = self._adam_step(packed, grads, step)
        tau = self.agent.config.tau
        before = {name: packed.weights.networks[name] for name in packed.targets.networks}
        targets = jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, before, packed.targets.networks)
        sums = jax.tree.map(jnp.add, packed.sums, metrics)
        bad = first_bad(packed.bad, step, metrics)
        return Packed(
            Weights(networks, low_copy(networks)), Weights(targets, low_copy(targets)), moments, step, sums, bad
        )

    def _adam_step(self, packed: Packed, grads: Networks, step: Array) -> tuple[Networks, tuple[Networks, Networks]]:
        """Adam as Optax computes it, in one pass over each array."""
        (b1, b2), lr = DECAYS, self.agent.config.lr
        mu = jax.tree.map(lambda g, m: (1 - b1) * g + b1 * m, grads, packed.moments[0])
        nu = jax.tree.map(lambda g, v: (1 - b2) * g**2 + b2 * v, grads, packed.moments[1])
        first, second = 1 - b1**step, 1 - b2**step

        def moved(p: Array, m: Array, v: Array) -> Array:
            return p - lr * (m / first) / (jnp.sqrt(v / second) + EPSILON)

        return jax.tree.map(moved, packed.weights.networks, mu, nu), (mu, nu)
