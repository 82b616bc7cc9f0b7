"""`cta reproduce` on the desk, with real processes: a spent budget, a killed driver, and the end of it all."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cta.cli import run
from cta.grid.plan import read_plan
from cta.scores.store import Scores
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
SETTINGS = "batch_size=16;hidden=16,16"


class Driver:
    """The command, in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.write(PLAN)
        self.results = Scores(folder / "out")
        self.command = [sys.executable, "-m", "cta", "reproduce", "tiny.toml", "--out", "out", "--work", "work"]

    def write(self, plan: str) -> None:
        (self.folder / "tiny.toml").write_text(plan)
        (self.cell,) = read_plan(self.folder / "tiny.toml").cells
        self.run_dir = self.folder / "work" / "cells" / self.cell.folder / "seeds-0-1"

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
    said = [driver.finish(driver.start("--budget", "6s"))]
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
    assert "left, for the next start:" in text and "on desk-play-v0" in text


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
    rows = driver.results.cell(driver.cell.key).rows
    assert len(rows) == 2 * 3 * 5 and rows[0].settings == SETTINGS
    assert {(row.seed, row.step) for row in rows} == {(seed, step) for seed in (0, 1) for step in (1000, 2000, 3000)}
    assert {row.episodes for row in rows} == {2}


@pytest.mark.slow
def test_the_record_says_what_made_the_rows(story):
    record = story[0].results.cell(story[0].cell.key).record
    (training,) = record["training"]
    assert training["seeds"] == [0, 1] and training["steps"] == 3000 and training["seeds_together"] == 2
    assert training["command"].startswith("cta train --agent gcbc --dataset desk-play-v0")
    assert {"jax", "mujoco", "ogbench"} <= set(training["versions"])
    assert training["commit"] and training["hardware"]["device"] == "cpu"
    assert len(training["data"]["fingerprint"]) == 64 and training["data"]["provenance"]["seed"] == 0
    assert training["wall_clock_s"] > 0 and training["settings"]["batch_size"] == 16
    assert training["seed_steps_per_s"] == pytest.approx(6000 / training["wall_clock_s"], rel=0.01)
    assert training["cell"] == story[0].cell.digest
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
    assert code == 0 and "the plan is done: out has all of it" in text and "train" not in text
    assert files() == before
    # More episodes may be asked of the steps that count.
    assert {path.name for path in (driver.run_dir / "checkpoints").iterdir()} == {"1000", "2000", "3000"}


@pytest.mark.slow
def test_another_out_and_more_episodes_train_nothing(story):
    driver, _ = story
    code, text = driver.finish(driver.start("--out", "again"))
    assert code == 0 and "6 scores found in" in text and "train" not in text and "score gcbc" not in text
    again = Scores(driver.folder / "again").cell(driver.cell.key)
    assert again.rows == driver.results.cell(driver.cell.key).rows
    (driver.folder / "more.toml").write_text(PLAN.replace("episodes = 2\n", "episodes = 3\n", 1))
    more = [word.replace("tiny.toml", "more.toml") for word in driver.command]
    done = subprocess.run([*more, "--out", "again"], cwd=driver.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "train" not in done.stderr and "score gcbc" in done.stderr, done.stderr
    rows = Scores(driver.folder / "again").cell(driver.cell.key).rows
    assert len(rows) == 30 and {row.episodes for row in rows} == {3}


LONGER = PLAN.replace("episodes = 20, episode_steps = 60", "episodes = 40, episode_steps = 150")
HELD_OUT_PLAN = LONGER + "condition = 'held-out'"


@pytest.mark.slow
def test_held_out_pairs_are_cut_trained_kept_and_scored_elsewhere(tmp_path, capsys):
    driver = Driver(tmp_path)
    driver.write(HELD_OUT_PLAN)
    code, text = driver.finish(driver.start("--evaluate", "later", "--budget", "10m"))
    assert code == 0 and "to score" in text and "6 files" in text, text
    names = sorted(path.name for path in (tmp_path / "out" / "weights").iterdir())
    stem = driver.cell.key.stem
    assert names == [f"{stem}.seed{seed}.{step}k.safetensors" for seed in (0, 1) for step in (1, 2, 3)]
    assert not driver.results.cell(driver.cell.key).rows
    brought = tmp_path / "brought" / "out"
    shutil.copytree(tmp_path / "out", brought)
    assert run(["results", "add", str(brought), "--to", str(tmp_path / "all")]) == 0
    files = [str(path) for path in sorted((brought / "weights").iterdir())]
    assert run(["evaluate", *files, "--results", str(tmp_path / "all"), "--episodes", "2"]) == 0
    cell = Scores(tmp_path / "all").cell(driver.cell.key)
    assert {(row.seed, row.step, row.task) for row in cell.rows} == {
        (seed, step, f"pair{pair}") for seed in (0, 1) for step in (1000, 2000, 3000) for pair in (1, 2, 3)
    }
    (training,) = cell.record["training"]
    assert training["seeds"] == [0, 1] and training["data"]["provenance"]["ooc"]["kind"] == "held-out"
    # With the scores in its results folder there is nothing left to do.
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "all", tmp_path / "out")
    code, text = driver.finish(driver.start())
    assert code == 0 and "the plan is done" in text, text


def test_failures_are_reported_and_do_not_stop_the_rest(tmp_path):
    driver = Driver(tmp_path)
    folder = tmp_path / "work" / "data" / driver.cell.data_name
    folder.mkdir(parents=True)
    for name in ("desk-play-v0.npz", "desk-play-v0-val.npz"):
        (folder / name).write_bytes(b"")
    code, text = driver.finish(driver.start())
    assert code == 1
    assert "FAILED" in text and "left, for the next start:" in text and "failed:\n  train gcbc (" in text


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
