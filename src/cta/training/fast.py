"""The learner whose steps are computed by fused kernels (`cta.fast`)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cta.agents import Agent, Networks, Spec
from cta.agents.base import Metrics
from cta.errors import CtaError
from cta.fast import two_level
from cta.fast.kernels import missing
from cta.fast.modules import fused, shapes
from cta.fast.packing import LOW, Weights, pack, packable, unpack
from cta.goals import Batch
from cta.nn.impala import Stack
from cta.training.learner import Keys, Learner, TrainState, first_bad

DECAYS = (0.9, 0.999)
EPSILON = 1e-8
ROWS = 32  # batches are multiples of this: kernels handle several rows at a time, a power of two


def unfused(agent: Agent, spec: Spec) -> str | None:
    """Why fused kernels cannot be used, or None."""
    if spec.image_shape is not None:
        return missing()
    if agent.config.batch_size % ROWS:
        return f"the batch size, {agent.config.batch_size}, is no multiple of {ROWS}"
    if agent.trainable(jnp.zeros((), jnp.int32)):
        return "some of the networks do not train at every step"
    if not any(packable(network) for network in shapes(agent, spec).values()):
        return "none of the networks has hidden layers whose widths are powers of two, from 8 on"
    return missing() or _refusal(agent, spec)


def _refusal(agent: Agent, spec: Spec) -> str | None:
    """Why an agent from elsewhere does not take fused networks, found by tracing its loss; ours all do."""
    if type(agent).__module__.startswith("cta."):
        return None
    learner = FastLearner(agent, spec, block=1)
    try:
        jax.eval_shape(learner.trial, jax.random.key(0))
    except Exception as error:  # somebody else's code, which may do anything
        return f"the agent's loss does not take fused networks ({type(error).__name__}: {error})"
    return None


def product_precision(learner: Learner) -> str:
    """How matrix products round their operands: what a record of training says of it."""
    if isinstance(learner, ImageLearner):
        return "bfloat16 in encoders"
    if isinstance(learner, FastLearner):
        return "bfloat16"
    # JAX leaves plain float32 products on a GPU to the tensor cores unless a precision is asked for.
    config: Any = jax.config
    return config.jax_default_matmul_precision or ("tensorfloat32" if jax.default_backend() == "gpu" else "float32")


def make_learner(agent: Agent, spec: Spec, *, block: int, kernels: str = "auto") -> Learner:
    """The learner that `--kernels` asks for: by default fused kernels where the networks take them and a GPU runs.

    On images `fused` is `ImageLearner`, and the default is plain: what bfloat16 does to learning there is not measured.
    """
    images = spec.image_shape is not None
    if kernels == "plain" or (kernels == "auto" and (images or jax.default_backend() != "gpu")):
        return Learner(agent, spec, block=block)
    lacking = unfused(agent, spec)
    if kernels == "fused" and lacking:
        raise CtaError(f"--kernels fused: {lacking}; use --kernels plain")
    return (Learner if lacking else ImageLearner if images else FastLearner)(agent, spec, block=block)


class ImageLearner(Learner):
    """`Learner` with convolutions in bfloat16, which halves the traffic of a GPU's memory; the weights stay float32."""

    def _loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Metrics]:
        return super()._loss(low_encoders(networks), low_encoders(targets), batch, key)


def low_encoders(networks: Networks) -> Networks:
    """The same networks, with the convolutions of their encoders in bfloat16."""

    def lowered(x: Any) -> Any:
        return jax.tree.map(lambda weight: weight.astype(LOW), x) if isinstance(x, Stack) else x

    return jax.tree.map(lowered, networks, is_leaf=lambda x: isinstance(x, Stack))


class Packed(NamedTuple):
    """`TrainState` while steps run."""

    weights: Weights
    targets: Weights
    moments: tuple[Networks, Networks]
    step: Int[Array, ""]
    sums: Float[Array, "metrics"]  # in one array, in the order of the names: a single addition a step
    bad: Int[Array, "losses"]


class FastLearner(Learner):
    """`Learner` with fused kernels: the same loss, states, draws and metrics, rounded differently.

    The loss is the agent's own, called with fused networks; two-level agents with a dual learner have a form in which
    all calls of a network are one.
    """

    dtype: Any = LOW  # of the operands of products

    def __init__(self, agent: Agent, spec: Spec, *, block: int):
        super().__init__(agent, spec, block=block)
        self._like = shapes(agent, spec)
        self._merged = two_level.supports(agent, self._like)
        self._together = two_level.POLICIES if self._merged else ()
        if not self._merged:
            # Else products of the same weights become one, and copies make its inputs and take its outputs apart.
            self.compiler_options = {"xla_gpu_dot_merger_threshold_mb": "0"}

    def loss(self, weights: Weights, targets: Weights, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Metrics]:
        agent: Any = self.agent
        if self._merged:
            return two_level.loss(agent, self.spec, weights, targets, batch)
        networks, kept = (fused(self._like, part, self.spec) for part in (weights, targets))
        return agent.loss(networks, kept, batch, key)

    def trial(self, key: PRNGKeyArray) -> Array:
        """The loss of fresh networks on a blank batch."""
        networks = self.agent.init(key, self.spec)
        targets = {name: networks[name] for name in self.agent.targets()}
        return self.loss(self.pack(networks), self.pack(targets), self._blank_batch(), key)[0]

    def pack(self, networks: Networks) -> Weights:
        return Weights.of(pack(networks, self._together), self.dtype)

    def _step(self, carried: Packed, keys: Keys, batch: Batch) -> Packed:
        key = jax.random.fold_in(keys.loss, carried.step)

        def total(networks: Networks) -> tuple[Array, Metrics]:
            return self.loss(Weights(networks, carried.weights.low), carried.targets, batch, key)

        (value, metrics), grads = jax.value_and_grad(total, has_aux=True)(carried.weights.networks)
        metrics = {**metrics, "total_loss": value}
        step = carried.step + 1
        networks, moments = self._adam_step(carried, grads, step)
        # As in `Learner.update`: towards the weights from before the step.
        tau, before = self.agent.config.tau, carried.weights.networks
        with jax.named_scope("adam"):  # which moves the targets in the same pass over memory
            targets = {
                name: jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, before[name], target)
                for name, target in carried.targets.networks.items()
            }
            weights, kept = (Weights.of(found, self.dtype) for found in (networks, targets))
        sums = carried.sums + jnp.stack([metrics[name] for name in sorted(metrics)])
        return Packed(weights, kept, moments, step, sums, first_bad(carried.bad, step, metrics))

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

    def _open(self, state: TrainState) -> Packed:
        adam = {name: slot[0] for name, slot in state.optimizer.items()}
        mu, nu = (
            pack({name: getattr(a, moment) for name, a in adam.items()}, self._together) for moment in ("mu", "nu")
        )
        sums = jnp.stack([state.sums[name] for name in sorted(state.sums)])
        return Packed(self.pack(state.networks), self.pack(state.targets), (mu, nu), state.step, sums, state.bad)

    def _close(self, carried: Packed, before: TrainState) -> TrainState:
        mu, nu = (unpack(moment, before.networks, self._together) for moment in carried.moments)
        optimizer = {
            name: (slot[0]._replace(count=carried.step, mu=mu[name], nu=nu[name]), *slot[1:])
            for name, slot in before.optimizer.items()
        }
        networks = unpack(carried.weights.networks, before.networks, self._together)
        targets = unpack(carried.targets.networks, before.targets)
        sums = {name: carried.sums[i] for i, name in enumerate(sorted(before.sums))}
        return TrainState(networks, targets, optimizer, carried.step, sums, carried.bad)
