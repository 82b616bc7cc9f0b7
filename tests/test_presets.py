"""The presets against the tables of launch settings, row by row."""

import csv
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from cta.agents import REGISTRY, find, paper_names
from cta.cli.train import parse
from cta.config import RunConfig, settings_key, to_dict
from cta.errors import CtaError
from cta.experiment import run_config
from cta.presets import agent_preset, run_preset

PAPER = files("cta.scores") / "paper"


def table(name):
    with (PAPER / name).open(newline="") as file:
        return list(csv.DictReader(file))


BASELINES = table("hyperparameters_baselines.csv")
DATASETS = list(dict.fromkeys(row["dataset"] for row in BASELINES))
MANIPULATION = [name for name in DATASETS if "maze" not in name]
MAZES = [name for name in DATASETS if "maze" in name]
RESULTS = ("main.csv", "gcb.csv", "hierarchy.csv", "maze.csv", "noisy.csv", "pixel.csv")


def settings(agent, dataset):
    """Everything a launch sets: the agent's config and the run's."""
    entry = find(agent)
    config = agent_preset(entry.config, dataset)
    config.check()
    return config, run_preset(RunConfig(config, agent_name=agent, dataset=dataset))


def looked_up(agent, dataset, name):
    config, run = settings(agent, dataset)
    return {
        "train_steps": lambda: run.steps,
        "eval_episodes": lambda: run.eval_episodes,
        # The encoder is not a setting: images have it and vectors do not.
        "encoder": lambda: "impala_small" if dataset.startswith("visual-") else "",
        "rep_dim": lambda: config.eta.dim,
        "low_actor_rep_grad": lambda: not config.policy_rep_grad_stop,
    }.get(name, lambda: getattr(config, name))()


def test_the_table_covers_41_datasets_and_six_agents():
    assert len(DATASETS) == 41
    assert {row["agent"] for row in BASELINES} == {"gcbc", "gcivl", "gciql", "qrl", "crl", "hiql"}
    assert len(BASELINES) == 2214


@pytest.mark.parametrize("dataset", DATASETS)
def test_baselines(dataset):
    for row in (row for row in BASELINES if row["dataset"] == dataset):
        value = looked_up(row["agent"], dataset, row["hyperparameter"])
        text = row["value"]
        expected = text == "True" if text in ("True", "False") else text if isinstance(value, str) else float(text)
        assert value == expected, (row, value)


def scope_of(scope) -> Iterator[str]:
    """Datasets a row of the two-level tables speaks of."""
    for dataset in DATASETS:
        name, visual = dataset.removeprefix("visual-"), dataset.startswith("visual-")
        kinds = {
            "all": True,
            "maze": "maze" in name,
            "manipulation": "maze" not in name,
            "pixel": visual,
            "state": not visual,
        }
        if scope in kinds:
            chosen = kinds[scope]
        else:
            chosen = any(name.startswith(part.strip().removesuffix("*")) for part in scope.split("|"))
        if chosen:
            yield dataset


def sizes(text):
    return tuple(int(word) for word in text.strip("()").split(","))


READ = {
    "learning_rate": lambda c, run: (c.lr, float),
    "batch_size": lambda c, run: (c.batch_size, int),
    "train_steps": lambda c, run: (run.steps, int),
    "eval_interval": lambda c, run: (run.eval_interval, int),
    "eval_episodes_per_task": lambda c, run: (run.eval_episodes, int),
    "eta hidden": lambda c, run: (c.eta.hidden, sizes),
    "dual encoder hidden": lambda c, run: (c.dual.hidden, sizes),
    "anchor module": lambda c, run: (
        (c.trunk.hidden, c.trunk.features * c.trunk.rank),
        lambda t: ((128, 128), 1024) if t == "(128,128) then 1024" else t,
    ),
    "b (tr_latent_dim)": lambda c, run: (c.trunk.rank, int),
    "p": lambda c, run: (c.trunk.features, int),
    "actor backbone": lambda c, run: (c.trunk.backbone, sizes),
    "actor hidden": lambda c, run: (c.hidden, sizes),
    "value ensemble": lambda c, run: (c.value_ensemble, int),
    "use_bilinear_high_actor": lambda c, run: (str(c.bilinear_high_actor), str),
    "use_backbone": lambda c, run: (str(c.trunk.form == "backbone"), str),
    "value_rep_grad_stop": lambda c, run: (str(c.value_rep_grad_stop), str),
    "policy_rep_grad_stop": lambda c, run: (str(c.policy_rep_grad_stop), str),
    "discount": lambda c, run: (c.discount, float),
    "tau": lambda c, run: (c.tau, float),
    "dual_repr_expectile (iota)": lambda c, run: (c.dual.expectile, float),
    "expectile (kappa)": lambda c, run: (c.expectile, float),
    "low_alpha (beta_l)": lambda c, run: (c.low_alpha, float),
    "high_alpha (beta_h)": lambda c, run: (c.high_alpha, float),
    "subgoal_steps k": lambda c, run: (c.subgoal_steps, int),
    "eta output dim e": lambda c, run: (c.eta.dim, int),
    "dual representation dim d": lambda c, run: (c.dual.dim, int),
    "layer_norm": lambda c, run: (str(c.layer_norm), str),
    "policy_std": lambda c, run: (c.actor_std, lambda t: 1.0 if t == "identity" else t),
    "awr_weight_clip": lambda c, run: (c.awr_clip, float),
    "value_geom_sample": lambda c, run: (str(c.value_geom_sample), str),
    "actor_geom_sample": lambda c, run: (str(c.actor_geom_sample), str),
    "subgoal_repr_type": lambda c, run: (c.subgoal_repr_type, str),
    "p_aug": lambda c, run: (c.p_aug, float),
}
READ["displacement module"] = READ["anchor module"]
READ["value backbone"], READ["value hidden"] = READ["actor backbone"], READ["actor hidden"]
for kind in ("value", "actor"):
    for goal in ("cur", "traj", "random"):
        name = f"{kind}_p_{goal}goal"
        READ[name] = lambda c, run, name=name: (getattr(c, name), float)
ELSEWHERE = {  # what is not a setting of a run, and where it is tested
    "encoder": "by the observations' shape",
    "nonlinearity": "test_nn",
    "tr_latent_dim": "unused by the authors",
    "use_analogy": "the agent itself",
}


@pytest.mark.parametrize("agent", ["cta", "cta-gcb", "hiql-dual", "hiql-analogy"])
def test_two_level_tables(agent):
    rows = table("hyperparameters_cta.csv" if agent.startswith("cta") else "hyperparameters_hiql.csv")
    checked = 0
    for row in rows:
        name, scope = row["hyperparameter"], row["scope"]
        if name in ELSEWHERE:
            continue
        for dataset in scope_of(scope):
            # Pixels have their own row of batch sizes; noisy data repeat the play data's.
            if name == "batch_size" and dataset.startswith("visual-") and scope != "pixel":
                continue
            value, read = READ[name](*settings(agent, dataset))
            assert value == read(row["use"]), (row, dataset)
            checked += 1
    assert checked > 1000


def test_noisy_data_use_the_play_datas_settings():
    for dataset in MANIPULATION:
        if "noisy" in dataset:
            for agent in ("cta", "cta-gcb", "hiql-dual", "hiql-analogy"):
                assert settings(agent, dataset)[0] == settings(agent, dataset.replace("noisy", "play"))[0]


@pytest.mark.parametrize("dataset", DATASETS)
def test_flat_agents_with_representations(dataset):
    """Dual goals on mazes: ι 0.9, d 64 on pointmaze, γ 0.995 on the longest; elsewhere the defaults."""
    maze, visual = "maze" in dataset, dataset.startswith("visual-")
    long = dataset.startswith(("antmaze-giant", "humanoidmaze"))
    for agent in ("crl-dual", "gcivl-dual", "gciql-dual", "gcivl-analogy"):
        config, _ = settings(agent, dataset)
        assert config.dual.expectile == (0.9 if maze else 0.7)
        assert config.dual.dim == (64 if dataset.startswith("pointmaze") else 256)
        assert config.discount == (0.995 if long else 0.99)
        assert config.batch_size == (256 if visual else 1024)
        assert config.dual.hidden == (512, 512, 512)
    assert settings("crl-dual", dataset)[0].alpha == settings("crl", dataset)[0].alpha
    for agent in ("gcivl-dual", "gciql-dual", "gcivl-analogy"):
        config, _ = settings(agent, dataset)
        assert (config.alpha, config.expectile) == (10.0, 0.9)
    assert settings("gciql-dual", dataset)[0].actor_loss == "awr"
    assert settings("gcivl-analogy", dataset)[0].eta.hidden == (256, 256)


def test_crl_dual_alpha():
    expected = {"scene-play-v0": 3.0, "antmaze-giant-navigate-v0": 0.1, "pointmaze-large-navigate-v0": 0.03}
    assert {dataset: settings("crl-dual", dataset)[0].alpha for dataset in expected} == expected


def test_every_method_of_the_papers_tables_has_a_name_here():
    methods = {row["method"] for name in RESULTS for row in table(name)}
    assert methods <= set(paper_names())


@pytest.mark.parametrize("agent", REGISTRY)
def test_small_worlds_have_small_networks(agent):
    config, run = settings(agent, "desk-play-v0")
    assert (config.batch_size, config.lr, config.discount, config.tau) == (128, 1e-3, 0.95, 0.01)
    assert config.hidden == (128, 128, 128)
    assert run.steps == 10_000
    if hasattr(config, "dual"):
        assert (config.dual.hidden, config.dual.dim, config.eta.use) == ((64, 64), 32, find(agent).config.eta.use)


def test_an_unknown_dataset_keeps_the_defaults():
    for entry in REGISTRY.values():
        assert agent_preset(entry.config, "my-trajectories") == entry.config


@pytest.mark.parametrize(
    ("dataset", "steps", "chosen", "intervals"),
    [
        ("walk.npz", 50_000, {}, (2_500, 5_000, 5_000)),
        ("walk.npz", 5_000, {"eval_interval": 1_000}, (250, 1_000, 500)),
        ("walk.npz", 300, {}, (100, 100, 100)),
        ("walk.npz", 3_000_000, {}, (5_000, 100_000, 100_000)),
        ("scene-play-v0", 1_000_000, {}, (5_000, 100_000, 100_000)),
        ("scene-play-v0", 50_000, {}, (2_500, 100_000, 5_000)),
        ("scene-play-v0", 50_000, {"checkpoint_interval": 0}, (2_500, 100_000, 0)),
        ("scene-play-v0", 50_000, {"checkpoint_interval": 100_000}, (2_500, 100_000, 100_000)),
        ("walk.npz", 50_000, {"log_interval": 5_000, "eval_interval": 100_000}, (5_000, 100_000, 5_000)),
        ("desk-play-v0", 6_000, {}, (500, 1_000, 1_000)),
        ("desk-play-v0", 6_000, {"eval_interval": 3_000}, (500, 3_000, 1_000)),
    ],
)
def test_a_short_run_is_kept_and_told_of_more_often_but_what_is_given_stays(dataset, steps, chosen, intervals):
    config = run_config("cta", dataset, steps=steps, **chosen)
    assert (config.log_interval, config.eval_interval, config.checkpoint_interval) == intervals
    flags = [word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    typed = parse(["--dataset", dataset, "--steps", str(steps), *flags])
    assert (typed.log_interval, typed.eval_interval, typed.checkpoint_interval) == intervals


@pytest.mark.parametrize(
    ("agent", "dataset", "loss", "alpha"),
    [
        ("gciql", "scene-play-v0", "awr", 10.0),
        ("gciql-dual", "scene-play-v0", "ddpgbc", 1.0),
        ("gciql-dual", "antmaze-large-navigate-v0", "ddpgbc", 0.3),
        ("gciql-dual", "scene-noisy-v0", "awr", 10.0),
        ("crl", "scene-noisy-v0", "awr", 10.0),
        ("crl", "walk.npz", "ddpgbc", 3.0),
        ("qrl", "desk-play-v0", "awr", 10.0),
    ],
)
def test_a_changed_actor_loss_brings_its_own_alpha(agent, dataset, loss, alpha):
    words = ["--agent", agent, "--dataset", dataset, "--agent.actor-loss", loss]
    assert parse(words).agent == run_config(agent, dataset, agent_settings={"actor_loss": loss}).agent
    assert parse(words).agent.alpha == alpha
    assert parse([*words, "--agent.alpha", "0.7"]).agent.alpha == 0.7


def test_settings_from_python_are_converted_or_refused():
    settings = {"trunk.rank": np.int64(4), "eta": {"dim": np.int32(8)}, "lr": np.float32(0.5), "hidden": [8, 8]}
    config = run_config("cta", "desk-play-v0", steps=np.int64(2), run_dir=Path("x"), agent_settings=settings)
    assert (config.steps, config.run_dir, type(config.steps)) == (2, "x", int)
    assert (config.agent.trunk.rank, config.agent.eta.dim, config.agent.hidden) == (4, 8, (8, 8))
    assert json.loads(json.dumps(to_dict(config)))["agent"]["lr"] == 0.5
    for wrong in ({"steps": "2"}, {"steps": True}, {"steps": 2.5}, {"agent_settings": {"trunk.rnak": 4}}):
        with pytest.raises(CtaError, match=r"^[^\n]*$"):
            run_config("cta", "desk-play-v0", **wrong)


def test_the_key_of_settings_says_what_differs_from_the_preset():
    def key(**changes):
        preset = run_config("cta", "scene-play-v0").agent
        return settings_key(run_config("cta", "scene-play-v0", agent_settings=changes).agent, preset)

    assert key() == key(subgoal_steps=10) == ""
    assert key(subgoal_steps=25) == "subgoal_steps=25"
    assert key(**{"trunk.rank": 4, "lr": 1e-3}) == "lr=0.001;trunk.rank=4"
    assert key(awr_clip=float("inf"), layer_norm=False) == "awr_clip=inf;layer_norm=False"
    assert key(**{"eta.hidden": (64, 32)}) == "eta.hidden=64,32"
