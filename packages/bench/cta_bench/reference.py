"""The plain per-step loop, which everything is measured against: the host draws a batch, one jitted update takes it.

The update is the agent's loss with networks in textbook form: ensembles by `vmap`, GELU and layer norm differentiated
term by term, then Optax's Adam and the targets.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from cta.agents import Agent, Networks
from cta.data import TrajectoryDataset
from cta.goals import Batch, gather
from cta.nn import Ensemble, Mlp
from cta.training.learner import seed_keys, spec_of, to_device
from cta_bench import Entry
from cta_bench.cases import Case
from cta_bench.clock import interleave


class PlainEnsemble(eqx.Module):
    """Members stacked along a leading axis."""

    members: Any

    def __call__(self, *inputs: Array) -> Array:
        return jax.vmap(lambda member: member(*inputs))(self.members)


class PlainMlp(eqx.Module):
    """An `Mlp` whose parts are called one after the other."""

    layers: tuple[Any, ...]
    norms: tuple[Any, ...]
    activate_final: bool = eqx.field(static=True)

    def __call__(self, *inputs: Array) -> Array:
        x = jnp.concatenate(inputs, axis=-1)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i + 1 < len(self.layers) or self.activate_final:
                x = jax.nn.gelu(x, approximate=True)
                x = self.norms[i](x) if self.norms else x
        return x


def plain(networks: Any) -> Any:
    """The same weights in networks of textbook form."""

    def form(network: Any) -> Any:
        if isinstance(network, Mlp):
            return PlainMlp(network.layers, network.norms, network.activate_final)
        if isinstance(network, Ensemble):
            return PlainEnsemble(jax.tree.map(lambda *leaves: jnp.stack(leaves), *plain(network.members)))
        return network

    return jax.tree.map(form, networks, is_leaf=lambda x: isinstance(x, Mlp | Ensemble))


class PlainUpdate:
    """One step: gradient of the whole loss, Adam, then the targets. Its state: (weights, targets, Adam's state)."""

    def __init__(self, agent: Agent):
        self.agent = agent
        self.adam = optax.adam(agent.config.lr)

    def init(self, networks: Networks) -> tuple[Networks, Networks, Any]:
        networks = plain(networks)
        targets = jax.tree.map(jnp.array, {name: networks[name] for name in self.agent.targets()})
        return networks, targets, self.adam.init(networks)

    def __call__(self, state: tuple[Networks, Networks, Any], batch: Batch, key: PRNGKeyArray) -> tuple[Any, Array]:
        networks, targets, slots = state
        (loss, _), grads = jax.value_and_grad(self.agent.loss, has_aux=True)(networks, targets, batch, key)
        updates, slots = self.adam.update(grads, slots, networks)
        before = {name: networks[name] for name in targets}
        targets = optax.incremental_update(before, targets, self.agent.config.tau)
        return (optax.apply_updates(networks, updates), targets, slots), loss


class PlainLoop:
    """One seed of an agent, a step at a time."""

    def __init__(self, agent: Agent, dataset: TrajectoryDataset):
        self.keys = seed_keys(0)
        update, self.step = PlainUpdate(agent), 0
        self.state = update.init(jax.jit(lambda key: agent.init(key, spec_of(dataset)))(self.keys.init))
        self.host = jax.devices("cpu")[0]
        with jax.default_device(self.host):
            self.data = to_device(dataset)
        self.draw = jax.jit(lambda key, data: gather(data.observations, data.actions, agent.draw(key, data.table)))
        self.program = jax.jit(update, donate_argnums=0).lower(self.state, self.batch(), self.keys.loss).compile()

    def batch(self) -> dict[str, Any]:
        """Drawn and gathered on the host."""
        key = jax.device_put(jax.random.fold_in(self.keys.rows, self.step), self.host)
        return jax.device_get(self.draw(key, self.data))

    def run(self, count: int) -> None:
        """Take `count` steps and wait for them."""
        loss = None
        for _ in range(count):
            key = jax.random.fold_in(self.keys.loss, self.step)
            self.state, loss = self.program(self.state, self.batch(), key)
            self.step += 1
        jax.block_until_ready((self.state, loss))


def measure_reference(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """Entries `reference` (the plain loop alone, one seed) and `speed-up` (this case over it, measured in turns)."""
    loop, group, seeds = PlainLoop(case.build(), dataset), case.group(dataset), case.seeds
    turns = interleave(group.run, loop.run, seconds=case.seconds)
    middle = sorted((theirs for _, theirs in turns), key=lambda span: span.cpu_ms_per_step)[len(turns) // 2]
    ours_ms, theirs_ms = (median(span.cpu_ms_per_step for span in spans) for spans in zip(*turns, strict=True))

    def ratio(of: Callable[[Any, Any], float]) -> float:
        return round(median(of(ours, theirs) for ours, theirs in turns), 3)

    speed_up = {
        "turns": len(turns),
        "cpu_ms_per_seed_step": round(ours_ms / seeds, 2),
        "reference_cpu_ms_per_step": round(theirs_ms, 2),
        "cpu_time_ratio": ratio(lambda ours, theirs: seeds * theirs.cpu_ms_per_step / ours.cpu_ms_per_step),
        "single_run_ratio": ratio(lambda ours, theirs: ours.steps_per_s / theirs.steps_per_s),
        "throughput_ratio": ratio(lambda ours, theirs: seeds * ours.steps_per_s / theirs.steps_per_s),
    }
    reference = case.entry("reference", **{"seeds": 1, **middle.rates(1)})
    return [reference, case.entry("speed-up", **speed_up)]
