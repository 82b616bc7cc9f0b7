"""The command line as people type it: real processes, the embedded desk, tiny sizes."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cta.cli import run
from cta.cli.train import parse, parse_seeds, translate
from cta.errors import CtaError
from cta.experiment import Run, inputs
from cta.experiment.candidates import choose_steps, chosen_networks
from cta.scores.schema import COLUMNS

TINY = ["--agent", "gcivl", "--agent.batch-size", "16", "--agent.hidden", "32"]
TINY += ["--log-interval", "5", "--eval-episodes", "2", "--eval-interval", "10"]


def cta(*words, timeout=300, check=0):
    command = [sys.executable, "-m", "cta", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def steady(path):
    """Rows without the columns that hold clocks or memory."""
    return [
        {k: v for k, v in row.items() if not any(w in k for w in ("time", "per_s", "memory"))} for row in rows(path)
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "two"
    done = cta("train", "--dataset", "desk-play-v0", "--seeds", "0,3", "--steps", "20", *TINY, "--run-dir", folder)
    return folder, done


def test_train_leaves_the_files_scripts_rely_on(trained):
    folder, done = trained
    config = json.loads((folder / "config.json").read_text())
    assert config["seeds"] == [0, 3]
    assert config["agent"]["batch_size"] == 16
    assert config["agent"]["hidden"] == [32] and config["agent"]["dual"]["dim"] == 32
    record = json.loads((folder / "provenance.json").read_text())
    assert record["versions"]["mujoco"] and record["dataset"]["fingerprint"] and record["hardware"]["device"]
    train = rows(folder / "train.csv")
    assert [(r["step"], r["seed"]) for r in train] == [(s, k) for s in ("5", "10", "15", "20") for k in ("0", "3")]
    assert all(np.isfinite(float(r["training/total_loss"])) and r["validation/total_loss"] for r in train)
    scores = rows(folder / "eval.csv")
    assert tuple(scores[0]) == COLUMNS
    order = [(int(r["step"]), int(r["seed"]), int(r["task"])) for r in scores]
    assert order == [(s, k, t) for s in (10, 20) for k in (0, 3) for t in range(1, 6)]
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["10", "20"]
    assert list((folder / "tensorboard").glob("seed_3/events*"))
    assert f"run directory: {folder}" in done.stdout and f"cta report {folder}" in done.stdout


def test_a_seed_alone_gives_the_same_files(trained, tmp_path):
    cta("train", "--dataset", "desk-play-v0", "--seed", "3", "--steps", "20", *TINY, "--run-dir", tmp_path / "one")
    for name in ("train.csv", "eval.csv"):
        of_many = [row for row in steady(trained[0] / name) if row["seed"] == "3"]
        assert steady(tmp_path / "one" / name) == of_many


def test_an_interrupted_run_resumes_to_the_same_files(trained, tmp_path):
    folder = tmp_path / "cut"
    words = ["train", "--dataset", "desk-play-v0", "--seeds", "0,3", "--steps", "20", *TINY, "--run-dir", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "cta", *words], stderr=subprocess.PIPE, text=True)
    record = folder / "provenance.json"
    deadline = time.monotonic() + 200
    # The data is read and the program not yet compiled: the run must stop after its first block, at step 5.
    while not (record.exists() and "hardware" in record.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 3, said
    assert "cta resume" in said
    assert [p.name for p in (folder / "checkpoints").iterdir()] == ["5"]
    cta("resume", folder)
    for name in ("train.csv", "eval.csv"):
        assert steady(folder / name) == steady(trained[0] / name)


def test_resume_without_a_checkpoint_starts_at_the_beginning(trained, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "config.json").write_text((trained[0] / "config.json").read_text())
    (folder / "provenance.json").write_text("{}")
    (folder / "train.csv").write_text("")
    assert run(["resume", str(folder)]) == 0
    assert steady(folder / "train.csv") == steady(trained[0] / "train.csv")


def test_a_checkpoint_that_goes_while_others_are_scored_is_left_out(trained, tmp_path, capsys):
    """As the training removes its older ones: it keeps the newest."""
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    for step in ("5", "15"):
        shutil.copytree(folder / "checkpoints" / "10", folder / "checkpoints" / step)
    opened = Run(folder)
    steps = choose_steps(opened, "all")
    # Of these the run itself would have written 10 and 20: what a signal left is none of the last three.
    assert (
        steps == [5, 10, 15, 20] and choose_steps(opened, "last3") == [10, 20] and choose_steps(opened, "last") == [20]
    )
    found = []
    for step, _ in chosen_networks(opened, steps):
        found.append(step)
        shutil.rmtree(folder / "checkpoints" / "10", ignore_errors=True)
    assert found == [5, 15, 20]
    assert "the checkpoint at step 10 has gone meanwhile" in capsys.readouterr().err
    shutil.rmtree(folder / "checkpoints" / "15" / "networks")
    with pytest.raises(CtaError, match="damaged"):
        list(chosen_networks(opened, steps))
    with pytest.raises(CtaError, match="no checkpoint at step 10; there are 5, 15, 20"):
        choose_steps(opened, "5,10")
    for step in (5, 15, 20):
        shutil.rmtree(folder / "checkpoints" / str(step))
    with pytest.raises(CtaError, match="have all gone meanwhile"):
        list(chosen_networks(opened, steps))


def test_evaluate_adds_scores_and_repeats_them(trained):
    folder, _ = trained
    done = cta("evaluate", folder, "--episodes", "2", "--step", "all")
    assert "success in %" in done.stdout
    assert f"rows: {folder / 'evaluate.csv'}" in done.stdout
    how = {"env": "", "temperature": "0.0", "noise": "0.0", "eval_seed": "0", "mujoco": ""}
    again = rows(folder / "evaluate.csv")
    assert again == [{**row, **how} for row in rows(folder / "eval.csv")]
    assert run(["evaluate", str(folder), "--episodes", "2"]) == 0
    assert sorted(rows(folder / "evaluate.csv"), key=str) == sorted(again, key=str)
    # Done in another way, it stands beside.
    assert run(["evaluate", str(folder), "--episodes", "1", "--noise", "0.5"]) == 0
    both = rows(folder / "evaluate.csv")
    assert [row for row in both if row["noise"] == "0.0"] == sorted(again, key=lambda row: int(row["step"]))
    assert {(row["step"], row["noise"]) for row in both if row["episodes"] == "1"} == {("20", "0.5")}


def simulated(tmp_path, name, observed, acted):
    """A run on data of OGBench's from before MuJoCo 3.5, by their name and for want of a record."""
    generator = np.random.default_rng(0)
    values = {"observations": generator.normal(size=(60, observed)), "actions": generator.uniform(-1, 1, (60, acted))}
    arrays = {key: value.astype(np.float32) for key, value in values.items()}
    np.savez(tmp_path / f"{name}.npz", **arrays, terminals=np.arange(60) % 30 == 29)
    folder, small = tmp_path / "run", ["--agent", "gcbc", "--agent.batch-size", "8", "--agent.hidden", "8"]
    words = ["--dataset", str(tmp_path / f"{name}.npz"), *small, "--steps", "2", "--eval-interval", "0"]
    assert run(["train", *words, "--run-dir", str(folder)]) == 0
    return folder


def test_evaluate_names_its_simulator(tmp_path, monkeypatch, capfd):
    """In its table, where another one's rows stay, and in a line where it is not comparable with the data's."""
    monkeypatch.setattr(inputs, "_told", set())
    folder = simulated(tmp_path, "pointmaze-medium-navigate-v0", 2, 2)
    words = ["evaluate", str(folder), "--episodes", "1", "--tasks", "1", "--workers", "1"]
    for version, lines in (("3.3.7", 0), ("3.6.0", 1), ("3.6.0", 0)):
        monkeypatch.setattr("cta.io.provenance.version", lambda _, version=version: version)
        capfd.readouterr()
        assert run(words) == 0
        assert capfd.readouterr().err.count("the arm's dynamics changed in 3.5") == lines
    assert [row["mujoco"] for row in rows(folder / "evaluate.csv")] == ["3.3.7", "3.6.0"]
    # A table from before the column.
    table = folder / "evaluate.csv"
    table.write_text("".join(line.rpartition(",")[0] + "\n" for line in table.read_text().splitlines()[:2]))
    assert run(words) == 0
    assert [row["mujoco"] for row in rows(table)] == ["", "3.6.0"]
    assert list(rows(table)[0])[-2:] == ["eval_seed", "mujoco"]


def test_held_out_pairs_are_asked_with_the_same_notice(tmp_path, monkeypatch, capfd):
    def stop(*_, **__):
        raise CtaError("far enough")

    monkeypatch.setattr(inputs, "_told", set())
    folder = simulated(tmp_path, "scene-play-v0", 40, 5)
    monkeypatch.setattr("cta.io.provenance.version", lambda _: "3.6.0")
    monkeypatch.setattr("cta.experiment.score_files.PairEvaluator", stop)
    capfd.readouterr()
    assert run(["ooc", "evaluate", str(folder)]) == 1
    assert "the arm's dynamics changed in 3.5" in capfd.readouterr().err


def test_settings_that_cannot_be_leave_no_arrays(tmp_path):
    import cta as library

    arrays = {"observations": np.zeros((9, 3)), "actions": np.zeros((9, 2)), "episode_lengths": [9]}
    with pytest.raises(CtaError, match="--steps must be at least 1"):
        library.train(arrays, steps=0, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_own_arrays_from_python(tmp_path):
    import cta as library

    generator = np.random.default_rng(0)
    observations = generator.normal(size=(60, 4)).astype(np.float32)
    actions = generator.uniform(-1, 1, size=(60, 2)).astype(np.float32)
    data = library.TrajectoryDataset.from_arrays(observations, actions, episode_lengths=[30, 30], name="mine")
    run_of = library.train(
        data,
        steps=4,
        log_interval=2,
        run_dir=str(tmp_path / "mine"),
        agent_settings={"batch_size": 8, "hidden": (8,)},
        agent="gcivl",
        quiet=True,
    )
    assert run_of.evaluations() == []
    action = run_of.policy()(observations[0], observations[5])
    assert action.shape == (2,) and np.all(np.abs(action) <= 1)
    assert library.Run(tmp_path / "mine").config.dataset_name == "mine"


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["trian"], 2, "did you mean 'cta train'"),
        (["train", "--agent", "ctaa"], 1, "did you mean 'cta'"),
        (["train", "--dataset", "scene-plya-v0"], 1, "scene-play-v0"),
        (["train", "--dataset", "nowhere/x.npz"], 1, "no such file"),
        (["train", "--seeds", "a"], 1, "--seeds a"),
        (["train", "--agent.discount", "1.5"], 1, "--agent.discount"),
        (["train", "--agent.actor-std", "0"], 1, "--agent.actor-std must be positive, not 0.0"),
        (["train", "--agent", "crl", "--agent.eta.ema"], 1, "crl does not read --agent.eta.ema: leave it at False"),
        (["train", "--agent.value-p-curgoal", "0.9"], 1, "add up to 1"),
        (["train", "--steps", "0"], 1, "--steps must be at least 1"),
        (["train", "--stpes", "5"], 2, "--steps"),
        (["evaluate", "nowhere"], 1, "no such run directory"),
        (["evaluate", "."], 1, "not a run directory"),
        (["resume", "nowhere"], 1, "no such run directory"),
    ],
)
def test_mistakes_get_one_line(words, code, expected, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(words) == code
    said = capfd.readouterr()
    assert expected in said.err + said.out
    assert "Traceback" not in said.err


def test_a_taken_run_directory_is_refused(trained, capfd):
    assert run(["train", "--run-dir", str(trained[0])]) == 1
    assert "cta resume" in capfd.readouterr().err


def test_a_damaged_config_is_named(trained, tmp_path, capfd):
    for text, expected in (("{", "not valid JSON"), ("[]", "JSON object"), ('{"agent_name": "cta", "x": 1}', "'x'")):
        (tmp_path / "config.json").write_text(text)
        assert run(["resume", str(tmp_path)]) == 1
        assert expected in capfd.readouterr().err
    config = json.loads((trained[0] / "config.json").read_text())
    config["agent"]["lr"] = "fast"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run(["resume", str(tmp_path)]) == 1
    assert "agent.lr" in capfd.readouterr().err


def test_a_changed_dataset_is_refused(trained, tmp_path, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.json", "provenance.json", "eval.csv", "train.csv"):
        (folder / name).write_text((trained[0] / name).read_text())
    record = json.loads((folder / "provenance.json").read_text())
    record["dataset"]["fingerprint"] = "0" * 64
    (folder / "provenance.json").write_text(json.dumps(record))
    before = (folder / "train.csv").read_text()
    assert run(["resume", str(folder)]) == 1
    assert "has changed since this run began" in capfd.readouterr().err
    assert (folder / "train.csv").read_text() == before


def test_seeds():
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("3,") == parse_seeds("3", alone=True) == (3,)
    assert parse_seeds("0,3,5") == (0, 3, 5)
    for text in ("", "x", "-1", "0"):
        with pytest.raises(CtaError):
            parse_seeds(text)


def test_ogbench_habits():
    config = parse(
        ["--env_name=scene-play-v0", "--agent=agents/cta.py", "--train_steps=7", "--seed=5", "--agent.low_alpha=2"]
    )
    assert (config.dataset, config.agent_name, config.steps, config.seeds) == ("scene-play-v0", "cta", 7, (5,))
    assert config.agent.low_alpha == 2.0
    assert config.agent.subgoal_steps == 10
    assert translate(["--agent.layer_norm=False"]) == ["--agent.no-layer-norm"]
    assert parse(["--agent.layer_norm=False"]).agent.layer_norm is False
    for words in (["--eval_on_cpu=True"], ["--eval_on_cpu=False"], ["--eval_on_cpu=1"], ["--eval_on_cpu", "1"]):
        assert translate([*words, "--steps", "100"]) == translate(["--steps", "100", *words]) == ["--steps", "100"]
    with pytest.raises(CtaError, match="cta resume"):
        parse(["--restore_path", "x"])


def test_presets_follow_the_dataset():
    assert parse(["--dataset", "puzzle-4x5-play-v0"]).agent.batch_size == 512
    assert parse(["--dataset", "cube-triple-noisy-v0"]).agent.subgoal_steps == 30
    assert parse(["--dataset", "desk-play-v0"]).steps == 10_000
    assert parse(["--dataset", "folder/puzzle-4x5-play-v0.npz"]).agent.batch_size == 512


def test_print_config(capsys):
    assert run(["train", "--dataset", "scene-play-v0", "--print-config"]) == 0
    assert json.loads(capsys.readouterr().out)["agent"]["subgoal_steps"] == 10


@pytest.mark.parametrize("command", ["train", "resume", "evaluate", "data", "agents", "doctor", "theory"])
def test_every_command_explains_itself(command, capsys):
    assert run([command, "--help"]) == 0
    assert f"cta {command}" in capsys.readouterr().out


def test_version_and_general_help(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("cta ")
    assert run(["--help"]) == 0
    assert "exit codes" in capsys.readouterr().out


def test_agents_and_doctor(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["agents"]) == 0
    assert "5,395,913" in capsys.readouterr().out
    assert run(["doctor"]) == 0
    assert os.environ["OGBENCH_DATA_DIR"] in capsys.readouterr().out.replace("\n", "")
