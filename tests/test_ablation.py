"""Ablations over k, b and readings: what is changed, what is kept, and the grid end to end on the desk."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cta.analysis import ablation as module
from cta.analysis.ablation import DEFAULT_VALUES, Ablation, summary
from cta.analysis.ablation_figure import draw
from cta.analysis.readings import READINGS, read, readings_of
from cta.cli import run as cta_command
from cta.cli.ablate import DESCRIPTION
from cta.config import from_dict, to_dict
from cta.errors import CtaError
from cta.experiment import Run, run_config
from cta.results.study_table import markdown
from tiny_agents import tiny

DOCS = Path(__file__).parents[1] / "docs"


def changed(one: dict, two: dict, prefix: str = "") -> dict[str, tuple]:
    """Leaves of nested dictionaries that differ."""
    found = {}
    for key in one:
        if isinstance(one[key], dict):
            found |= changed(one[key], two[key], f"{prefix}{key}.")
        elif one[key] != two[key]:
            found[prefix + key] = (one[key], two[key])
    return found


@pytest.mark.parametrize(
    ("what", "value", "expected"), [("k", 40, {"subgoal_steps": (10, 40)}), ("b", 4, {"trunk.rank": (8, 4)})]
)
def test_one_setting_changes_and_the_papers_others_stay(what, value, expected):
    grid = Ablation(what, (value,), Path("out"), datasets=("scene-play-v0",))
    config = grid.config("scene-play-v0", value)
    assert changed(to_dict(run_config("cta", "scene-play-v0").agent), to_dict(config.agent)) == expected
    assert config.steps == 1_000_000 and config.eval_interval == 100_000
    assert DEFAULT_VALUES == {"k": (10, 20, 30, 40), "b": (4, 8, 16, 32)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("code", {}),
        ("two-stages", {"agent.dual.pretrain_steps": (0, 500_000)}),
        ("unscaled", {"agent.dual.scale": ("sqrt_d", "none")}),
        ("free-eta", {"agent.eta.normalise": (True, False)}),
        ("unclipped", {"agent.awr_clip": (100.0, "inf")}),
        ("pure", {"agent.trunk.form": ("backbone", "pure")}),
        ("hold", {"agent.high_hold": (1, 10)}),
        ("sampling", {"eval_temperature": (0.0, 1.0)}),
    ],
)
def test_a_reading_changes_one_place(name, expected):
    config = replace(run_config("cta", "scene-play-v0"), steps=1_000_000)
    assert changed(to_dict(config), to_dict(read(config, name))) == expected
    agent = read(config, name).agent
    assert from_dict(type(agent), json.loads(json.dumps(to_dict(agent), allow_nan=False))) == agent


def test_every_reading_differs_from_the_code_and_from_the_others():
    config = run_config("cta", "desk-play-v0")
    found = [to_dict(read(config, name)) for name in readings_of(config)]
    assert all(one != two for one, two in combinations(found, 2))
    assert found[0] == to_dict(config) and readings_of(config) == tuple(READINGS)
    Ablation("reading", readings_of(config), Path("out")).check()
    for clip in (float("nan"), -float("inf")):
        with pytest.raises(CtaError, match="awr-clip must be a finite number"):
            replace(config.agent, awr_clip=clip).check()


def test_readings_are_of_agents_that_have_them(capsys):
    assert not {"pure", "no-backbone"} & set(readings_of(run_config("hiql-analogy", "desk-play-v0")))
    for words, why in (
        (["--agent", "hiql"], "two-level agents with a dual representation"),
        (["--agent", "hiql-analogy", "--values", "pure"], "hiql-analogy has no reading 'pure', only code"),
    ):
        assert cta_command(["ablate", "reading", *words]) == 1
        assert why in capsys.readouterr().err
    assert cta_command(["ablate", "k", "--values", "ten"]) == 1
    assert "'ten' is not a whole number" in capsys.readouterr().err


def test_a_picture_of_names(tmp_path):
    row = {"dataset": "d", "agent": "cta", "task": 1, "step": 1, "episodes": 10}
    rows = [
        {"value": name, **row, "seed": s, "successes": n + s}
        for n, name in enumerate(list(READINGS)[:3])
        for s in (0, 1)
    ]
    draw(tmp_path / "names.png", rows, what="reading")
    with Image.open(tmp_path / "names.png") as image:
        assert np.asarray(image).std() > 5


def test_agents_without_the_setting_are_refused():
    with pytest.raises(CtaError, match="gcivl has no subgoals"):
        Ablation("k", (5,), Path("out"), agent="gcivl").check()
    with pytest.raises(CtaError, match="hiql has no bilinear networks"):
        Ablation("b", (5,), Path("out"), agent="hiql").check()
    with pytest.raises(CtaError, match="each once"):
        Ablation("b", (5, 5), Path("out")).check()


@pytest.mark.parametrize("flag", ["--steps", "--eval-interval", "--eval-episodes"])
def test_zero_is_not_the_presets_number(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "start", lambda *_, **__: pytest.fail("trained"))
    assert cta_command(["ablate", "k", flag, "0", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"{flag} must be at least 1" in said and said.count("\n") == 1


def test_a_summary_by_hand():
    rows = []
    for value, wins in ((10, (1, 2, 3, 4)), (20, (0, 0, 0, 8))):
        for seed in (0, 1):
            for number, won in enumerate(wins, 1):
                for task in (1, 2):
                    row = {"dataset": "d", "agent": "cta", "seed": seed, "step": number, "task": task}
                    rows.append({"setting": "k", "value": value, **row, "episodes": 10, "successes": won + seed})
    one, two = summary(rows)
    # Mean of the last three of four evaluations: 30 and 40 %, then 26.7 and 36.7 %.
    assert (one["value"], one["success"], one["sd"], one["per_seed"]) == (10, 35.0, 5.0, "30.0 40.0")
    assert (two["value"], two["success"], two["sd"], two["seeds"]) == (20, 31.7, 5.0, 2)


def test_a_grid_on_the_desk_that_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    small = {"hidden": (8,), "batch_size": 8, "eta": tiny("hiql").config.eta}

    def little(agent, dataset):
        config = run_config(agent, dataset)
        return replace(config, agent=replace(config.agent, **small))

    monkeypatch.setattr(module, "run_config", little)
    out = tmp_path / "grid"
    words = ["ablate", "k", "--agent", "hiql", "--seeds", "2", "--steps", "2", "--eval-interval", "1"]
    words += ["--eval-episodes", "1", "--out", str(out)]
    assert cta_command([*words, "--values", "2"]) == 0
    first = Run(out / "desk-play-v0" / "k2")
    before = first.files.provenance()["finished"]
    assert first.config.agent.subgoal_steps == 2
    # As if a run with k = 3 had been cut off after its last step.
    second = out / "desk-play-v0" / "k3"
    shutil.copytree(first.path, second)
    _edit(second / "config.json", lambda values: values["agent"].update(subgoal_steps=3))
    _edit(second / "provenance.json", lambda values: values.pop("finished"))
    capsys.readouterr()

    assert cta_command([*words, "--values", "2", "3"]) == 0
    said = capsys.readouterr().out
    assert "k = 2: finished before" in said and "k = 3: going on" in said
    assert first.files.provenance()["finished"] == before and "finished" in Run(second).files.provenance()
    with (out / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    # Two values, two seeds, two evaluations, five tasks.
    assert len(rows) == 40 and {row["value"] for row in rows} == {"2", "3"}
    record = json.loads((out / "record.json").read_text())
    assert [line["value"] for line in record["summary"]] == [2, 3] and record["summary"][0]["seeds"] == 2
    assert [run["config"]["agent"]["subgoal_steps"] for run in record["runs"]] == [2, 3]
    assert record["runs"][0]["data"]["fingerprint"] == record["runs"][1]["data"]["fingerprint"]
    with Image.open(out / "ablation.png") as image:
        assert np.asarray(image).std() > 5

    # A cell that is taken is refused before the free ones in front of it are trained.
    words[words.index("--steps") + 1] = "4"
    assert cta_command([*words, "--values", "5", "2"]) == 1
    assert "k2 was trained with other settings (steps)" in capsys.readouterr().err
    assert not (out / "desk-play-v0" / "k5").exists()


@pytest.mark.parametrize("text", [(DOCS / "ablations.md").read_text(), DESCRIPTION], ids=["guide", "help"])
def test_commands_of_a_page_typed_in_order_do_not_meet(text, monkeypatch):
    asked: list[Ablation] = []
    monkeypatch.setattr(module, "run_ablation", lambda ablation, say: asked.append(ablation) or [])
    listed = re.findall(r"^(?:  )?cta (ablate .*?)(?:   .*)?$", text, re.M)
    quoted = re.findall(r"`cta (ablate [^`]*)`", text)
    for line in (*listed, *quoted):
        assert cta_command(line.split()) == 0
    assert len(listed) == 5 and len({ablation.out for ablation in asked}) == len(asked) == 5 + len(quoted)


@pytest.mark.parametrize("what", ["k", "b"])
def test_the_tables_of_the_guide_are_the_records(what):
    folder = DOCS / "measurements" / f"ablation-desk-{what}"
    with (folder / "summary.csv").open() as file:
        lines = list(csv.DictReader(file))
    record = json.loads((folder / "record.json").read_text())
    assert [{key: str(value) for key, value in line.items()} for line in record["summary"]] == lines
    assert {int(line["value"]) for line in lines} >= set(DEFAULT_VALUES[what])
    table = [[what, "success, %", "each seed"]]
    for line in lines:
        table.append([line["value"], f"{line['success']} ± {line['sd']}", line["per_seed"].replace(" ", ", ")])
    guide = (DOCS / "ablations.md").read_text()
    (body,) = re.findall(f"<!-- {what} -->\n(.*?)\n<!-- /{what} -->", guide, re.DOTALL)
    assert body == markdown(table)
    (seeds,), (steps,), (episodes,) = ({line[name] for line in lines} for name in ("seeds", "steps", "episodes"))
    assert f"{seeds} seeds, {int(steps):,} steps, {episodes} episodes a task" in " ".join(guide.split())
    own = "k = {agent[subgoal_steps]} and b = {agent[trunk][rank]}".format(**to_dict(run_config("cta", "desk-play-v0")))
    assert f"The desk's own values are {own}" in guide
    for run in record["runs"]:
        assert {"command", "commit", "versions", "hardware", "data", "config"} <= set(run) and "+" not in run["commit"]
    assert (DOCS / "figures" / f"ablation-{what}.png").stat().st_size < 400_000


def test_the_table_of_readings_is_the_record():
    folder = DOCS / "measurements" / "ablation-desk-reading"
    record = json.loads((folder / "record.json").read_text())
    with (folder / "summary.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in line.items()} for line in record["summary"]] == lines
    assert {line["value"] for line in lines} == set(READINGS)
    table = [["reading", "what is done otherwise", "steps", "success, %", "each seed"]]
    for line in lines:
        name, score = line["value"], f"{line['success']} ± {line['sd']}"
        table.append([name, READINGS[name].text, line["steps"], score, line["per_seed"].replace(" ", ", ")])
    guide = (DOCS / "ablations.md").read_text()
    (body,) = re.findall("<!-- reading -->\n(.*?)\n<!-- /reading -->", guide, re.DOTALL)
    assert body == markdown(table)
    (seeds,), (episodes,) = ({line[name] for line in lines} for name in ("seeds", "episodes"))
    assert f"{seeds} seeds, 3,000 steps, {episodes} episodes a task" in " ".join(guide.split())
    assert all("+" not in run["commit"] for run in record["runs"])
    assert [run["value"] for run in record["runs"] if len(run["stopped"]) == 4] == ["unclipped"]


def test_what_the_guide_says_of_readings_is_in_the_evaluations():
    folder, guide = (
        DOCS / "measurements" / "ablation-desk-reading",
        " ".join((DOCS / "ablations.md").read_text().split()),
    )
    with (folder / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "summary.csv").open() as file:
        seeds = {line["value"]: np.array(line["per_seed"].split(), float) for line in csv.DictReader(file)}

    def at(value, step):
        mine = [row for row in rows if (row["value"], row["step"]) == (value, str(step))]
        return np.mean([100 * int(row["successes"]) / int(row["episodes"]) for row in mine])

    for value, steps in (("two-stages", (2000, 2500, 3000)), ("code", (500, 1000, 1500))):
        assert "{:.1f}, {:.1f} and {:.1f} %".format(*(at(value, step) for step in steps)) in guide
    worse = {name: seeds["code"] - scores for name, scores in seeds.items()}
    for name, words in (
        ("unscaled", "by {} to {} points"),
        ("dual-ema", "({} to {} points"),
        ("eta-ema", "({} to {})"),
    ):
        assert words.format(f"{worse[name].min():.1f}", f"{worse[name].max():.1f}") in guide
    for name in ("one-dual", "one-value", "free-eta", "linear-features"):
        assert worse[name].min() < 0 < worse[name].max()
    assert "these two reach {:.1f} and {:.1f} %".format(*seeds["eta-by-policy"][:2]) in guide
    assert seeds["eta-by-policy"].mean() > seeds["code"].mean()  # nothing is lost
    assert seeds["pure"].max() < seeds["no-backbone"].min()


def _edit(path: Path, change: Callable[[dict], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
