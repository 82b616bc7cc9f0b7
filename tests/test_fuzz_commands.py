"""Files from strangers given to the commands that read them: scores, plans, runs, weights, exported policies.

Whatever is in them, a command ends with success or one line, and writes nowhere but where it was asked to.
"""

import csv
import hashlib
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from cta import export
from cta.errors import CtaError
from cta.experiment import Run, score_files
from cta.experiment.candidates import candidates, pair_names
from cta.experiment.score_files import Players
from cta.experiment.weights import open_weights, pack
from cta.export import export_policy, load
from cta.io.json_files import write_json
from cta.scores.schema import Score
from cta.scores.store import Scores
from fuzz_tools import ODD, command, count, damage_text, damaged, damaged_json, fuzz, kind_of, make_run, no_hang
from test_scores_store import HELD, KEY, pairs, record, rows, write_old

PLAN = {
    "seeds": 2,
    "steps": 100,
    "eval_points": [80, 90, 100],
    "curve_points": [50],
    "episodes": 5,
    "settings": {"lr": 0.001, "trunk": {"rank": 4}},
    "rates": {"cta": 50.0, "rows_per_core": 100.0},
    "cells": [
        {"dataset": "desk-play-v0", "agents": ["cta"], "data": {"episodes": 10, "seed": 1}},
        {"datasets": ["desk-play-v0"], "agents": ["cta"], "condition": "held-out", "ask": "pairs", "seeds": [0, 3]},
    ],
}
MAP = {
    "format": 1,
    "dataset": "mine",
    "agent": "gcbc",
    "seed": 0,
    "step": 2,
    "pairs": 2,
    "representation": "analogy",
    "among": "pairs",
    "method": {"name": "t-SNE", "library": "x", "perplexity": 30.0, "iterations": 5},
    "purity": [{"representation": "analogy", "network": "value", "purity_%": 50.0, "purity_sd": 1.5}],
    "purity_by_task": [{"task": "open", "pairs": 2, "purity_%": 50.0}],
    "tasks": ["open"],
    "contexts": ["closed"],
    "queries": [{"name": "open", "point": 1}],
    "frames": {"0": {"state": "frames/0-state.png", "goal": "frames/0-goal.png"}},
    "x": [0.0, 1.0],
    "y": [0.5, 2.0],
    "task": [0, 0],
    "context": [0, 0],
    "neighbours": {"cosine": [[1], [0]]},
    "schematic": {"kind": "vector", "meaning": ["a"], "state": [[0.0], [1.0]], "goal": [[1.0], [0.0]]},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """One of each kind of file, all of them good."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("good")
    results = folder / "results"
    Scores(results).add(KEY, record(seeds=[0, 1]), rows(seeds=[0, 1]))
    Scores(results).add(HELD, record(seeds=[0]), pairs(seeds=[0]))
    write_old(results / "ooc" / "scene-play-v0.hiql.csv", pairs(seeds=[0], key=HELD._replace(agent="hiql")))
    run = make_run(folder / "run")
    (run / "status.json").write_text('{"state": "finished", "step": 2, "reason": "", "time": "", "pid": 1}\n')
    (run / "train.csv").write_text("step,seed,steps_per_s,training/loss\n1,0,5.0,0.5\n2,0,5.0,nan\n")
    facts = json.loads((run / "provenance.json").read_text())
    cut = {"kind": "held-out", "first_pair": 1, "pair": [{"name": "x", "context": {"a": 1}, "event": {"b": 0}, "K": 3}]}
    cut |= {"report": {"pairs": [{"events": 1, "removed": 3}], "removed": 3, "transitions_left": 17}}
    made = {
        "created_by": "cta",
        "command": "x",
        "versions": {"mujoco": "3.3.7"},
        "ooc": cut,
        "source": {"name": "mine"},
    }
    facts["dataset"]["provenance"] = made
    facts["hardware"] = {"cpu": "x", "device": "cpu"}
    (run / "provenance.json").write_text(json.dumps(facts))
    (run / "analogies" / "frames").mkdir(parents=True)
    (run / "analogies" / "map.json").write_text(json.dumps(MAP))
    for name in ("state", "goal"):
        Image.new("RGB", (4, 4)).save(run / "analogies" / "frames" / f"0-{name}.png")
    (folder / "plan.toml").write_text(toml(PLAN))
    opened = Run(run)
    (item,) = candidates(opened)
    training = item.training | {"data": {"fingerprint": "x", "provenance": {"command": "x", "seed": 0}}}
    (folder / "w.safetensors").write_bytes(pack(replace(item, step=2, training=training)))
    export_policy(opened, folder / "policy")
    return folder


def toml(value):
    """As TOML; what it has no word for is left out."""
    if isinstance(value, dict) and value is not None:
        tops = {k: v for k, v in value.items() if k != "cells"}
        lines = [f"{json.dumps(key)} = {inline(item)}" for key, item in tops.items() if item is not None]
        cells = value.get("cells")
        if isinstance(cells, list) and all(isinstance(cell, dict) for cell in cells):
            for cell in cells:
                lines += ["[[cells]]", *(f"{json.dumps(k)} = {inline(v)}" for k, v in cell.items() if v is not None)]
        elif cells is not None:
            lines.append(f"cells = {inline(cells)}")
        return "\n".join(lines) + "\n"
    return inline(value)


def inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {inline(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value if item is not None) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


def damage_scores(data, path):
    """A cell of a table, or anything of a record, or bytes."""
    if path.suffix == ".csv" and data.draw(st.booleans()):
        lines = list(csv.reader(io.StringIO(path.read_text())))
        row = data.draw(st.integers(0, min(3, len(lines) - 1)))
        lines[row][data.draw(st.integers(0, len(lines[row]) - 1))] = str(data.draw(ODD))
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(lines)
        path.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    else:
        damage_text(data, path)


def fresh_copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


@fuzz()
@given(st.data())
def test_damaged_scores(good, tmp_path, monkeypatch, data):
    """`cta results add` and `list`, `cta table`; what was added is a folder of scores again."""
    monkeypatch.chdir(tmp_path)
    results = fresh_copy(good / "results", tmp_path / "in")
    shutil.rmtree(tmp_path / "to", ignore_errors=True)
    files = sorted(path for path in results.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
        damage_scores(data, path)
    command("cta results list", ["results", "list", "in"], tmp_path)
    table = data.draw(st.sampled_from(["main", "ooc"]))
    command("cta table", ["table", table, "--results", "in"], tmp_path)
    code = command("cta results add", ["results", "add", "in", "--to", "to"], tmp_path, may_write=tmp_path / "to")
    if code == 0:
        assert Scores("to").cells()


@fuzz()
@given(st.data())
def test_damaged_plans(good, tmp_path, monkeypatch, data):
    """`cta reproduce --dry-run`, also beside damaged scores."""
    monkeypatch.chdir(tmp_path)
    results, plan = fresh_copy(good / "results", tmp_path / "results"), tmp_path / "plan.toml"
    if data.draw(st.booleans()):
        plan.write_text(toml(json.loads(data.draw(damaged_json(PLAN)))), "utf-8", "surrogatepass")
    else:
        plan.write_bytes(data.draw(damaged((good / "plan.toml").read_bytes())))
    if not data.draw(st.integers(0, 4)):
        damage_scores(data, data.draw(st.sampled_from(sorted(p for p in results.rglob("*") if p.is_file()))))
    budget = data.draw(st.sampled_from([[], ["--budget", "30m"]]))
    command("cta reproduce", ["reproduce", "plan.toml", "--dry-run", *budget], tmp_path)


@fuzz()
@given(st.data())
def test_damaged_runs_in_a_report(good, tmp_path, monkeypatch, data):
    """`cta report`: nothing of the files becomes part of the page's code."""
    monkeypatch.chdir(tmp_path)
    run = fresh_copy(good / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "page", ignore_errors=True)
    names = ["config.json", "provenance.json", "eval.csv", "train.csv", "analogies/map.json"]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        damage_scores(data, run / name)
    words = ["report", "run", "--out", "page", "--rollouts", "0"]
    code = command("cta report", words, tmp_path, may_write=tmp_path / "page")
    page = tmp_path / "page" / "index.html"
    assert page.exists() == (code == 0)
    if code == 0:
        text = page.read_text()
        assert "<script>x" not in text and text.count("<script") == 2 and "\x1b" not in text


@pytest.fixture
def played(monkeypatch):
    """Episodes are not played: every policy is read, and succeeds in none."""

    def play(self, item, held_out):
        item.load()
        counts = (0, 0) if held_out else (None, None)
        scores = [Score(*item.key, item.seed, item.step, task, 50, 0, *counts) for task in pair_names(held_out)]
        return scores, [], {"scored": [[item.seed, item.step, 1.0]], "episodes": 50, "weights": item.precision}

    monkeypatch.setattr(score_files.Players, "play", play)
    return Players


def damaged_weights(data, content, path):
    way = data.draw(st.sampled_from(["facts", "facts", "bytes", "tensors"]))
    if way == "bytes":
        return data.draw(damaged(content))
    path.write_bytes(content)
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
        facts = json.loads(file.metadata()["cta"])
    if way == "facts":
        return save(tensors, metadata={"cta": data.draw(damaged_json(facts))})
    name = data.draw(st.sampled_from(sorted(tensors)))
    array = tensors.pop(name)
    odd = data.draw(st.sampled_from(["gone", "int", "double", "cut", "nan", "named"]))
    if odd == "named":
        tensors[data.draw(st.text(max_size=8))] = array
    elif odd != "gone":
        changed = {"int": array.astype(np.int32), "double": array.astype(np.float64), "cut": array.reshape(-1)[:1]}
        tensors[name] = changed.get(odd, np.full_like(array, np.nan))
    return save(tensors, metadata={"cta": json.dumps(facts)})


@fuzz()
@given(st.data())
def test_damaged_weights(good, played, tmp_path, monkeypatch, data):
    """`cta evaluate WEIGHTS`: everything but the episodes."""
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "to", ignore_errors=True)
    path = tmp_path / "w.safetensors"
    path.write_bytes(damaged_weights(data, (good / "w.safetensors").read_bytes(), path))
    words = ["evaluate", "w.safetensors", "--results", "to"]
    if command("cta evaluate WEIGHTS", words, tmp_path, may_write=tmp_path / "to") == 0:
        assert Scores("to").cells()


def test_good_weights_are_scored(good, played, tmp_path):
    assert command("good weights", ["evaluate", str(good / "w.safetensors"), "--results", str(tmp_path / "to")]) == 0
    (cell,) = Scores(tmp_path / "to").cells()
    assert (cell.key.agent, len(cell.rows)) == ("gcbc", 5)
    assert [item.step for item in open_weights(good / "w.safetensors")] == [2]


@fuzz()
@given(st.data())
def test_damaged_runs_are_not_exported(good, tmp_path, monkeypatch, data):
    """`cta export`: the reader for every file, and about one in thirty times the programs, too."""
    monkeypatch.chdir(tmp_path)
    run = fresh_copy(good / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "policy", ignore_errors=True)
    inside = sorted(path for path in (run / "checkpoints").rglob("*") if path.is_file())
    (manifest,) = (run / "checkpoints").glob("*/manifest.json")
    files = [run / "config.json", run / "provenance.json", manifest, *inside]
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
        damage_text(data, path)
    with monkeypatch.context() as patch:
        if data.draw(st.integers(0, 31)) != 17:
            patch.setattr(
                export, "_write", lambda policy, folder, *_: write_json(folder / "policy.json", {"check": None})
            )
            patch.setattr(export, "_check", lambda policy, *_: policy(np.zeros(3), np.zeros(3)))
        code = command("cta export", ["export", "run", "--out", "policy"], tmp_path, may_write=tmp_path / "policy")
    assert (tmp_path / "policy").exists() == (code == 0)


@fuzz()
@given(st.data())
def test_damaged_exports(good, tmp_path, data):
    """`load.py`: it has no other words than ValueError, and acts or refuses to be loaded."""
    policy = fresh_copy(good / "policy", tmp_path / "policy")
    path = data.draw(st.sampled_from([policy / "policy.json"] * 3 + sorted(policy.glob("*.s*"))))
    forged = False
    if path.suffix == ".json":
        damage_text(data, path)
    else:
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        if forged := data.draw(st.booleans()):  # by somebody who knows how
            about = json.loads((policy / "policy.json").read_text())
            for facts in (about["weights"], *about["functions"].values()):
                facts["sha256"] = hashlib.sha256((policy / facts["file"]).read_bytes()).hexdigest()
            (policy / "policy.json").write_text(json.dumps(about))
    kind = "accepted"
    with no_hang("load an export"):
        try:
            loaded = load.load(policy)
        except ValueError as error:
            kind = kind_of(str(CtaError(str(error))))
        else:
            if not forged:  # what a forged program does when it runs is the compiler's business
                assert loaded(np.zeros(3), np.zeros(3), first=True).shape == (2,)
    count("load an export", kind)
