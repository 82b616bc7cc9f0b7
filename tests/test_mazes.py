"""Mazes end to end: point data generated here, ant and humanoid data from a file under OGBench's names."""

import csv

import numpy as np
import pytest

from cta.cli import run
from cta.data import TrajectoryDataset, environment_name
from cta.envs.worlds import OgbenchWorld

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision lowered"),
    pytest.mark.filterwarnings("ignore:.*Overriding environment"),
]
TINY = ["--agent.batch-size", "8", "--agent.hidden", "16", "--log-interval", "3", "--eval-tasks", "1"]


def train(path, folder, agent):
    words = ["train", "--agent", agent, "--dataset", str(path), "--steps", "3", "--run-dir", str(folder)]
    assert run([*words, *TINY, "--eval-episodes", "1", "--eval-workers", "1"]) == 0
    with (folder / "eval.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["task"], row["episodes"]) == ("1", "1")
    assert run(["evaluate", str(folder), "--episodes", "1", "--tasks", "1", "--workers", "1"]) == 0
    with (folder / "evaluate.csv").open(newline="") as file:
        (again,) = csv.DictReader(file)
    assert {name: again[name] for name in row} == row


def test_point_maze_from_generated_data(tmp_path):
    name = "pointmaze-medium-navigate-v0"
    words = ["data", "generate", name, "--episodes", "2", "--episode-steps", "50", "--workers", "1"]
    assert run([*words, "--out", str(tmp_path)]) == 0
    train(tmp_path / f"{name}.npz", tmp_path / "run", "hiql")


@pytest.mark.parametrize("name", ["antmaze-medium-navigate-v0", "humanoidmaze-medium-navigate-v0"])
def test_other_mazes_from_a_file(name, tmp_path, capfd):
    world = OgbenchWorld(environment_name(name))
    generator = np.random.default_rng(0)
    observations, actions = [], []
    for seed in range(2):
        observation, _ = world.reset(1, seed)
        for _ in range(15):
            observations.append(observation)
            actions.append(generator.uniform(-1, 1, world.action_dim))
            observation, *_ = world.step(actions[-1])
    world.close()
    data = TrajectoryDataset.from_arrays(
        np.asarray(observations, np.float32), np.asarray(actions, np.float32), episode_lengths=[15, 15], name=name
    )
    data.to_npz(tmp_path / f"{name}.npz")
    train(tmp_path / f"{name}.npz", tmp_path / "run", "gcbc")
    capfd.readouterr()
    assert run(["data", "generate", name]) == 1
    said = capfd.readouterr().err
    assert "expert" in said and "cta data download" in said
