"""Ablations over k, b and readings: what is changed, what is kept, and the grid end to end on the desk."""

import csv
import inspect
import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cta.cli import run as cta_command
from cta.cli.ablate import Command
from cta.config import from_dict, to_dict
from cta.errors import CtaError
from cta.experiment import run_config
from cta.grid import run_plan as run_plan_module
from cta.grid.plan import Plan
from cta.grid.studies import DEFAULT_VALUES, READINGS, ablation_plan, read, readings_of, scored_cell, write_ablation
from cta.io.text_tables import pipe_table
from cta.scores.schema import Score
from cta.scores.store import Scores

DOCS = Path(__file__).parents[1] / "docs"


def plan_of(what, values=None, *, datasets=("desk-play-v0",), agent="cta", **options):
    return ablation_plan(what, values, datasets=datasets, agent=agent, seeds=(0, 1), **options)


@pytest.mark.parametrize(("what", "value", "key"), [("k", "40", "subgoal_steps=40"), ("b", "4", "trunk.rank=4")])
def test_one_setting_changes_and_the_papers_others_stay(what, value, key):
    plan, values = plan_of(what, [value], datasets=("scene-play-v0",))
    (cell,) = plan.cells
    assert cell.key.settings == key and values == [value]
    assert cell.steps == 1_000_000 and cell.all_points == tuple(range(100_000, 1_000_001, 100_000))
    assert cell.points == (800_000, 900_000, 1_000_000) and cell.episodes == cell.curve_episodes == 50
    assert DEFAULT_VALUES == {"k": ("10", "20", "30", "40"), "b": ("4", "8", "16", "32")}
    # The preset's own value is the preset's cell: what another plan has trained is found.
    preset = plan_of("k", ["10"], datasets=("scene-play-v0",))[0].cells[0]
    assert preset.key.settings == "" and preset.folder == replace(preset, settings=()).folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("code", ""),
        ("two-stages", "dual.pretrain_steps=500000"),
        ("unscaled", "dual.scale=none"),
        ("free-eta", "eta.normalise=False"),
        ("unclipped", "awr_clip=inf"),
        ("pure", "trunk.form=pure"),
        ("hold", "high_hold=10"),
        ("sampling", "eval_temperature=1"),
    ],
)
def test_a_reading_changes_one_place(name, expected):
    cell = read(scored_cell("scene-play-v0", "cta", (0,), None), name)
    assert cell.key.settings == expected
    config = cell.config
    assert from_dict(type(config), json.loads(json.dumps(to_dict(config), allow_nan=False))) == config


def test_every_reading_differs_from_the_code_and_from_the_others():
    base = scored_cell("desk-play-v0", "cta", (0,), None)
    found = [read(base, name).key for name in readings_of(base)]
    assert all(one != two for one, two in combinations(found, 2))
    assert found[0] == base.key and readings_of(base) == tuple(READINGS)
    # Sampled policies are those of the presets, scored otherwise: nothing is trained for them.
    assert read(base, "sampling").folder == base.folder
    for clip in (float("nan"), -float("inf")):
        with pytest.raises(CtaError, match="awr-clip"):
            replace(base.config, awr_clip=clip).check()


def test_readings_are_of_agents_that_have_them(capsys):
    assert not {"pure", "no-backbone"} & set(readings_of(scored_cell("desk-play-v0", "hiql-analogy", (0,), None)))
    for words, why in (
        (["--agent", "hiql"], "two-level agents with a dual representation"),
        (["--agent", "hiql-analogy", "--values", "pure"], "hiql-analogy has no reading 'pure', only code"),
    ):
        assert cta_command(["ablate", "reading", *words]) == 1
        assert why in capsys.readouterr().err
    assert cta_command(["ablate", "k", "--values", "ten"]) == 1
    assert "'ten' is not a whole number" in capsys.readouterr().err


def test_agents_without_the_setting_are_refused():
    with pytest.raises(CtaError, match="gcivl has no subgoals"):
        plan_of("k", ["5"], agent="gcivl")
    with pytest.raises(CtaError, match="hiql has no bilinear networks"):
        plan_of("b", ["5"], agent="hiql")
    with pytest.raises(CtaError, match="each once"):
        plan_of("b", ["5", "5"])


@pytest.mark.parametrize("flag", ["--steps", "--eval-interval", "--eval-episodes"])
def test_zero_is_not_the_presets_number(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_plan_module, "run_plan", lambda *_, **__: pytest.fail("trained"))
    assert cta_command(["ablate", "k", flag, "0", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"{flag} must be at least 1" in said and said.count("\n") == 1


@pytest.mark.parametrize("what", ["k", "reading"])
def test_a_summary_and_a_picture_by_hand(tmp_path, what):
    values = ["10", "20"] if what == "k" else ["code", "unscaled"]
    plan, _ = plan_of(what, values, steps=4, interval=1, episodes=10)
    scores = Scores(tmp_path / "results")
    for cell, wins in zip(plan.cells, ((1, 2, 3, 4), (0, 0, 0, 8)), strict=True):
        rows = [
            Score(*cell.key, seed, step, task, 10, won + seed)
            for seed in (0, 1)
            for step, won in enumerate(wins, 1)
            for task in cell.tasks
        ]
        scores.add(cell.key, {"training": [], "scoring": []}, rows)
    one, two = write_ablation(what, plan, values, tmp_path, scores)
    # Mean of the last three of four evaluations: 30 and 40 %, then 26.7 and 36.7 %.
    assert (one["value"], one["success"], one["sd"], one["per_seed"]) == (values[0], 35.0, 5.0, "30.0 40.0")
    assert (two["value"], two["success"], two["sd"], two["seeds"]) == (values[1], 31.7, 5.0, 2)
    with (tmp_path / "summary.csv").open() as file:
        assert [line["value"] for line in csv.DictReader(file)] == values
    with Image.open(tmp_path / "ablation.png") as image:
        assert np.asarray(image).std() > 5
    write_ablation(what, plan, values, tmp_path, scores, format="svg")
    assert "<svg" in (tmp_path / "ablation.svg").read_text()


@pytest.mark.slow
def test_a_grid_on_the_desk_that_continues_where_it_stopped(tmp_path, capsys):
    words = ["ablate", "k", "--agent", "hiql", "--steps", "2", "--eval-interval", "1", "--eval-episodes", "1"]
    words += ["--out", str(tmp_path / "grid"), "--work", str(tmp_path / "work")]
    assert cta_command([*words, "--values", "2"]) == 0
    assert "train hiql (subgoal_steps 2)" in capsys.readouterr().err
    assert cta_command([*words, "--values", "2"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and "picture:" in said.out
    (cell,) = Scores(tmp_path / "grid" / "results").cells()
    # Two evaluations, five tasks.
    assert cell.key.settings == "subgoal_steps=2" and len(cell.rows) == 10


@pytest.mark.parametrize("text", [(DOCS / "ablations.md").read_text(), inspect.getdoc(Command)], ids=["guide", "help"])
def test_commands_of_a_page_typed_in_order_do_not_meet(text, monkeypatch):
    asked: list[tuple[Plan, Path]] = []
    monkeypatch.setattr(run_plan_module, "run_plan", lambda plan, how: asked.append((plan, how.out)) or 0)
    listed = re.findall(r"^(?:  )?cta (ablate .*?)(?:   .*)?$", text, re.M)
    quoted = re.findall(r"`cta (ablate [^`]*)`", text)
    for line in (*listed, *quoted):
        assert cta_command(line.split()) == 0
    assert len(listed) == 5 and len({out for _, out in asked}) == len(asked) == 5 + len(quoted)


@pytest.mark.parametrize("what", ["k", "b"])
def test_the_tables_of_the_guide_are_the_records(what):
    folder = DOCS / "measurements" / f"ablation-desk-{what}"
    with (folder / "summary.csv").open() as file:
        lines = list(csv.DictReader(file))
    record = json.loads((folder / "record.json").read_text())
    assert [{key: str(value) for key, value in line.items()} for line in record["summary"]] == lines
    assert {line["value"] for line in lines} >= set(DEFAULT_VALUES[what])
    table = [[what, "success, %", "each seed"]]
    for line in lines:
        table.append([line["value"], f"{line['success']} ± {line['sd']}", line["per_seed"].replace(" ", ", ")])
    guide = (DOCS / "ablations.md").read_text()
    (body,) = re.findall(f"<!-- {what} -->\n(.*?)\n<!-- /{what} -->", guide, re.DOTALL)
    assert body == pipe_table(table)
    (seeds,), (steps,), (episodes,) = ({line[name] for line in lines} for name in ("seeds", "steps", "episodes"))
    assert f"{seeds} seeds, {int(steps):,} steps, {episodes} episodes per task" in " ".join(guide.split())
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
        table.append([name, READINGS[name][0], line["steps"], score, line["per_seed"].replace(" ", ", ")])
    guide = (DOCS / "ablations.md").read_text()
    (body,) = re.findall("<!-- reading -->\n(.*?)\n<!-- /reading -->", guide, re.DOTALL)
    assert body == pipe_table(table)
    (seeds,), (episodes,) = ({line[name] for line in lines} for name in ("seeds", "episodes"))
    assert f"{seeds} seeds, 3,000 steps, {episodes} episodes per task" in " ".join(guide.split())
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
