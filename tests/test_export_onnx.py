"""Policies as ONNX models: every agent, on vectors and images, acts as it does here, in the environment's units."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta import CtaError, TrajectoryDataset, export, load_policy, train
from cta.agents import REGISTRY, Spec
from cta.agents.policy import QUESTIONS, GoalPolicy
from cta.cli import run as cta
from cta.config import RunConfig
from cta.export import load
from cta.units import UNKNOWN, Normalisation, Units, make_bounds
from tiny_agents import SPEC, tiny, with_targets

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SKEWED = Units(make_bounds([-2, 0.5, -30], [2, 10.5, 3], 3, label="x"))
PIXELS = Spec.of((16, 16, 3), 3)
BATCHES, ROWS = 4, 250


def policy_of(name, spec=SPEC, units=SKEWED, **changes):
    agent = tiny(name, **changes)
    networks, _ = with_targets(agent, spec)
    if spec.image_shape:  # sums of thousands of numbers, which must leave the actions between their bounds
        networks = jax.tree.map(lambda x: x * min(1, 2 * np.prod(x.shape[:-1]) ** -0.5), networks)
    policy = GoalPolicy(agent, networks, spec, units, name=name)
    policy.seed = policy.step = 0
    return policy


def exported(policy, folder, format="onnx"):
    """What `cta export` does with the policy of a run."""
    files = SimpleNamespace(provenance=dict)
    run = SimpleNamespace(path=folder, config=RunConfig(policy.agent.config, policy.name), files=files)
    export._write(policy, folder / format, run, format)
    export._check(policy, folder / format, format)
    return load.load(folder / format)


def pairs(policy, seed=1):
    """Observations and goals of one batch; images of different brightness."""
    rng, shape = np.random.default_rng(seed), (2, ROWS, *policy.spec.observation_shape)
    if policy.spec.image_shape:
        return (rng.integers(0, 256, shape) * rng.random((2, ROWS, 1, 1, 1))).astype(np.uint8)
    return policy.units.unsee(rng.standard_normal(shape)).astype(np.float32)


def compare(policy, other, atol=1e-5, heats=(0.0,)):
    """Actions and all answers on 1,000 pairs; what was compared was worth it."""
    half = (policy.bounds.high - policy.bounds.low) / 2 if policy.bounds else np.ones(policy.spec.action_dim)
    for both in (pairs(policy, seed) for seed in range(BATCHES)):
        for heat in heats:
            mine, theirs = (acts(*both, temperature=heat, first=True) for acts in (policy, other))
            np.testing.assert_allclose(theirs / half, mine / half, atol=atol)
            assert theirs.dtype == np.float32 and ((theirs / half).std(axis=0) > 1e-3).any()
        for question in QUESTIONS:
            try:
                mine = getattr(policy, question)(*both)
            except CtaError:
                with pytest.raises(ValueError, match=f"has no {question}"):
                    other.ask(question, *both)
            else:
                np.testing.assert_allclose(other.ask(question, *both), mine, atol=atol, rtol=atol)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_agent(name, tmp_path):
    policy = policy_of(name)
    other = exported(policy, tmp_path)
    compare(policy, other, heats=(0.0, 0.5) if name in ("gcbc", "cta") else (0.0,))
    assert other(*pairs(policy)[:, 3], first=True).shape == (3,)
    assert [end.tolist() for end in other.bounds] == [[-2, 0.5, -30], [2, 10.5, 3]]
    assert other.about["check"]["inputs"] == 1000 and other.about["check"]["largest_difference"] < 1e-5
    assert {facts["file"] for facts in other.about["functions"].values()} == {
        path.name for path in (tmp_path / "onnx").glob("*.onnx")
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcivl", "hiql", "cta", "shared"])
def test_images(name, tmp_path):
    changes = {"share_encoders": True} if name == "shared" else {}
    policy = policy_of("gcivl-dual" if changes else name, PIXELS, **changes)
    compare(policy, exported(policy, tmp_path), atol=5e-5)


def test_normalised_observations_and_unknown_bounds(tmp_path):
    seen = Normalisation(np.float32([3, 0, 0, -7e4, 0, 1]), np.float32([1, 1e4, 1e-3, 2e4, 1, 5]))
    policy = policy_of("gcivl", units=Units(None, seen))
    other = exported(policy, tmp_path)
    compare(policy, other)
    assert other.bounds is None
    plain = policy_of("gcivl", units=UNKNOWN)
    assert np.abs(plain(*pairs(policy)) - other(*pairs(policy))).max() > 0.1


def test_a_subgoal_is_held(tmp_path):
    policy = policy_of("hiql", high_hold=3)
    other = exported(policy, tmp_path)
    both = pairs(policy)
    for step in range(7):
        seen = np.roll(both[0], step, axis=0), both[1]
        mine, theirs = (acts(*seen, first=step == 0) for acts in (policy, other))
        np.testing.assert_allclose(theirs, mine, atol=1e-4)
    assert [facts["name"] for facts in other.about["functions"]["act"]["outputs"]] == [
        "actions", "next_memory0", "next_memory1"
    ]  # fmt: skip


def test_random_numbers_are_jaxs_own(tmp_path):
    """Bit by bit up to the uniform numbers; the normal ones by another formula than the compiler's."""
    from onnxruntime import InferenceSession

    from cta.export.onnx_model import to_onnx

    def draw(weights, rows, seed):
        one, two = jax.random.split(jax.random.fold_in(jax.random.key(seed), 3))
        shape = (rows.shape[0], 3)
        return jax.random.bits(one, shape), jax.random.uniform(two, shape), jax.random.normal(one, shape)

    (batch,) = jax.export.symbolic_shape("b")
    inputs = {"rows": jax.ShapeDtypeStruct((batch, 1), jnp.float32), "seed": jax.ShapeDtypeStruct((), jnp.uint32)}
    model, held = to_onnx(draw, {}, [], inputs, ["bits", "even", "normal"])
    assert not held
    rows, seed = np.zeros((100_000, 1), np.float32), np.uint32(2**32 - 5)
    found = InferenceSession(model).run(None, {"rows": rows, "seed": np.asarray(seed)})
    bits, even, normal = map(np.asarray, jax.jit(draw)({}, rows, seed))
    np.testing.assert_array_equal(found[0], bits)
    np.testing.assert_array_equal(found[1], even)
    np.testing.assert_allclose(found[2], normal, atol=2e-6)
    assert np.abs(normal).max() > 4  # tails, where another polynomial is used


def test_what_has_no_onnx_form_is_named(tmp_path):
    from cta.export.onnx_model import to_onnx

    (batch,) = jax.export.symbolic_shape("b")
    inputs = {"x": jax.ShapeDtypeStruct((batch, 4), jnp.float32)}
    for function, name in [
        (lambda w, x: (jax.scipy.special.gammaln(x),), "lgamma"),
        (lambda w, x: (jnp.cumsum(x, axis=1),), "cumsum"),
        (lambda w, x: (jnp.concatenate([x, x]) + jnp.zeros((2 * x.shape[0], 1)),), r"shape \(2\*b, 1\)"),
        (lambda w, x: (jnp.sort(x, axis=0),), "sort of"),
    ]:
        with pytest.raises(CtaError, match=rf"the policy uses .*({name}).*--format stablehlo") as error:
            to_onnx(function, {}, [], inputs, ["y"])
        assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on data whose actions lie in [-2, 2]."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("onnx")
    bounds = {"action_low": -2, "action_high": 2}
    data = TrajectoryDataset.from_arrays(
        rng.normal(3, 100, (80, 3)), rng.uniform(-2, 2, (80, 2)), episode_lengths=[10] * 8, name="mine", **bounds
    )
    options = {"quiet": True, "log_interval": 4, "eval_interval": 0, "normalise_observations": True}
    settings = {"batch_size": 16, "hidden": (8,)}
    return train(data, agent="gcbc", steps=4, run_dir=str(folder / "run"), agent_settings=settings, **options)


ALONE = """
import sys
for name in ("jax", "cta", "onnx", "safetensors", "equinox"):
    sys.modules[name] = None  # an import of it fails
import numpy as np
from load import load
np.save("actions.npy", load(".")(*np.load("pairs.npy")))
"""


def test_the_command_and_the_folder_alone(trained, tmp_path, capfd):
    """`cta export --format onnx`, then nothing but NumPy and onnxruntime."""
    assert cta(["export", str(trained.path), "--out", str(tmp_path / "policy"), "--format", "onnx"]) == 0
    said = capfd.readouterr()
    assert "checked against the run on 1,000 inputs: largest difference" in said.out and "ONNX" in said.err
    policy = load_policy(trained.path)
    np.save(tmp_path / "policy" / "pairs.npy", pairs(policy))
    call = [sys.executable, "-c", ALONE]
    subprocess.run(call, cwd=tmp_path / "policy", check=True, timeout=100)
    actions = np.load(tmp_path / "policy" / "actions.npy")
    np.testing.assert_allclose(actions, policy(*pairs(policy)), atol=1e-5)
    about = json.loads((tmp_path / "policy" / "policy.json").read_text())
    assert (about["action"]["low"], about["action"]["high"]) == ([-2, -2], [2, 2])
    assert about["programs"] == "onnx" and about["provenance"]["agent"] == "gcbc"
    assert cta(["export", str(trained.path), "--out", str(tmp_path / "other")]) == 0
    assert "on 1,000 inputs: largest difference" in capfd.readouterr().out


def test_an_export_that_acts_otherwise_is_not_kept(trained, tmp_path, monkeypatch, capfd):
    from cta.export.onnx_graph import RULES

    monkeypatch.setitem(RULES, "tanh", lambda graph, equation, x: graph.node("Sin", x))
    assert cta(["export", str(trained.path), "--out", str(tmp_path / "policy"), "--format", "onnx"]) == 1
    assert "differs from the run's by" in capfd.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("absent", ["onnx", "onnxruntime"])
def test_without_the_packages(absent, trained, tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, absent, None)
    code = cta(["export", str(trained.path), "--out", str(tmp_path / "policy"), "--format", "onnx"])
    said = " ".join("".join(capfd.readouterr()).split())
    if absent == "onnx":
        assert code == 1 and "--format onnx needs the onnx package: pip install 'cta[onnx]'" in said
        return
    assert code == 0 and "not checked against the run, which needs onnxruntime" in said
    with pytest.raises(ValueError, match="ONNX models, which need: pip install onnxruntime"):
        load.load(tmp_path / "policy")


def forge(folder, model):
    """Another program, by somebody who knows how."""
    content = model.SerializeToString()
    (folder / "act.onnx").write_bytes(content)
    about = json.loads((folder / "policy.json").read_text())
    about["functions"]["act"]["sha256"] = sha256(content).hexdigest()
    (folder / "policy.json").write_text(json.dumps(about))


def test_models_of_strangers_open_no_files_and_bring_no_operators(trained, tmp_path, monkeypatch):
    folder = export.export_policy(trained, tmp_path / "policy", format="onnx")
    whole = onnx.load(folder / "act.onnx")
    (tmp_path / "secret").write_bytes(bytes(4096))
    monkeypatch.chdir(tmp_path)
    for place in ("secret", str(tmp_path / "secret"), "../secret"):
        model = onnx.ModelProto.FromString(whole.SerializeToString())
        held = next(one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT and one.dims)
        held.ClearField("raw_data")
        held.data_location = onnx.TensorProto.EXTERNAL
        held.external_data.add(key="location", value=place)
        forge(folder, model)
        with pytest.raises(ValueError, match="not a program"):
            load.load(folder)
    model = onnx.ModelProto.FromString(whole.SerializeToString())
    model.graph.node[0].domain = "stranger"
    forge(folder, model)
    with pytest.raises(ValueError, match="not a program"):
        load.load(folder)
    model = onnx.ModelProto.FromString(whole.SerializeToString())
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7
    forge(folder, model)
    with pytest.raises(ValueError, match=r"not a program|does not describe the program of act"):
        load.load(folder)
    forge(folder, whole)
    assert load.load(folder)(np.zeros(3), np.ones(3)).shape == (2,)


def test_a_damaged_model_is_one_line(trained, tmp_path):
    folder = export.export_policy(trained, tmp_path / "policy", format="onnx")
    content = (folder / "act.onnx").read_bytes()
    rng, about = np.random.default_rng(0), json.loads((folder / "policy.json").read_text())
    refused = 0
    for _ in range(200):
        changed = bytearray(content[: rng.integers(1, len(content))] if rng.random() < 0.3 else content)
        for place in rng.integers(0, len(changed), rng.integers(1, 9)):
            changed[place] = rng.integers(256)
        (folder / "act.onnx").write_bytes(changed)
        with pytest.raises(ValueError, match="damaged"):
            load.load(folder)
        about["functions"]["act"]["sha256"] = sha256(changed).hexdigest()
        (folder / "policy.json").write_text(json.dumps(about))
        try:
            load.load(folder)
        except ValueError as error:
            refused += 1
            assert "\n" not in str(error)
        about["functions"]["act"]["sha256"] = "x"
        (folder / "policy.json").write_text(json.dumps(about))
    assert refused > 20


def test_another_kind_of_programs_is_refused(trained, tmp_path):
    folder = export.export_policy(trained, tmp_path / "policy", format="onnx")
    about = json.loads((folder / "policy.json").read_text())
    for kind in ("python", ["onnx"], None):
        (folder / "policy.json").write_text(json.dumps({**about, "programs": kind}))
        with pytest.raises(ValueError, match="not the description of a policy"):
            load.load(folder)


def test_bounds_of_ones_own_scale():
    """What the units of these tests are for: half the strength would show."""
    policy = policy_of("gcbc")
    seen = pairs(policy)
    plain = policy_of("gcbc", units=UNKNOWN)(*seen)
    np.testing.assert_allclose(policy(*seen), plain * [2, 5, 16.5] + [0, 5.5, -13.5], atol=1e-5)


def test_the_page_says_what_the_record_says():
    root = Path(__file__).parents[1]
    page = (root / "docs/own-data.md").read_text()
    record = json.loads((root / "benchmarks/exports-cpu.json").read_text())
    kinds = {(entry["world"], entry["format"]) for entry in record["entries"]}
    assert len(kinds) == 4 and all(entry["inputs"] == 1000 for entry in record["entries"])
    assert {entry["agent"] for entry in record["entries"] if entry["world"] == "desk"} == set(REGISTRY)
    for kind in kinds:
        gaps = [e["largest_difference"] for e in record["entries"] if (e["world"], e["format"]) == kind]
        power = int(f"{max(gaps):.0e}".split("e")[1])
        assert (
            f"{max(gaps) / 10**power:.1f} · 10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(c)] if c != '-' else '⁻' for c in str(power))}"
            in page
        )
