"""A plan on a real Ray cluster of a head and two machines, of which one is lost without grace and one is added.

The machines are Ray's own processes on this one; they declare a GPU each, which nobody uses.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cta.scores.store import Scores

PLAN = """
seeds = 1
steps = 4000
eval_points = [1000, 4000]
episodes = 2
data = { episodes = 20, episode_steps = 60 }

[[cells]]
dataset = "desk-play-v0"
agents = ["gcbc"]
settings = { batch_size = 16, hidden = [16, 16] }

[[cells]]
dataset = "desk-play-v0"
agents = ["gcbc"]
settings = { batch_size = 16, hidden = [16, 16], lr = 0.003 }

[[cells]]
dataset = "desk-play-v0"
agents = ["gcbc"]
settings = { batch_size = 16, hidden = [16, 16] }
condition = "held-out"

[[cells]]
dataset = "desk-play-v0"
agents = ["gcbc"]
settings = { batch_size = 16, hidden = [16, 16], lr = 0.003 }
condition = "random"
"""


def reproduce(folder: Path, *words: str, **environment: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "cta",
        "reproduce",
        "plan.toml",
        "--work",
        "work",
        "--out",
        "out",
        "--workers",
        "1",
    ]
    (folder / "plan.toml").write_text(PLAN)
    return subprocess.Popen(
        [*command, *words], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", **environment},
    )  # fmt: skip


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def in_training(work: Path, deadline: float) -> tuple[Path, int]:
    """A run that has a checkpoint and is not at its end, and its process."""
    while time.monotonic() < deadline:
        for run in work.glob("cells/*/seeds-*"):
            if (run / "checkpoints" / "1000").exists() and not (run / "checkpoints" / "4000").exists():
                try:
                    return run, json.loads((run / "lock").read_text())["pid"]
                except (OSError, ValueError):
                    continue
        time.sleep(0.05)
    raise AssertionError("no run was found in training")


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Every array of every last checkpoint, by cell."""
    from cta.experiment import Run

    found = {}
    for run in sorted((folder / "work" / "cells").glob("*/seeds-*")):
        import jax

        step, networks = Run(run).networks()
        assert step == 4000
        for name, leaf in enumerate(jax.tree.leaves(networks)):
            found[f"{run.parent.name}/{run.name}/{name}"] = np.asarray(leaf)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX in this process; what Ray forks starts a program
def test_a_lost_machine_and_a_new_one_leave_no_trace(tmp_path):
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    alone, together = tmp_path / "local", tmp_path / "ray"
    for folder in (alone, together):
        folder.mkdir()
    local = reproduce(alone)
    said, _ = local.communicate(timeout=200)
    assert local.returncode == 0, said

    cluster = cluster_utils.Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=2, num_gpus=1) for _ in range(2)]
        driver = reproduce(together, "--engine", "ray", RAY_ADDRESS=cluster.address)
        run, process = in_training(together / "work", time.monotonic() + 120)
        raylets = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
        lost = raylets[parent(parent(process))]
        os.kill(process, signal.SIGKILL)
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(num_cpus=2, num_gpus=1)
        said, _ = driver.communicate(timeout=200)
        assert driver.returncode == 0, said
    finally:
        cluster.shutdown()
    assert "to be continued: train" in said and "from step 1,000" in said
    assert (
        f"taking over from process {process}"
        in "".join(path.read_text() for path in (together / "work" / "logs").glob("train-*"))
        or (run / "checkpoints" / "4000").exists()
    )
    cells = [[cell.rows for cell in Scores(folder / "out").cells()] for folder in (alone, together)]
    assert len(cells[0]) == 4 and all(cells[0]) and cells[0] == cells[1]
    here, there = weights(alone), weights(together)
    assert here.keys() == there.keys() and len(here) > 4
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_without_ray_one_line_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    from cta.cli import run

    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["reproduce", "plan.toml", "--engine", "ray"]) == 1
    assert "pip install 'cta[cluster]'" in capsys.readouterr().err
