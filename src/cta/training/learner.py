"""One optimiser step, and a block of many of them, as pure functions of (state, data, key)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, UInt8

from cta.agents import Agent, Networks, Spec
from cta.agents.base import Metrics
from cta.data import TrajectoryDataset
from cta.goals import Batch, Rows, RowTable, gather, labels

Actions = Float[Array, "rows act"]
PAD = 3  # pixels of edge padding on every side; crops start at an offset in {0…2·PAD}²
DRAWN = 10  # steps whose rows are drawn at once where the number of steps is not known when compiling


class DeviceData(NamedTuple):
    """A dataset on the device: float vectors or uint8 images."""

    observations: Num[Array, "rows ..."]
    actions: Actions
    table: RowTable


class Slice(NamedTuple):
    """Some consecutive steps' rows, with the observations at them: what arrives when observations are not resident."""

    rows: dict[str, Int[Array, "steps batch"]]
    fields: dict[str, Num[Array, "steps batch ..."]]


class TrainState(NamedTuple):
    """Everything that changes while one seed trains."""

    networks: Networks
    targets: Networks
    optimizer: dict[str, Any]  # Adam's state of each network
    step: Int[Array, ""]
    sums: Metrics  # sums of the metrics since they were last read
    bad: Int[Array, "losses"]
    """For each of `loss_names(sums)` the first step at which it was not a number of sensible size, else 0."""


EXPLODED = 1e9
"""A loss beyond this is none any more: rewards of -1 and discounts up to 0.999 give values to 1e3, squares to 1e6."""


def loss_names(metrics: Metrics) -> list[str]:
    """The metrics that are losses; what an agent calls them is its own business, but `total_loss` is always there."""
    return [name for name in sorted(metrics) if name.endswith("loss")]


def to_device(dataset: TrajectoryDataset) -> DeviceData:
    return DeviceData(jnp.asarray(dataset.observations), jnp.asarray(dataset.actions), rows_of(dataset))


def rows_of(dataset: TrajectoryDataset) -> RowTable:
    return RowTable(jnp.asarray(dataset.valid_rows), jnp.asarray(dataset.goal_limits))


def spec_of(dataset: TrajectoryDataset) -> Spec:
    return Spec.of(dataset.observation_shape, dataset.action_dim)


class Keys(NamedTuple):
    """The independent random streams of one seed. Every draw is a function of (stream, step)."""

    init: PRNGKeyArray
    rows: PRNGKeyArray
    loss: PRNGKeyArray
    validation: PRNGKeyArray
    augment: PRNGKeyArray


def seed_keys(seed: int | Array) -> Keys:
    return Keys(*jax.random.split(jax.random.key(seed), len(Keys._fields)))


class Learner:
    """An agent on a dataset. Nothing depends on how a run is cut into blocks: a step's draws come from its number."""

    def __init__(self, agent: Agent, spec: Spec, *, block: int):
        self.agent, self.spec, self.block = agent, spec, block
        self.compiler_options: dict[str, str] = {}  # of the program of many steps, on a GPU
        self._adam = optax.adam(agent.config.lr)

    def init(self, keys: Keys) -> TrainState:
        networks = self.agent.init(keys.init, self.spec)
        # Copies, not aliases: a block donates its input buffers.
        targets = jax.tree.map(jnp.array, {name: networks[name] for name in self.agent.targets()})
        optimizer = {name: self._adam.init(network) for name, network in networks.items()}
        metrics = jax.eval_shape(lambda n, t: self._loss(n, t, self._blank_batch(), keys.loss)[1], networks, targets)
        sums = jax.tree.map(lambda m: jnp.zeros(m.shape, m.dtype), metrics)
        bad = jnp.zeros(len(loss_names(sums)), jnp.int32)
        return TrainState(networks, targets, optimizer, jnp.zeros((), jnp.int32), sums, bad)

    def _blank_batch(self) -> Batch:
        dtype = jnp.float32 if self.spec.image_shape is None else jnp.uint8
        observations = jnp.zeros((2, *self.spec.observation_shape), dtype)
        table = RowTable(jnp.zeros(1, jnp.int32), jnp.zeros(2, jnp.int32))
        rows = self.agent.draw(jax.random.key(0), table)
        return gather(observations, jnp.zeros((2, self.spec.action_dim)), rows)

    def _loss(self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray) -> tuple[Array, Metrics]:
        loss, metrics = self.agent.loss(networks, targets, batch, key)
        return loss, {**metrics, "total_loss": loss}

    def update(self, state: TrainState, batch: Batch, key: PRNGKeyArray) -> TrainState:
        """One Adam step on the summed loss; then the targets move towards the weights from *before* the step."""
        gradient = jax.grad(self._loss, has_aux=True)
        grads, metrics = gradient(state.networks, state.targets, batch, key)
        with jax.named_scope("adam"):
            networks, optimizer, targets = self._moved(state, grads)
        sums = jax.tree.map(jnp.add, state.sums, metrics)
        bad = first_bad(state.bad, state.step + 1, metrics)
        return TrainState(networks, targets, optimizer, state.step + 1, sums, bad)

    def _moved(self, state: TrainState, grads: Networks) -> tuple[Networks, dict[str, Any], Networks]:
        active = self.agent.trainable(state.step)
        networks, optimizer = {}, {}
        for name, network in state.networks.items():
            updates, slot = self._adam.update(grads[name], state.optimizer[name], network)
            moved = (optax.apply_updates(network, updates), slot)
            if name in active:
                still = (network, state.optimizer[name])
                moved = jax.tree.map(lambda new, old, on=active[name]: jnp.where(on, new, old), moved, still)
            networks[name], optimizer[name] = moved
        before = {name: state.networks[name] for name in state.targets}
        targets: Any = optax.incremental_update(before, state.targets, self.agent.config.tau)
        return networks, optimizer, targets

    def draw(self, keys: Keys, step: int | Array, table: RowTable, count: int) -> dict[str, Int[Array, "steps batch"]]:
        """The rows of `count` steps from `step` on."""

        def one(step: Array) -> dict[str, Rows]:
            return self.agent.draw(jax.random.fold_in(keys.rows, step), table)

        return jax.vmap(one)(step + jnp.arange(count))

    def run(self, state: TrainState, keys: Keys, data: DeviceData, count: int | Array) -> TrainState:
        """`count` ≤ `block` updates."""
        # A count known when compiling is faster on an accelerator, which else asks the host before every step. Else
        # rows are drawn a few steps at a time: those of a block cost a CPU a third of a step, and few may be asked for.
        if isinstance(count, int):
            return self._steps(state, keys, data, count, count)

        def some(i: Array, state: TrainState) -> TrainState:
            return self._steps(state, keys, data, DRAWN, jnp.minimum(DRAWN, count - DRAWN * i))

        return jax.lax.fori_loop(0, (count + DRAWN - 1) // DRAWN, some, state)

    def _steps(self, state: TrainState, keys: Keys, data: DeviceData, drawn: int, count: int | Array) -> TrainState:
        """`count` ≤ `drawn` updates, after drawing the rows of `drawn`."""
        rows = self.draw(keys, state.step, data.table, drawn)

        def body(i: Array, carried: Any) -> Any:
            batch = gather(data.observations, data.actions, {name: index[i] for name, index in rows.items()})
            return self._step(carried, keys, batch)

        return self._close(_repeat(0, count, body, self._open(state)), state)

    def run_slice(
        self, state: TrainState, keys: Keys, actions: Actions, part: Slice, first: int | Array, count: int | Array
    ) -> TrainState:
        """`count` updates with steps `first`, `first` + 1, … of a slice: `run` for observations that were fetched."""

        def body(i: Array, carried: Any) -> Any:
            return self._step(carried, keys, _fetched_batch(actions, jax.tree.map(lambda x: x[i], part)))

        return self._close(_repeat(first, count, body, self._open(state)), state)

    def _open(self, state: TrainState) -> Any:
        """What steps carry in place of a state: here the state itself."""
        return state

    def _close(self, carried: Any, before: TrainState) -> TrainState:
        return carried

    def _step(self, carried: Any, keys: Keys, batch: Batch) -> Any:
        return self.update(carried, self._augment(carried, keys, batch), jax.random.fold_in(keys.loss, carried.step))

    def _augment(self, state: TrainState, keys: Keys, batch: Batch) -> Batch:
        return random_crop(jax.random.fold_in(keys.augment, state.step), batch, self.agent.config.p_aug)

    def draw_validation(self, keys: Keys, step: int | Array, table: RowTable) -> dict[str, Rows]:
        return self.agent.draw(jax.random.fold_in(keys.validation, step), table)

    def validate(self, state: TrainState, keys: Keys, data: DeviceData) -> Metrics:
        rows = self.draw_validation(keys, state.step, data.table)
        return self._measure(state, keys, gather(data.observations, data.actions, rows))

    def validate_slice(self, state: TrainState, keys: Keys, actions: Actions, part: Slice) -> Metrics:
        """`validate` for observations that were fetched; no axis of steps here."""
        return self._measure(state, keys, _fetched_batch(actions, part))

    def _measure(self, state: TrainState, keys: Keys, batch: Batch) -> Metrics:
        key = jax.random.fold_in(keys.validation, state.step)
        return self._loss(state.networks, state.targets, self._augment(state, keys, batch), key)[1]


def _repeat(first: int | Array, count: int | Array, body: Callable[[Array, Any], Any], carried: Any) -> Any:
    """`body` for the steps from `first` on; a single one, if known when compiling, without a loop."""
    if isinstance(count, int) and count == 1:
        return body(jnp.asarray(first), carried)
    return jax.lax.fori_loop(first, first + count, body, carried)


def _fetched_batch(actions: Actions, part: Slice) -> Batch:
    """`gather` with the observations already in hand."""
    return part.fields | labels(actions, part.rows)


def first_bad(before: Int[Array, "losses"], step: Array, metrics: Metrics) -> Int[Array, "losses"]:
    """`TrainState.bad` after a step. One vector, so that it is one small operation beside the large ones of a step."""
    losses = jnp.abs(jnp.stack([metrics[name] for name in loss_names(metrics)]))
    # Written so that NaN, which compares as false, counts as bad.
    return jnp.where((before == 0) & ~(losses < EXPLODED), step, before)


def random_crop(key: PRNGKeyArray, batch: dict[str, Array], probability: float) -> dict[str, Array]:
    """With `probability`, once for the whole batch: edge-pad images by 3 and crop back to their size at random.

    An element of the batch has one offset for all its images (uint8, (batch, H, W, C)): state, goals and targets move
    together. Other fields pass. Without images, or with probability 0, nothing is computed.
    """
    images = {name: field for name, field in batch.items() if field.dtype == jnp.uint8 and field.ndim == 4}
    if not images or probability == 0:
        return batch
    coin, place = jax.random.split(key)
    count = next(iter(images.values())).shape[0]
    offsets = jax.random.randint(place, (count, 2), 0, 2 * PAD + 1)
    # The middle offset is the image itself: no branch, which several seeds side by side could not take apart.
    offsets = jnp.where(jax.random.bernoulli(coin, probability), offsets, PAD)
    return {**batch, **{name: crop(field, offsets) for name, field in images.items()}}


def crop(images: UInt8[Array, "batch h w c"], offsets: Int[Array, "batch 2"]) -> UInt8[Array, "batch h w c"]:
    """Each image edge-padded by 3, cut back to its size at its own offset (down, right)."""
    padded = jnp.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")

    def cut(image: Array, offset: Array) -> Array:
        return jax.lax.dynamic_slice(image, (offset[0], offset[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, offsets)
