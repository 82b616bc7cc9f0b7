"""Run directories and command lines from strangers: only clear errors, nothing executed, nothing half written."""

import contextlib
import csv
import io
import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cta.cli import commands, run
from cta.data import TrajectoryDataset
from cta.data.download import download
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.run_dir import RunDir
from cta.export import export_policy, load
from cta.io.files import safe_name
from fuzz_tools import EXAMPLES, ODD, command, damage_text, damaged, fuzz, make_run, only_clear_errors

FILES = ["config.json", "provenance.json", "eval.csv", "offline.csv", "train.csv"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("whole") / "run")


@contextlib.contextmanager
def silence():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def read_all(folder):
    found = Run(folder)
    found.evaluations(), found.offline(), found.stopped(), found.steps(), found.scores()
    return found.spec


@fuzz()
@given(st.data())
def test_damaged_run_files(whole, tmp_path, data):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "checkpoints").mkdir()
    for name in data.draw(st.lists(st.sampled_from(FILES), min_size=1, max_size=2, unique=True)):
        damage_text(data, folder / name)
    with only_clear_errors("run files"):
        read_all(folder)
    command("cta scores", ["scores", str(folder)])
    (folder / "offline.csv").unlink()
    command("cta scores", ["scores", str(folder)])


@fuzz(max(8, EXAMPLES // 5))
@given(st.data())
def test_damaged_checkpoints(whole, tmp_path, data):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    inside = sorted(path for path in (folder / "checkpoints").rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(inside), min_size=1, max_size=3, unique=True)):
        if data.draw(st.booleans()):
            path.write_bytes(data.draw(damaged(path.read_bytes())))
        else:
            path.unlink()
    zeros = np.zeros(3)
    with only_clear_errors("checkpoints", folder), silence():
        np.testing.assert_array_equal(Run(folder).policy()(zeros, zeros), Run(whole).policy()(zeros, zeros))


def test_the_run_that_is_damaged_is_a_good_one(whole):
    assert read_all(whole).observation_shape == (3,)
    assert Run(whole).policy()(np.zeros(3), np.zeros(3)).shape == (2,)


FLAGS = ["--steps", "--seeds", "--seed", "--agent.lr", "--agent.hidden", "--agent.discount", "--agent.batch-size",
         "--eval-interval", "--holdout", "--keep", "--dataset", "--agent", "--agent.subgoal-steps", "--agent.dual.dim",
         "--wandb", "--group", "--run-dir", "--env_name", "--agent.conditioning", "--nonsense", "--agent.no-such",
         "--restore_path", "--agent.layer_norm", "-x", "--", "--eval-tasks"]  # fmt: skip


@fuzz()
@given(st.data())
def test_odd_flags(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--print-config"]
    for flag in data.draw(st.lists(st.sampled_from(FLAGS), min_size=1, max_size=4)):
        value = str(data.draw(ODD))
        words += [f"{flag}={value}"] if data.draw(st.booleans()) else [flag, value]
    command("cta train", words)
    assert not list(tmp_path.iterdir())


READERS = ["evaluate", "resume", "scores", "export", "ooc evaluate", "ooc rates", "ooc cut", "data info", "analogies"]


@fuzz(max(10, EXAMPLES // 2))
@given(st.data())
def test_odd_words(tmp_path, monkeypatch, data):
    """Odd things to read. Commands that would work for long or write somewhere are asked for help only."""
    monkeypatch.chdir(tmp_path)
    words = [str(word) for word in data.draw(st.lists(ODD, max_size=2))]
    if data.draw(st.integers(0, 3)):
        reader = data.draw(st.sampled_from(READERS))
        out = ["--out", "x/y"] if reader in ("export", "ooc cut") else []
        command(f"odd words, cta {reader}", [*reader.split(), *words, *out])
    else:
        name = data.draw(st.sampled_from([*sorted(commands()), "trian", "", "evalaute"]))
        command("odd words, other commands", [name, "--help"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "--stpes", "5"], "--steps"),
        (["train", "--agent.batch_sise", "5"], "--agent.batch-size"),
        (["evaluate", "x", "--episdes", "5"], "--episodes"),
        (["export", "x", "--outt", "y"], "--out"),
        (["scores", "x", "--markdwon"], "--markdown"),
        (["exprot"], "cta export"),
        (["train", "--agent", "hiql-dula"], "hiql-dual"),
    ],
)
def test_wrong_flags_suggest_the_right_ones(words, hint, capfd):
    assert run(words) != 0
    said = capfd.readouterr()
    assert hint in said.err + said.out


def test_a_run_brings_no_code(whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    config = json.loads((folder / "config.json").read_text()) | {"agent_name": "evil_module:Agent"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil_module.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(folder)
    with pytest.raises(CtaError, match="give --agent evil_module:Agent too"):
        Run(".")
    assert not (tmp_path / "owned").exists()


def test_pipes_and_devices_are_not_read(whole, tmp_path):
    """They have no end."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "eval.csv").unlink()
    os.mkfifo(folder / "eval.csv")
    os.symlink("/dev/zero", tmp_path / "x.npz")
    for read in (lambda: Run(folder), lambda: TrajectoryDataset.from_npz(tmp_path / "x.npz")):
        with pytest.raises(CtaError, match="is not a file"):
            read()


def test_names_stay_in_their_folder(whole, tmp_path):
    """Names of datasets come from users and from files; they become parts of file names only after cleaning."""
    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (4, 1)).astype(np.float32)
    for name in ("../../up", "/abs", "..", "", "a/b", "x\x00y", "-"):
        data = TrajectoryDataset.from_arrays(rng.normal(size=(4, 2)), acted, episode_lengths=[4], name=name)
        stem = safe_name(data.name)
        assert (tmp_path / f"{stem}.npz").resolve().parent == tmp_path.resolve() and stem not in ("", ".", "..")
        data.to_npz(tmp_path / f"{stem}.npz")
    for name in ("../../up-play-v0", "/abs-play-v0", "..", ""):
        with pytest.raises(CtaError, match="not the name of a dataset"):
            download(name, tmp_path / "data")
    with pytest.raises(CtaError, match="no-such-user"):
        RunDir.open("~no-such-user/run")


def test_an_export_is_whole_or_absent(whole, tmp_path, monkeypatch):
    import cta.export as module

    def broken(*_):
        raise CtaError("differs")

    monkeypatch.setattr(module, "_check", broken)
    with pytest.raises(CtaError, match="differs"):
        export_policy(whole, tmp_path / "policy")
    assert not list(tmp_path.iterdir())
    (tmp_path / "policy").mkdir()
    with pytest.raises(CtaError, match="exists already"):
        export_policy(whole, tmp_path / "policy")


def test_a_changed_export_is_refused(whole, tmp_path):
    """Other weights than policy.json describes, another program, and files from elsewhere."""
    policy = export_policy(whole, tmp_path / "policy")
    about = json.loads((policy / "policy.json").read_text())
    outside = tmp_path / "act.stablehlo"
    shutil.copy(policy / "act.stablehlo", outside)
    for name in ("policy.safetensors", "act.stablehlo"):
        before = (policy / name).read_bytes()
        (policy / name).write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(ValueError, match=f"{name}: damaged"):
            load.load(policy)
        (policy / name).write_bytes(before)
    for elsewhere in ("../act.stablehlo", str(outside)):
        about["functions"]["act"]["file"] = elsewhere
        (policy / "policy.json").write_text(json.dumps(about))
        with pytest.raises(ValueError, match="not in the folder"):
            load.load(policy)
    about["functions"]["act"]["file"] = "act.stablehlo"
    (policy / "policy.json").write_text(json.dumps(about))
    load.load(policy)
    (policy / "act.stablehlo").unlink()
    (policy / "act.stablehlo").symlink_to(outside)
    with pytest.raises(ValueError, match="not in the folder"):
        load.load(policy)


def test_csv_rows_of_a_good_run(whole):
    with (whole / "eval.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 5
