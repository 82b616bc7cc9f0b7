"""What cannot come to an end is told before anything slow begins."""

import errno
import tempfile

import numpy as np
import pytest

from cta.cli import run
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.grid import run_plan
from cta.io.files import check_writable
from cta.io.json_files import check_shape, known_maker, parse_json
from fuzz_tools import make_run


def slow(*args, **options):
    raise AssertionError("the work began")


@pytest.fixture
def nothing_slow(monkeypatch):
    import cta.analysis.analogy_map
    import cta.experiment
    import cta_bench.cases

    monkeypatch.setattr(run_plan.Runner, "run", slow)
    monkeypatch.setattr(cta.experiment.Run, "networks", slow)
    monkeypatch.setattr(cta.analysis.analogy_map, "make_map", slow)
    monkeypatch.setattr(cta_bench.cases, "measure_case", slow)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("finished") / "run")


def told(capfd, words):
    assert run(words) == 1
    (line,) = capfd.readouterr().err.splitlines()
    return line


READ_ONLY = ["evaluate RUN", "ooc evaluate RUN", "analogies RUN", "bench", "evaluate RUN --results RUN/results"]
READ_ONLY += ["export RUN --out RUN/policy", "report RUN", "ablate k --steps 10 --work RUN/work"]


@pytest.mark.parametrize("words", READ_ONLY)
def test_folders_that_cannot_be_written(words, finished, nothing_slow, monkeypatch, capfd):
    def closed(**where):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", closed)
    line = told(capfd, [word.replace("RUN", str(finished)) for word in words.split()])
    assert line.endswith("cannot be written (Read-only file system)")


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    assert not list(tmp_path.iterdir())


PLAN = "steps = 100\neval_points = [100]\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['{}']\n{}"


@pytest.mark.parametrize(
    ("agent", "more", "complaint"),
    [
        ("cta", "settings = {no_such = 1}", "unknown setting 'no_such'"),
        ("cta", "settings = {trunk = {rank = 0}}", "must be at least 1"),
        ("cta", "seeds = 99999999999", "at most 1000 seeds"),
        ("helper:Agent", "", "is code of its own"),
        ("no-such", "", "there is no agent"),
        ("cta", "ask = 'presses'", "desk"),
    ],
)
def test_plans_that_cannot_be_carried_out(agent, more, complaint, tmp_path, nothing_slow, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("open('owned', 'w')")
    (tmp_path / "plan.toml").write_text(PLAN.format(agent, more))
    line = told(capfd, ["reproduce", "plan.toml"])
    assert complaint in line and "plan.toml: cells 1: " in line
    assert not (tmp_path / "owned").exists() and not (tmp_path / "runs").exists()


WORKERS = ["reproduce plan.toml", "evaluate RUN", "data generate desk-play-v0 --out x"]


@pytest.mark.parametrize("words", WORKERS)
def test_no_workers(words, finished, tmp_path, nothing_slow, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN.format("cta", ""))
    line = told(capfd, [*words.replace("RUN", str(finished)).split(), "--workers", "0"])
    assert "--workers" in line and not (tmp_path / "x").exists()


def test_data_of_ones_own_in_an_ablation(tmp_path, nothing_slow, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (20, 2)).astype(np.float32)
    TrajectoryDataset.from_arrays(rng.normal(size=(20, 3)), acted, episode_lengths=[20], name="mine").to_npz("mine.npz")
    assert "mine belongs to no known environment" in told(capfd, ["ablate", "k", "--dataset", "mine.npz"])


def test_a_page_of_another_format(tmp_path, monkeypatch, capfd):
    from cta.scores.store import Scores
    from test_scores_store import KEY, record, rows

    monkeypatch.chdir(tmp_path)
    Scores("results").add(KEY, record(), rows())
    assert told(capfd, ["table", "--curves", "c.txt"]).endswith("c.txt: figures are written as .png, .pdf, .svg")


def test_the_reader_of_json():
    assert parse_json('{"a": "\\u001b[31m\\ud800", "b": Infinity}', "x") == {"a": "�[31m�", "b": "inf"}
    for text in ('{"a": NaN}', '{"a": 1e999}', "[1]", "[" * 100_000, b"\xff", ""):
        with pytest.raises(CtaError, match=r"^x: "):
            parse_json(text, "x")
    shape = {"a!": [int], "b": (str, None), "c": {...: float}}
    check_shape({"a": [1], "b": None, "c": {"x": 1, "y": 0.5}, "d": object()}, shape, "x")
    for values in ({}, {"a": 1}, {"a": [True]}, {"a": [2**60]}, {"a": [], "b": 1}, {"a": [], "c": {"x": "1"}}):
        with pytest.raises(CtaError, match=r"^x: "):
            check_shape(values, shape, "x")


def test_records_of_how_data_were_made():
    assert known_maker({"anything": ["goes"], "versions": 3}, "x") == {}
    for ours in ({"created_by": "cta", "versions": 3}, {"ooc": {"pair": 3}}):
        with pytest.raises(CtaError, match=r"^x: provenance: "):
            known_maker(ours, "x")
