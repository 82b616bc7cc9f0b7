"""What the driver decides, from files alone: nothing is started here."""

import csv
import io
import os
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from cta.cli.reproduce import _summary
from cta.envs.datasets import open_dataset
from cta.reproduce.board import Board
from cta.reproduce.crew import Options
from cta.reproduce.driver import Driver
from cta.reproduce.jobs import PACK, SCORE, TRAIN
from cta.reproduce.plan import DataSize, Plan, PlannedCell
from cta.reproduce.rates import Rates, Speed
from cta.reproduce.units import Unit
from cta.reproduce.watch import training_progress
from cta.reproduce.work import Workspace
from cta.results.records import empty
from cta.results.rows import Row
from cta.results.store import Results

CELL = PlannedCell("desk-play-v0", "gcbc", (0, 1, 2, 3), 1000, (800, 900, 1000), episodes=2, curve_points=(400,))


class Recorded(Driver):
    """Notes what it would start."""

    def __init__(self, folder: Path, cell: PlannedCell = CELL, **options):
        space = Workspace(Plan("x", (cell,)), folder / "work", Results(folder / "out"), dataset_dir=str(folder))
        given = {"budget": None, "reserve": 0.0, "cores": 16, "later": False, "precision": "float32", "partial": False}
        super().__init__(space, Rates(), Options(**{**given, **options}), Board())
        self.started: list[list[str]] = []
        self.crew.begin = lambda kind, name, subject, words: self.started.append(words)


def begin_run(driver: Recorded, *checkpoints: int, seeds=(0, 1, 2, 3)) -> Unit:
    unit = driver.space.unit(CELL, seeds)
    for step in checkpoints:
        unit.checkpoint(step).mkdir(parents=True)
    unit.path.mkdir(parents=True, exist_ok=True)
    (unit.path / "config.json").write_text("{}")
    return unit


def train(driver: Recorded, unit: Unit, *, step: int = 0, rate: float = 0.0) -> SimpleNamespace:
    """A training process, as far as the driver looks at it."""
    calls: list[str] = []
    job = SimpleNamespace(kind=TRAIN, subject=unit, seconds=30.0, name="train", calls=calls)
    job.stop, job.wait = lambda: calls.append("stop"), lambda seconds: calls.append("wait")
    driver.crew.jobs.append(job)
    if rate:
        with (unit.path / "train.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("seed", "step", "steps_per_s", "memory"), (0, step, rate, 1)])
    return job


def options(words: list[str]) -> dict[str, str]:
    return dict(pairwise(words))


def test_the_seeds_of_a_checkpoint_are_shared_out_and_a_core_is_left_to_training(tmp_path):
    driver = Recorded(tmp_path)
    begin_run(driver, 800, 900)
    driver.score()
    assert [options(words)["--seeds"] for words in driver.started] == ["0,2", "1,3"]
    assert {options(words)["--step"] for words in driver.started} == {"800,900"}
    # Seven each, one process with the policy each at most: 16 cores are not asked for more.
    assert {options(words)["--workers"] for words in driver.started} == {"7"}
    driver.score()
    assert len(driver.started) == 2


def test_a_process_that_is_free_first_takes_no_more_than_its_half(tmp_path):
    driver = Recorded(tmp_path)
    begin_run(driver, 400, 800)
    driver.crew.jobs.append(SimpleNamespace(kind=SCORE))
    driver.score()
    driver.score()
    assert [(options(words)["--seeds"], options(words)["--step"]) for words in driver.started] == [
        ("0,2", "800"),
        ("1,3", "800"),
    ]


def test_results_come_before_curves(tmp_path):
    driver = Recorded(tmp_path)
    begin_run(driver, 400, 800)
    driver.score()
    assert {options(words)["--step"] for words in driver.started} == {"800"}
    driver.score()
    assert {options(words)["--step"] for words in driver.started[2:]} == {"400"}


def test_the_last_step_waits_for_the_end_of_its_process(tmp_path):
    driver = Recorded(tmp_path)
    job = train(driver, begin_run(driver, 900, 1000))
    for step in (900, 1000):
        os.utime(job.subject.checkpoint(step), (time.time() - 60,) * 2)
    driver.score()
    assert {options(words)["--step"] for words in driver.started} == {"900"}
    driver.crew.jobs.remove(job)
    driver.score()
    assert {options(words)["--step"] for words in driver.started[2:]} == {"1000"}


def test_checkpoints_stay_while_their_weights_are_kept(tmp_path):
    driver = Recorded(tmp_path, budget=100.0)
    unit = begin_run(driver, 800, 900, 1000)
    pending = driver.space.unpacked()[0]
    pack = SimpleNamespace(kind=PACK, subject=pending, seconds=1.0, name="pack", words=[])
    score = SimpleNamespace(kind=SCORE, subject=[pending], seconds=1.0, name="score", words=[])
    for step in (800, 900, 1000):
        rows = [Row("desk-play-v0", "gcbc", seed, step, task, 2, 1) for seed in CELL.seeds for task in range(1, 6)]
        driver.space.results.add(empty("desk-play-v0", "gcbc"), rows)
    driver.crew.jobs.append(pack)
    driver._done(score)
    assert unit.checkpoints() == [800, 900, 1000]
    kept = driver.space.weights_file(CELL, 0, 800)
    kept.parent.mkdir(parents=True)
    kept.touch()  # written after its score
    driver.crew.jobs.remove(pack)
    driver._done(pack)
    assert unit.checkpoints() == [1000] and not kept.exists()


def test_on_a_budget_weights_are_kept_at_once_and_go_when_they_are_scored(tmp_path):
    driver = Recorded(tmp_path, budget=100.0)
    unit = begin_run(driver, 400, 800)
    driver.pack()
    (words,) = driver.started
    assert words[:2] == ["results", "pack"] and options(words)["--step"] == "800"
    for seed in CELL.seeds:
        path = driver.space.weights_file(CELL, seed, 800)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert driver.space.unpacked() == []
    rows = [Row("desk-play-v0", "gcbc", 2, 800, task, 2, 1) for task in range(1, 6)]
    driver.space.results.add(empty("desk-play-v0", "gcbc"), rows)
    driver.space.tidy(unit, weights=True)
    assert [path.name.split(".")[2] for path in driver.space.weights_to_score()] == ["seed0", "seed1", "seed3"]
    assert not Recorded(tmp_path / "other").options.packs


def summary(driver: Recorded) -> str:
    """What the command says at its end."""
    text = io.StringIO()
    _summary(Console(file=text, width=200), driver)
    return text.getvalue()


def score_all(driver: Recorded, cell: PlannedCell) -> None:
    rows = [Row(cell.dataset, cell.agent, s, p, t, 2, 1) for s in cell.seeds for p in cell.points for t in range(1, 6)]
    driver.space.results.add(empty(cell.dataset, cell.agent), rows)


def test_at_the_end_a_cell_is_judged_by_its_plan(tmp_path):
    driver = Recorded(tmp_path)
    rows = [Row("desk-play-v0", "gcbc", 2, 800, task, 2, 1) for task in range(1, 6)]
    driver.space.results.add(empty("desk-play-v0", "gcbc"), rows)
    assert "gcbc on desk-play-v0: missing seed 0 at 800, 900, 1k; " in summary(driver)
    assert "seed 2 at 900, 1k" in summary(driver)
    score_all(driver, CELL)
    said = summary(driver)
    assert "gcbc on desk-play-v0: complete\n" in said and "missing" not in said and "the plan is done" in said


def test_a_plan_smaller_than_the_papers_protocol_says_both(tmp_path):
    small = replace(CELL, dataset="scene-play-v0", agent="cta", seeds=(0, 1), points=(800_000, 900_000, 1_000_000))
    driver = Recorded(tmp_path, small)
    score_all(driver, small)
    said = summary(driver)
    assert "cta on scene-play-v0: complete by this plan; by the paper's protocol missing seed 0 at 800k, " in said


def test_weights_that_are_scored_are_not_to_be_scored(tmp_path):
    driver = Recorded(tmp_path)
    for seed in CELL.seeds:
        path = driver.space.weights_file(CELL, seed, 1000)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert "weights to score elsewhere: 4 files" in summary(driver)
    score_all(driver, CELL)
    assert "weights to score" not in summary(driver) and path.exists()


@pytest.mark.parametrize(("rate", "fits"), [(12.0, True), (9.0, False)])
def test_a_run_that_cannot_end_in_time_is_begun_again_with_fewer_seeds(tmp_path, rate, fits):
    driver = Recorded(tmp_path, budget=95.0)
    (tmp_path / "desk-play-v0.npz").touch()
    unit = begin_run(driver)
    job = train(driver, unit, step=50, rate=rate)
    driver.accelerator.watch()
    assert job.calls == ([] if fits else ["stop", "wait"])
    assert unit.begun == fits
    if not fits:
        # 111 s for four seeds and 60 to start: 95 are not enough for any number of them.
        assert driver.forecast.ahead(driver.failed).choices == ()
        driver.rates.speeds = [Speed("gcbc", "desk-play-v0", 4, 40.0, "recorded", 0.0)]
        (choice,) = driver.forecast.ahead(driver.failed).choices
        assert choice.seeds == (0, 1, 2) and choice.steps == 1000


def test_a_run_near_its_end_is_never_given_up(tmp_path):
    driver = Recorded(tmp_path, budget=95.0)
    job = train(driver, begin_run(driver), step=300, rate=1.0)
    driver.accelerator.watch()
    assert job.calls == []


def test_a_seed_trained_elsewhere_is_not_trained_again_unless_asked(tmp_path):
    driver = Recorded(tmp_path)
    facts = {"seeds": [1, 2], "steps": 1000}
    driver.space.results.add(empty("desk-play-v0", "gcbc") | {"training": [facts]})
    assert driver.space.untouched(CELL) == [0, 3]
    assert any("seeds 1,2 to score from their weights" in part for part in driver.space.left(CELL))
    again = Workspace(driver.space.plan, driver.space.folder, driver.space.results, dataset_dir=None, retrain=True)
    assert again.untouched(CELL) == [0, 1, 2, 3]


def test_a_clock_that_cannot_be_written_does_not_end_the_plan(tmp_path):
    driver = Recorded(tmp_path)
    unit = begin_run(driver)
    train(driver, unit)
    (unit.path / "clock.json").mkdir()
    driver.accelerator.watch()
    assert driver.space.clock(unit) == 0.0
    (unit.path / "clock.json").rmdir()
    driver.accelerator.watch()
    assert driver.space.clock(unit) == 30.0


@pytest.mark.parametrize(("budget", "words"), [(None, "stopping"), (0.0, "stopping: the budget is spent")])
def test_the_budget_is_blamed_only_when_it_is_spent(tmp_path, budget, words):
    driver = Recorded(tmp_path, budget=budget)
    said: list[str] = []
    driver.board.say = said.append
    job = train(driver, begin_run(driver))
    job.poll, job.stopping = lambda: 3 if job.calls else None, True
    driver.accelerator.watch = lambda: 1 / 0
    if budget is None:
        with pytest.raises(ZeroDivisionError):
            driver.run(lock=0)
    else:
        driver.run(lock=0)
    assert said == [words]


def test_a_half_written_line_of_the_log_is_no_progress(tmp_path):
    driver = Recorded(tmp_path)
    unit = begin_run(driver)
    train(driver, unit, step=50, rate=9.0)
    with (unit.path / "train.csv").open("a") as file:
        file.write("0,9")
    assert training_progress(unit) == (50, 9.0)


def test_while_data_are_made_the_accelerator_compiles_and_measures_on_rows_of_their_shape(tmp_path):
    size = DataSize(episodes=3, episode_steps=10)
    cell = replace(CELL, dataset="puzzle-4x4-play-v0", steps=1000, data=size)
    driver = Recorded(tmp_path, cell, budget=200.0, rehearse=True)
    driver._start()
    generate, train = driver.started
    assert generate[:3] == ["data", "generate", cell.dataset] and options(generate)["--workers"] == "16"
    assert options(train)["--steps"] == "20" and options(train)["--seeds"] == "0,1,2,3"
    _, rows, validation = open_dataset(options(train)["--dataset"])
    assert rows.observations.shape == (33, 83) and rows.num_episodes == 3 and validation.num_rows == 11
    # 1000 steps at 5.5 a second and 25 s to start are too long for four seeds: three are rehearsed next.
    driver.rates.measured("gcbc", cell.dataset, 4, 4 * 5.5, start=25.0)
    driver._start()
    assert [options(words)["--seeds"] for words in driver.started[2:] if words[0] == "train"] == ["0,1,2"]
    driver.space.data_file(cell).parent.mkdir(parents=True)
    driver.space.data_file(cell).touch()
    driver._start()
    assert options(driver.started[-1])["--run-dir"] == str(driver.space.unit(cell, (0, 1, 2)).path)
    assert not (tmp_path / "work" / "rehearsal").exists()
