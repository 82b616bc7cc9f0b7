"""Plans, estimates and the schedule: everything of the driver that needs no process."""

from pathlib import Path

import pytest

from cta.agents import REGISTRY
from cta.cli import run
from cta.cli.reproduce import seconds
from cta.errors import CtaError
from cta.reproduce.plan import PlannedCell, read_plan
from cta.reproduce.rates import SLOWER, START_S, Rates, Speed
from cta.reproduce.schedule import Option, schedule
from cta.results.store import Results

ROOT = Path(__file__).parent.parent
A = PlannedCell("a-play-v0", "cta", (0, 1, 2, 3), 100, (80, 90, 100))
A2 = PlannedCell("a-play-v0", "hiql", (0, 1, 2, 3), 100, (80, 90, 100))
B = PlannedCell("b-play-v0", "cta", (0, 1, 2, 3), 100, (80, 90, 100))


def whole(cell):
    return Option(cell, cell.seeds, cell.steps)


def ahead(options, *, deadline=None, ready=None, per_seed=10.0, partial=False):
    """Generation takes 50, a seed `per_seed`; the clock begins at 0."""
    return schedule(
        options,
        now=0.0,
        deadline=deadline,
        accelerator_free=0.0,
        ready=ready or {},
        generate_seconds=lambda cell: 50.0,
        train_seconds=lambda cell, seeds, steps: per_seed * seeds * steps / 100,
        partial=partial,
    )


def brief(found):
    return [(c.cell.dataset[0], c.cell.agent, len(c.seeds), c.start, c.end) for c in found.choices]


def test_the_core_plan_is_the_issues_cells():
    plan = read_plan(ROOT / "plans" / "paper-core.toml")
    assert [(cell.dataset, cell.agent) for cell in plan.cells] == [
        (dataset, agent) for dataset in ("puzzle-4x4-play-v0", "scene-play-v0") for agent in ("cta", "hiql-analogy")
    ]
    for cell in plan.cells:
        assert (cell.seeds, cell.steps, cell.episodes) == ((0, 1, 2, 3), 1_000_000, 50)
        assert cell.points == (800_000, 900_000, 1_000_000) and not cell.settings and cell.data.full


def test_the_other_plans_are_the_issues_cells():
    worlds = ("puzzle-4x4-play-v0", "scene-play-v0")
    small = ("cube-single-play-v0", "puzzle-3x3-play-v0")
    ooc, more = (read_plan(ROOT / "plans" / f"paper-{name}.toml").cells for name in ("ooc", "more"))
    assert [(cell.dataset, cell.agent) for cell in ooc] == [(w, a) for w in worlds for a in ("cta", "hiql-analogy")]
    assert all(cell.held_out for cell in ooc) and not any(cell.held_out for cell in more)
    assert [cell.tasks for cell in ooc] == [5, 5, 3, 3]
    assert [(cell.dataset, cell.agent) for cell in more] == [
        *((world, agent) for world in worlds for agent in ("hiql-dual", "hiql")),
        *((world, agent) for world in small for agent in ("cta", "hiql-analogy")),
        *((world, agent) for world in worlds for agent in ("gciql", "gcivl-dual")),
    ]
    for cell in (*ooc, *more):
        assert (cell.seeds, cell.steps, cell.episodes) == ((0, 1, 2, 3), 1_000_000, 50)
        assert cell.points == (800_000, 900_000, 1_000_000) and not cell.settings and cell.data.full


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seeds = 4", r"no \[\[cells\]\]"),
        ("cels = 1\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "unknown key 'cels'"),
        ("[[cells]]\ndataset = 'desc-play-v0'\nagents = ['cta']", "did you mean desk-play-v0"),
        ("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['ctb']", "no agent 'ctb'"),
        ("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta', 'cta']", "is there twice"),
        ("seeds = [-1]\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "a count or a list"),
        ("steps = 50\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "must end at the last of 50 steps"),
        ("steps = [", "not valid TOML"),
        ("held_out = 1\n[[cells]]\ndataset = 'desk-play-v0'\nagents = ['cta']", "held_out is true or false"),
        ("held_out = true\n[[cells]]\ndataset = 'cube-single-play-v0'\nagents = ['cta']", "no components to hold out"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path, text, complaint):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(CtaError, match=complaint):
        read_plan(path)


def test_a_plan_may_have_every_registered_agent_and_ones_own(tmp_path, monkeypatch):
    monkeypatch.setitem(REGISTRY, "newcomer", REGISTRY["gcbc"])
    path = tmp_path / "plan.toml"
    path.write_text("[[cells]]\ndataset = 'desk-play-v0'\nagents = ['newcomer', 'mine:Agent']")
    assert [cell.agent for cell in read_plan(path).cells] == ["newcomer", "mine:Agent"]


def test_everything_in_order_and_data_ahead_of_need():
    found = ahead([whole(A), whole(A2), whole(B)])
    assert brief(found) == [("a", "cta", 4, 50, 90), ("a", "hiql", 4, 90, 130), ("b", "cta", 4, 130, 170)]
    assert found.generate == (("a-play-v0", 50), ("b-play-v0", 100))
    assert found.left == ()


def test_the_accelerator_does_not_wait_while_other_data_are_there():
    found = ahead([whole(A), whole(B)], ready={"b-play-v0": 0.0})
    assert brief(found) == [("b", "cta", 4, 0, 40), ("a", "cta", 4, 50, 90)]


def test_a_budget_takes_seeds_never_steps():
    found = ahead([whole(A), whole(A2)], deadline=115)
    # 40 for four seeds of the first, then 25 are left: two seeds of the second, all their steps.
    assert brief(found) == [("a", "cta", 4, 50, 90), ("a", "hiql", 2, 90, 110)]
    assert {choice.steps for choice in found.choices} == {100}
    assert [(option.cell, option.seeds) for option in found.left] == [(A2, (2, 3))]


def test_what_does_not_fit_is_left_and_its_data_are_not_made():
    found = ahead([whole(A), whole(B)], deadline=95)
    assert brief(found) == [("a", "cta", 4, 50, 90)]
    assert [name for name, _ in found.generate] == ["a-play-v0"]
    assert [option.cell for option in found.left] == [B]
    assert ahead([whole(A)], deadline=55).choices == ()


def test_a_cheaper_cell_takes_the_place_of_one_that_does_not_fit():
    def train_seconds(cell, seeds, steps):
        return 100.0 * seeds if cell.agent == "cta" else 10.0 * seeds

    found = schedule(
        [whole(A), whole(A2)], now=0.0, deadline=60.0, accelerator_free=0.0, ready={"a-play-v0": 0.0},
        generate_seconds=lambda cell: 0.0, train_seconds=train_seconds,
    )  # fmt: skip
    assert [(choice.cell.agent, choice.seeds) for choice in found.choices] == [("hiql", (0, 1, 2, 3))]


def test_a_begun_run_keeps_its_seeds():
    begun = Option(A, (0, 1, 2), 50, fixed=True)
    assert [c.seeds for c in ahead([begun], ready={"a-play-v0": 0.0}, deadline=15).choices] == [(0, 1, 2)]
    assert ahead([begun], ready={"a-play-v0": 0.0}, deadline=14).choices == ()
    assert [c.seeds for c in ahead([begun], ready={"a-play-v0": 0.0}, deadline=14, partial=True).choices] == [(0, 1, 2)]


def test_unknown_speed_is_tried():
    found = schedule(
        [whole(A)], now=0.0, deadline=1.0, accelerator_free=0.0, ready={"a-play-v0": 0.0},
        generate_seconds=lambda cell: 0.0, train_seconds=lambda cell, seeds, steps: None,
    )  # fmt: skip
    assert [choice.seeds for choice in found.choices] == [(0, 1, 2, 3)]


def test_a_guess_is_tried_not_believed():
    options = {"now": 0.0, "accelerator_free": 0.0, "ready": {"a-play-v0": 0.0}, "generate_seconds": lambda cell: 0.0}

    def choices(certain, deadline=200.0):
        def slow(cell, seeds, steps):
            return 100.0 * seeds

        found = schedule([whole(A)], **options, deadline=deadline, train_seconds=slow, certain=lambda cell: certain)
        return [choice.seeds for choice in found.choices]

    assert choices(certain=True) == [(0, 1)]
    assert choices(certain=False) == [(0, 1, 2, 3)]
    # Not even at twice the speed: the last minutes of a slot are not spent on it.
    assert choices(certain=False, deadline=40.0) == []


def test_estimates_prefer_what_was_measured_here():
    rates = Rates({"cta": 1000.0})
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(4 + START_S)
    # Two seeds instead of four: half of the saving one would hope for.
    assert rates.train_seconds("cta", "x", 2, 1000) == pytest.approx(3 + START_S)
    assert rates.train_seconds("hiql", "x", 4, 1000) is None
    assert not rates.known("cta")
    rates.speeds.append(Speed("cta", "x", 4, 2000.0, "recorded", 0.0))
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(2) and rates.known("cta")
    rates.measured("cta", "x", 4, 500.0)
    assert rates.train_seconds("cta", "x", 4, 1000) == pytest.approx(8 * SLOWER + START_S)
    assert rates.train_seconds("cta", "x", 8, 1000) == pytest.approx(16 * SLOWER + START_S)


def test_recorded_rates_count_on_the_same_device_only(tmp_path):
    from test_results_store import record, rows

    results = Results(tmp_path)
    results.add(record(seeds_together=4, seed_steps_per_s=5000.0), rows())
    assert Rates.of(results, "gpu", {}).speed("cta", "puzzle-4x4-play-v0", 4).rate == 5000.0
    assert Rates.of(results, "cpu", {}).speeds == []


@pytest.mark.parametrize(("text", "value"), [("28m", 1680), ("1h30m", 5400), ("90s", 90), ("45", 45), ("1m5s", 65)])
def test_times(text, value):
    assert seconds(text, "--budget") == value


@pytest.mark.parametrize("text", ["soon", "-5m", "0s", "5 minutes"])
def test_no_times(text):
    with pytest.raises(CtaError, match="--budget"):
        seconds(text, "--budget")


def test_a_dry_run_shows_schedule_estimates_and_what_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OGBENCH_DATA_DIR", str(tmp_path / "data"))
    plan = str(ROOT / "plans" / "paper-core.toml")
    assert run(["reproduce", plan, "--dry-run", "--budget", "45m", "--workers", "16"]) == 0
    text = capsys.readouterr().out
    assert "cores  generate puzzle-4x4-play-v0" in text
    assert "device train cta on puzzle-4x4-play-v0, seeds 0–3 (4,600 seed-steps/s, plan; measured when" in text
    assert "score cta on puzzle-4x4-play-v0 at 800k, seeds 0–3" in text
    assert "left: hiql-analogy on scene-play-v0, seeds 0–3" in text
    assert list(tmp_path.iterdir()) == []


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
