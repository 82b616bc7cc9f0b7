"""What the runner decides, from files alone: nothing is started here."""

import csv
import io
import json
import os
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console as RichConsole

from cta.errors import CtaError
from cta.grid import How
from cta.grid import runner as module
from cta.grid.cells import Cell, Unit
from cta.grid.plan import Plan
from cta.grid.processes import DATA, PACK, SCORE, TRAIN, Job, LocalEngine, RayEngine, train_words
from cta.grid.rates import Budget, Rates, Speed
from cta.grid.run_plan import _summary
from cta.grid.runner import Runner, Running
from cta.grid.workspace import Workspace
from cta.scores.schema import Score
from cta.scores.store import empty

CELL = Cell("desk-play-v0", "gcbc", (0, 1, 2, 3), 1000, (800, 900, 1000), episodes=2, curve_points=(400,))


class Handle:
    """A process, as far as the runner looks at it."""

    def __init__(self):
        self.code, self.calls = None, []

    def poll(self):
        return self.code

    def stop(self):
        self.calls.append("stop")
        self.code = 3

    def wait(self, seconds):
        self.calls.append("wait")

    def last_words(self):
        return "some words"


class Engine(LocalEngine):
    def __init__(self):
        super().__init__(16)
        self.started = []

    def start(self, job):
        self.started.append(job)
        return Handle()


class Recorded(Runner):
    """Notes what it would start."""

    def __init__(self, folder: Path, *cells: Cell, budget: float | None = None, **options):
        cells = cells or (CELL,)
        space = Workspace(Plan("x", cells), folder / "work", folder / "out", dataset_dir=str(folder))
        how = How(budget="" if budget is None else "100s", **options)
        super().__init__(space, Rates("cpu"), Budget(budget), how, Engine())
        self.said: list[str] = []
        self.console.say = self.said.append

    @property
    def started(self) -> list[list[str]]:
        return [list(job.words) for job in self.engine.started]


def begin_run(runner: Runner, *checkpoints: int, seeds=(0, 1, 2, 3), cell=CELL, **config) -> Unit:
    unit = runner.space.unit(cell, seeds)
    for step in checkpoints:
        unit.checkpoint(step).mkdir(parents=True)
    unit.path.mkdir(parents=True, exist_ok=True)
    (unit.path / "config.json").write_text(json.dumps({"checkpoint_interval": 100, **config}))
    return unit


def train(runner: Runner, unit: Unit, *, step: int = 0, rate: float = 0.0, seconds: float = 30.0) -> Running:
    """A training process under way."""
    job = Job(TRAIN, unit.name, ("train",), Path("log"), unit)
    running = Running(job, Handle(), time.monotonic() - seconds)
    runner.running.append(running)
    if rate:
        with (unit.path / "train.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("seed", "step", "steps_per_s", "memory"), (0, step, rate, 1)])
    return running


def score(space: Workspace, cell: Cell = CELL, *, seeds=None, points=None, episodes=None, out=True) -> None:
    """As if it had been scored."""
    rows = [
        Score(*cell.run_key, seed, point, task, episodes or cell.episodes, 1)
        for seed in seeds or cell.seeds
        for point in points or cell.points
        for task in cell.tasks
    ]
    home = space.out if out else space.home(cell)
    home.add(cell.run_key, empty(cell.run_key), rows, replace=True)
    space._seen.clear()


def options(words: list[str]) -> dict[str, str]:
    return dict(pairwise(words))


def test_the_seeds_of_a_checkpoint_are_shared_out_and_a_core_is_left_to_training(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 800, 900)
    runner.score()
    assert [options(words)["--seeds"] for words in runner.started] == ["0,2", "1,3"]
    assert {options(words)["--step"] for words in runner.started} == {"800,900"}
    # Seven each, one process with the policy each at most: 16 cores are not asked for more.
    assert {options(words)["--workers"] for words in runner.started} == {"7"}
    runner.score()
    assert len(runner.started) == 2


def test_results_come_before_curves(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 400, 800)
    runner.score()
    assert {options(words)["--step"] for words in runner.started} == {"800"}
    runner.running.clear()
    runner.score()
    assert {options(words)["--step"] for words in runner.started[2:]} == {"400"}


def test_the_last_step_waits_for_the_end_of_its_process(tmp_path):
    runner = Recorded(tmp_path)
    unit = begin_run(runner, 900, 1000)
    train(runner, unit)
    for step in (900, 1000):
        os.utime(unit.checkpoint(step), (time.time() - 60,) * 2)
    runner.score()
    assert {options(words)["--step"] for words in runner.started} == {"900"}
    runner.running.clear()
    runner.score()
    assert {options(words)["--step"] for words in runner.started[2:]} == {"1000"}


def test_checkpoints_of_results_stay_and_others_go_but_not_while_they_are_packed(tmp_path):
    runner = Recorded(tmp_path, budget=100.0)
    unit = begin_run(runner, 400, 600, 800, 900, 1000)
    pending = next(item for item in runner.space.unpacked() if item.step == 800)
    pack, scoring = (
        Running(Job(kind, kind, (), Path("log"), unit, (pending,)), Handle(), time.monotonic())
        for kind in (PACK, SCORE)
    )
    score(runner.space)
    score(runner.space, points=(400,), episodes=10)
    runner.running.append(pack)
    runner._done(scoring, 0)
    assert unit.checkpoints() == [400, 600, 800, 900, 1000]
    kept = runner.space.weights_file(CELL, 0, 800)
    kept.parent.mkdir(parents=True)
    kept.touch()  # written after its score
    runner.running.remove(pack)
    runner._done(pack, 0)
    assert unit.checkpoints() == [800, 900, 1000] and not kept.exists()


def test_on_a_budget_weights_are_kept_at_once_and_go_when_they_are_scored(tmp_path):
    runner = Recorded(tmp_path, budget=100.0)
    unit = begin_run(runner, 400, 800)
    runner.pack()
    (words,) = runner.started
    assert words[:2] == ["results", "pack"] and options(words)["--step"] == "800"
    for seed in CELL.seeds:
        path = runner.space.weights_file(CELL, seed, 800)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert runner.space.unpacked() == []
    score(runner.space, seeds=[2], points=[800])
    runner.space.tidy(unit, weights=True)
    assert [path.name.split(".")[2] for path in runner.space.weights_to_score()] == ["seed0", "seed1", "seed3"]
    assert not Recorded(tmp_path / "other").how.packs


# What was found again and what was not: the four mistakes of the driver before this one.


def test_more_steps_continue_a_finished_run_once(tmp_path):
    longer = replace(CELL, steps=2000, points=(1800, 1900, 2000), curve_points=())
    runner = Recorded(tmp_path, longer)
    (tmp_path / "desk-play-v0.npz").touch()
    unit = begin_run(runner, 800, 900, 1000)
    runner._start()
    assert runner.started == [["resume", str(unit.path), "--steps", "2000"]]
    unit.checkpoint(2000).mkdir()
    assert runner.space.to_train(longer) == []


def test_a_point_that_the_run_would_not_keep_is_trained_to_on_the_way(tmp_path):
    odd = replace(CELL, steps=2000, points=(1550, 1900, 2000), curve_points=())
    runner = Recorded(tmp_path, odd)
    unit = replace(begin_run(runner, 1000), cell=odd)
    assert unit.target == 1550
    unit.checkpoint(1550).mkdir()
    assert unit.target == 2000


def test_changed_settings_are_another_cell(tmp_path):
    runner = Recorded(tmp_path, replace(CELL, settings=(("batch_size", 16),)))
    (tmp_path / "desk-play-v0.npz").touch()
    begin_run(runner, 800, 900, 1000)
    score(runner.space)
    runner._start()
    assert runner.started[0][0] == "train" and options(runner.started[0])["--agent.batch-size"] == "16"
    assert "seeds-0-1-2-3" in options(runner.started[0])["--run-dir"]


def test_a_second_out_gets_what_is_scored_and_says_so(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 800, 900, 1000)
    score(runner.space, out=False)
    score(runner.space, points=(400,), episodes=10, out=False)
    runner.run()
    assert runner.said == [f"gcbc on desk-play-v0: 16 scores found in {tmp_path / 'work'} and published"]
    assert runner.started == [] and len(runner.space.out.cell(CELL.key).rows) == 80
    assert "complete by this plan" in summary(runner)[1]


def test_more_episodes_score_the_same_checkpoints_again(tmp_path):
    more = replace(CELL, episodes=5, curve_points=())
    runner = Recorded(tmp_path, more)
    begin_run(runner, 800, 900, 1000)
    for out in (False, True):
        score(runner.space, out=out)
    runner._start()
    assert {options(words)["--episodes"] for words in runner.started} == {"5"} and len(runner.started) == 2
    assert {words[0] for words in runner.started} == {"evaluate"}
    score(runner.space, more, out=False)  # as the command does: rows with more episodes replace the old ones
    assert runner.space.publish(more) == 12
    assert {row.episodes for row in runner.space.out.cell(CELL.key).rows} == {5}


def test_more_seeds_are_a_run_of_their_own(tmp_path):
    runner = Recorded(tmp_path, replace(CELL, seeds=(0, 1, 2, 3, 4, 5)), evaluate="later")
    (tmp_path / "desk-play-v0.npz").touch()
    begin_run(runner, 800, 900, 1000)
    runner._start()
    words, pack = runner.started
    assert words[0] == "train" and options(words)["--seeds"] == "4,5" and pack[:2] == ["results", "pack"]


def test_scores_from_other_data_are_not_mixed_in(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 800, 900, 1000)
    other = {"training": [{"seeds": [0], "steps": 1000, "cell": "12345678"}], "scoring": []}
    runner.space.out.add(CELL.key, other)
    score(runner.space, out=False)
    with pytest.raises(CtaError, match="from other data: give another --out"):
        runner.space.publish(CELL)
    runner._publish(CELL)
    assert "from other data" in runner.failed[CELL.name] and CELL.folder in runner.blocked


def test_a_control_shares_the_training_of_the_main_table(tmp_path):
    asked = replace(CELL, ask="pairs", seeds=(0, 1), curve_points=())
    runner = Recorded(tmp_path, CELL, asked)
    (tmp_path / "desk-play-v0.npz").touch()
    runner._start()
    assert [words[0] for words in runner.started] == ["train"]
    assert not runner._waiting(ready=True)
    runner.running.clear()
    begin_run(runner, 800)
    score(runner.space, points=(800,))
    runner.score()
    assert [(options(words)["--seeds"], options(words)["--ask"]) for words in runner.started[1:]] == [
        ("0", "pairs"),
        ("1", "pairs"),
    ]


# How jobs end


def ended(runner: Runner, unit: Unit, code: int) -> None:
    running = train(runner, unit)
    running.handle.code = code
    runner._reap()


def test_a_failing_cell_stops_nobody_else_and_is_not_tried_again(tmp_path):
    other = replace(CELL, agent="gcivl")
    runner = Recorded(tmp_path, CELL, other, evaluate="later")
    (tmp_path / "desk-play-v0.npz").touch()
    for code in (1, 2):
        unit = begin_run(runner, seeds=(code,))
        ended(runner, unit, code)
        assert "some words" in runner.failed[f"train {unit.name}"]
    runner._start()
    assert [options(words)["--agent"] for words in runner.started] == ["gcivl"]
    code, said = summary(runner)
    assert code == 1 and "failed:\n  train gcbc on desk-play-v0, seed 1: some words (exit 1; log: log)" in said


@pytest.mark.parametrize("code", [3, -9, -1])
def test_who_was_interrupted_or_lost_is_continued_but_not_without_end(tmp_path, code):
    runner = Recorded(tmp_path)
    unit = begin_run(runner, 100)
    for step in (200, 300):  # it comes further each time
        ended(runner, unit, code)
        unit.checkpoint(step).mkdir()
    assert not runner.failed
    for _ in range(3):
        ended(runner, unit, code)
    assert "ended 3 times without coming further" in runner.failed[f"train {unit.name}"]


def test_a_lost_scoring_is_asked_for_again(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 800)
    runner.score()
    runner.running[0].handle.code = -1
    runner._reap()
    runner.score()
    assert [options(words)["--seeds"] for words in runner.started] == ["0,2", "1,3", "0,2"]


def test_a_diverged_seed_is_listed_and_not_waited_for(tmp_path):
    runner = Recorded(tmp_path, replace(CELL, curve_points=()))
    unit = begin_run(runner, 800, 900, 1000)
    (unit.path / "provenance.json").write_text(json.dumps({"stopped": {"2": {"step": 850, "loss": "actor"}}}))
    score(runner.space, seeds=(0, 1, 3))
    assert [(item.step, item.seed) for item in runner.space.all_pending()] == [(800, 2)]
    score(runner.space, seeds=(2,), points=(800,))
    code, said = summary(runner)
    assert code == 4 and "seed 2: diverged (NaN or inf) at step 850" in said


def test_a_checkpoint_that_is_gone_is_said(tmp_path):
    runner = Recorded(tmp_path)
    unit = begin_run(runner, 900, 1000)
    score(runner.space, points=(900, 1000))
    _, said = summary(runner)
    assert f"no checkpoint at step 800; remove {unit.path} to train it again" in said


def summary(runner: Runner) -> tuple[int, str]:
    """The exit code, and what is said at the end."""
    text = io.StringIO()
    code = _summary(RichConsole(file=text, width=300), runner)
    return code, text.getvalue()


def test_at_the_end_a_cell_is_judged_by_its_plan(tmp_path):
    runner = Recorded(tmp_path)
    score(runner.space, seeds=[2], points=[800])
    code, said = summary(runner)
    assert "gcbc on desk-play-v0: missing seed 0 at 800, 900, 1k; " in said and "seed 2 at 900, 1k" in said
    assert code == 1
    score(runner.space)
    code, said = summary(runner)
    assert code == 0 and "gcbc on desk-play-v0: complete by this plan\n" in said and "the plan is done" in said


def test_weights_that_are_scored_are_not_to_be_scored(tmp_path):
    runner = Recorded(tmp_path)
    for seed in CELL.seeds:
        path = runner.space.weights_file(CELL, seed, 1000)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert "weights to score elsewhere: 4 files" in summary(runner)[1]
    score(runner.space)
    assert "weights to score" not in summary(runner)[1] and path.exists()


def test_a_seed_trained_elsewhere_is_not_trained_again(tmp_path):
    runner = Recorded(tmp_path)
    runner.space.out.add(CELL.key, {"training": [{"seeds": [1, 2], "steps": 1000}], "scoring": []})
    assert [unit.seeds for unit in runner.space.to_train(CELL)] == [(0, 3)]
    assert any("seeds 1,2 to score from their weights" in part for part in runner.space.left(CELL))


# Budgets


def test_a_budget_takes_seeds_never_steps_and_begins_only_what_ends_in_time(tmp_path):
    runner = Recorded(tmp_path, CELL, replace(CELL, agent="gcivl"), budget=1000.0)
    (tmp_path / "desk-play-v0.npz").touch()
    runner.rates.speeds = [
        Speed("gcbc", "desk-play-v0", 4, 1.0, "recorded", "cpu"),  # 4,000 s for four seeds, 2,500 for one
        Speed("gcivl", "desk-play-v0", 4, 5.0, "recorded", "cpu"),  # 800 s for four
    ]
    unit = runner._next_training()
    assert (unit.cell.agent, unit.seeds, unit.left) == ("gcivl", (0, 1, 2, 3), 1000)
    runner.rates.speeds[1] = Speed("gcivl", "desk-play-v0", 4, 3.7, "recorded", "cpu")
    assert runner._next_training().seeds == (0, 1, 2)
    runner.rates.speeds[1] = Speed("gcivl", "desk-play-v0", 4, 1.0, "recorded", "cpu")
    assert runner._next_training() is None


def test_data_are_made_in_order_and_only_if_there_is_time_to_train_on_them(tmp_path):
    cells = [replace(CELL, dataset=name) for name in ("puzzle-4x4-play-v0", "scene-play-v0")]
    runner = Recorded(tmp_path, *cells)
    assert [runner._next_data().cell.dataset] == ["puzzle-4x4-play-v0"]
    short = Recorded(tmp_path, *cells, budget=60.0)  # a million rows take five minutes
    assert short._next_data() is None


def test_data_that_nobody_can_generate_are_downloaded(tmp_path):
    runner = Recorded(tmp_path, replace(CELL, dataset="antmaze-large-navigate-v0"))
    runner._start()
    assert runner.started == [["data", "download", "antmaze-large-navigate-v0", "--dataset-dir", str(tmp_path)]]
    runner.running[0].handle.code = 1
    runner._reap()
    runner._start()
    assert len(runner.started) == 1 and summary(runner)[0] == 1


def test_pairs_and_windows_are_cut_once_their_source_is_there(tmp_path):
    held_out, random = (replace(CELL, condition=name, ask="pairs") for name in ("held-out", "random"))
    runner = Recorded(tmp_path, held_out, random)
    (tmp_path / "desk-play-v0.npz").touch()
    for cell in (held_out, random):
        words = module.processes.data_words(runner.space, cell, 1)
        assert words[:3] == ["ooc", "cut", str(tmp_path / "desk-play-v0.npz")]
        assert ("--control" in words) == (cell is random)
        assert options(words)["--out"] == str(runner.space.data_file(cell).parent)
    assert runner.space.data_file(held_out) != runner.space.data_file(random)


@pytest.mark.parametrize(("budget", "words"), [(None, "stopping"), (0.0, "stopping: the budget is spent")])
def test_the_budget_is_blamed_only_when_it_is_spent(tmp_path, budget, words):
    runner = Recorded(tmp_path, budget=budget)
    train(runner, begin_run(runner))
    runner._watch = lambda: 1 / 0
    if budget is None:
        with pytest.raises(ZeroDivisionError):
            runner.run()
    else:
        runner.run()
    assert runner.said == [words]


def test_a_half_written_line_of_the_log_is_no_progress(tmp_path):
    runner = Recorded(tmp_path)
    unit = begin_run(runner)
    train(runner, unit, step=50, rate=9.0)
    with (unit.path / "train.csv").open("a") as file:
        file.write("0,9")
    assert unit.progress() == (50, 9.0)


def test_a_clock_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch):
    from cta.cli import child

    unit = begin_run(Recorded(tmp_path))
    (unit.path / "clock.json").mkdir()
    ticks = iter([None, None])
    started: list = []
    monkeypatch.setattr(
        child, "threading", SimpleNamespace(Thread=lambda target, **_: started.append(target) or Done())
    )
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=lambda: 7.0, sleep=lambda seconds: next(ticks)))
    child.keep_clock(unit.path)
    with pytest.raises(StopIteration):
        started[0]()
    assert (unit.path / "clock.json").is_dir()
    (unit.path / "clock.json").rmdir()
    ticks = iter([None])
    with pytest.raises(StopIteration):
        started[0]()
    assert json.loads((unit.path / "clock.json").read_text()) == {"wall_clock_s": 0.0}


class Done:
    def start(self):
        pass


@pytest.mark.parametrize("kind", [TRAIN, SCORE, PACK])
def test_a_job_that_ends_well_without_what_it_was_started_for_has_failed(tmp_path, kind):
    runner = Recorded(tmp_path)
    if kind == TRAIN:
        (tmp_path / "desk-play-v0.npz").touch()
        assert runner._train(runner._next_training())
    else:
        begin_run(runner, 800)
        runner.score() if kind == SCORE else runner.pack()
    for running in runner.running:
        running.handle.code = 0
    assert runner._reap() and not runner.running
    assert all("it ended without" in reason for reason in runner.failed.values()) and runner.failed
    assert _summary(RichConsole(file=io.StringIO()), runner) == 1


def test_a_job_that_left_its_scores_is_done(tmp_path):
    runner = Recorded(tmp_path)
    begin_run(runner, 800)
    runner.score()
    score(runner.space, points=(800,), out=False)
    for running in runner.running:
        running.handle.code = 0
    assert runner._reap() and not runner.failed


def test_a_training_keeps_the_checkpoints_of_every_cell_that_shares_it(tmp_path):
    other = replace(CELL, points=(350, 700, 1000), curve_points=())
    space = Workspace(Plan("x", (CELL, other)), tmp_path / "work", tmp_path / "out", dataset_dir=str(tmp_path))
    assert CELL.folder == other.folder
    words = train_words(space, space.unit(CELL, (0,)))
    every = int(words[words.index("--checkpoint-interval") + 1])
    assert all(point % every == 0 for cell in (CELL, other) for point in cell.all_points)


def test_who_does_not_end_when_asked_is_killed(tmp_path, monkeypatch):
    stubborn = tmp_path / "stubborn"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\necho here\nwhile :; do sleep 1; done\n")
    stubborn.chmod(0o700)
    monkeypatch.setattr(module.processes, "PYTHON", [str(stubborn)])
    process = module.processes.Process(Job(SCORE, "x", (), tmp_path / "log", None), path="")
    give_up = time.monotonic() + 30
    while process.last_words() != "here" and time.monotonic() < give_up:
        time.sleep(0.05)
    process.stop()
    assert process.wait(0.2) == -9


@pytest.mark.parametrize(
    ("gpus", "running", "room", "cores"),
    [
        (0.0, [], (2, 2, 1), (1, 1, 2)),
        (0.0, [TRAIN], (1, 2, 1), (1, 1, 2)),  # scoring fits beside it
        (0.0, [TRAIN, SCORE], (0, 1, 1), (1, 1, 2)),
        (0.0, [SCORE, SCORE], (0, 0, 1), (1, 1, 2)),  # what waits to be scored goes before what is not begun
        (1.0, [SCORE], (3, 0, 1), (1, 2, 2)),  # training needs none of the processors
    ],
)
def test_what_a_cluster_of_two_processors_has_room_for(gpus, running, room, cores):
    engine = object.__new__(RayEngine)
    engine._ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0, "GPU": 3.0})
    engine._gpus, engine._cores, engine._scoring = gpus, 2, 2 if gpus else 1
    kinds = TRAIN, SCORE, DATA
    assert tuple(engine.room(kind, running) for kind in kinds) == room
    assert tuple(engine.cores(kind, running) for kind in kinds) == cores


SAYS = """#!/bin/sh
exec {python} -P -c '
import os, sys
sys.argv[1:] = sys.argv[3:]
from cta.cli import child
child.cli.main = lambda: print(os.nice(0), *open("/proc/self/autogroup"), os.environ.get("PJRT_NPROC"))
child.main()' "$@"
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no groups of sessions")
def test_scoring_yields_to_training_although_it_has_a_session_of_its_own(tmp_path, monkeypatch):
    saying = tmp_path / "saying"
    saying.write_text(SAYS.format(python=sys.executable))
    saying.chmod(0o700)
    monkeypatch.setattr(module.processes, "PYTHON", [str(saying)])
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    unit, before = SimpleNamespace(path=tmp_path), os.nice(0)
    for kind, threads, nice, group in ((TRAIN, 1, before, "nice 0"), (SCORE, 1, before + 10, "nice 10")):
        job = Job(kind, "x", ("doctor",), tmp_path / kind, unit)
        process = module.processes.Process(job, path=module.processes.python_path(), threads=threads)
        assert process.wait(60) == 0, process.last_words()
        said = (tmp_path / kind).read_text().split()
        assert (said[0], " ".join(said[-3:-1])) == (str(min(nice, 19)), group)
        assert said[-1] == ("1" if kind == TRAIN else "None")
