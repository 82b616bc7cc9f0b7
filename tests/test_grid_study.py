"""`cta ooc study` as a plan: cut, train and ask on the desk, continued, with controls, one pair at a time."""

import json

import pytest

from cta.cli import run as cta
from cta.errors import CtaError
from cta.grid.studies import study_plan
from cta.ooc import find_layout, held_out_of
from cta.ooc.evaluation import count_rows, read_logs
from cta.scores.store import Scores

HELD_OUT = held_out_of(find_layout("desk-play-v0"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of one small agent, few steps."""
    folder = tmp_path_factory.mktemp("study")
    words = ["desk", "--agents", "gcbc", "--seeds", "2", "--steps", "20", "--episodes", "3"]
    words += ["--out", str(folder / "ooc"), "--work", str(folder / "work"), "--workers", "2"]
    assert cta(["ooc", "study", *words, "--controls", "random"]) == 0
    return folder, words


@pytest.mark.slow
def test_a_study_leaves_everything(study, capsys):
    folder, words = study
    assert cta(["ooc", "study", *words, "--controls", "random", "--markdown"]) == 0  # nothing is done twice
    captured = capsys.readouterr()
    assert captured.err == "" and "| gcbc | held-out | 2 | 20 |" in captured.out
    cells = Scores(folder / "ooc" / "results").cells()
    assert [cell.key.condition for cell in cells] == ["held-out", "random"]
    for cell in cells:
        assert {(row.seed, row.step, row.task) for row in cell.rows} == {
            (seed, step, f"pair{pair}") for seed in (0, 1) for step in (16, 18, 20) for pair in (1, 2, 3)
        }
        assert {row.episodes for row in cell.rows} == {3}
        (training,) = cell.record["training"]
        assert {"command", "commit", "versions", "hardware", "data", "steps", "seeds", "cell"} <= set(training)
        assert training["data"]["provenance"]["ooc"]["kind"] == cell.key.condition
        # The rows are what the kept logs say.
        logs = read_logs(Scores(folder / "ooc" / "results").events_file(cell.key, 1, 20))
        again = count_rows(logs, HELD_OUT.numbered(), HELD_OUT.layout, cell.key, 1, 20)
        assert list(again) == [row for row in cell.rows if (row.seed, row.step) == (1, 20)]
    names = {path.name.rsplit("-", 1)[0] for path in (folder / "work" / "cells").iterdir()}
    assert names == {"desk-play-v0.gcbc.held-out", "desk-play-v0.gcbc.random"}


def test_one_training_for_each_pair():
    alone = HELD_OUT.each()[1]
    assert alone.first == 2 and alone.numbered() == [(2, HELD_OUT.pairs[1])]
    with pytest.raises(CtaError, match="random windows"):
        study_plan("desk-play-v0", HELD_OUT, per_pair=True, controls=("random",))
    plan = study_plan("desk-play-v0", HELD_OUT, agents=("gcbc",), per_pair=True)
    assert [cell.tasks for cell in plan.cells] == [("pair1",), ("pair2",), ("pair3",)]
    assert len({cell.folder for cell in plan.cells}) == len({cell.key for cell in plan.cells}) == 3
    assert len({cell.data_name for cell in plan.cells}) == 1  # cut once, into a folder for each pair


def test_a_plan_of_a_study():
    plan = study_plan("desk-play-v0", HELD_OUT, agents=("gcbc", "hiql"), steps=5001, controls=("uncut", "random"))
    assert [(cell.agent, cell.condition) for cell in plan.cells] == [
        (agent, condition) for condition in ("held-out", "whole", "random") for agent in ("gcbc", "hiql")
    ]
    assert {cell.points for cell in plan.cells} == {(4500, 5000, 5001)} and {c.ask for c in plan.cells} == {"pairs"}
    own = json.loads(json.dumps({"flags": ["--pairs", "mine.toml"]}))["flags"]
    mine = study_plan("desk-play-v0", HELD_OUT, agents=("gcbc",), flags=tuple(own)).cells[0]
    usual = study_plan("desk-play-v0", HELD_OUT, agents=("gcbc",)).cells[0]
    assert mine.key != usual.key and mine.folder != usual.folder


def test_what_cannot_be_studied_leaves_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    impossible = tmp_path / "pairs.toml"
    impossible.write_text('[[pair]]\ncontext = { drawer_lock = "locked" }\nevent = { drawer = "open" }\nK = 5\n')
    for env, words, said in (
        ("desk", ["--controls", "none"], "there is no 'none'"),
        ("desk", ["--agents", "gcbc,gcbc"], "once"),
        ("desk", ["--agents", "gcbd"], "gcbd"),
        ("desk", ["--steps", "0"], "--steps"),
        ("desk", ["--episodes", "0"], "at least one episode"),
        ("desk", ["--pairs", str(impossible)], "moves only with unlocked"),
        ("visual-scene-play-v0", [], "images"),
    ):
        assert cta(["ooc", "study", env, *words, "--out", str(tmp_path / "study")]) == 1
        assert said in capsys.readouterr().err and not (tmp_path / "study").exists()
    assert list(tmp_path.iterdir()) == [impossible]
