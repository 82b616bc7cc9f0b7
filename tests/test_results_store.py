"""Result files: their schema, what is refused, what a complete cell is."""

import json
from multiprocessing import get_context

import pytest

from cta.cli import run
from cta.errors import CtaError
from cta.experiment.run_dir import EVAL_COLUMNS
from cta.results.protocol import Cell, protocol_of, short_list, short_steps, task_matrix
from cta.results.records import empty
from cta.results.rows import COLUMNS, Row, read_rows
from cta.results.store import Results

PUZZLE = "puzzle-4x4-play-v0"
POINTS = (800_000, 900_000, 1_000_000)


def rows(*, seeds=range(4), points=POINTS, wins=40, episodes=50, agent="cta", dataset=PUZZLE):
    return [
        Row(dataset, agent, s, step, task, episodes, wins) for s in seeds for step in points for task in range(1, 6)
    ]


def record(
    *, seeds=range(4), steps=1_000_000, agent="cta", fingerprint="a" * 64, points=POINTS, dataset=PUZZLE, **facts
):
    provenance = {"command": f"cta data generate {dataset}", "seed": 0, "episodes": 1000, "episode_steps": 1000}
    data = {"fingerprint": fingerprint, "provenance": provenance | {"versions": {"mujoco": "3.3.7"}}}
    training = {"seeds": list(seeds), "steps": steps, "data": data, "hardware": {"cpu": "x", "device": "gpu"}, **facts}
    scoring = {"scored": [[s, p, 60.0] for s in seeds for p in points], "weights": "float32", "episodes": 50}
    return empty(dataset, agent) | {"training": [training], "scoring": [scoring]}


def test_the_columns_are_those_of_the_issue_and_of_eval_csv():
    assert COLUMNS == ("dataset", "agent", "seed", "step", "task", "episodes", "successes") == EVAL_COLUMNS


def test_a_cell_is_one_file_and_one_record(tmp_path):
    results = Results(tmp_path)
    results.add(record(), rows())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PUZZLE}.cta.csv", f"{PUZZLE}.cta.json"]
    assert read_rows(tmp_path / f"{PUZZLE}.cta.csv") == sorted(rows())
    assert results.cell(PUZZLE, "cta").complete


def test_the_same_again_changes_nothing(tmp_path):
    results = Results(tmp_path)
    results.add(record(), rows())
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    results.add(record(), rows())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_another_result_is_refused_or_replaces_and_is_never_added(tmp_path):
    results = Results(tmp_path)
    results.add(record(), rows())
    other = rows(seeds=[2], points=[900_000], wins=7)
    with pytest.raises(CtaError, match="seed 2 at step 900000 is scored already"):
        results.add(record(), other)
    assert list(results.cell(PUZZLE, "cta").rows) == sorted(rows())
    results.add(record(), other, replace=True)
    found = results.cell(PUZZLE, "cta").rows
    assert len(found) == len(rows())
    assert {row.successes for row in found if row.key == (2, 900_000)} == {7}


def test_seeds_from_several_machines_become_one_cell(tmp_path):
    for number, seeds in enumerate(([0, 1], [2], [3])):
        Results(tmp_path / str(number)).add(record(seeds=seeds, commit=str(number)), rows(seeds=seeds))
    folders = [str(tmp_path / str(number)) for number in range(3)]
    assert run(["results", "add", *folders, "--to", str(tmp_path / "all")]) == 0
    cell = Results(tmp_path / "all").cell(PUZZLE, "cta")
    assert cell.complete and cell.missing() == ""
    assert [(entry["seeds"], entry["commit"]) for entry in cell.record["training"]] == [
        ([0, 1], "0"),
        ([2], "1"),
        ([3], "2"),
    ]
    assert len(cell.record["scoring"][0]["scored"]) == 12


def test_a_longer_training_replaces_its_own_earlier_record(tmp_path):
    results = Results(tmp_path)
    results.add(record(steps=800_000), rows(points=[800_000]))
    results.add(record(steps=1_000_000), rows())
    assert [entry["steps"] for entry in results.record(PUZZLE, "cta")["training"]] == [1_000_000]
    results.add(record(steps=900_000))
    assert [entry["steps"] for entry in results.record(PUZZLE, "cta")["training"]] == [1_000_000]


def test_other_settings_are_another_cell(tmp_path):
    results = Results(tmp_path)
    results.add(record(seeds=[0], settings={"batch_size": 256}), rows(seeds=[0]))
    with pytest.raises(CtaError, match=r"other settings \(batch_size: 256 and 32\)"):
        results.add(record(seeds=[1], settings={"batch_size": 32}), rows(seeds=[1]))


def test_data_that_differ_between_machines_are_named(tmp_path, capsys):
    Results(tmp_path / "a").add(record(seeds=[0]), rows(seeds=[0]))
    Results(tmp_path / "b").add(record(seeds=[1], fingerprint="b" * 64), rows(seeds=[1]))
    run(["results", "add", str(tmp_path / "a"), str(tmp_path / "b"), "--to", str(tmp_path / "c")])
    assert "gave different data on different machines: aaaaaaaaaaaa (x), bbbbbbbbbbbb (x)" in capsys.readouterr().out


def test_complete_means_seeds_points_tasks_and_episodes(tmp_path):
    def complete(given):
        return Cell(PUZZLE, "cta", tuple(given), empty(PUZZLE, "cta"))

    whole = rows()
    assert complete(whole).complete
    assert not complete(rows(seeds=range(3))).complete
    assert complete(rows(seeds=range(3))).missing() == "missing 1 of 4 seeds"
    assert not complete(rows(points=POINTS[:2])).complete
    assert "seed 0 at 1M" in complete(rows(points=POINTS[:2])).missing()
    assert not complete(rows(episodes=49, wins=9)).complete
    assert not complete([row for row in whole if (row.seed, row.task) != (3, 5)]).complete
    # More steps than the protocol's do not make up for missing ones, nor do they enter the score.
    assert complete([*whole, *rows(points=[100_000], wins=0)]).counted() == sorted(whole)


def test_points_are_the_papers():
    assert protocol_of(PUZZLE).points == POINTS
    assert protocol_of("visual-scene-play-v0").points == (300_000, 400_000, 500_000)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("x,cta,0,1,1,50,51", "51 successes in 50 episodes"),
        ("x,cta,0,1,1,50", "not 7 columns"),
        ("x,cta,zero,1,1,50,1", "not a whole number"),
        ("x,cta,-1,1,1,50,1", "negative"),
        ("x,cta,0,1,1,50,1\nx,cta,0,1,1,50,1", "is there twice"),
    ],
)
def test_a_bad_file_gets_a_line(tmp_path, line, complaint):
    path = tmp_path / "x.csv"
    path.write_text(",".join(COLUMNS) + "\n" + line + "\n")
    with pytest.raises(CtaError, match=complaint):
        read_rows(path)


def test_other_columns_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("dataset,agent,seed,step,task,successes,episodes\n")
    with pytest.raises(CtaError, match="exactly dataset,agent,seed,step,task,episodes,successes"):
        Results(tmp_path).cells()


def test_the_same_row_in_two_files_is_refused(tmp_path):
    Results(tmp_path).add(record(), rows())
    (tmp_path / "copy.csv").write_text((tmp_path / f"{PUZZLE}.cta.csv").read_text())
    with pytest.raises(CtaError, match="both score seed 0"):
        Results(tmp_path).cells()


def _together(barrier):
    barrier.wait(100)


def _add(folder, seed):
    Results(folder).add(record(seeds=[seed]), rows(seeds=[seed]))


def test_processes_that_add_at_once_lose_nothing(tmp_path):
    context, seeds = get_context("spawn"), list(range(24))
    # Without the barrier the first process that has started would add them all.
    with context.Pool(4, initializer=_together, initargs=(context.Barrier(4),)) as pool:
        pool.starmap(_add, [(tmp_path, seed) for seed in seeds], chunksize=1)
    cell = Results(tmp_path).cell(PUZZLE, "cta")
    assert cell.seeds == seeds
    assert json.loads((tmp_path / f"{PUZZLE}.cta.json").read_text())["training"][0]["seeds"] == seeds


def test_small_texts():
    assert [short_steps(step) for step in (800_000, 1_000_000, 1_500_000, 250)] == ["800k", "1M", "1500k", "250"]
    assert short_list([3, 0, 1, 7]) == "0–1, 3, 7"
    seeds, tasks, rates = task_matrix([Row("d", "a", 1, 1, 1, 10, 5), Row("d", "a", 1, 2, 1, 10, 7)])
    assert (seeds, tasks, rates) == ([1], [1], [[pytest.approx(0.6)]])


@pytest.mark.parametrize("step", [",", ""])
def test_no_step_to_pack_gets_a_line(tmp_path, capsys, step):
    assert run(["results", "pack", str(tmp_path), "--step", step, "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "name at least one step" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--eval-seed", "-1"], "--eval-seed must be from 0 to 2147483647, not -1"),
        (["--eval-seed", "1" + 20 * "0"], "--eval-seed must be from 0 to"),
        (["--workers", "-2"], "--workers must be from 1 to"),
        (["--episodes", "0"], "--episodes must be from 1 to"),
    ],
)
def test_scoring_with_numbers_that_make_no_sense_gets_a_line(tmp_path, capsys, words, complaint):
    assert run(["evaluate", "x.safetensors", "--results", str(tmp_path), *words]) == 1
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
