"""Plans, cells, estimates and dry runs: everything of the grid that needs no process."""

from dataclasses import replace
from pathlib import Path

import pytest

from cta.agents import paper_names
from cta.cli import run
from cta.errors import CtaError
from cta.experiment import run_config
from cta.grid.cells import Cell, Cut, DataSize
from cta.grid.plan import read_plan
from cta.grid.processes import train_words
from cta.grid.rates import EPISODES_PER_CORE, SLOWER, START_S, Rates, Speed
from cta.grid.run_plan import seconds
from cta.grid.workspace import Workspace
from cta.scores.store import Scores
from cta.scores.tables import agent_words

ROOT = Path(__file__).parent.parent
PLANS = ROOT / "plans"


def test_the_core_plan_is_the_issues_cells():
    plan = read_plan(ROOT / "plans" / "paper-core.toml")
    assert [(cell.dataset, cell.agent) for cell in plan.cells] == [
        (dataset, agent) for dataset in ("puzzle-4x4-play-v0", "scene-play-v0") for agent in ("cta", "hiql-analogy")
    ]
    for cell in plan.cells:
        assert (cell.seeds, cell.steps, cell.episodes) == ((0, 1, 2, 3), 1_000_000, 50)
        assert cell.points == (800_000, 900_000, 1_000_000) and not cell.settings and cell.data == DataSize()


def test_the_other_plans_are_the_issues_cells():
    worlds = ("puzzle-4x4-play-v0", "scene-play-v0")
    small = ("cube-single-play-v0", "puzzle-3x3-play-v0")
    ooc, more = (read_plan(ROOT / "plans" / f"paper-{name}.toml").cells for name in ("ooc", "more"))
    assert [(cell.dataset, cell.agent) for cell in ooc] == [
        (world, agent) for world in reversed(worlds) for agent in ("cta", "hiql-analogy", "hiql-dual")
    ]
    assert {(cell.condition, cell.ask) for cell in ooc} == {("held-out", "pairs")}
    assert {(cell.condition, cell.ask) for cell in more} == {("whole", "tasks")}
    assert [len(cell.tasks) for cell in ooc] == [3, 3, 3, 5, 5, 5] and ooc[0].tasks[0] == "pair1"
    assert [(cell.dataset, cell.agent) for cell in more] == [
        *((world, agent) for world in worlds for agent in ("hiql-dual", "hiql")),
        *((world, agent) for world in small for agent in ("cta", "hiql-analogy")),
        *((world, agent) for world in worlds for agent in ("gciql", "gcivl-dual")),
    ]
    for cell in (*ooc, *more):
        assert (cell.seeds, cell.steps, cell.episodes) == ((0, 1, 2, 3), 1_000_000, 50)
        assert cell.points == (800_000, 900_000, 1_000_000) and not cell.settings and cell.data == DataSize()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seeds = 4", r"no \[\[cells\]\]"),
        ("cels = 1\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "unknown setting 'cels'"),
        ("[[cells]]\ndataset = 'desc-play-v0'\nagents = ['cta']", "did you mean desk-play-v0"),
        ("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['ctb']", "no agent 'ctb'"),
        ("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta', 'cta']", "is there twice"),
        ("seeds = [-1]\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "seeds must be a list"),
        ("steps = 50\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "must end at the last of 50 steps"),
        ("steps = [", "not valid TOML"),
        ("seeds = true\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "seeds: True is not a list"),
        (
            "condition = 'held-out'\n[[cells]]\ndataset = 'cube-single-play-v0'\nagents = ['cta']",
            "no dataset with pairs to hold out",
        ),
        (
            "condition = 'cut'\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']",
            "'cut' is not one of whole, held-out, random",
        ),
        ("ask = 'all'\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "'all' is not one of tasks, pairs"),
        ("settings = {ran = 1}\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "ran"),
        ("temperature = -1\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "temperature must be at least 0"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path, text, complaint):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(CtaError, match=complaint):
        read_plan(path)


CELL = Cell("desk-play-v0", "cta", (0, 1), 100, (80, 90, 100))


def test_a_cells_folder_is_named_by_its_content_and_not_by_what_may_grow():
    same = [
        replace(CELL, seeds=(0, 1, 2, 3)),
        replace(CELL, steps=200, points=(100, 150, 200)),
        replace(CELL, episodes=99, curve_points=(10,)),
        replace(CELL, ask="pairs"),
        replace(CELL, temperature=1.0),
        replace(CELL, settings=(("trunk.rank", 8),)),  # the preset's
    ]
    assert {cell.digest for cell in same} == {CELL.digest}
    assert all(cell.folder == CELL.folder for cell in same[:-1])
    other = [
        replace(CELL, settings=(("trunk.rank", 4),)),
        replace(CELL, condition="held-out"),
        replace(CELL, condition="random"),
        replace(CELL, data=DataSize(seed=1)),
        replace(CELL, data=DataSize(episodes=20)),
        replace(CELL, agent="hiql"),
        replace(CELL, dataset="lights-3x3-play-v0"),
        replace(CELL, condition="held-out", cut=Cut(pairs="others")),
        replace(CELL, condition="held-out", cut=Cut(pairs="others", only=2)),
    ]
    assert len({CELL.folder, *(cell.folder for cell in other)}) == len(other) + 1
    assert "/" not in replace(CELL, agent="cta", settings=(("trunk.rank", 4),)).folder


def test_scores_are_told_apart_by_settings_temperature_and_pairs():
    assert CELL.key == ("desk-play-v0", "cta", "", "whole")
    changed = replace(CELL, settings=(("trunk.rank", 4),), temperature=1.0, condition="held-out")
    assert changed.key == ("desk-play-v0", "cta", "trunk.rank=4;eval_temperature=1", "held-out")
    assert changed.run_key.settings == "trunk.rank=4"
    assert replace(CELL, ask="pairs").key == CELL.key  # tasks and pairs of one training stand side by side
    assert len({replace(CELL, cut=Cut(pairs="mine", only=only)).key for only in (None, 1, 2)}) == 3


def test_small_networks_in_a_plan_are_those_of_the_command_line(tmp_path):
    where = tmp_path / "plan.toml"
    where.write_text("""
size = "small"
steps = 100
eval_points = [100]
[[cells]]
dataset = "lights-4x4-play-v0"
agents = ["cta", "hiql"]
[[cells]]
dataset = "lights-4x4-play-v0"
agents = ["cta"]
settings = { discount = 0.99 }
""")
    plan = read_plan(where)
    for cell in plan.cells:
        small = run_config(cell.agent, cell.dataset, size="small", agent_settings=dict(cell.settings)).agent
        assert cell.config == small != run_config(cell.agent, cell.dataset, agent_settings=dict(cell.settings)).agent
        space = Workspace(plan, tmp_path / "work", tmp_path / "out", dataset_dir=str(tmp_path))
        words = train_words(space, space.unit(cell, (0,)))
        assert words[words.index("--size") + 1] == "small"
    assert [agent_words(cell.key) for cell in plan.cells] == [
        "cta (small)",
        "hiql (small)",
        "cta (small;discount=0.99)",
    ]
    assert agent_words(replace(CELL, agent="cta").key) == "cta"  # where the usual networks are small ones
    assert plan.cells[0].name.startswith("cta (small) on lights-4x4")


def test_unknown_settings_are_said():
    with pytest.raises(CtaError, match="rang"):
        _ = replace(CELL, settings=(("trunk.rang", 4),)).config


def test_the_whole_paper_is_what_its_tables_have():
    """plans/paper-all.toml asks for every number of every table, with the paper's seeds."""
    plan = read_plan(PLANS / "paper-all.toml")
    names = {
        "main": "whole tasks", "noisy": "whole tasks", "maze": "whole tasks", "pixel": "whole tasks",
        "gcb": "whole tasks", "hierarchy": "whole tasks", "ooc_overall": "held-out pairs",
    }  # fmt: skip
    cells = {(c.dataset, c.agent, f"{c.condition} {c.ask}"): c for c in plan.cells if not c.settings}
    for table, asked in names.items():
        rows = (ROOT / "src" / "cta" / "scores" / "paper" / f"{table}.csv").read_text().splitlines()[1:]
        for _, env, method, *_, seeds in (row.split(",") for row in rows):
            if env != "average_printed":
                cell = cells[env, paper_names()[method], asked]
                assert len(cell.seeds) >= int(seeds) and cell.episodes == 50
                assert cell.steps == (500_000 if "visual" in env else 1_000_000)
    ooc = {(c.dataset, c.agent) for c in plan.cells if c.condition == "held-out"}
    for condition in ("whole", "random"):
        assert {(c.dataset, c.agent) for c in plan.cells if c.condition == condition and c.ask == "pairs"} == ooc
    grids = {
        name: {v for c in plan.cells for n, v in c.settings if n == name} for name in ("subgoal_steps", "trunk.rank")
    }
    assert grids == {"subgoal_steps": {10, 20, 30, 40}, "trunk.rank": {4, 8, 16, 32}}


def test_estimates_prefer_what_was_measured_here():
    rates = Rates("gpu", {"cta": 1000.0})
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(4 + START_S)
    # Two seeds instead of four: half of the saving one would hope for.
    assert rates.train_seconds("cta", "x", 2, 1000) == pytest.approx(3 + START_S)
    assert rates.train_seconds("hiql", "x", 4, 1000) is None
    assert not rates.known("cta")
    rates.speeds.append(Speed("cta", "x", 4, 9000.0, "recorded", "another gpu"))
    assert not rates.known("cta") and rates.train_seconds("cta", "x", 4, 9000) == pytest.approx(4)
    rates.speeds.append(Speed("cta", "x", 4, 2000.0, "recorded", "gpu"))
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(2) and rates.known("cta")
    rates.measured("cta", "x", 4, 500.0)
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(8 * SLOWER + START_S)
    assert rates.train_seconds("cta", "x", 8, 1000) == pytest.approx(16 * SLOWER + START_S)


def test_rates_are_read_from_records():
    rates = Rates.of(Scores(ROOT / "results").cells(), "NVIDIA H200", {})
    assert rates.speed("hiql-analogy", "scene-play-v0", 4).rate == 4870.9
    assert rates.known("cta")
    seen, source = rates.score_rate("puzzle-4x4-play-v0")
    assert 0.1 < seen < 5 and source == "recorded"
    # Records of the simulator say nothing of a world that needs none.
    assert rates.score_rate("lights-4x4-play-v0") == (EPISODES_PER_CORE[True], "assumed")
    given = Rates.of(Scores(ROOT / "results").cells(), "NVIDIA H200", {"episodes_per_core": 50.0})
    for dataset in ("puzzle-4x4-play-v0", "desk-play-v0"):
        assert given.score_rate(dataset) == (50.0, "given in the plan")
    elsewhere = Rates.of(Scores(ROOT / "results").cells(), "cpu", {})
    assert not elsewhere.known("cta") and elsewhere.speed("cta", "scene-play-v0", 4).device == "NVIDIA H200"


@pytest.mark.parametrize(("text", "value"), [("28m", 1680), ("1h30m", 5400), ("90s", 90), ("45", 45), ("1m5s", 65)])
def test_times(text, value):
    assert seconds(text, "--budget") == value


@pytest.mark.parametrize("text", ["soon", "-5m", "0s", "5 minutes"])
def test_no_times(text):
    with pytest.raises(CtaError, match="--budget"):
        seconds(text, "--budget")


def test_a_dry_run_shows_cells_hours_and_rates(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OGBENCH_DATA_DIR", str(tmp_path / "data"))
    words = ["reproduce", str(PLANS / "paper-core.toml"), "--dry-run", "--workers", "16"]
    assert run([*words, "--budget", "45m"]) == 0
    text = capsys.readouterr().out
    assert "cta on puzzle-4x4-play-v0: seeds 0–3, 0:15:30 of training on another machine, 3.2 core-hours" in text
    assert text.count("of training on another machine, not in this budget") == 2
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "4 cells; to train: 16 seeds in 4 runs of 4 cells" in text
    assert "device-hours of training" in text and "core-hours" in text
    assert "rate of cta: 4,600 seed-steps/s of 4 seeds on puzzle-4x4-play-v0, given in the plan" in text
    assert "these device-hours are those of another machine; this machine (cpu) is not measured" in text
    assert list(tmp_path.iterdir()) == []


def test_a_speed_that_nobody_knows_is_said_to_be_unknown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['gcbc']")
    assert run(["reproduce", "plan.toml", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "seeds 0–3, an unknown time of training" in text and "1 cells at an unknown speed (gcbc)" in text
    assert "0:00" not in text


def test_machines_can_share_a_plan():
    plan = read_plan(ROOT / "plans" / "paper-core.toml")
    some = plan.only(datasets=["scene-play-v0"], agents=["cta"])
    assert [(cell.dataset, cell.agent) for cell in some.cells] == [("scene-play-v0", "cta")]
    assert plan.only() == plan
    shares = [plan.only(agents=[agent]).cells for agent in ("cta", "hiql-analogy")]
    assert {cell for share in shares for cell in share} == set(plan.cells)
    with pytest.raises(CtaError, match="--agents gcbc: not in the plan, which has cta, hiql-analogy"):
        plan.only(agents=["cta", "gcbc"])


def test_the_share_is_what_would_be_done(tmp_path, capsys):
    words = ["reproduce", str(ROOT / "plans" / "paper-core.toml"), "--dry-run", "--agents", "hiql-analogy"]
    words += ["--out", str(tmp_path)]
    assert run([*words, "--datasets", "scene-play-v0"]) == 0
    said = capsys.readouterr().out
    assert "hiql-analogy on scene-play-v0" in said and "cta on" not in said and "puzzle" not in said
