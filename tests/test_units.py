"""Actions in the environment's own units: stated by the data, kept with the policy, in whatever acts."""

import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cta import CtaError, TrajectoryDataset, load_policy, train
from cta.cli import run as cta
from cta.data.dataset import hold_out
from cta.envs.worlds import OwnWorld
from cta.evaluation.evaluator import complete_goal
from cta.evaluation.offline import trajectory_order
from cta.experiment.candidates import candidates
from cta.experiment.inputs import in_units
from cta.experiment.scoring import policy_maker
from cta.experiment.weights import open_weights, pack
from cta.export.load import load
from cta.units import UNKNOWN, Normalisation, Units, make_bounds

LOW, HIGH = [-2.0, 0.5], [2.0, 10.5]
TINY = {"quiet": True, "log_interval": 20, "eval_interval": 0, "agent_settings": {"batch_size": 64, "hidden": (16,)}}


def arrays(episodes=8, rows=11, seed=0):
    """A point that moves by its first action; the second one, in other units, says where it is."""
    rng = np.random.default_rng(seed)
    steps = rng.uniform(-1, 1, (episodes, rows))
    place = np.cumsum(np.pad(steps, ((0, 0), (1, 0)))[:, :-1], axis=1)
    actions = np.stack([2 * steps, np.clip(5.5 + place, 0.5, 10.5)], axis=-1)
    observations = np.stack([place, place**2], axis=-1)
    return observations.reshape(-1, 2), actions.reshape(-1, 2).astype(np.float32), [rows] * episodes


def dataset(**options):
    observations, actions, lengths = arrays()
    bounds = {"action_low": LOW, "action_high": HIGH}
    return TrajectoryDataset.from_arrays(
        observations, actions, episode_lengths=lengths, name="mine", **bounds | options
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("units")
    return train(dataset(), agent="gcbc", steps=20, run_dir=str(folder / "run"), **TINY)


def test_bounds_there_and_back():
    bounds = make_bounds(LOW, HIGH, 2, label="x")
    assert bounds.to_unit(np.array([[-2, 10.5], [0, 3]])).tolist() == [[-1, 1], [0, -0.5]]
    assert bounds.from_unit(np.float32([0, -0.5])).tolist() == [0, 3]
    assert bounds.middle.tolist() == [0, 5.5] and bounds.outside(np.array([2.00001, 10.6])).tolist() == [False, True]
    assert make_bounds(None, None, 2, label="x") is None
    plain = np.float32([0.1, 0.7])
    assert Units(make_bounds(-1, 1, 2, label="x")).act(plain) is plain  # no bit of a known world's action changes
    for low, high, complaint in [
        (1, None, "both be a number"), ([1, 2, 3], 4, "2 numbers"), (2, 1, "below"), (0, np.inf, "finite"),
        ("a", 1, "number"),
    ]:  # fmt: skip
        with pytest.raises(CtaError, match=f"^x: .*{complaint}"):
            make_bounds(low, high, 2, label="x")


def test_a_file_keeps_the_bounds_and_ogbench_does_not_mind(tmp_path):
    from ogbench.utils import load_dataset

    data = dataset()
    data.to_npz(tmp_path / "mine.npz")
    again = TrajectoryDataset.from_npz(tmp_path / "mine.npz", info=True)
    assert again.bounds.low.tolist() == LOW and again.bounds.high.tolist() == HIGH and not again.info
    assert again.fingerprint() == data.fingerprint() != dataset(action_high=[2, 11]).fingerprint()
    np.testing.assert_array_equal(again.actions, data.actions)
    theirs = load_dataset(str(tmp_path / "mine.npz"))
    assert theirs["actions"].shape == (80, 2)
    seen = in_units(data, Units(data.bounds))
    assert np.abs(seen.actions).max() <= 1 and seen.bounds is None
    np.testing.assert_allclose(data.bounds.from_unit(seen.actions), data.actions, atol=1e-6)
    with pytest.raises(CtaError, match="state different bounds"):
        data.check_like(dataset(action_high=[2, 11]))


def test_transitions_get_a_last_action_between_the_bounds():
    data = TrajectoryDataset.from_arrays(
        np.zeros((2, 1)), np.full((2, 2), 1.0), [False, True], next_observations=np.zeros((2, 1)),
        action_low=LOW, action_high=HIGH,
    )  # fmt: skip
    assert data.actions[2].tolist() == [0, 5.5]


def test_an_action_outside_is_one_line(tmp_path, capfd):
    observations, actions, lengths = arrays()
    actions[7, 1] = 11
    with pytest.raises(CtaError) as error:
        TrajectoryDataset.from_arrays(observations, actions, episode_lengths=lengths, action_low=LOW, action_high=HIGH)
    assert str(error.value) == "dataset: an action is 11 at row 7, column 1, outside its stated bounds [0.5, 10.5]"
    ends = np.arange(len(actions)) % 11 == 10
    np.savez(tmp_path / "wide.npz", observations=observations, actions=actions, terminals=ends)
    for words, complaint in [([], "--action-bounds LOW HIGH"), (["--action-bounds", "-2", "10"], "outside its stated")]:
        assert cta(["train", "--dataset", str(tmp_path / "wide.npz"), "--run-dir", str(tmp_path / "r"), *words]) == 1
        said = capfd.readouterr().err.strip().splitlines()
        assert complaint in said[-1] and not (tmp_path / "r").exists()
    for words, complaint in [
        (["--dataset", "desk-play-v0", "--action-bounds", "-2", "2"], "for files of your own"),
        (["--dataset", "minari:D4RL/door-v2", "--action-bounds", "-2", "2"], "for files of your own"),
        (["--dataset", "x.npz", "--action-bounds", "2", "-2"], "the lower one first"),
    ]:
        assert cta(["train", *words, "--run-dir", str(tmp_path / "r")]) == 1
        assert complaint in capfd.readouterr().err


def test_the_command_line_states_bounds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    observations, actions, _ = arrays()
    ends = np.arange(len(actions)) % 11 == 10
    np.savez("wide.npz", observations=observations, actions=actions, terminals=ends)
    small = ["--steps", "4", "--eval-interval", "0", "--agent.batch-size", "8", "--agent.hidden", "8"]
    words = ["--dataset", "wide.npz", "--agent", "gcbc", "--run-dir", "run", "--action-bounds", "-20", "20", *small]
    assert cta(["train", *words]) == 0
    assert load_policy("run").bounds.high.tolist() == [20, 20]
    assert cta(["resume", "run", "--steps", "6"]) == 0


def test_a_policy_acts_in_the_environments_units(trained):
    policy = trained.policy()
    rng = np.random.default_rng(0)
    seen, goals = rng.uniform(-3, 3, (2, 1000, 2))
    unit = replace_units(policy, UNKNOWN)(seen, goals)
    np.testing.assert_allclose(policy(seen, goals), unit * [2, 5] + [0, 5.5], atol=1e-6)
    assert policy(seen[0], goals[0]).shape == (2,) and "known bounds" in repr(policy)
    hot = policy(seen, goals, temperature=3.0)
    assert hot.min(axis=0).tolist() == LOW and hot.max(axis=0).tolist() == HIGH


def replace_units(policy, units):
    from cta.agents.policy import GoalPolicy

    return GoalPolicy(policy.agent, policy.networks, policy.spec, units)


def test_the_export_acts_in_the_environments_units(trained, tmp_path, capfd):
    assert cta(["export", str(trained.path), "--out", str(tmp_path / "policy")]) == 0
    assert "not known" not in capfd.readouterr().err
    about = json.loads((tmp_path / "policy" / "policy.json").read_text())
    assert (about["action"]["low"], about["action"]["high"]) == (LOW, HIGH)
    exported, rng = load(tmp_path / "policy"), np.random.default_rng(1)
    pair = rng.uniform(-3, 3, (2, 1000, 2)).astype(np.float32)
    np.testing.assert_allclose(exported(*pair), trained.policy()(*pair), atol=1e-5)
    assert exported.bounds[1].tolist() == HIGH and "notice" not in capfd.readouterr().err
    # What an earlier version wrote had no bounds, and neither has this now.
    about["action"] = {"shape": [2], "dtype": "float32", "range": [-1, 1]}
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(about))
    assert load(tmp_path / "policy").bounds is None
    assert "does not state the bounds of the environment's actions" in capfd.readouterr().err


def test_weights_keep_the_bounds(trained, tmp_path):
    (item,) = candidates(trained)
    path = tmp_path / "w.safetensors"
    path.write_bytes(pack(replace(item, training={})))
    (again,) = candidates(path)
    assert again.units.bounds.low.tolist() == LOW
    assert again.units.facts() == trained.units.facts()
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        facts = json.loads(file.metadata()["cta"])
    for change, complaint in [("x", "not an object"), ({"action_low": ["a"]}, "is not a number"), (None, "")]:
        save_file(load_file(path), path, metadata={"cta": json.dumps({**facts, "units": change})})
        if complaint:
            with pytest.raises(CtaError, match=complaint):
                open_weights(path)
        else:
            assert open_weights(path)[0].units.bounds is None  # of an earlier version: not known


def test_a_run_of_an_earlier_version_does_not_know(trained, tmp_path, capfd):
    import shutil

    old = Path(shutil.copytree(trained.path, tmp_path / "old"))
    facts = json.loads((old / "provenance.json").read_text())
    del facts["dataset"]["units"]
    (old / "provenance.json").write_text(json.dumps(facts))
    policy = load_policy(old)
    assert policy.bounds is None and "their bounds are not known" in repr(policy)
    assert np.abs(policy(np.zeros(2), np.ones(2))).max() <= 1
    assert cta(["export", str(old), "--out", str(tmp_path / "policy")]) == 0
    assert "bounds of actions are not known, so they are in [-1, 1]" in " ".join(capfd.readouterr().err.split())


class Wide(gymnasium.Env):
    """Notes its actions, whose box is the data's."""

    def __init__(self, low=LOW, high=HIGH):
        self.action_space = gymnasium.spaces.Box(np.float32(low), np.float32(high))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {"goal": np.ones(2)}

    def step(self, action):
        with Path("taken.txt").open("a") as file:
            print(*action, file=file)
        return np.zeros(2), 0.0, False, False, {"success": False}


def endless():
    return Wide([-np.inf, -np.inf], [np.inf, np.inf])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Wide", "endless"])
def test_evaluating_in_ones_own_environment(trained, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    words = ["--env", f"test_units:{name}", "--episodes", "1", "--workers", "1", "--max-episode-steps", "3"]
    assert cta(["evaluate", str(trained.path), *words]) == 0
    taken = np.loadtxt("taken.txt")
    np.testing.assert_allclose(taken, [load_policy(trained.path)(np.zeros(2), np.ones(2))] * 3, atol=1e-5)


def unequal():
    """The action is the first number, which is 10⁴ times smaller than the second; a third never changes."""
    rng = np.random.default_rng(0)
    small = rng.uniform(-0.9, 0.9, (400, 1))
    observations = np.concatenate([3 + small, 1e4 * rng.standard_normal((400, 1)), np.full((400, 1), 7.0)], axis=1)
    return TrajectoryDataset.from_arrays(observations, small, episode_lengths=[20] * 20, name="unequal")


@pytest.fixture(scope="module")
def normalised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("normalised")
    options = {**TINY, "steps": 600, "eval_interval": 600, "holdout": 0.1}
    options["agent_settings"] = {"batch_size": 128, "hidden": (32,), "lr": 3e-3}
    return [
        train(unequal(), agent="gcbc", run_dir=str(folder / name), normalise_observations=name == "with", **options)
        for name in ("with", "without")
    ]


def test_normalised_observations_teach_what_is_small(normalised):
    data = unequal()
    seen, goals = data.observations[:300], data.observations[100:400]
    errors = [np.abs(run.policy()(seen, goals) - data.actions[:300]).mean() for run in normalised]
    assert errors[0] < 0.1 and errors[1] > 3 * errors[0], errors
    units = normalised[0].units
    assert units.normalisation.scale[2] == 1 and units.see(data.observations).std(axis=0)[:2] == pytest.approx(
        1, abs=0.1
    )
    assert units.see(data.observations).dtype == np.float32
    assert [run.cell.settings.endswith("normalise_observations=True") for run in normalised] == [True, False]


def test_whatever_acts_normalises_alike(normalised, tmp_path):
    run = normalised[0]
    policy, units = run.policy(), run.units
    data = np.random.default_rng(2).permutation(unequal().observations)
    pair = data[:200], data[200:]
    raw = replace_units(policy, UNKNOWN)
    expected = raw(units.see(pair[0]), units.see(pair[1]))
    np.testing.assert_array_equal(policy(*pair), expected)
    assert np.abs(raw(*pair) - expected).max() > 0.1
    assert cta(["export", str(run.path), "--out", str(tmp_path / "policy")]) == 0
    np.testing.assert_allclose(load(tmp_path / "policy")(*pair), expected, atol=1e-5)
    (item,) = candidates(run)
    (tmp_path / "w.safetensors").write_bytes(pack(item))
    (again,) = candidates(tmp_path / "w.safetensors")
    config = run.config
    make = policy_maker(again.agent, again.load(), again.units, config, 0)
    np.testing.assert_array_equal(make(200)(*pair, np.ones(200, bool)), expected)
    assert again.key.settings == run.cell.settings


def test_values_see_what_they_learned_from(tmp_path):
    settings = {"batch_size": 32, "hidden": (8,)}
    options = {**TINY, "agent_settings": settings, "eval_interval": 20, "normalise_observations": True}
    run = train(unequal(), agent="gcivl", steps=20, run_dir=str(tmp_path / "run"), **options)
    policy, seen = run.policy(), unequal().observations
    raw = replace_units(policy, UNKNOWN)
    expected = raw.value(run.units.see(seen), run.units.see(seen[::-1]))
    np.testing.assert_allclose(policy.value(seen, seen[::-1]), expected, atol=1e-6)
    (item,) = candidates(run)
    (tmp_path / "w.safetensors").write_bytes(pack(item))
    kept = load_policy(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(kept(seen, seen[::-1]), policy(seen, seen[::-1]))
    with pytest.raises(CtaError, match="no value from this policy: its file holds only what acting reads"):
        kept.value(seen, seen[::-1])
    assert cta(["export", str(run.path), "--out", str(tmp_path / "policy")]) == 0
    np.testing.assert_allclose(load(tmp_path / "policy").ask("value", seen, seen[::-1]), expected, atol=1e-4)
    _, held_out = hold_out(unequal(), 0.1)
    order = trajectory_order(run.agent, policy.networks, in_units(held_out, run.units))["value_order"].mean()
    assert float(run.offline()[-1]["value_order"]) == pytest.approx(order)


def test_goals_are_completed_by_what_counts():
    """In plain numbers the large column decides alone."""
    states = np.float32([[0, 0, 1], [1, 5000, 2]])
    units = Units(None, Normalisation(np.zeros(3, np.float32), np.float32([0.1, 1e4, 1])))
    goal = np.float32([1, 1000, np.nan])
    assert complete_goal(goal, states)[2] == 1 and complete_goal(goal, states, units)[2] == 2


def test_images_are_not_normalised():
    with pytest.raises(CtaError, match="x: observations are images"):
        Normalisation.measured(np.zeros((3, 4, 4, 3), np.uint8), label="x")
    for mean, scale in [([0.0], [1.0]), ([0.0, 0], None), ([0.0, 0], [1.0, 0]), ([0.0, 1e99], [1.0, 1])]:
        facts = {"observation_mean": mean, "observation_scale": scale}
        with pytest.raises(CtaError, match="mean and positive scale"):
            Units.of_facts(facts, [2], 1, unit=False, where="x")


def test_own_units_are_clipped_to_the_box(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    world = OwnWorld("test_units:Wide", unit=False)
    world.reset(1, 0)
    world.step(np.array([1.5, 99.0]))
    assert np.loadtxt("taken.txt").tolist() == [1.5, 10.5]
