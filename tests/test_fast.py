"""Steps in fused kernels against the plain ones. Without a GPU the kernels run interpreted."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import Spec, find
from cta.errors import CtaError
from cta.fast import kernels
from cta.fast.packing import Part, spread_input, spread_kernel
from cta.goals import RowTable, gather
from cta.training.fast import FastLearner, make_learner, product_precision
from cta.training.learner import DeviceData, Learner, seed_keys
from cta.training.seeds import CHUNK, SeedGroup

pytestmark = pytest.mark.usefixtures("quick_compilation")
SPEC = Spec.of((21,), 5)
BATCH = 32
NARROW = {
    "dual": {"hidden": (32, 32), "dim": 16}, "eta": {"hidden": (16, 16)}, "gcb": {"hidden": (32, 32), "dim": 16},
    "trunk": {"hidden": (16, 16), "features": 16, "rank": 8, "backbone": (16, 16)}, "latent_dim": 32,
}  # fmt: skip


def small(name, **changes):
    entry = find(name)
    c = entry.config
    narrow = {
        key: dataclasses.replace(getattr(c, key), **value) if isinstance(value, dict) else value
        for key, value in NARROW.items()
        if hasattr(c, key)
    }
    return entry.build(dataclasses.replace(c, **{"batch_size": BATCH, "hidden": (32, 32), **narrow, **changes}))


def rows(count=400, episode=50):
    key = jax.random.key(4)
    index = jnp.arange(count)
    table = RowTable(index[index % episode < episode - 1], (index // episode) * episode + episode - 2)
    actions = jax.random.uniform(key, (count, 5), minval=-1, maxval=1)
    return DeviceData(jax.random.normal(key, (count, 21)), actions, table)


def losses_and_gradients(agent, dtype, *, merged=True):
    """(plain, fused): each ((loss, metrics), gradients); `merged` as far as the agent has that form."""
    learner = FastLearner(agent, SPEC, block=4)
    learner.dtype = dtype
    if not merged:
        learner._merged, learner._together = False, ()
    networks = agent.init(jax.random.key(0), SPEC)
    # Biases that are not zero, and targets that differ from the networks, or a mix-up would not show.
    networks = jax.tree.map(lambda x: x + 0.02 * jnp.sin(jnp.arange(x.size)).reshape(x.shape), networks)
    targets = jax.tree.map(lambda x: x + 0.02, {name: networks[name] for name in agent.targets()})
    data, key = rows(), jax.random.key(2)
    batch = gather(data.observations, data.actions, agent.draw(jax.random.key(1), data.table))

    def fast(networks):
        return learner.loss(learner.pack(networks), learner.pack(targets), batch, key)

    def plain(networks):
        return agent.loss(networks, targets, batch, key)

    return [jax.jit(jax.value_and_grad(f, has_aux=True))(networks) for f in (plain, fast)]


def relative_error(found, expected):
    found, expected = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (found, expected))
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.fixture
def exact():
    """Products of float32 as such: a GPU's own default rounds their operands to TF32."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(params=["exact", "hardware"])
def slack(request, monkeypatch):
    """How much wider than with an exact tanh a tolerance is with the GPU's, or, without one, with its like.

    Its like is off by up to 2⁻¹⁵. The H200's was off by a tenth of that in these tests.
    """
    if request.param == "exact":
        monkeypatch.setattr(kernels, "_tanh", jnp.tanh)
    elif kernels.interpreted():
        monkeypatch.setattr(kernels, "_tanh", lambda t: jnp.tanh(t) + 2.0**-15 * jnp.sign(jnp.sin(1e4 * t)))
    jax.clear_caches()
    yield {"exact": 1, "hardware": 25}[request.param]
    jax.clear_caches()


def check(found, rtol, atol, gradient):
    ((_, metrics), gradients), ((_, others), other_gradients) = found
    assert metrics.keys() == others.keys()
    for key in metrics:
        np.testing.assert_allclose(others[key], metrics[key], rtol=rtol, atol=atol, err_msg=key)
    for key in gradients:
        if jax.tree.leaves(gradients[key]):  # not all that an agent calls a network has weights
            assert relative_error(other_gradients[key], gradients[key]) < gradient, key


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("slack", ["hardware"], indirect=True)  # test_fast_agents.py has all agents with an exact one
@pytest.mark.parametrize("name", ["cta", "gciql"])
def test_with_float32_products_losses_and_gradients_are_the_plain_ones(name, slack):
    check(losses_and_gradients(small(name), jnp.float32), 2e-4 * slack, 1e-5 * slack, 1e-4 * slack)


@pytest.mark.parametrize("name", ["cta", "gciql"])
def test_with_bfloat16_products_losses_are_within_one_percent_and_gradients_within_rounding(name):
    """Networks as narrow as these average little away; with the paper's, gradients are off by 1 to 5 percent."""
    ((_, metrics), gradients), ((_, others), other_gradients) = losses_and_gradients(small(name), jnp.bfloat16)
    for key in (key for key in metrics if key.endswith("loss")):
        assert abs(others[key] - metrics[key]) <= 0.01 * abs(metrics[key]), key
    for key in gradients:
        assert relative_error(other_gradients[key], gradients[key]) < 0.2, key


def test_spread_inputs_keep_sixteen_bits():
    x = jax.random.normal(jax.random.key(0), (64, 83))
    kernel = jax.random.normal(jax.random.key(1), (2, 83, 8))
    part = Part(83)
    wide = spread_input(x, part).astype(jnp.float32)
    found = jnp.einsum("rk,gkn->grn", wide, spread_kernel(kernel, (part,)), precision="highest")
    np.testing.assert_allclose(found, jnp.einsum("rk,gkn->grn", x, kernel, precision="highest"), atol=2e-3)
    rounded = x.astype(jnp.bfloat16).astype(jnp.float32)
    assert np.abs(wide[:, :83] + wide[:, 96:179] - x).max() < 0.01 * np.abs(rounded - x).max()


@pytest.mark.parametrize("fan", [False, True])
def test_kernels_of_several_seeds_write_the_live_rows_of_each(fan, slack):
    """Two seeds as one program, as on a GPU: a program's number must stay that of its rows."""
    seeds, groups, count, live, width = 2, 3, 96, 32, 16
    u = jax.random.normal(jax.random.key(0), (seeds, groups, count, width))
    vectors = jax.random.normal(jax.random.key(1), (seeds, groups, 3, width))

    def one(u, vectors):
        u = u.swapaxes(0, 1) if fan else u
        y, first = kernels.activate(u, vectors, jnp.float32, live=live, fan=fan)
        du, sums = kernels.activate_back(u, vectors, first, fan=fan)
        return y, first, du.swapaxes(0, 1) if fan else du, sums

    def layer(u, vectors):
        bias, scale, offset = (vectors[:, i, None] for i in range(3))
        a = jax.nn.gelu(u + bias, approximate=True)
        mean, variance = a.mean(-1, keepdims=True), a.var(-1, keepdims=True)
        return (a - mean) / jnp.sqrt(variance + kernels.EPSILON) * scale + offset

    y, first, du, sums = jax.vmap(one)(u, vectors)
    expected = jax.vmap(layer)(u, vectors)
    np.testing.assert_allclose(y, expected, atol=2e-5 * slack)
    np.testing.assert_array_equal(first, y[:, :, :live])
    back = jax.vmap(lambda u, v, dy: jax.vjp(layer, u, v)[1](dy))(u[:, :, :live], vectors, first)
    np.testing.assert_allclose(du, back[0], atol=2e-4 * slack)
    np.testing.assert_allclose(sums, back[1], atol=2e-3 * slack)


def test_pairs_of_several_seeds_meet_their_anchors(slack):
    seeds, groups, part, p, b = 2, 2, 32, 8, 4
    f = jax.random.normal(jax.random.key(0), (seeds, groups, 3 * part, p, b))
    g = jax.random.normal(jax.random.key(1), (seeds, groups, 2 * part, p, b))
    plain = jnp.zeros((seeds, groups, 1, p, b))
    h, first = jax.vmap(lambda f, g, v: kernels.pair(f, v, g, v, part=part, shared=2, dtype=jnp.float32))(f, g, plain)
    anchors = jnp.concatenate([g[:, :, :part], g], axis=2)
    expected = jnp.sum(jax.nn.gelu(f, approximate=True) * jax.nn.gelu(anchors, approximate=True), axis=-1)
    np.testing.assert_allclose(h, expected, atol=1e-5 * slack)
    np.testing.assert_array_equal(first, h[:, :, :part])


class Float32Learner(FastLearner):
    dtype = jnp.float32


def check_steps(agent):
    """Draws, Adam, targets, step counts, metrics: three steps of both learners from one state."""
    data, keys = rows(), seed_keys(0)
    plain, fast = Learner(agent, SPEC, block=4), Float32Learner(agent, SPEC, block=4)
    start = jax.jit(plain.init)(keys)
    expected = jax.jit(plain.run)(start, keys, data, 3)
    found = jax.jit(fast.run, static_argnums=3)(start, keys, data, 3)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert int(found.step) == 3
    np.testing.assert_array_equal(found.bad, expected.bad)
    for name, slot in expected.optimizer.items():
        assert int(found.optimizer[name][0].count) == int(slot[0].count)
        assert relative_error(found.optimizer[name][0].mu, slot[0].mu) < 1e-3, name
        assert relative_error(found.optimizer[name][0].nu, slot[0].nu) < 1e-3, name
        # Adam's first steps are signs of the gradient, and tiny gradients may flip: compare the way travelled.
        way, other = (jax.tree.map(jnp.subtract, s.networks[name], start.networks[name]) for s in (expected, found))
        assert relative_error(other, way) < 0.05, name
    for name in expected.targets:
        way, other = (jax.tree.map(jnp.subtract, s.targets[name], start.targets[name]) for s in (expected, found))
        assert relative_error(other, way) < 0.05, name
    for name, value in expected.sums.items():
        np.testing.assert_allclose(found.sums[name], value, rtol=1e-3, atol=1e-3, err_msg=name)


def test_kernels_are_chosen_as_asked():
    agent = small("gciql")
    assert type(make_learner(agent, SPEC, block=4, kernels="plain")) is Learner
    assert type(make_learner(agent, SPEC, block=4, kernels="fused")) is FastLearner
    expected = FastLearner if jax.default_backend() == "gpu" else Learner
    assert type(make_learner(agent, SPEC, block=4)) is expected


@pytest.mark.parametrize(
    ("capability", "runs"), [("9.0", True), ("10.3", True), ("8.0", True), ("7.5", False), ("gfx90a", False)]
)
def test_kernels_are_for_gpus_that_can_run_them(capability, runs, monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert type(make_learner(small("cta"), SPEC, block=4)) is (FastLearner if runs else Learner)
    if not runs:
        with pytest.raises(CtaError, match=f"--kernels fused: .* this one's is {capability}; use --kernels plain"):
            make_learner(small("cta"), SPEC, block=4, kernels="fused")


def test_a_record_says_how_products_round(monkeypatch):
    plain, fused = (make_learner(small("cta"), SPEC, block=4, kernels=kernels) for kernels in ("plain", "fused"))
    assert product_precision(fused) == "bfloat16"
    for backend, expected in (("cpu", "float32"), ("gpu", "tensorfloat32")):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        assert product_precision(plain) == expected
    with jax.default_matmul_precision("highest"):
        assert product_precision(plain) == "highest"


def test_without_pallas_for_triton_only_the_kernels_are_missing():
    """As JAX may come one day: importing and choosing still work."""
    code = """
import sys
sys.modules["jax.experimental.pallas.triton"] = None
import jax
jax.default_backend = lambda: "gpu"
import cta
from cta.errors import CtaError
from cta.training.fast import Learner, make_learner
from test_fast import SPEC, small
assert type(make_learner(small("cta"), SPEC, block=4)) is Learner
try:
    make_learner(small("cta"), SPEC, block=4, kernels="fused")
except CtaError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert f"JAX {jax.__version__} has no Pallas for Triton; use --kernels plain" in done.stdout, done.stderr


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="on a CPU there are no graphs of kernels")
def test_a_graph_of_kernels_computes_what_single_launches_do():
    """Kernels of a graph run side by side: one that did not wait for another would give other numbers every time."""
    rows = 2_000
    rng = np.random.default_rng(0)
    observations, actions = rng.standard_normal((rows, 21), np.float32), rng.random((rows, 5), np.float32)
    table = RowTable(jnp.arange(rows - 1), jnp.full(rows, rows - 1))
    data = DeviceData(jnp.asarray(observations), jnp.asarray(actions), table)
    learner = make_learner(small("cta"), SPEC, block=500, kernels="fused")

    def trained(graph):
        group = SeedGroup(learner, range(4), data, graph=graph)
        group.run(CHUNK)
        return group.read_metrics(CHUNK), group.networks()

    (first, networks), (second, again), (single, _) = trained(True), trained(True), trained(False)
    jax.tree.map(np.testing.assert_array_equal, networks, again)
    assert first == second
    for found, expected in zip(first, single, strict=True):
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=0.02, abs=0.02), name


@pytest.mark.parametrize("name", ["activate", "activate_back", "pair", "pair_back"])
def test_programs_that_do_several_rows_in_turn_give_what_single_ones_give(name, monkeypatch):
    count, width, p, b = 64, 16, 8, 4
    u, v = (
        jax.random.normal(jax.random.key(0), (2, 3 * count, width)),
        jax.random.normal(jax.random.key(1), (2, 3, width)),
    )
    f, fv = (x.reshape(*x.shape[:-1], p // 2, b) for x in (u, v))

    def found():
        jax.clear_caches()
        return {
            "activate": lambda: kernels.activate(u, v, jnp.float32, live=count, fan=False),
            "activate_back": lambda: kernels.activate_back(u, v, u[:, :count], fan=False),
            "pair": lambda: kernels.pair(f, fv, f[:, count:], fv, part=count, shared=2, dtype=jnp.float32),
            "pair_back": lambda: kernels.pair_back(f, fv, f, fv, f[:, :count, :, 0]),
        }[name]()

    monkeypatch.setitem(kernels.WORK, name, kernels.Work())
    single = found()
    monkeypatch.setitem(kernels.WORK, name, kernels.Work(64, 16, 4))
    for one, other in zip(jax.tree.leaves(found()), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    jax.clear_caches()
