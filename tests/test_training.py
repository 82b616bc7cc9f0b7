"""The loop: pure in (config, data, seed), whatever the blocks, the other seeds, or an interruption."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.envs.desk_play import generate_play
from cta.io.csv_log import CsvLog
from cta.training.checkpoints import Checkpoints, flatten
from cta.training.learner import Learner, seed_keys, spec_of, to_device
from cta.training.seeds import SeedGroup
from tiny_agents import tiny

TRAIN, HELD_OUT = generate_play("desk", episodes=20, validation_episodes=2, episode_steps=60, seed=0)
SPEC = spec_of(TRAIN)


AGENT = tiny("cta", batch_size=16, discount=0.99)
LEARNER = Learner(AGENT, SPEC, block=8)


def group(seeds, learner=LEARNER, **options):
    return SeedGroup(learner, seeds, to_device(TRAIN), to_device(HELD_OUT), **options)


def leaves(tree):
    return {name: np.asarray(leaf) for name, leaf in flatten(tree).items()}


def assert_same(one, two):
    one, two = leaves(one), leaves(two)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.fixture(scope="module")
def straight():
    """Seeds 0 and 3, twelve steps."""
    trained = group([0, 3], stacked=False)
    trained.run(8)
    trained.run(4)
    return trained


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator agrees within a tolerance, tested below")
def test_a_seed_of_many_is_that_seed_alone_bit_for_bit(straight):
    alone = group([3])
    for count in (5, 6, 1):  # other blocks, same steps
        alone.run(count)
    assert_same(jax.tree.map(lambda x: x[1], straight.snapshot()), jax.tree.map(lambda x: x[0], alone.snapshot()))


def test_whole_chunks_and_a_rest_are_the_same_steps(monkeypatch):
    """An accelerator's program of fixed length, twice, and the other one for what is left over."""
    plain = group([0, 3], stacked=True)
    monkeypatch.setattr("cta.training.seeds.CHUNK", 4)
    chunked = group([0, 3], stacked=True)
    assert (plain.grain, chunked.grain, group([0], stacked=False).grain) == (1, 4, 1)
    for seeds in (plain, chunked):
        seeds.run(9)
    assert (chunked.snapshot().step == 9).all()
    for name, leaf in leaves(plain.snapshot(lambda state: state.networks)).items():
        np.testing.assert_allclose(leaves(chunked.snapshot(lambda state: state.networks))[name], leaf, atol=1e-4)


def test_stacked_seeds_agree_within_tolerance():
    """The accelerator's layout against one seed alone.

    Batched products round differently (on a GPU also to TF32), and training amplifies it: after 8 steps every metric
    agrees to 1% and every network to 1% of its length.
    """
    together, alone = group([0, 3], stacked=True), group([3], stacked=jax.default_backend() != "cpu")
    together.run(8)
    alone.run(8)
    many, one = together.read_metrics(8)[1], alone.read_metrics(8)[0]
    worst = max(abs(many[name] - one[name]) / (abs(one[name]) + 1e-3) for name in one)
    away = {}
    for name, network in together.networks()[1].items():
        a, b = (np.concatenate([x.ravel() for x in jax.tree.leaves(n)]) for n in (network, alone.networks()[0][name]))
        away[name] = np.linalg.norm(a - b) / np.linalg.norm(b)
    print(f"{jax.default_backend()}: metrics agree to {worst:.1e}, networks to {max(away.values()):.1e}")
    assert worst < 0.01
    assert max(away.values()) < 0.01


def test_seeds_differ(straight):
    first, second = straight.networks()
    assert not np.array_equal(first["low"].head.kernel, second["low"].head.kernel)


def test_a_restored_snapshot_continues_bit_for_bit(straight, tmp_path):
    begun = group([0, 3], stacked=False)
    begun.run(5)
    checkpoints = Checkpoints(tmp_path / "checkpoints", create=True)
    checkpoints.save(begun.snapshot())
    checkpoints.wait()
    resumed = group([0, 3], stacked=False)
    stored = checkpoints.load(5, resumed.structure)
    assert "_states" not in vars(resumed)  # initial weights would be made for nothing
    resumed.restore(stored)
    assert resumed.step == 5
    resumed.run(7)
    assert_same(straight.snapshot(), resumed.snapshot())
    networks = checkpoints.load_networks(5, begun.structure.networks)
    assert_same(networks, begun.snapshot(lambda state: state.networks))
    checkpoints.close()


def test_targets_average_the_weights_from_before_the_step():
    keys = seed_keys(0)
    data = to_device(TRAIN)
    start = jax.jit(LEARNER.init)(keys)
    after = jax.jit(LEARNER.run)(start, keys, data, 1)
    # After the first step the target still equals the initial weights (up to rounding) although the network has moved.
    for a, b, moved in zip(
        *(jax.tree.leaves(t["value"]) for t in (start.targets, after.targets, after.networks)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        assert not np.array_equal(a, moved)
    twice = jax.jit(LEARNER.run)(after, keys, data, 1)
    tau = LEARNER.agent.config.tau
    for old, online, new in zip(
        *(jax.tree.leaves(t["value"]) for t in (after.targets, after.networks, twice.targets)), strict=True
    ):
        np.testing.assert_allclose(new, tau * online + (1 - tau) * old, rtol=1e-5, atol=1e-7)


def test_pretraining_moves_one_side_then_the_other():
    agent = replace(AGENT, config=replace(AGENT.config, dual=replace(AGENT.config.dual, pretrain_steps=3)))
    learner = Learner(agent, SPEC, block=8)
    trained = group([0], learner)
    start = trained.networks()[0]
    trained.run(3)
    middle = trained.networks()[0]
    trained.run(2)
    end = trained.networks()[0]

    def changed(one, two):
        return {
            name
            for name in one
            if any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (one[name], two[name])), strict=True))
        }

    assert changed(start, middle) == {"phi", "psi", "critic"}
    assert changed(middle, end) == {"eta", "value", "high", "low"}


def test_validation_metrics_have_the_same_names(straight):
    held_out, trained = straight.validate()[0], group([0]).read_metrics(1)[0]
    assert held_out.keys() == trained.keys()
    assert all(np.isfinite(value) for value in held_out.values())


def test_metrics_are_means_since_last_read():
    trained = group([0])
    trained.run(2)
    trained.read_metrics(2)
    trained.run(1)
    (one,) = trained.read_metrics(1)
    keys, data = seed_keys(0), to_device(TRAIN)
    state = jax.jit(LEARNER.run)(jax.jit(LEARNER.init)(keys), keys, data, 2)
    state = state._replace(sums=jax.tree.map(jnp.zeros_like, state.sums))
    np.testing.assert_allclose(
        one["total_loss"],
        jax.jit(LEARNER.run)(state, keys, data, 1).sums["total_loss"],
        rtol=1e-5 if jax.default_backend() == "cpu" else 1e-2,
    )


def test_csv_log_survives_a_torn_line(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.append([{"seed": 0, "step": 1, "loss": 0.1}, {"seed": 1, "step": 1, "loss": 1 / 3}])
    log.append([{"seed": 0, "step": 2, "loss": 1e-20}])
    with log.path.open("a") as file:
        file.write("1,2,0.")
    again = CsvLog(tmp_path / "log.csv")
    assert [row["step"] for row in again.read()] == ["1", "1", "2"]
    assert float(again.read()[1]["loss"]) == 1 / 3
    again.keep(lambda row: int(row["step"]) < 2)
    again.append([{"seed": 0, "step": 2, "loss": 5.0}])
    assert log.path.read_text() == "seed,step,loss\n0,1,0.1\n1,1,0.3333333333333333\n0,2,5.0\n"
