"""What goes wrong before, around and after training: bad data, no memory, nobody who listens, signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cta.cli import run

CTA = [sys.executable, "-m", "cta"]
SMALL = ["--agent", "gcbc", "--agent.batch-size", "16", "--agent.hidden", "8", "--steps", "20", "--log-interval", "10"]


@pytest.fixture
def walk(tmp_path):
    """Ten short episodes of nobody's environment."""
    rng = np.random.default_rng(0)
    ends = np.arange(200) % 20 == 19
    observed = rng.normal(size=(200, 3)).astype(np.float32)
    np.savez(tmp_path / "walk.npz", observations=observed, actions=rng.uniform(-1, 1, (200, 2)), terminals=ends)
    return tmp_path / "walk.npz"


def test_a_run_that_cannot_open_its_data_leaves_no_run(walk, tmp_path, capfd):
    """So the same command, mended, begins; folders that hold something else stay."""
    for bad, said in (("wlak.npz", "no such file"), (".", "is a folder"), ("walk.npy", "ends in .npz")):
        assert run(["train", "--dataset", str(tmp_path / bad), *SMALL, "--run-dir", str(tmp_path / "run")]) == 1
        last = capfd.readouterr().err.strip().splitlines()[-1]
        assert said in last and "resume" not in last and not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep me")
    words = ["--dataset", str(tmp_path / "wlak.npz"), *SMALL, "--run-dir", str(tmp_path / "run")]
    assert run(["train", *words]) == 1 and [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]
    words[1] = str(walk)
    assert run(["train", *words]) == 0


def test_too_little_memory_is_one_line(walk, tmp_path, capfd):
    folder = tmp_path / "a run"
    words = ["train", "--dataset", str(walk), *SMALL, "--agent.batch-size", str(2**31 - 1), "--run-dir", str(folder)]
    assert run(words) == 1
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert "out of memory" in last and "--agent.batch-size" in last
    assert f"`cta resume '{folder}'` continues" in last  # to be pasted into a shell


def test_a_run_needs_no_listener(walk, tmp_path):
    """The reader of its output goes away, or finds no room: the run ends as ever."""
    words = [*CTA, "train", "--dataset", str(walk), *SMALL, "--run-dir", str(tmp_path / "run")]
    with open("/dev/full", "w") as full:
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(words, stdout=full, stderr=write, timeout=120)
        os.close(write)
    assert "finished" in (tmp_path / "run" / "provenance.json").read_text()
    assert done.returncode == 1  # the summary was not printed


def test_letters_that_a_terminal_lacks_are_spelt_out(tmp_path):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [*CTA, "ooc", "cut", "desk-play-v0", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0 and r"K \xb7 events" in done.stdout, done.stderr


@pytest.mark.parametrize("delay", [0.3, 0.5, 0.8])
def test_a_signal_while_modules_are_loaded_is_not_lost(walk, tmp_path, delay):
    words = [*CTA, "train", "--dataset", walk, *SMALL, "--steps", "1000000", "--run-dir", tmp_path / "run"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode in (3, -signal.SIGTERM) and "Traceback" not in said, said  # −15: before our first line


@pytest.mark.parametrize("delay", [0.0, 0.1, 1.0])
def test_sigterm_ends_other_commands_politely(tmp_path, delay):
    """As Ctrl-C does, also while modules are loaded: one line, exit code 3."""
    words = [*CTA, "data", "generate", "puzzle-3x3-play-v0", "--episodes", "500", "--workers", "1", "--out", tmp_path]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not any(Path(tmp_path).iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 3 and "interrupted" in said and "Traceback" not in said, said
