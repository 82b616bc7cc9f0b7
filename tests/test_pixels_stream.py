"""Streamed observations: the same numbers as with the dataset on the device, bit for bit, however steps are cut."""

import re
import threading
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import Agent
from cta.config import AgentConfig
from cta.data import TrajectoryDataset
from cta.goals import flat_rows
from cta.nn import Linear
from cta.nn.impala import Impala
from cta.training.checkpoints import flatten
from cta.training.learner import DeviceData, Learner, spec_of, to_device
from cta.training.seeds import AHEAD, SeedGroup, StreamedSource, bind, device_budget, open_source

bits = pytest.mark.skipif(jax.default_backend() != "cpu", reason="bit for bit on a CPU only")


@dataclass(frozen=True)
class Cloner(Agent):
    """Imitates actions from state and goal, weighted by reward and mask so that every field of a batch matters."""

    config: AgentConfig
    target_names = ("head",)

    def init(self, key, spec):
        one, two = jax.random.split(key)
        if spec.image_shape is None:
            body, width = Linear(one, 2 * spec.observation_dim, 8), 8
        else:
            body, width = Impala(one, 2 * spec.image_shape[-1], size=spec.image_shape[:2]), 512
        return {"body": body, "head": Linear(two, width, spec.action_dim)}

    def draw(self, key, table):
        return flat_rows(key, table, self.config)

    def loss(self, networks, targets, batch, key):
        def predict(state, goal, head):
            return head(networks["body"](jnp.concatenate([batch[state], batch[goal]], axis=-1)))

        now = predict("observations", "actor_goals", networks["head"])
        later = predict("next_observations", "value_goals", targets["head"])
        weight = (batch["masks"] - 0.5 * batch["rewards"] + jax.random.uniform(key))[:, None]
        loss = (weight * (now - batch["actions"]) ** 2).mean() + 0.1 * ((now - later) ** 2).mean()
        return loss, {"loss": loss}

    def act(self, networks, observations, goals, key, temperature, memory: Any = None):
        raise NotImplementedError


AGENT = Cloner(AgentConfig(batch_size=4, p_aug=0.5, lr=0.01))


def dataset(kind, *, seed=0, rows=44):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (rows, 8, 8, 3), np.uint8)
    observations = images if kind == "images" else rng.normal(size=(rows, 6)).astype(np.float32)
    actions = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
    return TrajectoryDataset.from_arrays(observations, actions, episode_lengths=[11] * (rows // 11))


def slices_of(data, steps, seeds=2):
    """A streamed source whose slices have that many steps (4 fields of 4 rows a step)."""
    return StreamedSource(data, slice_bytes=steps * seeds * 16 * data.observations[:1].nbytes)


def group(data, training, validation=None, *, seeds=(0, 3), stacked=False):
    return SeedGroup(Learner(AGENT, spec_of(data), block=8), seeds, training, validation, stacked=stacked)


def assert_same(one, two):
    one, two = flatten(one), flatten(two)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@bits
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_streamed_is_resident_bit_for_bit(kind):
    train, held_out = dataset(kind), dataset(kind, seed=1)
    resident = group(train, to_device(train), to_device(held_out))
    streamed = group(train, slices_of(train, 3), slices_of(held_out, 3))
    before = resident.snapshot()
    for count in (8, 4):
        resident.run(count)
    for count in (5, 1, 6):  # within a slice, up to its end, over several
        streamed.run(count)
    assert_same(resident.snapshot(), streamed.snapshot())
    assert resident.validate() == streamed.validate()
    moved = zip(*(jax.tree.leaves(s.networks) for s in (before, resident.snapshot())), strict=True)
    assert all((a != b).any() for a, b in moved)


@bits
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_stacked_seeds_stream_too(kind):
    train = dataset(kind)
    resident = group(train, to_device(train), to_device(train), stacked=True)
    streamed = group(train, slices_of(train, 3), slices_of(train, 3), stacked=True)
    resident.run(7)
    streamed.run(2)
    streamed.run(5)
    assert_same(resident.snapshot(), streamed.snapshot())
    assert resident.validate() == streamed.validate()


@bits
def test_on_a_cpu_no_convolution_is_inside_a_loop(monkeypatch):
    def refuse(*_):
        raise AssertionError("a loop of steps")

    monkeypatch.setattr(jax.lax, "fori_loop", refuse)
    train = dataset("images")
    for source in (to_device(train), slices_of(train, 3)):
        group(train, source).run(2)
    with pytest.raises(AssertionError, match="a loop of steps"):  # which vectors are better off with
        group(dataset("vectors"), to_device(dataset("vectors"))).run(2)


@bits
def test_stacked_seeds_on_images_have_convolutions_of_their_own():
    train = dataset("images")
    stacked = group(train, to_device(train), stacked=True)
    program = stacked._training._run.lower(stacked._states[0], stacked._keys[0], to_device(train), 1).as_text()
    assert "stablehlo.convolution" in program
    assert set(re.findall(r"feature_group_count = (\d+)", program)) == {"1"}


@bits
def test_a_restored_state_gets_its_own_steps():
    train = dataset("vectors")
    straight, streamed = group(train, slices_of(train, 3)), group(train, slices_of(train, 3))
    straight.run(4)
    kept = straight.snapshot()
    straight.run(5)
    streamed.run(8)
    streamed.restore(kept)
    streamed.run(5)
    assert_same(straight.snapshot(), streamed.snapshot())


class Watched:
    """Observations that note who reads them."""

    def __init__(self, array):
        self.array, self.reads, self.enough = array, [], threading.Event()

    def __getitem__(self, index):
        return self.array[index]

    def take(self, index, axis, **options):
        self.reads.append(threading.current_thread().name)
        if len(self.reads) == 4 * (1 + AHEAD):  # fields of a slice × slices
            self.enough.set()
        return self.array.take(index, axis, **options)


def test_slices_are_fetched_ahead_in_the_background_and_no_further():
    train = dataset("vectors")
    streamed = slices_of(train, 2, seeds=1)
    streamed.observations = watched = Watched(train.observations)  # pyright: ignore[reportAttributeAccessIssue]
    trained = group(train, streamed, seeds=(0,))
    trained.run(2)
    assert watched.enough.wait(20)
    trained.run(0)
    assert len(watched.reads) == 4 * (1 + AHEAD)
    assert all(name.startswith("fetch") for name in watched.reads)


def test_a_slice_has_at_least_one_step_and_at_most_a_block():
    train = dataset("images")
    learner = Learner(AGENT, spec_of(train), block=8)
    for slice_bytes, steps in ((1, 1), (1 << 40, 8)):
        source = StreamedSource(train, slice_bytes=slice_bytes)
        assert bind(source, learner, seeds=2, stacked=False, graph=True).steps == steps


def test_an_error_while_fetching_reaches_the_caller():
    train = dataset("vectors")
    streamed = slices_of(train, 2)
    trained = group(train, streamed)
    streamed.observations = train.observations[:1]
    with pytest.raises(IndexError):
        trained.run(2)


def test_open_source_goes_by_size():
    train = dataset("images")
    size = train.observations.nbytes
    assert isinstance(open_source(train), DeviceData)
    assert isinstance(open_source(train, budget=size), DeviceData)
    assert isinstance(open_source(train, budget=size - 1), StreamedSource)
    assert isinstance(open_source(train, streamed=True), StreamedSource)
    assert isinstance(open_source(train, streamed=False, budget=0), DeviceData)
    assert device_budget() > 1 << 28


def test_crops_follow_the_configured_probability():
    data = dataset("images")

    def loss(p):
        agent = Cloner(AgentConfig(batch_size=4, p_aug=p, lr=0.01))
        trained = SeedGroup(Learner(agent, spec_of(data), block=1), (0,), open_source(data))
        trained.run(1)
        return trained.read_metrics(1)[0]["loss"]

    assert loss(0.0) != loss(1.0)
