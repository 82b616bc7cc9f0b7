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

from cta.cli import COMMANDS, run
from cta.data import TrajectoryDataset
from cta.data.download import download
from cta.errors import CtaError
from cta.experiment import Run, run_config
from cta.experiment.run_dir import RunDir
from cta.export import export_policy
from cta.training.checkpoints import Checkpoints
from cta.training.learner import Learner, spec_of
from cta.training.seeds import SeedGroup
from cta.training.source import open_source
from fuzz_tools import EXAMPLES, ODD, count, damaged, damaged_json, fuzz, kind_of, only_clear_errors

FILES = ["config.json", "provenance.json", "eval.csv", "offline.csv", "train.csv"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run directory with everything in it, of an agent of a few units that has hardly been trained."""
    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (20, 2)).astype(np.float32)
    data = TrajectoryDataset.from_arrays(rng.normal(size=(20, 3)), acted, episode_lengths=[10, 10], name="mine")
    folder = tmp_path_factory.mktemp("whole") / "run"
    settings = {"hidden": (4,), "batch_size": 4}
    config = run_config("gcbc", "mine", agent_settings=settings, steps=2, run_dir=str(folder))
    files = RunDir.create(config)
    facts = {"observation_shape": [3], "action_dim": 2, "fingerprint": data.fingerprint()}
    files.record({"dataset": facts, "stopped": {}})
    agent = Run(folder).agent
    group = SeedGroup(Learner(agent, spec_of(data), block=2), [0], open_source(data))
    checkpoints = Checkpoints(files.checkpoints, create=True)
    checkpoints.save(group.snapshot())
    checkpoints.wait()
    checkpoints.close()
    common = {"dataset": "mine", "agent": "gcbc", "seed": 0, "step": 2}
    files.eval_log().append([{**common, "task": task, "episodes": 4, "successes": 1} for task in range(1, 6)])
    with (folder / "offline.csv").open("w") as file:
        file.write("dataset,agent,seed,step,episodes,value_order,dual_order\nmine,gcbc,0,2,4,0.5,\n")
    files.release()
    return folder


@contextlib.contextmanager
def silence():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def command(target, words):
    """A command line as a person gives it: a known exit code, and one line on standard error if it is an error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    said = err.getvalue()
    assert code in (0, 1, 2), code
    assert "Traceback" not in said + out.getvalue()
    if code == 1:
        lines = [line for line in said.splitlines() if not line.startswith(("note:", "notice:"))]
        assert lines and lines[-1].startswith(f"cta {words[0]}: "), said
        assert len(lines) == 1, said
    count(target, f"exit {code}" if code != 1 else kind_of(said.split(": ", 1)[1]))
    return code


def read_all(folder):
    found = Run(folder)
    found.evaluations(), found.offline(), found.stopped(), found.steps(), found.scores()
    return found.spec


def damage_text(data, folder, name):
    path = folder / name
    if name.endswith(".json") and data.draw(st.booleans()):
        path.write_text(data.draw(damaged_json(json.loads(path.read_text()))))
    else:
        path.write_bytes(data.draw(damaged(path.read_bytes() or b"step,seed\n1,0\n")))


@fuzz()
@given(st.data())
def test_damaged_run_files(whole, tmp_path, data):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "checkpoints").mkdir()
    for name in data.draw(st.lists(st.sampled_from(FILES), min_size=1, max_size=2, unique=True)):
        damage_text(data, folder, name)
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
        name = data.draw(st.sampled_from([*sorted(COMMANDS), "trian", "", "evalaute"]))
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
    with pytest.raises(CtaError, match="not looked for inside a run"):
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
    from cta.experiment import _file_stem

    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (4, 1)).astype(np.float32)
    for name in ("../../up", "/abs", "..", "", "a/b", "x\x00y", "-"):
        data = TrajectoryDataset.from_arrays(rng.normal(size=(4, 2)), acted, episode_lengths=[4], name=name)
        stem = _file_stem(data)
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


def test_csv_rows_of_a_good_run(whole):
    with (whole / "eval.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 5
