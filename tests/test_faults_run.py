"""What can go wrong with a run: one line, a documented exit code, and `cta resume` ends as if nothing had.

Real runs on the desk, a few steps each; every fault is the real one (a full disk, a damaged file, a killed worker).
"""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.cli import run
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.experiment import Run, background
from cta.experiment.run_dir import RunLock
from cta.training.learner import EXPLODED, first_bad
from cta.training.seeds import SeedGroup
from kill_and_resume import CHILD, compare, steady
from terminal import Terminal

STEPS = ["--steps", "20", "--log-interval", "5", "--eval-interval", "10", "--checkpoint-interval", "5", "--keep", "1"]
SMALL = ["--agent", "gcbc", "--agent.batch-size", "16", "--agent.hidden", "8", "--seeds", "2", "--eval-episodes", "2"]
NOISY = ["--eval-tasks", "2", "--eval-gaussian", "1.0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The desk's data in files of our own, which tests may lose and change."""
    folder = tmp_path_factory.mktemp("data")
    name, train, validation = open_dataset("desk-play-v0")
    train.to_npz(folder / f"{name}.npz")
    validation.to_npz(folder / f"{name}-val.npz")
    return folder / f"{name}.npz"


def words(data, folder):
    return ["train", "--dataset", str(data), *SMALL, *STEPS, *NOISY, "--run-dir", str(folder)]


@pytest.fixture(scope="module")
def straight(data, tmp_path_factory):
    """A run that nothing befell."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    assert run(words(data, folder)) == 0
    return folder


@pytest.fixture
def copy(straight, tmp_path):
    """The same, in a directory of its own."""
    folder = tmp_path / "copy"
    shutil.copytree(straight, folder)
    return folder


def same(one, two):
    return all(steady(one / name) == steady(two / name) for name in ("train.csv", "eval.csv"))


def one_line(said, *expected):
    """The complaint is the last line on standard error, and says all this."""
    assert "Traceback" not in said.err
    last = said.err.strip().splitlines()[-1]
    assert last.startswith("cta ") and all(text in last for text in expected), said.err
    return last


def events(folder):
    with (folder / "events.csv").open(newline="") as file:
        return [row["kind"] for row in csv.DictReader(file)]


def test_the_same_settings_give_the_same_files(straight, data, tmp_path):
    assert run(words(data, tmp_path / "again")) == 0
    assert same(straight, tmp_path / "again")
    assert "training/total_loss" in steady(straight / "train.csv")
    assert sorted(path.name for path in (straight / "checkpoints").iterdir()) == ["10", "20"]


def test_a_damaged_newest_checkpoint_falls_back_loudly(straight, copy, capfd):
    """Truncated here; what else can happen to its files is in test_faults_files.py."""
    [path] = (copy / "checkpoints" / "20" / "training" / "d").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert run(["resume", str(copy)]) == 0
    said = capfd.readouterr().err
    assert "checkpoints/20: this checkpoint is damaged" in said and "continuing from step 10" in said
    assert same(straight, copy) and events(copy)[:1] == ["checkpoint-damaged"]
    assert sorted(path.name for path in (copy / "checkpoints").iterdir()) == ["10", "20", "damaged-20"]


def test_readers_fall_back_loudly_too(copy, capfd):
    [path] = (copy / "checkpoints" / "20" / "networks" / "d").iterdir()
    path.write_bytes(b"")
    assert Run(copy).networks()[0] == 10
    assert "checkpoints/20: this checkpoint is damaged" in capfd.readouterr().err
    with pytest.raises(CtaError, match="damaged"):
        Run(copy).networks(20)


def mounted(folder, options):
    """A small file system of its own, if we have the right to that."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    try:
        return subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def disk(tmp_path):
    """A disk of 200 kB; None where only root may mount one."""
    folder = tmp_path / "disk"
    if not mounted(folder, "size=200k"):
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(straight, data, disk, tmp_path, capfd):
    if disk is None:
        return limited_size_of_files(straight, data, tmp_path / "run")
    assert run(words(data, disk / "run")) == 1
    one_line(capfd.readouterr(), "No space left on device", f"`cta resume {disk / 'run'}` continues")
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    assert run(["resume", str(disk / "run")]) == 0
    assert same(straight, disk / "run")
    return None


def limited_size_of_files(straight, data, folder):
    """The same for those who may not mount: no file over a kilobyte from the first checkpoint on."""
    script = (
        "import resource, sys; from cta.cli import run; import cta.experiment\n"
        "from cta.training import checkpoints; original = checkpoints._write_arrays\n"
        "def limited(*a, **k): resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); original(*a, **k)\n"
        "checkpoints._write_arrays = limited; sys.exit(run(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words(data, folder)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    one_line(SimpleNamespace(err=done.stderr), "File too large", "cta resume")
    assert run(["resume", str(folder)]) == 0
    assert same(straight, folder)


def test_a_read_only_folder(straight, data, disk, tmp_path, capfd):
    folder, reason = tmp_path / "closed", "Permission denied"
    if disk is not None:
        folder, reason = disk, "Read-only file system"
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    shutil.copytree(straight, folder / "run")
    if disk is not None:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    else:
        (folder / "run").chmod(0o555)
        folder.chmod(0o555)
    try:
        assert run(["resume", str(folder / "run")]) == 1
        one_line(capfd.readouterr(), f"cannot be written ({reason})")
        assert run(words(data, folder / "new")) == 1
        one_line(capfd.readouterr(), f"cannot write the run directory ({reason})")
    finally:
        if disk is None:
            folder.chmod(0o755)
            (folder / "run").chmod(0o755)


def test_data_that_vanished_or_changed(straight, copy, data, capfd):
    hidden = data.with_suffix(".hidden")
    data.rename(hidden)
    try:
        assert run(["resume", str(copy)]) == 1
        one_line(capfd.readouterr(), "no such file", "with the data back in place", f"`cta resume {copy}`")
        with np.load(hidden) as arrays:
            changed = {name: arrays[name].copy() for name in arrays.files}
        changed["actions"][7, 0] += 0.25
        np.savez(data, **changed)
        assert run(["resume", str(copy)]) == 1
        one_line(capfd.readouterr(), "has changed since this run began", "put the old data back")
    finally:
        hidden.replace(data)
    assert run(["resume", str(copy)]) == 0
    assert same(straight, copy)


def test_resuming_from_another_folder(straight, data, tmp_path, monkeypatch, capfd):
    """A relative path of the data means the same file, wherever one stands."""
    home = tmp_path / "home"
    shutil.copytree(data.parent, home / "data")
    monkeypatch.chdir(home)
    assert run(words(f"data/{data.name}", "runs/one")) == 0
    shutil.rmtree(home / "runs" / "one" / "checkpoints" / "20")
    monkeypatch.chdir(tmp_path)
    assert run(["resume", "home/runs/one"]) == 0
    assert "resuming at step 10" in capfd.readouterr().err and same(straight, home / "runs" / "one")


def test_a_directory_in_use(copy, data, capfd):
    lock = RunLock(copy)
    for command in (["resume", str(copy)], words(data, copy)):
        assert run(command) == 1
        one_line(capfd.readouterr(), "is in use by process", str(os.getpid()))
    lock.release()
    assert run(words(data, copy)) == 1
    one_line(capfd.readouterr(), "already holds a run")


def poison(monkeypatch, *, index, at):
    """What a bit flip or a bug would do: after step `at` the weights of one seed are not numbers."""
    original = SeedGroup.run

    def run_and_poison(self, count):
        original(self, count)
        if self.step == at:
            state = self._states[index]
            self._states[index] = state._replace(networks=jax.tree.map(lambda x: x * jnp.nan, state.networks))

    monkeypatch.setattr(SeedGroup, "run", run_and_poison)


def test_numbers_that_go_bad_stop_their_seed_alone(straight, data, tmp_path, capfd, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        poison(patch, index=1, at=10)
        assert run(words(data, folder)) == 4
    said = capfd.readouterr()
    assert "1 of 2 seeds continue" in said.err and "seed 1 is missing" in said.out
    one_line(said, "seed 1 stopped at step 11: weights diverged")
    assert json.loads((folder / "provenance.json").read_text())["stopped"] == {"1": {"step": 11, "loss": "weights"}}
    assert "seed-stopped" in events(folder)
    # The other seed is what it would have been.
    for name in ("train.csv", "eval.csv"):
        kept = [line for line in steady(straight / name).splitlines() if line.split(",")[-7 * (name[0] == "e")] == "0"]
        found = [line for line in steady(folder / name).splitlines() if line.split(",")[-7 * (name[0] == "e")] == "0"]
        assert found == kept
    # A checkpoint of the bad seed from before is left, though --keep 1 and the last three would have dropped it.
    assert sorted(int(path.name) for path in (folder / "checkpoints").iterdir()) == [5, 10, 20]
    opened = Run(folder)
    assert opened.good_seeds(5) == [0, 1] and opened.good_seeds(10) == opened.good_seeds(20) == [0]
    assert list(opened.scores()) == [0]
    observation = np.zeros(8, np.float32)
    assert np.isfinite(opened.policy(seed=1, step=5)(observation, observation)).all()
    assert np.isfinite(opened.policy()(observation, observation)).all()
    with pytest.raises(
        CtaError, match=r"no policy of seed 1 at step 20: seed 1 stopped at step 11.*good checkpoint is at step 5"
    ):
        opened.policy(seed=1)
    assert run(["scores", str(folder)]) == 0
    assert "left out: seed 1" in capfd.readouterr().err
    assert run(["evaluate", str(folder), "--episodes", "1"]) == 0
    assert "seed 1 is missing: seed 1 stopped at step 11" in " ".join(capfd.readouterr().out.split())
    assert run(["resume", str(folder)]) == 4


def test_what_is_shown_is_of_a_seed_that_is_well(data, tmp_path, capfd, monkeypatch):
    """Export, videos and page, each naming the seed it shows."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        poison(patch, index=0, at=10)
        assert run(words(data, folder)) == 4
    assert run(["export", str(folder), "--out", str(tmp_path / "policy")]) == 0
    about = json.loads((tmp_path / "policy" / "policy.json").read_text())["provenance"]
    assert (about["seed"], about["step"]) == (1, 20)
    assert run(["evaluate", str(folder), "--episodes", "1", "--tasks", "1", "--videos", "1"]) == 0
    assert [path.parent.name for path in (folder / "videos").rglob("*.mp4")] == ["seed_1"]
    assert run(["report", str(folder), "--out", str(tmp_path / "page")]) == 0
    assert "seed 1 at step 20" in (tmp_path / "page" / "index.html").read_text()
    policy = Run(folder).policy()
    assert (policy.seed, policy.step) == (1, 20)
    manifest = folder / "checkpoints" / "20" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "healthy": [False, False]}))
    capfd.readouterr()
    assert run(["evaluate", str(folder), "--episodes", "1", "--videos", "1"]) == 1
    one_line(capfd.readouterr(), "every seed has diverged, so there is no policy to score")


def test_when_all_seeds_are_bad_the_run_ends(data, tmp_path, capfd, monkeypatch):
    with monkeypatch.context() as patch:
        for index in (0, 1):
            poison(patch, index=index, at=5)
        assert run(words(data, tmp_path / "run")) == 4
    assert "0 of 2 seeds continue" in capfd.readouterr().err
    assert Run(tmp_path / "run").scores() == {}


def test_which_losses_are_bad():
    metrics = {"a_loss": jnp.array([1.0, jnp.nan, -jnp.inf, 2 * EXPLODED]), "x": jnp.full(4, jnp.nan)}
    metrics["total_loss"] = jnp.array([1.0, 2.0, 3.0, -2 * EXPLODED])
    before = jnp.zeros((4, 2), jnp.int32).at[1].set(jnp.array([3, 0]))
    after = jax.vmap(first_bad, in_axes=(0, None, 0))(before, jnp.asarray(7), metrics)
    assert after.tolist() == [[0, 0], [3, 0], [7, 0], [7, 7]]


def test_an_evaluation_that_fails_does_not_stop_training(straight, data, tmp_path, capfd, monkeypatch):
    original, folder = background.score_rows, tmp_path / "run"

    def fail_once(evaluator, agent, networks, units, config, step, *rest):
        if step == 10:
            raise CtaError("desk: the simulator failed 4 times in one evaluation: out of memory")
        return original(evaluator, agent, networks, units, config, step, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(background, "score_rows", fail_once)
        assert run(words(data, folder)) == 1
    one_line(capfd.readouterr(), "trained, but not scored at step 10", "out of memory", "cta resume")
    assert steady(folder / "train.csv") == steady(straight / "train.csv")
    assert {line.split(",")[-6] for line in steady(folder / "eval.csv").splitlines()[1:]} == {"20"}
    assert run(["resume", str(folder)]) == 0
    assert same(straight, folder)


def test_a_killed_worker_is_replaced_and_counted(tmp_path, capfd, monkeypatch):
    """A real simulator in a real process, killed in the middle of an evaluation."""
    name, rng = "pointmaze-medium-navigate-v0", np.random.default_rng(0)
    rows = {"observations": rng.normal(size=(60, 2)), "actions": rng.uniform(-1, 1, (60, 2))}
    ends = np.arange(60) % 30 == 29
    np.savez(tmp_path / f"{name}.npz", **{k: v.astype(np.float32) for k, v in rows.items()}, terminals=ends)
    killed, original = [], Evaluator.run

    def run_and_kill(self, make_policy, **options):
        def make(slots):
            policy, calls = make_policy(slots), []

            def act(*inputs):
                calls.append(1)
                if len(calls) == 20 and not killed:
                    killed.append(os.kill(self._running[0].pid, signal.SIGKILL))
                return policy(*inputs)

            return act

        return original(self, make, **options)

    monkeypatch.setattr(Evaluator, "run", run_and_kill)
    steps = ["--steps", "4", "--eval-interval", "4", "--eval-tasks", "1", "--eval-episodes", "1", "--eval-workers", "1"]
    small = ["--agent", "gcbc", "--agent.batch-size", "8", "--agent.hidden", "8", "--seeds", "1"]
    folder = tmp_path / "run"
    data = ["--dataset", str(tmp_path / f"{name}.npz")]
    assert run(["train", *data, *small, *steps, "--run-dir", str(folder)]) == 0
    assert "1 worker of the simulator replaced, episodes repeated (a worker process was ended by SIGKILL)" in " ".join(
        capfd.readouterr().err.split()
    )
    assert events(folder) == ["worker-replaced"]
    assert json.loads((folder / "provenance.json").read_text())["evaluation_retries"] == 1
    assert len(Run(folder).evaluations()) == 1


@pytest.mark.slow
def test_a_second_signal_ends_the_process_at_once(straight, data, tmp_path):
    trace, folder = tmp_path / "trace", tmp_path / "run"
    trace.touch()
    environment = os.environ | {"FAULTS_SLOW": json.dumps({"checkpoint": 300.0})}
    command = [sys.executable, str(CHILD), str(trace), *words(data, folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        wait_for(trace, "begin checkpoint 5")
        process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        assert process.poll() is None  # it waits for its checkpoint
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)  # Ctrl-C does nothing where the tests run in a shell's background
        _, said = process.communicate(timeout=60)
    assert process.returncode == 3 and time.monotonic() - sent < 10, said
    assert f"`cta resume {folder}` continues" in said.strip().splitlines()[-1] and "Traceback" not in said
    assert run(["resume", str(folder)]) == 0
    assert same(straight, folder)


@pytest.mark.slow
def test_a_closed_terminal_asks_the_run_to_stop(straight, data, tmp_path):
    """It gets SIGHUP, and from then on writing to the terminal fails."""
    trace, folder = tmp_path / "trace", tmp_path / "run"
    trace.touch()
    environment = os.environ | {"FAULTS_SLOW": json.dumps({"checkpoint": 2.0})}
    terminal = Terminal([sys.executable, str(CHILD), str(trace), *words(data, folder)], env=environment)
    wait_for(trace, "begin checkpoint 5")
    assert terminal.close() == 3
    assert events(folder)[-1] == "interrupted"
    assert run(["resume", str(folder)]) == 0
    assert same(straight, folder)


@pytest.mark.slow
def test_with_nohup_a_closed_terminal_changes_nothing(straight, data, tmp_path):
    trace, folder = tmp_path / "trace", tmp_path / "run"
    trace.touch()
    command = ["nohup", sys.executable, str(CHILD), str(trace), *words(data, folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(trace, "begin checkpoint 5")
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 0
    assert same(straight, folder)


def wait_for(trace: Path, text: str) -> None:
    deadline = time.monotonic() + 300
    while text not in trace.read_text():
        assert time.monotonic() < deadline, trace.read_text()
        time.sleep(0.02)


def test_a_run_continued_to_more_steps_is_the_run_started_with_them(data, tmp_path, capfd):
    """Its first end is a multiple of no interval: neither its rows nor the mean it cut short remain."""

    def started(folder, steps):
        return [*words(data, folder), "--steps", steps, "--log-interval", "5", "--eval-interval", "10"]

    assert run(started(tmp_path / "straight", "20")) == 0
    assert run(started(tmp_path / "longer", "13")) == 0
    assert [row.step for row in Run(tmp_path / "longer").evaluations()][-1] == 13
    assert run(["resume", str(tmp_path / "longer"), "--steps", "20"]) == 0
    assert compare(tmp_path / "straight", tmp_path / "longer")["checkpoints"] == 2
    assert Run(tmp_path / "longer").config.steps == 20
    capfd.readouterr()
    before = (tmp_path / "longer" / "config.json").read_bytes()
    for steps, said in (("19", "has 20 steps already"), ("0", "--steps must be at least 1")):
        assert run(["resume", str(tmp_path / "longer"), "--steps", steps]) == 1
        one_line(capfd.readouterr(), said)
    assert (tmp_path / "longer" / "config.json").read_bytes() == before


def test_an_unfinished_run_can_end_elsewhere(straight, copy, data, tmp_path):
    shutil.rmtree(copy / "checkpoints" / "20")
    assert run(["resume", str(copy), "--steps", "15"]) == 0
    assert {row.step for row in Run(copy).evaluations()} == {10, 15}
    assert run(["resume", str(copy), "--steps", "20"]) == 0
    assert same(straight, copy)


def status(folder):
    return json.loads((folder / "status.json").read_text())


def test_a_file_says_how_a_run_stands(copy, data, capfd, monkeypatch):
    assert status(copy).items() >= {"state": "finished", "step": 20}.items()
    data.rename(data.with_suffix(".gone"))
    try:
        assert run(["resume", str(copy)]) == 1
    finally:
        data.with_suffix(".gone").rename(data)
    assert status(copy)["state"] == "failed" and "no such file" in status(copy)["reason"]
    with monkeypatch.context() as asked:
        asked.setattr("cta.exit_codes.Stop.__bool__", lambda self: True)
        assert run(["resume", str(copy), "--steps", "30"]) == 3
    assert status(copy)["state"] == "interrupted" and status(copy)["step"] == 25
    assert run(["resume", str(copy)]) == 0
    assert status(copy)["step"] == 30


def test_edited_settings_are_one_line_or_a_notice(copy, capfd):
    config = json.loads((copy / "config.json").read_text())
    agent = config["agent"]
    for edited, expected in (
        ({"seeds": [0, 1, 2]}, "was saved with seeds [0, 1] and config.json says [0, 1, 2]"),
        ({"agent": agent | {"hidden": [16]}}, "the settings in config.json want"),
    ):
        (copy / "config.json").write_text(json.dumps(config | edited))
        for command in (["resume", str(copy)], ["evaluate", str(copy), "--episodes", "1"]):
            assert run(command) == 1
            one_line(capfd.readouterr(), expected)
    (copy / "config.json").write_text(json.dumps(config | {"agent": agent | {"lr": 0.5}}))
    assert run(["resume", str(copy), "--steps", "25"]) == 0
    assert "the agent's lr was 0.001 when weights were saved and is 0.5 now" in capfd.readouterr().err
    assert "changed" in events(copy)


def test_a_checkpoint_without_its_manifest_is_used_only_if_told(copy, capfd):
    (copy / "checkpoints" / "20" / "manifest.json").unlink()
    for command in (["resume"], ["evaluate", "--episodes", "1"], ["export", "--out", str(copy / "x")]):
        assert run([command[0], str(copy), *command[1:]]) == 1
        one_line(capfd.readouterr(), "manifest.json is missing", "--unverified")
    assert run(["resume", str(copy), "--unverified"]) == 0
    assert "they are used unverified" in capfd.readouterr().err


def test_lost_rows_are_noticed(copy, data, tmp_path, capfd, monkeypatch):
    for damage in (lambda path: path.write_text(""), lambda path: path.unlink()):
        damage(copy / "train.csv")
        assert run(["resume", str(copy)]) == 0
        assert "train.csv has no row of step 20: rows were lost" in capfd.readouterr().err
    original, folder = SeedGroup.run, tmp_path / "during"

    def emptied(self, count):
        if self.step == 10:
            (folder / "train.csv").write_text("")
        original(self, count)

    monkeypatch.setattr(SeedGroup, "run", emptied)
    assert run(words(data, folder)) == 0
    assert "train.csv was emptied or removed while the run wrote to it" in capfd.readouterr().err
    assert "changed" in events(folder)
