"""What a record says: a command that can be typed again, and the kernels that were used."""

import json
import sys
from types import SimpleNamespace

import pytest

from cta.cli import run
from cta.envs.desk_play import generate_play
from cta.experiment.candidates import scoring_facts
from cta.io import provenance


@pytest.mark.parametrize("program", ["/somewhere/bin/cta", "/somewhere/cta/__main__.py"])
def test_a_command_is_recorded_as_it_is_typed(monkeypatch, program):
    monkeypatch.setattr(sys, "argv", [program, "analogies", "my run", "--query", "open the drawer"])
    assert provenance.command() == "cta analogies 'my run' --query 'open the drawer'"


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [
        ("cta train --dataset '/data/my sets/x y.npz' --seeds 0,1", "cta train --dataset 'x y.npz' --seeds 0,1"),
        ("cta train --dataset '~/x.npz' --agent.hidden 8", "cta train --dataset x.npz --agent.hidden 8"),
        ("", ""),
        # Earlier versions wrote words without quotes.
        ("cta train --dataset ~/x.npz --agent.hidden 8", "cta train --dataset x.npz --agent.hidden 8"),
        ("cta train --dataset /data/x.npz --group O'Neill", "cta train --dataset x.npz --group O'Neill"),
        ("cta train --dataset /Anna's/x.npz --group O'Neill", "cta train --dataset x.npz --group O'Neill"),
    ],
)
def test_folders_are_left_out_of_a_command(monkeypatch, recorded, kept):
    monkeypatch.setattr(provenance, "command", lambda: recorded)
    assert scoring_facts(episodes=1, weights="float32", workers=1, eval_seed=0)["command"] == kept


def test_a_run_on_a_gpu_without_kernels_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cta.experiment.trainer.jax", SimpleNamespace(default_backend=lambda: "gpu"))
    words = [
        "--agent",
        "gcbc",
        "--agent.batch-size",
        "8",
        "--agent.hidden",
        "8",
        "--steps",
        "2",
        "--eval-interval",
        "0",
    ]
    data = generate_play("desk", episodes=2, validation_episodes=1, episode_steps=30, seed=0)[0]
    data.to_npz(tmp_path / "mine.npz")
    for kernels, told in (("auto", True), ("plain", False)):
        path = tmp_path / kernels
        wanted = ["--dataset", str(tmp_path / "mine.npz"), "--kernels", kernels, "--run-dir", str(path)]
        assert run(["train", *wanted, *words]) == 0
        assert ("without fused kernels" in "".join(capsys.readouterr())) == told
        assert bool(json.loads((path / "provenance.json").read_text())["without_fused"]) == told
