"""From runs and files of weights to scores: `cta evaluate`, `cta results`, `cta ooc evaluate` on a small run."""

import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from cta.agents import find
from cta.agents.policy import Policy
from cta.cli import run
from cta.errors import CtaError
from cta.experiment import Run, load_policy
from cta.experiment.weights import FORMAT, network_shapes, open_weights, read_by_act
from cta.ooc.components import find_layout
from cta.ooc.evaluation import count_rows, read_logs
from cta.ooc.pairs import held_out_of
from cta.scores.schema import COLUMNS, HELD_OUT, CellKey, read_scores
from cta.scores.store import Scores

SETTINGS = "batch_size=8;hidden=8,8"
KEY = CellKey("desk-play-v0", "gcbc", SETTINGS)
CELL = KEY.stem
PAIRS = {f"pair{number}" for number in (1, 2, 3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two runs of gcbc with two seeds: on the desk's data, and on data without its pairs."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["--episodes", "10", "--episode-steps", "120", "--workers", "1"]
    assert run(["data", "generate", "desk-play-v0", *words, "--out", str(folder)]) == 0
    whole = folder / "desk-play-v0.npz"
    assert run(["ooc", "cut", str(whole), "--out", str(folder / "cut")]) == 0
    small = ["--agent", "gcbc", "--agent.batch-size", "8", "--agent.hidden", "8", "8", "--seeds", "2", "--steps", "4"]
    for name, data in (("whole", whole), ("cut", folder / "cut" / "desk-play-v0.npz")):
        how = ["--eval-interval", "2", "--eval-episodes", "1", "--checkpoint-interval", "2", "--keep", "0"]
        assert run(["train", "--dataset", str(data), *small, *how, "--run-dir", str(folder / name)]) == 0
    return folder


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_runs_scores_have_the_one_schema(made):
    found = rows(made / "whole" / "eval.csv")
    assert tuple(found[0]) == COLUMNS and len(found) == 2 * 2 * 5
    assert {(row["settings"], row["condition"], row["direct"]) for row in found} == {(SETTINGS, "whole", "")}
    assert {row["condition"] for row in rows(made / "cut" / "eval.csv")} == {HELD_OUT}
    seen = json.loads((made / "whole" / "provenance.json").read_text())
    assert (seen["kernels"], seen["products"]) == ("plain", "float32")


def test_a_run_is_added_to_results_and_listed(made, tmp_path, capsys):
    assert run(["results", "add", str(made / "whole"), str(made / "cut"), "--to", str(tmp_path)]) == 0
    cell, held = Scores(tmp_path).cell(KEY), Scores(tmp_path).cell(KEY._replace(condition=HELD_OUT))
    assert list(cell.rows) == sorted(Run(made / "whole").evaluations()) and len(held.rows) == 20
    (training,) = cell.record["training"]
    assert training["kernels"] == "plain" and training["settings"]["batch_size"] == 8
    for folder in (tmp_path, made / "whole"):
        capsys.readouterr()
        assert run(["results", "list", str(folder)]) == 0
        assert "gcbc (batch_size=8;hidden=8,8)" in capsys.readouterr().out


def test_what_an_old_study_wrote_is_added(tmp_path, capsys):
    study = Path(__file__).parents[1] / "docs" / "measurements" / "ooc-desk"
    assert run(["results", "list", str(study)]) == 0
    said = capsys.readouterr().out  # the desk has no protocol of the paper's to fall short of
    assert "8 seeds" in said and "of 4 seeds" not in said and "missing" not in said
    assert run(["results", "add", str(study), "--to", str(tmp_path)]) == 0
    there, here = Scores(study).cells(), Scores(tmp_path).cells()
    assert [(cell.key, cell.rows) for cell in here] == [(cell.key, cell.rows) for cell in there] and len(here) == 15


def test_a_run_into_a_results_folder(made, tmp_path, capsys):
    words = ["evaluate", str(made / "cut"), "--episodes", "2", "--results", str(tmp_path)]
    assert run([*words, "--seeds", "1", "--step", "2,4"]) == 0
    assert f"2 scored into {tmp_path}\n" in capsys.readouterr().out
    cell = Scores(tmp_path).cell(KEY._replace(condition=HELD_OUT))
    assert {(row.seed, row.step, row.task) for row in cell.rows} == {
        (1, step, pair) for step in (2, 4) for pair in PAIRS
    }
    (facts,) = cell.record["scoring"]
    assert (facts["asked"], facts["episodes"], facts["worlds_per_worker"], facts["weights"]) == (
        "pairs",
        2,
        6,
        "float32",
    )
    assert [entry[:2] for entry in facts["scored"]] == [[1, 2], [1, 4]]
    # The rows are what the kept logs say.
    logs = read_logs(Scores(tmp_path).events_file(cell.key, 1, 4))
    desk = find_layout("desk-play-v0")
    assert count_rows(logs, held_out_of(desk).numbered(), desk, cell.key, 1, 4) == [r for r in cell.rows if r.step == 4]
    # They come along into another folder.
    assert run(["results", "add", str(tmp_path), "--to", str(tmp_path / "other")]) == 0
    assert read_logs(Scores(tmp_path / "other").events_file(cell.key, 1, 4)) == logs
    capsys.readouterr()
    assert run(words) == 0
    assert f"1 scored into {tmp_path}, 1 were there already" in capsys.readouterr().out
    assert run([*words, "--again"]) == 0
    assert f"2 scored into {tmp_path}\n" in capsys.readouterr().out
    assert run([*words, "--ask", "tasks"]) == 0
    parts = Scores(tmp_path).cell(cell.key).parts()
    assert [len(part.rows) for part in parts] == [2 * 5, (2 + 1) * 3]


def test_an_agent_of_whole_data_is_asked_for_pairs(made, tmp_path):
    words = ["evaluate", str(made / "whole"), "--episodes", "1", "--results", str(tmp_path)]
    assert run([*words, "--ask", "pairs"]) == 0 and run(words) == 0
    assert {row.task for row in Scores(tmp_path).cell(KEY).rows} == {*PAIRS, *"12345"}


def test_weights_score_like_the_run_they_come_from(made, tmp_path, capsys):
    here, there = Scores(tmp_path / "results"), tmp_path / "there"
    pack = ["results", "pack", str(made / "whole"), "--step", "4", "--results", str(here.folder)]
    assert run([*pack, "--episodes", "2"]) == 0
    files = sorted(str(path) for path in (here.folder / "weights").iterdir())
    assert [Path(file).name for file in files] == [f"{CELL}.seed{seed}.4.safetensors" for seed in (0, 1)]
    # Known as trained before anybody scores it: no other machine trains it again.
    assert here.cell(KEY).record["training"][0]["seeds"] == [0, 1] and here.cells()[0].rows == ()
    # Without --results: into the folder they lie in.
    assert run(["evaluate", *files, "--episodes", "2"]) == 0
    assert f"2 scored into {here.folder}\n" in capsys.readouterr().out
    assert run(["evaluate", str(made / "whole"), "--episodes", "2", "--results", str(there)]) == 0
    assert here.cell(KEY).rows == Scores(there).cell(KEY).rows
    capsys.readouterr()
    assert run(["evaluate", *files, "--results", str(here.folder), "--episodes", "2"]) == 0
    assert "2 were there already" in capsys.readouterr().out


def test_weights_of_earlier_versions_lie_in_the_folder_of_pairs(made, tmp_path):
    """RESULTS/ooc/weights belongs to RESULTS."""
    assert run(["results", "pack", str(made / "cut"), "--step", "4", "--results", str(tmp_path / "x" / "ooc")]) == 0
    files = sorted(str(path) for path in (tmp_path / "x" / "ooc" / "weights").iterdir())
    assert run(["evaluate", *files, "--episodes", "1"]) == 0
    assert len(Scores(tmp_path / "x").cell(KEY._replace(condition=HELD_OUT)).rows) == 6


def test_rounded_weights_are_smaller_close_and_named(made, tmp_path):
    sizes, trained = {}, Run(made / "whole")
    for precision in ("float32", "float16", "bfloat16"):
        words = ["results", "pack", str(made / "whole"), "--step", "4", "--weights", precision]
        assert run([*words, "--results", str(tmp_path / precision)]) == 0
        file = tmp_path / precision / "weights" / f"{CELL}.seed1.4.safetensors"
        sizes[precision] = file.stat().st_size
        (weights,), exact = open_weights(file), trained.networks(4)[1][1]
        pair = np.random.default_rng(0).normal(size=(2, 4, *trained.spec.observation_shape)).astype(np.float32)
        actions = [Policy(weights.agent, networks)(*pair, np.ones(4, bool)) for networks in (exact, weights.load())]
        error = np.abs(actions[0] - actions[1]).max()
        assert (error == 0) if precision == "float32" else (0 < error < 0.1)
        assert weights.precision == precision and weights.training["steps"] == 4
    assert sizes["float16"] < sizes["float32"] and sizes["bfloat16"] == pytest.approx(sizes["float16"], rel=0.01)
    assert run(["evaluate", str(file), "--results", str(tmp_path / "scores"), "--episodes", "1"]) == 0
    assert Scores(tmp_path / "scores").cell(KEY).record["scoring"][0]["weights"] == "bfloat16"


def test_a_policy_of_cut_data_is_kept_with_its_scores_on_pairs_and_tasks(made, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ([str(made / "cut")], [str(made / "cut"), "--ask", "tasks"]):
        assert run(["evaluate", *words, "--results", "results", "--episodes", "1", "--seeds", "1"]) == 0
    (file,) = Path("results").glob("*.csv")
    file.write_text(file.read_text().replace(",pair2,1,0,0,0", ",pair2,1,1,0,1"))  # by a detour, as if it had
    assert run(["results", "keep", str(made / "cut"), "--seed", "1", "--out", "mine.safetensors"]) == 0
    pairs, tasks = sorted(json.loads(Path("mine.json").read_text())["scores"], key=lambda score: score["asked"])
    (cell,) = Scores("results").cells()
    asked = {row.task: row for row in cell.rows if row.asked == "pairs"}
    assert pairs["direct"] == {task: row.direct for task, row in asked.items()} and [*asked] == [
        "pair1",
        "pair2",
        "pair3",
    ]
    assert pairs["successes"] == {task: row.successes for task, row in asked.items()} and pairs["seconds"] >= 0
    assert [*tasks["successes"]] == [*"12345"] and "direct" not in tasks
    capsys.readouterr()
    assert run(["evaluate", "mine.safetensors", "--episodes", "1"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"mine\.json, weights in float32: success [\d.]+ % \(pair1 .*\), directly [\d.]+ % \(pair1 ", said)
    assert "weights in float32: success 0.0 % (1 " not in said  # of tasks, which were not asked for


def test_a_policy_to_keep(made, tmp_path, capsys, monkeypatch):
    """One file in half the bits with a record, which is scored, filmed and opened without its run."""
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", str(made / "whole"), "--results", "results", "--episodes", "2", "--seeds", "1"]) == 0
    words = ["results", "keep", str(made / "whole"), "--seed", "1", "--out", "pretrained/desk.safetensors"]
    assert run(words) == 0 and "seed 1, step 4, 0.0 MiB in float16" in capsys.readouterr().out
    record = json.loads(Path("pretrained/desk.json").read_text())
    (score,) = record["scores"]
    assert (score["weights"], score["episodes"], [*score["successes"]]) == ("float32", 2, [*"12345"])
    assert (record["seed"], record["step"], record["weights"], record["training"]["steps"]) == (1, 4, "float16", 4)
    assert record["bytes"] == Path("pretrained/desk.safetensors").stat().st_size
    before = Path("results", f"{CELL}.csv").read_bytes()
    evaluate = ["evaluate", "pretrained/desk.safetensors", "--episodes", "1"]
    assert run([*evaluate, "--videos", "1", "--tasks", "1"]) == 0
    said = capsys.readouterr().out
    assert "seed 1, step 4: success 0.0 % (1 0); episodes of each: 1" in said
    assert "desk.json, weights in float32: success 0.0 % (1 0, 2 0, 3 0, 4 0, 5 0); episodes of each: 2" in said
    assert len(list(Path("pretrained/desk/videos").rglob("*.mp4"))) == 1
    # What it scores lies beside it, never in the results that it was measured with.
    assert Path("results", f"{CELL}.csv").read_bytes() == before
    assert [row.task for row in Scores("pretrained/desk").cell(KEY).rows] == ["1"]
    assert run(["results", "keep", "pretrained/desk.safetensors", "--out", "pretrained/desk.safetensors"]) == 0
    again = json.loads(Path("pretrained/desk.json").read_text())
    assert [score["weights"] for score in again["scores"]] == ["float32", "float16"]
    assert again["sha256"] == record["sha256"]
    policy, pair = (
        load_policy("pretrained/desk.safetensors"),
        np.zeros((2, *Run(made / "whole").spec.observation_shape)),
    )
    np.testing.assert_allclose(policy(*pair), load_policy(made / "whole", seed=1)(*pair), atol=0.01)
    assert (policy.seed, policy.step) == (1, 4)
    with pytest.raises(CtaError, match=r"desk\.safetensors holds gcbc .* seed 1, step 4, and no other policy"):
        load_policy("pretrained/desk.safetensors", seed=0)
    for words, complaint in [
        (["--out", "policy"], "must end in .safetensors"),
        (["--out", "x.safetensors", "--seed", "7"], "holds no policy of such a seed and step"),
        (["--out", "x.safetensors", "--step", "3"], "has no checkpoint at step 3"),
    ]:
        assert run(["results", "keep", str(made / "whole"), *words]) == 1
        assert complaint in capsys.readouterr().err


def test_evaluate_csv_of_an_earlier_version_gets_the_present_columns(made):
    folder = made / "whole"
    old = "dataset,agent,seed,step,task,episodes,successes,env,temperature,noise,eval_seed\n"
    (folder / "evaluate.csv").write_text(old + "desk-play-v0,gcbc,0,4,1,9,3,,0.0,0.5,0\n")
    assert run(["evaluate", str(folder), "--episodes", "1", "--tasks", "1", "--seeds", "0"]) == 0
    first, second = rows(folder / "evaluate.csv")
    assert tuple(first) == (*COLUMNS, "env", "temperature", "noise", "eval_seed", "mujoco")
    assert (first["noise"], first["successes"], first["settings"]) == ("0.5", "3", SETTINGS) and second[
        "noise"
    ] == "0.0"
    assert len(read_scores(folder / "evaluate.csv", growing=True)) == 2


def test_ooc_evaluate_writes_the_one_schema_and_reads_the_former(made, capsys):
    folder = made / "cut"
    header = "dataset,agent,seed,step,task,episodes,successes,pair,direct,lenient\n"
    (folder / "ooc.csv").write_text(header + "desk-play-v0,gcbc,0,2,1,9,3,pair1,2,2\n")
    assert run(["ooc", "evaluate", str(folder), "--episodes", "2", "--markdown"]) == 0
    assert "| gcbc | held-out | 2 | 4 |" in capsys.readouterr().out
    assert tuple(rows(folder / "ooc.csv")[0]) == COLUMNS
    found = read_scores(folder / "ooc.csv", growing=True)
    assert (found[0].task, found[0].direct) == ("pair1", 2) and len(found) == 1 + 2 * 3
    facts = json.loads((folder / "ooc" / "record.json").read_text())["4/1"]
    assert {"pair", "first_pair", "worlds_per_worker", "commit", "versions", "hardware"} <= set(facts)
    (folder / "ooc.csv").unlink()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["RUN", "--again"], "--again is for a results folder: give --results"),
        (["RUN", "--ask", "pairs"], "--ask is for a results folder"),
        (["RUN", "--results", "x", "--env", "a:b"], "--env is for a run without --results"),
        (["RUN", "--results", "x", "--seeds", "7"], "none of these holds such a step and seed"),
        (["RUN", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
        (["RUN", "--results", "x", "--step", "3"], "has no checkpoint at step 3"),
        ([], "name at least one"),
    ],
)
def test_one_parser_says_what_does_not_go_together(made, tmp_path, monkeypatch, capsys, words, complaint):
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", *(str(made / "whole") if word == "RUN" else word for word in words)]) == 1
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


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
    with pytest.raises(CtaError, match="agent evil_module:Agent is code of its own; to run it, give --agent"):
        open_weights(Path(os.path.relpath(path)))
    assert not (tmp_path / "owned").exists()
