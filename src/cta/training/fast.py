"""The learner of agents whose step has a merged form in fused kernels (`cta.fast`)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cta.agents import Agent, Networks, Spec
from cta.agents.base import Metrics
from cta.errors import CtaError
from cta.fast.kernels import missing
from cta.fast.packing import LOW, pack, unpack
from cta.fast.two_level import ROLES, Weights, loss, supports
from cta.goals import Batch, labels
from cta.training.learner import DeviceData, Keys, Learner, Slice, TrainState, first_bad

DECAYS = (0.9, 0.999)
EPSILON = 1e-8


def unfused(agent: Agent, spec: Spec) -> str | None:
    """Why fused kernels cannot be used, or None."""
    return missing() if supports(agent, spec) else "this agent, so configured, has no fused form"


def product_precision(learner: Learner) -> str:
    """How matrix products round their operands: what a record of training says of it."""
    if isinstance(learner, FastLearner):
        return "bfloat16"
    # JAX leaves plain float32 products on a GPU to the tensor cores unless a precision is asked for.
    config: Any = jax.config
    return config.jax_default_matmul_precision or ("tensorfloat32" if jax.default_backend() == "gpu" else "float32")


def make_learner(agent: Agent, spec: Spec, *, block: int, kernels: str = "auto") -> Learner:
    """The learner that `--kernels` asks for: by default fused kernels where the agent has them and a GPU runs them."""
    lacking = unfused(agent, spec)
    if kernels == "fused" and lacking:
        raise CtaError(f"--kernels fused: {lacking}; use --kernels plain")
    fused = kernels == "fused" or (kernels == "auto" and jax.default_backend() == "gpu" and not lacking)
    return (FastLearner if fused else Learner)(agent, spec, block=block)


class Packed(NamedTuple):
    """`TrainState` while steps run."""

    weights: Weights
    targets: Weights
    moments: tuple[Networks, Networks]
    step: Int[Array, ""]
    sums: Float[Array, "metrics"]
    """In one array, in the order of the names: a single addition a step."""
    bad: Int[Array, "losses"]


class FastLearner(Learner):
    """`Learner` with the merged loss: the same states, draws and metrics, rounded differently."""

    dtype: Any = LOW
    """Of the operands of products."""

    def run(self, state: TrainState, keys: Keys, data: DeviceData, count: int | Array) -> TrainState:
        rows = self.draw(keys, state.step, data.table, count if isinstance(count, int) else self.block)

        def body(i: Array, packed: Packed) -> Packed:
            now = {name: index[i] for name, index in rows.items()}
            roles = data.observations[jnp.stack([now[name] for name in ROLES])]
            return self._packed_step(packed, roles, labels(data.actions, now))

        return _unpacked(jax.lax.fori_loop(0, count, body, _packed(state, self.dtype)), state)

    def run_slice(
        self,
        state: TrainState,
        keys: Keys,
        actions: Float[Array, "rows act"],
        part: Slice,
        first: int | Array,
        count: int | Array,
    ) -> TrainState:
        def body(i: Array, packed: Packed) -> Packed:
            now: Slice = jax.tree.map(lambda x: x[i], part)
            roles = jnp.stack([now.fields[name] for name in ROLES])
            return self._packed_step(packed, roles, labels(actions, now.rows))

        return _unpacked(jax.lax.fori_loop(first, first + count, body, _packed(state, self.dtype)), state)

    def _packed_step(self, packed: Packed, roles: Float[Array, "roles batch obs"], batch: Batch) -> Packed:
        agent: Any = self.agent

        def total(networks: Networks) -> tuple[Array, Metrics]:
            return loss(agent, self.spec, Weights(networks, packed.weights.low), packed.targets, roles, batch)

        (value, metrics), grads = jax.value_and_grad(total, has_aux=True)(packed.weights.networks)
        metrics = {**metrics, "total_loss": value}
        step = packed.step + 1
        networks, moments = self._adam_step(packed, grads, step)
        # As in `Learner.update`: towards the weights from before the step.
        tau, before = agent.config.tau, packed.weights.networks
        with jax.named_scope("adam"):  # which moves the targets in the same pass over memory
            targets = {
                name: jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, before[name], target)
                for name, target in packed.targets.networks.items()
            }
            weights, kept = (Weights.of(found, self.dtype) for found in (networks, targets))
        sums = packed.sums + jnp.stack([metrics[name] for name in sorted(metrics)])
        return Packed(weights, kept, moments, step, sums, first_bad(packed.bad, step, metrics))

    @jax.named_scope("adam")
    def _adam_step(self, packed: Packed, grads: Networks, step: Array) -> tuple[Networks, tuple[Networks, Networks]]:
        """Adam as Optax computes it, in one pass over each array."""
        (b1, b2), lr = DECAYS, self.agent.config.lr
        mu = jax.tree.map(lambda g, m: (1 - b1) * g + b1 * m, grads, packed.moments[0])
        nu = jax.tree.map(lambda g, v: (1 - b2) * g**2 + b2 * v, grads, packed.moments[1])
        # In an array, even of one seed: updates of arrays of one size that read the same array become one kernel.
        first, second = jax.lax.optimization_barrier(1 - jnp.array(DECAYS) ** step)

        def moved(p: Array, m: Array, v: Array) -> Array:
            return p - lr * (m / first) / (jnp.sqrt(v / second) + EPSILON)

        return jax.tree.map(moved, packed.weights.networks, mu, nu), (mu, nu)


def _packed(state: TrainState, dtype: Any) -> Packed:
    adam = {name: slot[0] for name, slot in state.optimizer.items()}
    moments = (pack({n: a.mu for n, a in adam.items()}), pack({n: a.nu for n, a in adam.items()}))
    weights, targets = (Weights.of(pack(part), dtype) for part in (state.networks, state.targets))
    sums = jnp.stack([state.sums[name] for name in sorted(state.sums)])
    return Packed(weights, targets, moments, state.step, sums, state.bad)


def _unpacked(packed: Packed, like: TrainState) -> TrainState:
    mu, nu = (unpack(moment, like.networks) for moment in packed.moments)
    optimizer = {
        name: (slot[0]._replace(count=packed.step, mu=mu[name], nu=nu[name]), *slot[1:])
        for name, slot in like.optimizer.items()
    }
    networks = unpack(packed.weights.networks, like.networks)
    targets = unpack(packed.targets.networks, like.targets)
    sums = {name: packed.sums[i] for i, name in enumerate(sorted(like.sums))}
    return TrainState(networks, targets, optimizer, packed.step, sums, packed.bad)
