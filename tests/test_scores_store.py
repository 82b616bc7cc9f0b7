"""Files of scores: their schema, what is refused, older layouts, what a complete cell is."""

import json
from multiprocessing import get_context
from pathlib import Path

import pytest

from cta.cli import run
from cta.errors import CtaError
from cta.scores.paper import CellScores, points_of, short_list, short_steps
from cta.scores.schema import COLUMNS, HELD_OUT, OLD_COLUMNS, OLD_PAIR_COLUMNS, RANDOM, WHOLE, CellKey, Score
from cta.scores.schema import read_scores as read
from cta.scores.store import Scores

PUZZLE = "puzzle-4x4-play-v0"
KEY = CellKey(PUZZLE, "cta")
HELD = CellKey("scene-play-v0", "cta", "", HELD_OUT)
POINTS = (800_000, 900_000, 1_000_000)
RESULTS = Path(__file__).parents[1] / "results"


def rows(*, seeds=range(8), points=POINTS, wins=40, episodes=50, key=KEY, tasks=5):
    return [
        Score(*key, s, step, str(task), episodes, wins)
        for s in seeds
        for step in points
        for task in range(1, tasks + 1)
    ]


def add_all(target, other):
    for cell in other.cells():
        target.add(cell.key, cell.record, cell.rows)


def cell_of(rows):
    return CellScores(rows[0].key, tuple(rows), {"training": [], "scoring": []})


def pairs(*, seeds=range(4), points=POINTS, key=HELD, wins=(30, 20, 25)):
    numbers = (1, 2, 3)
    return [Score(*key, s, step, f"pair{n}", 50, *wins) for s in seeds for step in points for n in numbers]


def record(*, seeds=range(8), steps=1_000_000, fingerprint="a" * 64, points=POINTS, dataset=PUZZLE, **facts):
    provenance = {"command": f"cta data generate {dataset}", "seed": 0, "episodes": 1000, "episode_steps": 1000}
    data = {"fingerprint": fingerprint, "provenance": provenance | {"versions": {"mujoco": "3.3.7"}}}
    training = {"seeds": list(seeds), "steps": steps, "data": data, "hardware": {"cpu": "x", "device": "gpu"}, **facts}
    scoring = {"scored": [[s, p, 60.0] for s in seeds for p in points], "weights": "float32", "episodes": 50}
    return {"training": [training], "scoring": [scoring]}


def write_old(path, scores):
    """As earlier versions wrote them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = scores[0].asked == "pairs"
    lines = [",".join(OLD_PAIR_COLUMNS if held else OLD_COLUMNS)]
    for s in scores:
        line = [s.dataset, s.agent, s.seed, s.step, s.task.removeprefix("pair"), s.episodes, s.successes]
        lines.append(",".join(map(str, [*line, *([s.task, s.direct, s.lenient] if held else [])])))
    path.write_text("\n".join(lines) + "\n")


def test_a_cell_is_one_file_and_one_record(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(), rows())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PUZZLE}.cta.csv", f"{PUZZLE}.cta.json"]
    assert (tmp_path / f"{PUZZLE}.cta.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read(tmp_path / f"{PUZZLE}.cta.csv") == rows()
    assert scores.cell(KEY).state() == "complete" and [cell.key for cell in scores.cells()] == [KEY]


def test_the_same_again_changes_nothing(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(), rows())
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    scores.add(KEY, record(), rows())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_another_result_is_refused_or_replaces_and_is_never_added(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(), rows())
    other = rows(seeds=[2], points=[900_000], wins=7)
    with pytest.raises(CtaError, match="seed 2 at step 900000 is scored already"):
        scores.add(KEY, record(), other)
    assert list(scores.cell(KEY).rows) == rows()
    scores.add(KEY, record(), other, replace=True)
    found = scores.cell(KEY).rows
    assert len(found) == len(rows())
    assert {row.successes for row in found if (row.seed, row.step) == (2, 900_000)} == {7}


def test_seeds_from_several_machines_become_one_cell(tmp_path):
    target = Scores(tmp_path / "all")
    for number, seeds in enumerate(([0, 1], [2], [3, 4, 5, 6, 7])):
        Scores(tmp_path / str(number)).add(KEY, record(seeds=seeds, commit=str(number)), rows(seeds=seeds))
        add_all(target, Scores(tmp_path / str(number)))
    cell = target.cell(KEY)
    assert cell.state() == "complete" and cell.missing() == ""
    assert [(entry["seeds"], entry["commit"]) for entry in cell.record["training"]] == [
        ([0, 1], "0"),
        ([2], "1"),
        ([3, 4, 5, 6, 7], "2"),
    ]
    assert len(cell.record["scoring"][0]["scored"]) == 24


def test_a_longer_training_replaces_its_own_earlier_record(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(steps=800_000), rows(points=[800_000]))
    scores.add(KEY, record(steps=1_000_000), rows())
    assert [entry["steps"] for entry in scores.cell(KEY).record["training"]] == [1_000_000]
    scores.add(KEY, record(steps=900_000))
    assert [entry["steps"] for entry in scores.cell(KEY).record["training"]] == [1_000_000]


def test_settings_and_conditions_are_cells_of_their_own(tmp_path):
    scores = Scores(tmp_path)
    keys = [
        KEY,
        KEY._replace(settings="subgoal_steps=10"),
        KEY._replace(settings="trunk.rank=4;lr=0.001"),
        KEY._replace(settings="trunk.rank=4-lr=0.001"),
        KEY._replace(condition=RANDOM),
    ]
    for key in keys:
        scores.add(key, record(seeds=[0]), rows(seeds=[0], key=key))
    assert {cell.key for cell in scores.cells()} == set(keys) and len(list(tmp_path.glob("*.csv"))) == len(keys)
    assert scores.path(keys[1]).name == f"{PUZZLE}.cta.subgoal_steps=10.csv"
    assert keys[1].name == f"cta (subgoal_steps=10) on {PUZZLE}"


def test_a_record_with_other_settings_is_refused(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(seeds=[0], settings={"batch_size": 256, "old": 1}), rows(seeds=[0]))
    with pytest.raises(CtaError, match=r"other settings \(batch_size: 256 and 32\)"):
        scores.add(KEY, record(seeds=[1], settings={"batch_size": 32}), rows(seeds=[1]))
    # A setting that only one version knows is none.
    scores.add(KEY, record(seeds=[1], settings={"batch_size": 256, "new": 2}), rows(seeds=[1]))


def test_data_that_differ_between_machines_are_named(tmp_path):
    scores = Scores(tmp_path)
    scores.add(KEY, record(seeds=[0]), rows(seeds=[0]))
    scores.add(KEY, record(seeds=[1], fingerprint="b" * 64), rows(seeds=[1]))
    (notice,) = scores.notices()
    assert "gave different data on different machines: aaaaaaaaaaaa (x), bbbbbbbbbbbb (x)" in notice


@pytest.mark.parametrize(("sources", "blamed"), [("ac", "cta data generate"), ("aa", "cta ooc cut")])
def test_of_cut_data_the_step_that_differs_is_named(tmp_path, sources, blamed):
    """Whether another source was cut, or the same source gave another cut."""
    scores = Scores(tmp_path)
    for seed, fingerprint in enumerate(sources):
        whole = record(fingerprint=fingerprint * 64)["training"][0]["data"]
        cut = {"fingerprint": "de"[seed] * 64, "provenance": {"ooc": {}, "source": whole}}
        scores.add(KEY, record(seeds=[seed], data=cut), rows(seeds=[seed]))
    (notice,) = scores.notices()
    assert f"`{blamed}" in notice


def test_tasks_and_pairs_of_one_agent_are_one_cell_and_two_parts(tmp_path):
    """An agent trained on everything is a control of held-out pairs, and has its ordinary score as well."""
    key, scores = CellKey("scene-play-v0", "cta"), Scores(tmp_path)
    scores.add(key, record(), rows(key=key))
    scores.add(key, record(), pairs(key=key))
    (cell,) = scores.cells()
    tasks, held = cell.parts()
    assert list(tasks.rows) == rows(key=key) and list(held.rows) == pairs(key=key)
    assert (tasks.state(), held.state()) == ("complete", "complete")
    assert cell.scored(episodes=50, tasks=["pair1", "pair3"]) == {(s, p) for s in range(4) for p in POINTS}


def test_complete_means_seeds_points_tasks_and_episodes():
    whole = rows()
    assert cell_of(whole).state() == "complete"
    assert cell_of(rows(seeds=range(4))).state() == "4 of 8 seeds"
    # Tables over four seeds are complete with four.
    assert cell_of(rows(seeds=range(4), key=CellKey("scene-play-v0", "cta"))).state("gcb") == "complete"
    assert cell_of(rows(points=POINTS[:2])).state() == "0 of 8 seeds"
    assert "seed 0 at 1M" in cell_of(rows(points=POINTS[:2])).missing()
    assert cell_of(rows(episodes=49, wins=9)).state() == "0 of 8 seeds"
    assert cell_of([row for row in whole if (row.seed, row.task) != (3, "5")]).state() == "7 of 8 seeds"
    # More steps than the protocol's do not make up for missing ones, nor do they enter the score.
    assert cell_of([*whole, *rows(points=[100_000], wins=0)]).counted() == whole
    # Half a seed does not count beside whole ones.
    assert cell_of([*rows(seeds=range(3)), *rows(seeds=[5], points=[100_000])]).counted() == rows(seeds=range(3))
    assert cell_of(pairs()).state() == "complete" and cell_of(pairs(seeds=range(3))).state() == "3 of 4 seeds"


def test_points_are_the_papers():
    assert points_of(PUZZLE) == POINTS
    assert points_of("visual-scene-play-v0") == (300_000, 400_000, 500_000)


def test_older_layouts_are_read_and_become_the_present_one(tmp_path):
    """results/DATASET.AGENT.csv with 7 columns, results/ooc with 10."""
    key, held = CellKey("scene-play-v0", "cta"), CellKey("scene-play-v0", "cta", "", HELD_OUT)
    write_old(tmp_path / "scene-play-v0.cta.csv", rows(seeds=[0], key=key))
    write_old(tmp_path / "ooc" / "scene-play-v0.cta.csv", pairs(seeds=[0]))
    write_old(tmp_path / "ooc" / "random" / "scene-play-v0.cta.csv", pairs(seeds=[0]))
    old = {**record(seeds=[0], points=[800_000]), "dataset": "scene-play-v0", "agent": "cta"}
    (tmp_path / "ooc" / "scene-play-v0.cta.json").write_text(json.dumps(old))
    scores = Scores(tmp_path)
    assert [cell.key for cell in scores.cells()] == [held, held._replace(condition=RANDOM), key]
    assert list(scores.cell(held).rows) == pairs(seeds=[0])
    assert [entry["seeds"] for entry in scores.cell(held).record["training"]] == [[0]]
    scores.add(held, record(seeds=[1]), pairs(seeds=[1]))
    scores.add(key, record(seeds=[1]), rows(seeds=[1], key=key))
    assert not (tmp_path / "ooc" / "scene-play-v0.cta.csv").exists()
    assert not (tmp_path / "ooc" / "scene-play-v0.cta.json").exists()
    assert [cell.seeds for cell in scores.cells()] == [[0, 1], [0], [0, 1]]
    assert [entry["seeds"] for entry in scores.cell(held).record["training"]] == [[0, 1]]
    assert read(tmp_path / "scene-play-v0.cta.held-out.csv") == pairs(seeds=[0, 1])


def test_the_folder_of_an_earlier_study_is_read(tmp_path):
    facts = {"episodes": 50, "first_pair": 1, "scored": [[800_000, 0, 1.5]]}
    for kind, condition in (("held-out", HELD_OUT), ("random", RANDOM), ("uncut", WHOLE)):
        path = tmp_path / "results" / kind / "scene-play-v0.cta.csv"
        write_old(path, pairs(seeds=[0]))
        training = {"data": kind, "seeds": [0], "steps": 9, "dataset": {"fingerprint": "f" * 64}}
        old = {"dataset": "scene-play-v0", "agent": "cta", "condition": kind, "pairs": []}
        path.with_suffix(".json").write_text(json.dumps(old | {"training": [training], "scoring": {kind: [facts]}}))
        for folder in (tmp_path, tmp_path / "results", path.parent):
            cells = {cell.key.condition: cell for cell in Scores(folder).cells()}
            assert list(cells[condition].rows) == [row._replace(condition=condition) for row in pairs(seeds=[0])]
            assert cells[condition].record["scoring"][0]["scored"] == [[0, 800_000, 1.5]]
    target = Scores(tmp_path / "to")
    add_all(target, Scores(tmp_path))
    assert len(target.cells()) == 3


def test_every_file_in_results_is_read():
    found = {cell.key: cell for cell in Scores(RESULTS).cells()}
    assert sum(len(cell.rows) for cell in found.values()) == sum(
        len(path.read_text().splitlines()) - 1 for path in RESULTS.rglob("*.csv")
    )
    assert all(cell.record["training"] and cell.record["scoring"] for cell in found.values())
    assert CellKey("scene-play-v0", "cta", "", HELD_OUT) in found


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"x,cta,,whole,0,1,1,50,51,,", "51 successes in 50 episodes"),
        (b"x,cta,,whole,0,1,1,50,", "not 11 columns"),
        (b"x,cta,,whole,zero,1,1,50,1,,", "seed is not a whole number"),
        (b"x,cta,,whole,-1,1,1,50,1,,", "seed is not a whole number"),
        (b"x,cta,,whole,0,1,1,50,1,,\nx,cta,,whole,0,1,1,50,1,,", "is there twice"),
        (b"x,cta,,half,0,1,1,50,1,,", "condition 'half'"),
        (b"x,cta,,whole,0,1,1,50,5,6,0", "pairs have direct"),
        (b"x,cta,,whole,0,1,pair1,50,5,6,0", "more direct successes than successes"),
        (b"x,cta,,whole,0,1,pair1,50,5,,", "pairs have direct"),
        (b"x,cta,,whole,0,1,one,50,5,,", "neither the number of a task nor a pair"),
        (b"x,cta,,whole,99999999999999999999,1,1,50,5,,", "seed is not a whole number"),
        (b"../../escaped,cta,,whole,0,1,1,50,1,,", "is not the name of a dataset"),
        (b"/tmp/x,cta,,whole,0,1,1,50,1,,", "is not the name of a dataset"),
        (b"x,../cta,,whole,0,1,1,50,1,,", "is not the name of an agent"),
        (b"x,c\x00ta,,whole,0,1,1,50,1,,", r"line contains NUL|'c.x00ta' is not the name"),
        (b"x,c\x1b[31mta,,whole,0,1,1,50,1,,", r"'c.x1b\[31mta' is not the name of an agent"),
        (b"x,<b>cta</b>,,whole,0,1,1,50,1,,", "is not the name of an agent"),
        (b"x,[/red],,whole,0,1,1,50,1,,", "is not the name of an agent"),
        (b"x,cta,a/b,whole,0,1,1,50,1,,", "not a key of settings"),
        (b",cta,,whole,0,1,1,50,1,,", "is not the name of a dataset"),
        (b"\xff\xfe,cta", "not UTF-8"),
        (b'x,"cta', "not a CSV file"),
        (b"x," + b"c" * 200_000 + b",", "not a CSV file"),
    ],
)
def test_a_bad_file_gets_a_line(tmp_path, line, complaint):
    path = tmp_path / "x.csv"
    path.write_bytes(",".join(COLUMNS).encode() + b"\n" + line + b"\n")
    with pytest.raises(CtaError, match=complaint) as error:
        Scores(tmp_path).cells()
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        "nan",
        '{"dataset": "x"}',
        '{"dataset": ["x"], "agent": "cta", "training": [], "scoring": []}',
        '{"dataset": "x", "agent": "cta", "training": 1, "scoring": []}',
        '{"dataset": "x", "agent": "cta", "training": [3], "scoring": []}',
        '{"dataset": "x", "agent": "cta", "training": [{"seeds": "0"}], "scoring": []}',
        '{"dataset": "x", "agent": "cta", "training": [{"seeds": [0], "data": "d"}], "scoring": []}',
        '{"dataset": "x", "agent": "cta", "training": [], "scoring": [{"scored": [[1, 2]]}]}',
        '{"dataset": "x", "agent": "cta", "training": [], "scoring": [{"scored": [[[], 2, 3]]}]}',
        '{"dataset": "x", "agent": "cta", "training": [], "scoring": {"a": 3}}',
        '{"dataset": "../x", "agent": "cta", "training": [], "scoring": []}',
    ],
)
def test_a_bad_record_gets_a_line(tmp_path, content):
    (tmp_path / "x.cta.csv").write_text(",".join(COLUMNS) + "\nx,cta,,whole,0,1,1,50,1,,\n")
    (tmp_path / "x.cta.json").write_text(content)
    with pytest.raises(CtaError, match=r"x\.cta\.json"):
        Scores(tmp_path).cells()


def test_other_columns_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("dataset,agent,seed,step,task,successes,episodes\n")
    with pytest.raises(CtaError, match=f"exactly {','.join(COLUMNS)}"):
        Scores(tmp_path).cells()


def test_a_growing_file_is_read_to_its_last_whole_line(tmp_path):
    path = tmp_path / "eval.csv"
    path.write_text(",".join(OLD_COLUMNS) + "\nx,cta,0,1,1,50,1\nx,cta,0,1,2,5")
    assert read(path, growing=True, settings="lr=1", condition=RANDOM) == [
        Score("x", "cta", "lr=1", RANDOM, 0, 1, "1", 50, 1)
    ]
    path.write_text("")
    assert read(path, growing=True) == []


def test_names_never_lead_out_of_the_folder(tmp_path):
    for name in ("../../escaped", "/etc/x", "..", ".", "", "a/b", "\x00", "-", "x" * 500):
        key = CellKey(name, name, name)
        path = Scores(tmp_path).path(key)
        assert path.parent == tmp_path and path.name.isprintable() and len(path.name) < 200
        assert Scores(tmp_path).weights_file(key, 0, 1).parent == tmp_path / "weights"
        with pytest.raises(CtaError):
            Scores(tmp_path / "to").add(CellKey(name + "/", name), record())
    assert not (tmp_path / "to").exists()


def test_the_same_row_in_two_files_counts_once_and_another_is_refused(tmp_path):
    Scores(tmp_path).add(KEY, record(), rows())
    text = (tmp_path / f"{PUZZLE}.cta.csv").read_text()
    (tmp_path / "copy.csv").write_text(text)
    assert list(Scores(tmp_path).cells()[0].rows) == rows()
    (tmp_path / "copy.csv").write_text(text.replace(",50,40,", ",50,41,", 1))
    with pytest.raises(CtaError, match="both score seed 0"):
        Scores(tmp_path).cells()


def test_an_empty_cell_knows_what_it_is(tmp_path):
    cell = Scores(tmp_path).cell(KEY)
    assert cell == CellScores(KEY, (), {**KEY._asdict(), "training": [], "scoring": []}) and cell.state() != "complete"


def _together(barrier):
    barrier.wait(100)


def _add(folder, seed):
    Scores(folder).add(KEY, record(seeds=[seed]), rows(seeds=[seed]))


def test_processes_that_add_at_once_lose_nothing(tmp_path):
    context, seeds = get_context("spawn"), list(range(24))
    # Without the barrier the first process that has started would add them all.
    with context.Pool(4, initializer=_together, initargs=(context.Barrier(4),)) as pool:
        pool.starmap(_add, [(tmp_path, seed) for seed in seeds], chunksize=1)
    cell = Scores(tmp_path).cell(KEY)
    assert cell.seeds == seeds
    assert json.loads((tmp_path / f"{PUZZLE}.cta.json").read_text())["training"][0]["seeds"] == seeds


def test_small_texts():
    assert [short_steps(step) for step in (800_000, 1_000_000, 1_500_000, 250)] == ["800k", "1M", "1500k", "250"]
    assert short_list([3, 0, 1, 7]) == "0–1, 3, 7"


@pytest.mark.parametrize("step", [",", ""])
def test_no_step_to_pack_gets_a_line(tmp_path, capsys, step):
    assert run(["results", "pack", str(tmp_path), "--step", step, "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "name at least one step" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--eval-seed", "-1"], "--eval-seed must be at least 0, not -1"),
        (["--eval-seed", "1" + 20 * "0"], "--eval-seed must be at most 2147483647"),
        (["--workers", "-2"], "--workers must be at least 1, not -2"),
        (["--episodes", "0"], "--episodes must be at least 1, not 0"),
    ],
)
def test_scoring_with_numbers_that_make_no_sense_gets_a_line(tmp_path, capsys, words, complaint):
    assert run(["evaluate", "x.safetensors", "--results", str(tmp_path), *words]) == 1
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
