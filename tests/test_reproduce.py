"""`cta reproduce` on the desk, with real processes: a spent budget, a killed driver, and the end of it all."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from cta.agents import find
from cta.agents.policy import Policy
from cta.cli import evaluate_results, run
from cta.errors import CtaError
from cta.experiment import Run
from cta.results.rows import read_rows
from cta.results.store import Results
from cta.results.weights import FORMAT, network_shapes, open_weights, read_by_act
from terminal import Terminal

PLAN = """
seeds = 2
steps = 3000
eval_points = [1000, 2000, 3000]
episodes = 2
data = { episodes = 20, episode_steps = 60 }
settings = { batch_size = 16, hidden = [16, 16] }

[[cells]]
dataset = "desk-play-v0"
agents = ["gcbc"]
"""
CELL = "desk-play-v0.gcbc"


class Driver:
    """The command, in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "tiny.toml").write_text(PLAN)
        self.run_dir = folder / "work" / "runs" / "desk-play-v0" / "gcbc" / "seeds-0-1"
        self.results = Results(folder / "out")
        self.command = [sys.executable, "-m", "cta", "reproduce", "tiny.toml", "--out", "out", "--work", "work"]

    def start(self, *words: str) -> subprocess.Popen:
        command = [*self.command, *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, text=True, **pipes)

    def finish(self, process: subprocess.Popen) -> tuple[int, str]:
        out, err = process.communicate(timeout=500)
        return process.returncode, out + err


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """What three starts said: stopped by its budget, killed while it trained, run to the end."""
    driver = Driver(tmp_path_factory.mktemp("reproduce"))
    said = [driver.finish(driver.start("--budget", "6s", "--partial"))]
    killed = driver.start()
    until = time.monotonic() + 400
    while not (driver.run_dir / "checkpoints" / "1000").exists() and killed.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    said.append(driver.finish(killed))
    said.append(driver.finish(driver.start()))
    return driver, said


@pytest.mark.slow
def test_a_spent_budget_is_no_failure_and_says_what_it_left(story):
    code, text = story[1][0]
    assert code == 0, text
    assert "left, for the next start:" in text and "gcbc on desk-play-v0" in text


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_behind(story):
    driver, said = story
    assert said[1][0] == -signal.SIGKILL
    # The third start has the lock, which every process of the second had held.
    assert said[2][0] == 0, said[2][1]
    mine = str(driver.folder)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            assert os.readlink(folder / "cwd") != mine
        except OSError:
            continue


@pytest.mark.slow
def test_the_last_start_continues_and_ends(story):
    driver, said = story
    code, text = said[2]
    assert code == 0 and "the plan is done" in text, text
    assert "generate" not in text
    rows = read_rows(driver.folder / "out" / f"{CELL}.csv")
    assert len(rows) == 2 * 3 * 5
    assert {row.key for row in rows} == {(seed, step) for seed in (0, 1) for step in (1000, 2000, 3000)}
    assert {row.episodes for row in rows} == {2}


@pytest.mark.slow
def test_the_record_says_what_made_the_rows(story):
    record = story[0].results.record("desk-play-v0", "gcbc")
    (training,) = record["training"]
    assert training["seeds"] == [0, 1] and training["steps"] == 3000 and training["seeds_together"] == 2
    assert training["command"].startswith("cta train --agent gcbc --dataset desk-play-v0")
    assert {"jax", "mujoco", "ogbench"} <= set(training["versions"])
    assert training["commit"] and training["hardware"]["device"] == "cpu"
    assert len(training["data"]["fingerprint"]) == 64 and training["data"]["provenance"]["seed"] == 0
    assert training["wall_clock_s"] > 0 and training["settings"]["batch_size"] == 16
    assert training["seed_steps_per_s"] == pytest.approx(6000 / training["wall_clock_s"], rel=0.01)
    scored = sorted(tuple(entry[:2]) for part in record["scoring"] for entry in part["scored"])
    assert scored == sorted((seed, step) for seed in (0, 1) for step in (1000, 2000, 3000))
    assert {part["weights"] for part in record["scoring"]} == {"float32"}


@pytest.mark.slow
def test_a_plan_that_is_done_starts_nothing(story):
    driver, _ = story

    def files():
        return {path.name: path.read_bytes() for path in driver.results.folder.rglob("*") if path.is_file()}

    before = files()
    assert before
    code, text = driver.finish(driver.start())
    assert (
        code == 0 and "the plan is done: out has all of it; another --out makes it anew" in text and "train" not in text
    )
    assert files() == before
    assert [path.name for path in (driver.run_dir / "checkpoints").iterdir()] == ["3000"]


@pytest.mark.slow
def test_weights_score_like_the_run_they_come_from(story, tmp_path, capsys):
    driver, _ = story
    here = Results(tmp_path / "results")
    pack = ["results", "pack", str(driver.run_dir), "--step", "3000", "--results", str(here.folder)]
    assert run([*pack, "--episodes", "2"]) == 0
    files = sorted(str(path) for path in (here.folder / "weights").iterdir())
    assert [Path(file).name for file in files] == [f"{CELL}.seed{seed}.3k.safetensors" for seed in (0, 1)]
    # Known as trained before anybody scores it: no other machine trains it again.
    assert here.record("desk-play-v0", "gcbc")["training"][0]["seeds"] == [0, 1]
    # Without --results: into the folder they lie in.
    assert run(["evaluate", *files, "--episodes", "2"]) == 0
    assert f"2 scored into {here.folder}\n" in capsys.readouterr().out
    assert all(Path(file).exists() for file in files)
    there = driver.results.cell("desk-play-v0", "gcbc").rows
    assert list(here.cell("desk-play-v0", "gcbc").rows) == [row for row in there if row.step == 3000]
    capsys.readouterr()
    assert run(["evaluate", *files, "--results", str(here.folder), "--episodes", "2"]) == 0
    assert "2 were there already" in capsys.readouterr().out


@pytest.mark.slow
def test_rounded_weights_are_smaller_close_and_named(story, tmp_path):
    driver, _ = story
    sizes = {}
    for precision in ("float32", "float16", "bfloat16"):
        words = ["results", "pack", str(driver.run_dir), "--step", "3000", "--weights", precision]
        assert run([*words, "--results", str(tmp_path / precision)]) == 0
        file = tmp_path / precision / "weights" / f"{CELL}.seed1.3k.safetensors"
        sizes[precision] = file.stat().st_size
        weights = open_weights(file)
        trained = Run(driver.run_dir)
        exact = trained.networks(3000)[1][1]
        pair = np.random.default_rng(0).normal(size=(2, 4, *trained.spec.observation_shape)).astype(np.float32)
        actions = [
            Policy(weights.agent, networks)(*pair, np.ones(4, bool)) for networks in (exact, weights.networks(3000))
        ]
        error = np.abs(actions[0] - actions[1]).max()
        assert (error == 0) if precision == "float32" else (0 < error < 0.1)
        assert weights.precision == precision and weights.training["steps"] == 3000
    # Two bytes less for each of its 595 weights; the rest of so small a file is what it says about itself.
    assert sizes["float32"] - sizes["float16"] == pytest.approx(2 * 595, rel=0.05)
    assert sizes["bfloat16"] == pytest.approx(sizes["float16"], rel=0.01)
    results = str(tmp_path / "scores")
    assert run(["evaluate", str(file), "--results", results, "--episodes", "1"]) == 0
    assert Results(results).record("desk-play-v0", "gcbc")["scoring"][0]["weights"] == "bfloat16"


LONGER = PLAN.replace("episodes = 20, episode_steps = 60", "episodes = 40, episode_steps = 150")
HELD_OUT_PLAN = LONGER + "held_out = true"


@pytest.mark.slow
def test_held_out_pairs_are_cut_trained_kept_and_scored_elsewhere(tmp_path, capsys):
    driver = Driver(tmp_path)
    (tmp_path / "tiny.toml").write_text(HELD_OUT_PLAN)
    code, text = driver.finish(driver.start("--evaluate", "later", "--budget", "10m"))
    assert code == 0 and "to score" in text and "6 files" in text, text
    weights = sorted((tmp_path / "out" / "ooc" / "weights").iterdir())
    assert [path.name for path in weights] == [
        f"{CELL}.seed{seed}.{step}k.safetensors" for seed in (0, 1) for step in (1, 2, 3)
    ]
    assert not (tmp_path / "out" / f"{CELL}.csv").exists()
    brought = tmp_path / "brought" / "out"
    shutil.copytree(tmp_path / "out", brought)
    assert run(["results", "add", str(brought), "--to", str(tmp_path / "all")]) == 0
    files = [str(path) for path in sorted((brought / "ooc" / "weights").iterdir())]
    assert run(["evaluate", *files, "--results", str(tmp_path / "all"), "--episodes", "2"]) == 0
    cell = Results(tmp_path / "all").held_out().cell("desk-play-v0", "gcbc")
    assert {(*row.key, row.pair) for row in cell.rows} == {
        (seed, step, f"pair{pair}") for seed in (0, 1) for step in (1000, 2000, 3000) for pair in (1, 2, 3)
    }
    (training,) = cell.record["training"]
    assert training["seeds"] == [0, 1] and training["data"]["provenance"]["ooc"]["kind"] == "held-out"
    capsys.readouterr()
    assert run(["table", "ooc", "--ours", "--results", str(tmp_path / "all"), "--no-intervals"]) == 0
    assert "incomplete" in capsys.readouterr().out
    # With the scores in its results folder the driver has nothing left to do.
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "all", tmp_path / "out")
    code, text = driver.finish(driver.start())
    assert code == 0 and "the plan is done" in text, text


def test_scores_go_into_the_folder_that_the_weights_lie_in(tmp_path, monkeypatch):
    """Held-out pairs lie in its `ooc`; a results folder of that name is one like any other."""
    for name, held_out, home in (
        ("x/weights/a.safetensors", False, tmp_path / "x"),
        ("x/ooc/weights/a.safetensors", True, tmp_path / "x"),
        ("ooc/weights/a.safetensors", False, tmp_path / "ooc"),
        ("x/a.safetensors", False, Path("results")),
        ("x/weights", False, Path("results")),
    ):
        assert evaluate_results.results_folder(tmp_path / name, held_out=held_out) == home
    (tmp_path / "x" / "weights").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "x" / "weights")
    assert evaluate_results.results_folder(Path("a.safetensors"), held_out=False) == tmp_path / "x"


def test_weights_of_several_folders_are_scored_each_into_its_own(tmp_path, monkeypatch, capsys):
    item = SimpleNamespace(held_out=None, precision="float32")
    monkeypatch.setattr("cta.results.candidates.candidates", lambda source, steps, seeds: [item])
    monkeypatch.setattr("cta.results.scoring.score_into", lambda results, found, **options: (len(found), 0))
    files = [str(tmp_path / name / "weights" / "a.safetensors") for name in ("x", "x", "y")]
    assert run(["evaluate", *files]) == 0
    assert capsys.readouterr().out == f"2 scored into {tmp_path / 'x'}\n1 scored into {tmp_path / 'y'}\n"
    assert run(["evaluate", *files, "--results", "z"]) == 0
    assert capsys.readouterr().out == "3 scored into z\n"


def test_what_acting_reads_is_found_by_tracing():
    from cta.agents import Spec

    spec = Spec.of((83,), 5)
    for name, parts in {"cta": {"psi", "eta", "high", "low"}, "hiql": {"high", "low"}, "gciql": {"actor"}}.items():
        entry = find(name)
        agent = entry.build(entry.config)
        names = read_by_act(agent, spec)
        assert {leaf.split("/")[0] for leaf in names} == parts
        if name == "cta":
            from cta.training.checkpoints import flatten

            size = sum(leaf.size for path, leaf in flatten(network_shapes(agent, spec)).items() if path in names)
            assert 4 * size == pytest.approx(9.0e6, rel=0.02)


@pytest.mark.parametrize("content", [b"", b"not weights at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_other_files_get_a_line(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CtaError, match="not a file of weights"):
        open_weights(path)


@pytest.mark.parametrize("stands", [".", "weights"])
def test_weights_bring_no_code(tmp_path, monkeypatch, stands):
    facts = {"format": FORMAT, "agent": "evil_module:Agent"}
    path = tmp_path / "weights" / "x.safetensors"
    path.parent.mkdir()
    path.write_bytes(save({}, metadata={"cta": json.dumps(facts)}))
    (tmp_path / stands / "evil_module.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(tmp_path / stands)
    with pytest.raises(CtaError, match="agent evil_module:Agent is code, which is not looked for beside weights"):
        open_weights(os.path.relpath(path))
    assert not (tmp_path / "owned").exists()


def test_failures_are_reported_and_do_not_stop_the_rest(tmp_path):
    driver = Driver(tmp_path)
    (tmp_path / "tiny.toml").write_text(PLAN.replace("hidden = [16, 16]", "hiden = 3"))
    (tmp_path / "work" / "data").mkdir(parents=True)
    for name in ("desk-play-v0.npz", "desk-play-v0-val.npz"):
        (tmp_path / "work" / "data" / name).write_bytes(b"")
    code, text = driver.finish(driver.start())
    assert code == 1
    assert "FAILED" in text and "left, for the next start:" in text


@pytest.mark.slow
def test_a_closed_terminal_ends_the_driver_and_its_processes_in_order(tmp_path):
    driver = Driver(tmp_path)
    terminal = Terminal(driver.command, cwd=tmp_path)
    until = time.monotonic() + 400
    provenance = driver.run_dir / "provenance.json"
    # The hardware is written when the training process has begun to listen for signals.
    while not (provenance.exists() and "hardware" in provenance.read_text()):
        assert time.monotonic() < until and terminal.process.poll() is None
        time.sleep(0.05)
    assert terminal.close() == 3
    assert "interrupted" in (driver.run_dir / "events.csv").read_text()
