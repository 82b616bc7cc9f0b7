"""`cta bench`: random data of a shape, the plain loop as the reference, the record."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import REGISTRY, Spec
from cta.cli import run
from cta.errors import CtaError
from cta.training.learner import Learner, seed_keys
from cta_bench import command as bench
from cta_bench import simulation
from cta_bench.cases import Case, measure_case
from cta_bench.clock import Span, interleave, repeat
from cta_bench.reference import PlainLoop, PlainUpdate, plain
from cta_bench.training import kernel_scopes, measure_compare
from tiny_agents import SPEC, batch_of, tiny, with_targets

SHAPE = Case(rows=3004, observation_dim=6, action_dim=2)


@pytest.fixture(scope="module")
def dataset():
    return SHAPE.open_data()


def test_random_rows_come_in_whole_episodes(dataset):
    assert dataset.num_rows == 3004
    assert dataset.episode_ends.tolist() == [1000, 2001, 3003]  # a last row alone joins the episode before it
    assert (dataset.observation_shape, dataset.action_dim) == ((6,), 2)
    np.testing.assert_array_equal(dataset.observations, SHAPE.open_data().observations)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_plain_form_has_the_agents_loss(name):
    agent = tiny(name)
    networks, targets = with_targets(agent)
    losses = [
        jax.jit(agent.loss)(*form, batch_of(agent=agent), jax.random.key(0))[0]
        for form in ((networks, targets), (plain(networks), plain(targets)))
    ]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_a_plain_step_moves_weights_and_targets_as_the_learner_does():
    agent = tiny("cta")
    learner = Learner(agent, SPEC, block=1)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learner.init, seed_keys(0)))
    networks, targets = with_targets(agent)
    after = jax.jit(learner.update)(zeros._replace(networks=networks, targets=targets), batch_of(), jax.random.key(0))
    update = PlainUpdate(agent)
    state = (plain(networks), plain(targets), update.init(networks)[2])
    (moved, followed, _), _ = jax.jit(update)(state, batch_of(), jax.random.key(0))
    for before, ours, theirs in ((networks, after.networks, moved), (targets, after.targets, followed)):
        changes = [jax.tree.map(np.subtract, x, plain(before)) for x in (plain(ours), theirs)]
        for a, b in zip(*map(jax.tree.leaves, changes), strict=True):
            assert np.linalg.norm(a - b) <= 0.05 * np.linalg.norm(a) + 1e-7


def test_the_plain_loop_steps_on_other_batches(dataset):
    loop = PlainLoop(tiny("cta", batch_size=8), dataset)
    first = loop.batch()
    before = jax.device_get(loop.state[0])
    loop.run(2)
    assert not np.array_equal(first["observations"], loop.batch()["observations"])
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, jax.device_get(loop.state[0]))
    assert all(jax.tree.leaves(moved))


def test_kernels_are_compared_in_turns(dataset, monkeypatch):
    monkeypatch.setattr(Case, "build", lambda case: tiny("gcbc", batch_size=32, hidden=(8, 8)))
    (entry,) = measure_compare(replace(SHAPE, agent="gcbc", seconds=0.01), dataset)
    assert entry["turns"] >= 3 and entry["ratio_least"] <= entry["ratio"] <= entry["ratio_most"]
    rates = entry["fused_seed_steps_per_s"] / entry["plain_seed_steps_per_s"]
    assert entry["ratio"] == pytest.approx(rates, rel=0.01)


def test_clocks_count_every_step_after_the_warm_up():
    taken = []
    span = repeat(taken.append, seconds=0.01, largest=7)
    assert span.steps == sum(taken[2:])
    assert max(taken) == 7
    assert Span(10, 2.0, 1.0).steps_per_s == 5
    assert Span(10, 2.0, 1.0).cpu_ms_per_step == 100
    assert len(interleave(lambda n: None, lambda n: None, seconds=1e-9, largest=1)) == 3


def test_parameters_of_the_paper():
    agent = Case("cta").build()
    networks = jax.eval_shape(lambda key: agent.init(key, Spec(83, 5)), jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(networks)) == 5_594_057


@pytest.mark.slow
def test_bench_writes_a_record_and_tables(tmp_path, capsys):
    out = tmp_path / "record.json"
    shape = ["--rows", "2002", "--observation-dim", "6", "--action-dim", "2", "--batch", "8"]
    assert run(["bench", "--agents", "gcbc", *shape, "--seconds", "0.2", "--reference", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    stored = json.loads(out.read_text())
    assert {"device", "versions", "commit", "hardware", "entries"} <= set(stored)
    kinds = {entry["what"]: entry for entry in stored["entries"]}
    assert set(kinds) == {"train", "compile", "memory", "reference", "speed-up"}
    assert {"agent": "gcbc", "batch_size": 8, "seeds": 1}.items() <= kinds["train"].items()
    assert kinds["train"]["seed_steps_per_s"] > 0
    assert kinds["train"]["parameters"] == 12 * 512 + 512 + 2 * (512 * 512 + 512) + 512 * 2 + 2
    assert kinds["compile"]["warm_start_cpu_s"] < kinds["compile"]["cold_start_cpu_s"]
    assert 0 < kinds["compile"]["warm_compile_s"] < kinds["compile"]["cold_compile_s"]
    assert kinds["memory"]["host_peak_bytes"] > 1e8
    assert kinds["memory"]["data_bytes"] == 4 * (2002 * 8 + 2000 + 2002)
    assert kinds["reference"]["steps_per_s"] > 0
    assert kinds["speed-up"]["cpu_time_ratio"] > 0
    assert "seed steps per s" in " ".join(printed.split())


def test_what_was_measured_outlives_what_goes_wrong_later(tmp_path, monkeypatch, capsys):
    def half(case, kinds):
        assert kinds == ["train"]
        yield [{"what": "train", "seed_steps_per_s": 1.0}], {"device": "cpu", "backend": "cpu", "cpu": "", "cores": 2}
        raise CtaError("measuring cta failed: no memory")

    monkeypatch.setattr("cta_bench.cases.measure_case", half)
    assert run(["bench", "--out", str(tmp_path / "record.json")]) == 1
    assert "no memory" in capsys.readouterr().err
    assert [entry["what"] for entry in json.loads((tmp_path / "record.json").read_text())["entries"]] == ["train"]


def test_a_record_that_is_there_stays_unless_it_is_named(tmp_path, monkeypatch, capsys):
    def twice(case, kinds):
        for what in ("train", "memory"):
            entry = {"what": what, "seed_steps_per_s": 1.0}
            yield [entry], {"device": "cpu", "backend": "cpu", "cpu": "", "cores": 2}

    monkeypatch.setattr("cta_bench.cases.measure_case", twice)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/train-cpu.json").write_text("evidence")
    for name in ("train-cpu-2.json", "train-cpu-3.json"):
        assert run(["bench"]) == 0
        assert f"record: benchmarks/{name}" in capsys.readouterr().out
        assert len(json.loads((tmp_path / "benchmarks" / name).read_text())["entries"]) == 2
    assert (tmp_path / "benchmarks/train-cpu.json").read_text() == "evidence"
    assert run(["bench", "--out", "benchmarks/train-cpu.json"]) == 0
    assert len(list((tmp_path / "benchmarks").iterdir())) == 3
    assert "entries" in json.loads((tmp_path / "benchmarks/train-cpu.json").read_text())


def test_a_profile_knows_the_optimiser_by_its_scope():
    def step(x):
        with jax.named_scope("adam"):
            return jnp.sin(x) + 1

    scopes = kernel_scopes(jax.jit(step).lower(jnp.ones(8)).compile().as_text())
    assert any("/adam/" in scope for scope in scopes.values())
    assert kernel_scopes('  %fusion.3 = f32[] fusion(), metadata={op_name="a/adam/add"}') == {"fusion_3": "a/adam/add"}


def test_tables_show_every_kind_and_sizes_in_gib(capsys):
    bench.show([{"what": "memory", "agent": "cta", "data_bytes": 2**31}, {"what": "other", "thing": 1.5}])
    known, unknown = capsys.readouterr().out.rstrip().split("\n\n")
    assert "data GiB" in known and "2.00" in known
    assert unknown.splitlines()[-1].strip() == "1.50"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--agents", "ctx"], "there is no agent 'ctx'"),
        (["--seeds", "0"], "--seeds 0: give whole numbers of at least 1"),
        (["--rows", "1"], "--rows must be at least 2"),
        (["simulate", "--worlds", "cube"], "no simulated world cube"),
    ],
)
def test_bench_complains_in_one_line(words, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["bench", *words]) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("fault", ["while it is made", "in a turn"])
def test_worlds_are_closed_when_a_step_fails(monkeypatch, fault):
    """The second world takes no step, or not its second turn."""
    made, closed = [], []

    class World:
        def __init__(self):
            self.left = {"while it is made": 0, "in a turn": simulation.BLOCK}[fault] if made else np.inf
            made.append(self)

        def step(self, action):
            self.left -= 1
            if self.left < 0:
                raise CtaError("it broke")
            return (np.zeros(1),)

    monkeypatch.setattr(simulation, "make_env", lambda *_, **__: World())
    monkeypatch.setattr(simulation, "seeded_reset", lambda *_: (np.zeros(1), {}))
    monkeypatch.setattr(simulation, "close_env", closed.append)
    with pytest.raises(CtaError, match="it broke"):
        simulation.measure_step("puzzle-4x4-v0", seconds=0)
    assert len(made) == 2 and set(closed) == set(made)


def test_cases_together_are_compiled_before_any_is_measured_and_fail_alone(tmp_path, capsys):
    """A second case that cannot be made does not take the first one's measurement along."""
    record = tmp_path / "together.json"
    words = ["compare", "--agents", "gcbc", "--batch", "32,33", "--seconds", "0.1", "--rows", "3000", "--together"]
    assert run(["bench", *words, "--out", str(record)]) == 1
    assert "33, is no multiple of 32" in capsys.readouterr().err
    (entry,) = json.loads(record.read_text())["entries"]
    assert entry["batch_size"] == 32 and entry["ratio"] > 0
    assert entry["dataset"] == "random 3000x83, 5 actions"


def test_random_images_have_the_size_asked_for():
    case = Case("gcbc", 1, 8, rows=5, image_size=16)
    data = case.open_data()
    assert data.observations.shape == (5, 16, 16, 3) and data.observations.dtype == np.uint8
    assert case.entry("train")["dataset"] == "random 5x16x16x3, 5 actions"


def test_a_case_is_measured_by_the_package_that_was_found(tmp_path, monkeypatch):
    """Its process looks where this one looks, perhaps in a folder that only PYTHONPATH names, and not where it is."""
    found, here = tmp_path / "site" / "cta_bench", tmp_path / "here"
    for folder, name in ((found, "site"), (here / "cta_bench", "here")):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        answer = {"entries": [{"what": name}], "hardware": {}}
        (folder / "child.py").write_text(f"import json; print(json.dumps({answer!r}))")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(found.parent)
    ((entries, _),) = measure_case(replace(SHAPE, agent="nobody"), ["compare"])
    assert entries == [{"what": "site"}]
