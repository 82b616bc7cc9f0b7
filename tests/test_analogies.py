"""Analogy maps: pairs, what they mean, neighbours and purity on data with known answers, and the command end to end."""

import csv
import inspect
import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import cta
from cta.analysis import analogy_map, figures, semantics
from cta.analysis.pairs import (
    Labelled,
    among,
    asked_rows,
    choose,
    choose_queries,
    draw_pairs,
    measure,
    nearest,
    neighbour_groups,
    purity_table,
)
from cta.analysis.representations import DIFFERENCE, _plain, functions
from cta.analysis.semantics import NOTHING, SEVERAL, Labels, is_single
from cta.cli import run as cta_command
from cta.cli.analogies import Command
from cta.data import TrajectoryDataset
from cta.envs import worlds
from cta.envs.datasets import open_dataset
from cta.envs.desk import DeskState, find_world, observe, step
from cta.envs.generate import generate, plan_job
from cta.errors import CtaError
from cta.io.text_tables import pipe_table as markdown
from cta.report.map_section import read_map
from tiny_agents import tiny

DOCS = Path(__file__).parents[1] / "docs"
DESK = find_world("desk")
LIGHTS = find_world("lights-3x3")
quiet_simulator = [
    pytest.mark.filterwarnings("ignore:.*DISPLAY environment variable is missing"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning"),
]


def rows_of(observations: np.ndarray, lengths: list[int] | None = None, name: str = "mine") -> TrajectoryDataset:
    actions = np.zeros((len(observations), 3), np.float32)
    return TrajectoryDataset.from_arrays(
        observations, actions, episode_lengths=lengths or [len(observations)], name=name
    )


# ---------------------------------------------------------------------------------------------- pairs


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=6),
    count=st.integers(1, 60),
    apart=st.tuples(st.integers(1, 4), st.integers(0, 5)),
)
def test_pairs_are_different_lie_in_one_episode_and_are_as_far_apart_as_asked(lengths, count, apart):
    data = rows_of(np.zeros((sum(lengths), 2), np.float32), lengths)
    least, most = apart[0], apart[0] + apart[1]
    possible = {(s, g) for s in range(sum(lengths)) for g in range(s + least, s + most + 1) if g <= _end_of(s, lengths)}
    if not possible:
        with pytest.raises(CtaError, match="no two rows"):
            draw_pairs(data, count, apart=(least, most))
        return
    pairs = draw_pairs(data, count, apart=(least, most))
    drawn = list(zip(pairs.states.tolist(), pairs.goals.tolist(), strict=True))
    assert len(drawn) == len(set(drawn)) == min(count, len(possible))
    assert set(drawn) <= possible
    assert (pairs.episodes == np.searchsorted(np.cumsum(lengths) - 1, pairs.states)).all()


def _end_of(row: int, lengths: list[int]) -> int:
    ends = np.cumsum(lengths) - 1
    return int(ends[np.searchsorted(ends, row)])


def test_pairs_that_were_asked_for_come_first_and_only_once():
    data = rows_of(np.zeros((20, 2), np.float32), [10, 10])
    pairs = draw_pairs(data, 16, apart=(2, 2), first=np.array([[4, 6], [0, 9]]))
    drawn = list(zip(pairs.states.tolist(), pairs.goals.tolist(), strict=True))
    assert drawn[:2] == [(4, 6), (0, 9)] and drawn.count((4, 6)) == 1 and len(drawn) == 16
    with pytest.raises(CtaError, match="rows 0 to 19"):
        draw_pairs(data, 4, apart=(2, 2), first=np.array([[0, 20]]))


# ------------------------------------------------------------------------------------------ neighbours


def test_nearest_by_hand():
    points = np.array([[1, 0], [2, 0.1], [10, 0], [0, 3], [0.5, 0.5]], np.float32)
    alone = np.arange(5)
    (l2,) = nearest(points, [alone], metric="l2", count=2, queries=np.array([0]))
    (cosine,) = nearest(points, [alone], metric="cosine", count=2, queries=np.array([0]))
    assert l2.tolist() == [[4, 1]] and cosine.tolist() == [[2, 1]]
    groups, contexts = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 0])
    around, elsewhere = nearest(points, [groups, contexts], metric="l2", count=3, queries=np.array([0]))
    assert around.tolist() == [[4, 3, 2]]  # not 1, of the same group
    assert elsewhere.tolist() == [[3, -1, -1]]  # neither 1 nor those of context 0


def test_nearest_agrees_with_all_distances_across_blocks():
    rng = np.random.default_rng(0)
    points, groups = rng.standard_normal((1100, 5)), rng.integers(0, 40, 1100)
    (found,) = nearest(points, [groups], metric="l2", count=4)
    away = np.linalg.norm(points[:, None] - points[None], axis=-1)
    away[groups[:, None] == groups] = np.inf
    np.testing.assert_array_equal(found, np.argsort(away, axis=1)[:, :4])


def test_neighbours_come_from_other_episodes_unless_there_is_one():
    several, one = np.array([0, 0, 0, 1, 2]), np.zeros(4, np.int64)
    groups, count = neighbour_groups(several)
    assert groups.tolist() == [0, 0, 0, 1, 2] and count == 2 and among(several) == "pairs of other episodes"
    groups, count = neighbour_groups(one)
    assert groups.tolist() == [0, 1, 2, 3] and count == 3 and among(one) == "pairs of the one episode there is"


# --------------------------------------------------------------------------------------------- purity


def made(count: int = 600) -> tuple[Labelled, np.ndarray, np.ndarray]:
    """Pairs of four tasks in five contexts, every combination equally often, each pair an episode of its own."""
    tasks, contexts = np.arange(count) % 4, (np.arange(count) // 4) % 5
    labels = Labels(("a", "b", "c", "d"), tasks)
    return Labelled(labels, contexts, np.arange(count), np.arange(count)), tasks, contexts


def summary(points: np.ndarray, pairs: Labelled, metric="l2") -> dict[str, dict]:
    return {row["labels"]: row for row in measure(points, pairs, metric=metric) if row["task"] == "all"}


def test_purity_of_representations_with_known_answers():
    pairs, tasks, contexts = made()
    rng = np.random.default_rng(1)
    noise = 0.01 * rng.standard_normal((600, 9))
    task, context = 10 * np.eye(4)[tasks], 10 * np.eye(5)[contexts]

    only_task = summary(np.column_stack([task, 0 * context]) + noise, pairs)["true"]
    assert only_task["purity"] == only_task["purity_across_contexts"] == 1
    # A task's 150 pairs share five contexts equally: of 149 others 120 are elsewhere.
    assert only_task["same_task_other_context"] == pytest.approx(120 / 149, abs=0.03)

    both = summary(np.column_stack([task, context]) + noise, pairs)["true"]
    assert (both["purity"], both["same_task_other_context"]) == (1, 0)
    # Without its own context, a pair differs least from the same task elsewhere.
    assert both["purity_across_contexts"] == 1

    each_its_own = summary(10 * np.eye(20)[5 * tasks + contexts] + 0.01 * rng.standard_normal((600, 20)), pairs)["true"]
    assert (each_its_own["purity"], each_its_own["same_task_other_context"]) == (1, 0)
    assert each_its_own["purity_across_contexts"] == pytest.approx(120 / 480, abs=0.04)

    only_context = summary(np.column_stack([0 * task, context]) + noise, pairs)["true"]
    assert only_context["purity"] == pytest.approx(29 / 119, abs=0.03)
    assert only_context["purity_across_contexts"] == pytest.approx(1 / 4, abs=0.04)


def test_shuffled_labels_and_unequal_tasks():
    codes = np.repeat([0, 1, 2], [400, 100, 100])
    labels = Labels(("a", "b", NOTHING), codes)
    queries = choose_queries(labels)
    assert queries.tolist() == list(range(500))  # "nothing changes" asks for nothing
    pairs = Labelled(labels, np.arange(600), np.arange(600), queries)
    points = 10 * np.eye(3)[codes] + 0.01 * np.random.default_rng(0).standard_normal((600, 3))
    found = summary(points, pairs)
    assert found["true"]["purity"] == 1
    assert found["shuffled"]["purity"] == pytest.approx(0.8 * 4 / 6 + 0.2 * 1 / 6, abs=0.03)
    by_task = {row["task"]: row for row in measure(points, pairs, metric="l2") if row["labels"] == "true"}
    assert by_task["a"]["queries"] == 400 and by_task["b"]["purity"] == 1
    (line,) = purity_table(
        [{"representation": "x", "network": "none", **row} for row in measure(points, pairs, metric="cosine")]
    )
    assert line["purity_%"] == 100.0 and 50 < line["purity_shuffled_labels_%"] < 63


# ------------------------------------------------------------------------------- meaning, by the simulator


def acted(world, state: DeskState, actions: list[tuple[float, float, float]]) -> np.ndarray:
    """Observations of a state and of what the simulator makes of it."""
    seen = [state]
    for action in actions:
        seen.append(step(world, seen[-1], jnp.array(action, jnp.float32)))
    return np.stack([np.asarray(observe(one)) for one in seen])


def desk_state(gripper, parts, bits) -> DeskState:
    return DeskState(
        jnp.array(gripper, jnp.float32),
        jnp.zeros((), jnp.float32),
        jnp.array(parts, jnp.float32),
        jnp.array(bits, jnp.int32),
    )


def test_desk_labels_follow_the_simulator():
    pull = [(0, 0, 1), (0, 1, 1), (0, 1, 1)]
    press = [(0, 0, 1), (0, 0, -1)]
    opened = acted(DESK, desk_state((0.15, 0.2), (0, 1, 0), (1, 0)), pull)
    stuck = acted(DESK, desk_state((0.15, 0.2), (0, 1, 0), (0, 0)), pull)
    unlocked = acted(DESK, desk_state((0.85, 0.75), (1, 0, 0), (1, 0)), press)
    data = rows_of(np.concatenate([opened, stuck, unlocked]), [4, 4, 3], "desk-play-v0")
    found = semantics.read("desk-play-v0", data)
    tasks = found.tasks(np.array([0, 4, 8, 0]), np.array([3, 7, 10, 10]))
    said = [tasks.names[code] for code in tasks.codes]
    assert said == ["open the drawer", NOTHING, "unlock the window", SEVERAL]
    contexts = found.contexts(np.array([0, 8]))
    assert contexts.names[contexts.codes[0]] == (
        "drawer closed, window open, tray closed, drawer unlocked, window locked"
    )
    drawn = semantics.schematic("desk-play-v0", data)
    assert drawn.kind == "desk" and drawn.meaning[-5:] == (
        "drawer",
        "window",
        "tray",
        "drawer unlocked",
        "window unlocked",
    )
    np.testing.assert_allclose(drawn.numbers[3, 3:], [1, 1, 0, 1, 0], atol=1e-6)


def test_lights_are_named_after_the_button_that_was_pressed():
    off = (0,) * 9
    place = LIGHTS.buttons[5].place
    seen = acted(LIGHTS, desk_state(place, (), off), [(0, 0, 1), (0, 0, -1), (0, -1, 0), (0, -0.7, 0), (0, 0, 1)])
    data = rows_of(seen, name="lights-3x3-play-v0")
    found = semantics.read("lights-3x3-play-v0", data)
    tasks = found.tasks(np.array([0, 2, 2, 0]), np.array([2, 5, 3, 5]))
    assert [tasks.names[code] for code in tasks.codes] == ["press 5", "press 8", NOTHING, SEVERAL]
    assert found.contexts(np.array([2])).names == ("001011001",)


def test_cubes_mazes_and_the_unknown():
    cube = np.zeros((4, 37), np.float32)
    cube[2, 19], cube[3, 19], cube[3, 28] = 1.0, 1.0, 0.5  # cube 0 by 10 cm, then cube 1 by 5 cm
    data = rows_of(cube, name="cube-double-play-v0")
    found = semantics.read("cube-double-play-v0", data)
    tasks = found.tasks(np.array([0, 0, 2, 0]), np.array([1, 2, 3, 3]))
    assert [tasks.names[code] for code in tasks.codes] == [NOTHING, "move cube 0", "move cube 1", SEVERAL]

    maze = rows_of(np.array([[0, 0], [0, 0.5], [4, 4], [4, 0]], np.float32), name="pointmaze-medium-navigate-v0")
    found = semantics.read("pointmaze-medium-navigate-v0", maze)
    tasks = found.tasks(np.array([0, 0, 2]), np.array([1, 2, 3]))
    assert [tasks.names[code] for code in tasks.codes] == [NOTHING, "go north-east", "go south"]
    assert found.contexts(np.array([2])).names == ("x 1, y 1",)

    mine = rows_of(np.ones((4, 12), np.float32))
    found = semantics.read("mine", mine)
    assert found.events is None and found.tasks(np.array([0]), np.array([1])).names == ("unlabelled",)
    assert semantics.schematic("mine", mine).kind == "vector"


# ------------------------------------------------------------------------------------------ end to end


@pytest.fixture(scope="module")
def desk_run(tmp_path_factory) -> Path:
    """A run of a few steps on the desk: two seeds, so that deviations over seeds exist."""
    return little_run("desk-play-v0", tmp_path_factory.mktemp("analogies") / "run", agent="cta", seeds=2)


def little_run(dataset: str | dict, path: Path, *, agent: str, seeds: int = 1) -> Path:
    config = tiny(agent).config
    kept = ("hidden", "batch_size", "dual", "eta", "trunk", *(["subgoal_steps"] if agent == "cta" else []))
    settings = {"steps": 2, "eval_interval": 0, "checkpoint_interval": 0, "run_dir": str(path), "quiet": True}
    changes = {name: getattr(config, name) for name in kept}
    cta.train(dataset, agent=agent, seeds=seeds, agent_settings=changes, **settings)
    return path


WORDS = ["--pairs", "400", "--iterations", "40", "--frames", "6"]
WORDS += ["--query", "ooc", "--query", "10:14", "--query", "lock the window"]


def opened(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image).astype(int)


def test_a_map_of_the_desk(desk_run, tmp_path, capsys):
    assert cta_command(["analogies", str(desk_run), *WORDS]) == 0
    said = capsys.readouterr().out
    assert "400 pairs" in said and "map.json" in said and "MB" in said and "α∨" in said
    folder = desk_run / "analogies"
    found = json.loads((folder / "map.json").read_text())
    check_map(found, 400)
    assert found["agent"] == "cta" and found["seed"] == 0 and found["step"] == 2 and found["dataset"] == "desk-play-v0"
    assert found["queries"][-2]["name"].startswith("10:14 ") and found["queries"][-1]["name"] == "lock the window"
    asked = found["queries"][-2]["point"]
    assert (found["rows"]["state"][asked], found["rows"]["goal"][asked]) == (10, 14)
    assert any(query["name"].startswith("held-out pair") for query in found["queries"])
    assert len(found["frames"]) == 6 and str(found["queries"][0]["point"]) in found["frames"]
    for pair in found["frames"].values():
        assert opened(folder / pair["state"]).shape == opened(folder / pair["goal"]).shape == (160, 160, 3)
    for picture in ("map.png", "neighbours-cosine.png", "neighbours-l2.png"):
        assert opened(folder / picture).std() > 5
    assert read_map(desk_run) is not None  # the page can read it
    check_purity(folder, found)

    # The same command, on the run carried elsewhere, gives the same map.
    moved = tmp_path / "elsewhere"
    shutil.copytree(desk_run, moved)
    assert cta_command(["analogies", str(moved), *WORDS, "--out", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "map.json").read_text())
    assert {**again, "provenance": 0} == {**found, "provenance": 0}


def test_a_kept_policy_has_the_map_of_its_run(desk_run, tmp_path, capsys):
    kept = tmp_path / "kept.safetensors"
    assert (
        cta_command(["results", "keep", str(desk_run), "--seed", "1", "--weights", "float32", "--out", str(kept)]) == 0
    )
    words = ["--pairs", "100", "--iterations", "20", "--frames", "0"]
    assert cta_command(["analogies", str(kept), *words]) == 0
    assert cta_command(["analogies", str(desk_run), *words, "--seed", "1", "--out", str(tmp_path / "run")]) == 0
    mine, runs = (json.loads((tmp_path / name / "map.json").read_text()) for name in ("kept/analogies", "run"))
    for name in ("agent", "dataset", "seed", "step", "rows", "x", "y", "task", "neighbours"):
        assert mine[name] == runs[name], name
    assert {row["seeds"] for row in mine["purity"]} == {1}
    capsys.readouterr()
    assert cta_command(["analogies", str(kept), "--seed", "0"]) == 1
    assert "has no seed 0; there are [1]" in capsys.readouterr().err


def test_by_default_all_ten_neighbours_of_every_query_have_pictures(desk_run, tmp_path, monkeypatch):
    @contextmanager
    def quick(*_):
        yield lambda row: np.full((8, 8, 3), row % 256, np.uint8), "drawn"

    monkeypatch.setattr(analogy_map, "open_painter", quick)
    shown = []
    draw = figures.draw_neighbours
    monkeypatch.setattr(figures, "draw_neighbours", lambda path, *a, **k: shown.append(draw(path, *a, **k)))
    words = ["--pairs", "400", "--iterations", "20", "--format", "svg", "--out", str(tmp_path)]
    assert cta_command(["analogies", str(desk_run), *words]) == 0
    found = json.loads((tmp_path / "map.json").read_text())
    assert 1 < len(found["queries"]) <= 12 and shown == [10, 10]
    for query in found["queries"]:
        wanted = {query["point"], *(p for rows in found["neighbours"].values() for p in rows[query["point"]])}
        assert wanted <= {int(point) for point in found["frames"]}
    assert all("</svg>" in (tmp_path / f"{name}.svg").read_text() for name in ("map", "neighbours-l2"))


def test_a_seed_that_diverged_is_left_out(desk_run, tmp_path):
    shutil.copytree(desk_run / "checkpoints", tmp_path / "run" / "checkpoints")
    for name in ("config.json", "provenance.json"):
        shutil.copy(desk_run / name, tmp_path / "run" / name)
    manifest = tmp_path / "run" / "checkpoints" / "2" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "healthy": [False, True]}))
    words = ["--pairs", "60", "--iterations", "20", "--frames", "0"]
    assert cta_command(["analogies", str(tmp_path / "run"), *words]) == 0
    assert json.loads((tmp_path / "run" / "analogies" / "map.json").read_text())["seed"] == 1
    with (tmp_path / "run" / "analogies" / "purity.csv").open() as file:
        assert {row["seed"] for row in csv.DictReader(file)} == {"1"}


def test_the_data_is_found_from_another_folder(tmp_path, monkeypatch):
    """Arrays are kept in the run directory, under a path that may be relative."""
    generator = np.random.default_rng(0)
    arrays = {"observations": generator.normal(size=(60, 4)), "actions": generator.uniform(-1, 1, (60, 2))}
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    little_run({**arrays, "episode_lengths": [30, 30]}, Path("mine/run"), agent="gcivl-dual")
    monkeypatch.chdir(tmp_path)
    words = ["--pairs", "20", "--iterations", "20", "--frames", "0", "--split", "train"]
    assert cta_command(["analogies", "home/mine/run", *words]) == 0
    run = cta.Run("home/mine/run")
    assert run.open_data()[1].num_rows == 60


def test_images_of_any_side_are_averaged():
    generator = np.random.default_rng(0)
    frames = {side: generator.integers(0, 256, (3, side, side, 2), np.uint8) for side in (64, 60, 10)}
    whole = frames[64].reshape(3, 16, 4, 16, 4, 2).mean(axis=(2, 4), dtype=np.float32).reshape(3, -1)
    np.testing.assert_array_equal(_plain(frames[64]), whole)
    odd = _plain(frames[60]).reshape(3, 16, 16, 2)
    np.testing.assert_allclose(odd[:, 0, 1], frames[60][:, :3, 3:7].mean(axis=(1, 2)), rtol=1e-5)
    np.testing.assert_array_equal(_plain(frames[10]), frames[10].reshape(3, -1))


def test_held_out_pairs_need_data_that_tells_tasks():
    data = rows_of(np.zeros((40, 8, 8, 3), np.uint8))
    pairs = draw_pairs(data, 5, apart=(1, 5), seed=0)
    unknown = semantics.read("visual-scene-play-v0", data)
    tasks = unknown.tasks(pairs.states, pairs.goals)
    with pytest.raises(CtaError, match="--query ooc: the data does not tell tasks and contexts"):
        choose(["ooc"], "visual-scene-play-v0", pairs, tasks, unknown)


def check_purity(folder: Path, found: dict) -> None:
    lines = {(line["representation"], line["network"]): line for line in found["purity"]}
    learned = ("ψ(g)", "α∨", "η(α∨)")
    assert set(lines) == {(DIFFERENCE, "none")} | {(n, w) for n in learned for w in ("trained", "untrained")}
    assert lines["α∨", "trained"]["seeds"] == 2 and "purity_sd" in lines["α∨", "trained"]
    # What the difference of two desk observations says is the task, even before any training.
    assert lines[DIFFERENCE, "none"]["purity_%"] > 4 * lines[DIFFERENCE, "none"]["purity_shuffled_labels_%"]
    with (folder / "purity.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} == {"cosine", "l2"} and {row["seed"] for row in rows} == {"0", "1"}
    record = json.loads((folder / "purity.json").read_text())
    assert record["provenance"]["data"]["fingerprint"] and record["provenance"]["versions"]["openTSNE"] != "absent"


def check_map(found: dict, count: int) -> None:
    """The agreement with whoever shows the map."""
    assert found["format"] == 1 and found["pairs"] == count
    for column in (found["x"], found["y"], found["task"], found["context"], *found["rows"].values()):
        assert len(column) == count
    assert max(found["task"]) < len(found["tasks"]) and max(found["context"]) < len(found["contexts"])
    for neighbours in (found["neighbours"]["cosine"], found["neighbours"]["l2"]):
        assert len(neighbours) == count and {len(row) for row in neighbours} == {10}
        assert min(map(min, neighbours)) >= 0 and max(map(max, neighbours)) < count
        assert all(point not in row for point, row in enumerate(neighbours))
    for rows in found["neighbours_elsewhere"].values():
        for point, row in enumerate(rows):
            assert all(found["context"][near] != found["context"][point] for near in row if near >= 0)
    meaning, path = found["schematic"]["meaning"], found["path"]
    steps = np.subtract(found["rows"]["goal"], found["rows"]["state"])
    assert (np.subtract(path["goal"], path["state"]) == steps).all()  # no row between them is missing
    for which in ("state", "goal"):
        assert [path["numbers"][row] for row in path[which]] == found["schematic"][which]
        rows = found["schematic"][which]
        assert len(rows) == count and {len(row) for row in rows} == {len(meaning)}
        assert all(round(value, 3) == value for row in rows for value in row)


def test_rows_that_the_pages_ask_for_are_a_task_on_the_desk():
    _, _, data = open_dataset("desk-play-v0")
    assert data is not None
    for text in (inspect.getdoc(Command), (DOCS / "analogies.md").read_text()):
        rows = asked_rows(re.findall(r"--query (\d+:\d+)", text))
        assert len(rows) and (rows < data.num_rows).all()
        first, last = np.searchsorted(data.episode_ends, rows).T
        assert (first == last).all()
        assert is_single(semantics.read("desk-play-v0", data).tasks(*rows.T)).all()


def test_what_cannot_be_mapped_is_said_in_a_line(desk_run, tmp_path, capsys):
    assert cta_command(["analogies", str(desk_run), "--pairs", "50", "--query", "fly"]) == 1
    assert "--query 'fly': no task of this name" in capsys.readouterr().err
    assert cta_command(["analogies", str(desk_run), "--seed", "7"]) == 1
    assert "has no seed 7" in capsys.readouterr().err
    assert cta_command(["analogies", str(desk_run), "--frames", "301"]) == 1
    assert "0 to 300 points" in capsys.readouterr().err
    for words, said in (
        (["--perplexity", "0"], "--perplexity must be at least 1, not 0"),
        (["--iterations", "0"], "--iterations must be at least 1, not 0"),
        (["--draw-seed", "-1"], "--draw-seed must be at least 0, not -1"),
    ):
        assert cta_command(["analogies", str(desk_run), *words]) == 1
        told = capsys.readouterr()
        assert said in told.err and "pairs of the" not in told.out  # before anything slow
    with pytest.raises(CtaError, match="learns no representation"):
        functions(tiny("gcbc"))


# --------------------------------------------------------------------------------------------- OGBench


@pytest.fixture(scope="module")
def puzzle(tmp_path_factory) -> Path:
    """A small file of puzzle play data, long enough for presses."""
    folder = tmp_path_factory.mktemp("puzzle")
    generate(plan_job("puzzle-3x3-play-v0", folder=folder, episodes=3, episode_steps=80, seed=0))
    return folder / "puzzle-3x3-play-v0.npz"


@pytest.fixture(scope="module")
def puzzle_run(puzzle) -> Path:
    return little_run(str(puzzle), puzzle.parent / "run", agent="gcivl-dual")


class TestOgbench:
    pytestmark = quiet_simulator

    def test_a_press_is_where_the_simulators_joint_went_down(self, puzzle):
        data = TrajectoryDataset.from_npz(puzzle, info=True)
        found = semantics.read("puzzle-3x3-play-v0", data)
        rows = data.valid_rows
        tasks = found.tasks(rows, rows + 1)
        joints = data.info["qpos"][:, 14:]
        down = (joints[rows] > -0.02) & (joints[rows + 1] <= -0.02)
        wanted = [f"press {i[0]}" if len(i := np.flatnonzero(one)) else NOTHING for one in down]
        assert [tasks.names[code] for code in tasks.codes] == wanted
        assert len(set(wanted)) > 2

    def test_observations_and_positions_say_the_same(self, puzzle):
        data = TrajectoryDataset.from_npz(puzzle, info=True)
        bare = TrajectoryDataset.from_npz(puzzle)
        told, seen = (semantics.schematic("puzzle-3x3-play-v0", one) for one in (data, bare))
        assert told.kind == seen.kind == "puzzle" and told.meaning == seen.meaning
        np.testing.assert_allclose(told.numbers, seen.numbers, atol=1e-5)

    def test_a_map_without_opengl_says_what_it_lacks(self, puzzle_run, monkeypatch, capsys):
        monkeypatch.setattr(worlds, "find_backend", lambda: None)
        words = ["--pairs", "120", "--iterations", "20", "--frames", "4", "--split", "train"]
        assert cta_command(["analogies", str(puzzle_run), *words]) == 0
        assert "no pictures of neighbours: no OpenGL library" in capsys.readouterr().out
        found = json.loads((puzzle_run / "analogies" / "map.json").read_text())
        check_map(found, 120)
        assert found["frames"] == {} and found["schematic"]["kind"] == "puzzle"
        assert any(name.startswith("press") for name in found["tasks"])
        names = {path.name for path in (puzzle_run / "analogies").iterdir()}
        assert "map.png" in names and not any(name.startswith("neighbours") for name in names)

    @pytest.mark.gl
    def test_states_and_goals_are_rendered(self, puzzle_run, tmp_path):
        data = TrajectoryDataset.from_npz(puzzle_run.parent / "puzzle-3x3-play-v0.npz", info=True)
        before = _press_row(data)
        words = ["--pairs", "60", "--iterations", "20", "--frames", "2", "--split", "train"]
        words += ["--query", f"{before}:{before + 3}"]
        assert cta_command(["analogies", str(puzzle_run), *words, "--out", str(tmp_path)]) == 0
        found = json.loads((tmp_path / "map.json").read_text())
        pair = found["frames"][str(found["queries"][0]["point"])]
        state, goal = (opened(tmp_path / pair[which]) for which in ("state", "goal"))
        assert state.shape == goal.shape == (200, 200, 3)
        assert np.abs(state - goal).max() > 60  # lights have changed


def _press_row(data: TrajectoryDataset) -> int:
    lights = data.info["button_states"]
    changed = (lights[1:] != lights[:-1]).any(axis=1) & ~data.terminals[:-1]
    return int(np.flatnonzero(changed)[0]) - 1


SCENE = [  # cube, drawer, window, locks, and what led there
    ((0.35, 0.0, 0.02), 0, 0, (0, 0), ""),
    ((0.35, 0.0, 0.02), 0, 0, (1, 0), "unlock the drawer"),
    ((0.35, 0.0, 0.02), -0.16, 0, (1, 0), "open the drawer"),
    ((0.33, -0.24, 0.07), -0.16, 0, (1, 0), "put the cube into the drawer"),
    ((0.33, -0.40, 0.07), 0, 0, (1, 0), "close the drawer"),  # and the cube in it
    ((0.33, -0.24, 0.07), -0.16, 0, (1, 0), "open the drawer"),
    ((0.35, 0.0, 0.02), -0.16, 0, (1, 0), "take the cube out of the drawer"),
    ((0.35, 0.1, 0.02), -0.16, 0, (1, 0), "move the cube"),
    ((0.35, 0.1, 0.02), -0.16, 0.2, (1, 0), "open the window"),
    ((0.35, 0.1, 0.02), -0.16, 0, (1, 1), SEVERAL),
    ((0.35, 0.11, 0.02), -0.12, 0.05, (1, 1), NOTHING),
    ((0.35, 0.11, 0.02), -0.12, 0.05, (1, 0), "lock the window"),
]


def test_scene_labels_from_positions_and_from_observations():
    """The same rows told twice: in qpos and in an observation."""
    cube, drawer, window, locks, said = (np.array(column) for column in zip(*SCENE, strict=True))
    count = len(SCENE)
    qpos, seen = np.zeros((count, 25)), np.zeros((count, 40), np.float32)
    qpos[:, 14:17], qpos[:, 23], qpos[:, 24] = cube, drawer, window
    seen[:, 19:22] = (cube - (0.425, 0, 0)) * 10
    seen[np.arange(count), 28 + locks[:, 0]] = seen[np.arange(count), 32 + locks[:, 1]] = 1
    seen[:, 36], seen[:, 38] = drawer * 18, window * 15
    actions = np.zeros((count, 5), np.float32)
    info = {"qpos": qpos, "qvel": np.zeros((count, 24)), "button_states": locks}
    told = TrajectoryDataset.from_arrays(seen * 0, actions, episode_lengths=[count], name="scene", info=info)
    shown = TrajectoryDataset.from_arrays(seen, actions, episode_lengths=[count], name="scene")
    rows = np.arange(count - 1)
    drawn = []
    for data in (told, shown):
        tasks = semantics.read("scene-play-v0", data).tasks(rows, rows + 1)
        assert [tasks.names[code] for code in tasks.codes] == said[1:].tolist()
        drawn.append(semantics.schematic("scene-play-v0", data))
    assert drawn[0].meaning[4:] == (
        "cube x",
        "cube y",
        "cube z",
        "drawer",
        "window",
        "drawer unlocked",
        "window unlocked",
    )
    np.testing.assert_allclose(drawn[0].numbers[:, 4:], drawn[1].numbers[:, 4:], atol=1e-5)
    np.testing.assert_allclose(drawn[0].numbers[8, 7:], [1, 1, 1, 0], atol=1e-6)


def purity_record(path, dataset):
    record = json.loads((DOCS / "measurements" / path).read_text())
    assert record["dataset"] == dataset and record["pairs"] == 20_000
    assert {"command", "commit", "versions", "hardware", "data", "run"} <= set(record["provenance"])
    return record


@pytest.mark.parametrize(
    ("mark", "path", "dataset"),
    [
        ("purity", "desk-analogies/purity.json", "desk-play-v0"),
        ("purity puzzle", "puzzle-4x4-analogies/cta.purity.json", "puzzle-4x4-play-v0"),
    ],
)
def test_the_tables_of_the_guide_are_the_records(mark, path, dataset):
    wanted = ("purity", "same_task_other_context", "purity_across_contexts", "purity_shuffled_labels")

    def cell(row, name):
        return f"{row[name + '_%']}" + (f" ± {row[name + '_sd']}" if name + "_sd" in row else "")

    rows = [["", "network", "purity", "same task, other context", "across contexts", "shuffled labels"]]
    for row in purity_record(path, dataset)["purity"]:
        network = row["network"].replace("none", "–")
        rows.append([row["representation"], network, *(cell(row, name) for name in wanted)])
    guide = (DOCS / "analogies.md").read_text()
    (body,) = re.findall(f"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", guide, re.DOTALL)
    assert body == markdown(rows).replace("|  |", "| |")


def test_the_parts_and_locks_of_the_desk_in_the_guide():
    record, guide = purity_record("desk-analogies/purity.json", "desk-play-v0"), (DOCS / "analogies.md").read_text()
    by_task = {row["task"]: row["purity_across_contexts_%"] for row in record["purity_by_task"]}
    locks = [value for task, value in by_task.items() if "lock" in task]
    parts = [value for task, value in by_task.items() if "lock" not in task]
    assert f"parts ({min(parts)} to {max(parts)} % across contexts)" in guide
    assert f"locks ({min(locks)} to {max(locks)} %)" in guide


def test_two_agents_read_the_same_analogies_of_the_puzzle():
    folder = DOCS / "measurements" / "puzzle-4x4-analogies"
    losses = [(folder / f"{agent}.dual.csv").read_text() for agent in ("cta", "hiql-analogy")]
    assert losses[0] == losses[1] and losses[0].splitlines()[-1].startswith("3,1000000,")
    found = {}
    for agent in ("cta", "hiql-analogy"):
        record = purity_record(f"puzzle-4x4-analogies/{agent}.purity.json", "puzzle-4x4-play-v0")
        assert record["agent"] == agent and record["step"] == 1_000_000
        found[agent] = {(row["representation"], row["network"]): row for row in record["purity"]}
    for name in ("α∨", "ψ(g)"):
        assert found["cta"][name, "trained"] == found["hiql-analogy"][name, "trained"]
    assert all(rows["η(α∨)", "trained"]["purity_%"] == 100.0 for rows in found.values())
