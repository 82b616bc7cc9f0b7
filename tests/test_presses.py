"""Success against the least number of presses: starts and goals, scores, tables, figures; and the order of values."""

import csv
import io
import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from cta.cli import run
from cta.config import settings_key
from cta.envs.desk import decode, find_world
from cta.envs.lights import board, board_of
from cta.envs.names import LIGHTS_SIZES
from cta.evaluation.evaluator import PressEvaluator, draw_boards, plan_presses, press_names
from cta.evaluation.offline import press_order, with_lights
from cta.experiment import run_config
from cta.ooc.components import find_layout
from cta.scores.schema import CellKey, Score, make_score, order
from cta.scores.store import Scores

LIGHTS = "lights-2x3-play-v0"


class Hand:
    """Presses what a smallest set of presses needs, and beyond `most` presses gives up."""

    def __init__(self, name, most=99):
        self.world, self.board, self.most = find_world(name), board_of(name), most

    def __call__(self, observations, goals, first):
        now, wanted = decode(self.world, observations), decode(self.world, goals)
        sets = self.board.presses(now.bits ^ wanted.bits)
        actions = np.zeros((len(observations), 3), np.float32)
        for slot, presses in enumerate(sets):
            if presses.sum() > self.most or not presses.any():
                continue
            away = self.world.places[presses.argmax()] - now.gripper[slot]
            if now.grip[slot] > 0.3:
                actions[slot, 2] = -1
            elif np.abs(away).max() < 0.05:
                actions[slot, 2] = 1
            else:
                actions[slot, :2] = np.clip(away / 0.2, -1, 1)
        return actions


def test_a_hand_that_can_only_so_many_presses():
    with PressEvaluator(LIGHTS, episodes=5) as evaluator:
        assert evaluator.ask(lambda slots: Hand(LIGHTS)) == {f"presses{n}": (5, 5) for n in (1, 2, 3)}
        found = evaluator.ask(lambda slots: Hand(LIGHTS, most=2))
    assert found == {"presses1": (5, 5), "presses2": (5, 5), "presses3": (5, 0)}


def test_the_list_is_fixed_and_grows_at_its_end():
    few, many = (plan_presses("lights-4x4-play-v0", episodes=count) for count in (2, 5))
    assert [e for e in many if e.episode < 2] == few and {e.task for e in few} == set(range(1, 8))
    assert plan_presses(LIGHTS, episodes=2, seed=1) != plan_presses(LIGHTS, episodes=2)
    board = board_of("lights-4x4-play-v0")
    assert all(board.distance(e.own.start_bits, e.own.goal_bits) == e.task for e in many)


def test_puzzles_begin_and_end_as_drawn():
    """In the simulator, at its smallest: what the observations show is what was asked for."""
    name, seen = "puzzle-3x3-play-v0", {}
    measure = find_layout(name).measure

    def watch(playing, step):
        for slot, episode in playing.items():
            seen.setdefault(episode.task, (measure(step.observations, {})[slot], measure(step.goals, {})[slot]))

    with PressEvaluator(name, episodes=1, most=2, workers=1, max_episode_steps=2) as evaluator:
        results = evaluator.play(lambda slots: lambda *_: np.zeros((slots, 5)), evaluator.planned, watch=watch)
    assert [(r.task, r.success) for r in results] == [(1, False), (2, False)]
    for episode in evaluator.planned:
        start, goal = seen[episode.task]
        assert (start == episode.own["init_button_states"]).all() and (goal == episode.own["goal_button_states"]).all()


@pytest.mark.parametrize(("name", "width"), [("lights-3x3-play-v0", 12), ("puzzle-3x3-play-v0", 55)])
def test_lights_in_an_observation(name, width):
    boards = np.random.default_rng(0).integers(0, 2, (6, 9))
    rows = np.random.default_rng(1).normal(size=(6, width)).astype(np.float32)
    changed = with_lights(name, rows, boards)
    assert (find_layout(name).measure(changed, {}) == boards).all()
    assert ((changed != rows).sum(axis=1) <= 18).all()


class Known:
    """A value that is minus the number of presses, exactly, up to `most`."""

    def __init__(self, name, most=99.0):
        self.most, self.count = most, board_of(name).lights
        self.sets = board_of(name).presses(np.eye(self.count, dtype=int))  # a board of full rank: presses add up

    def value(self, networks, states, goals):
        change = (states[:, -self.count :] > 0) ^ (goals[:, -self.count :] > 0)
        return -jnp.minimum((change.astype(int) @ self.sets % 2).sum(axis=1), self.most)

    def dual_value(self, networks, states, goals):
        raise NotImplementedError


class Rows:
    observations = np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32)


def test_order_of_values_that_are_known():
    name = "lights-3x3-play-v0"
    exact = press_order(Known(name), None, name, Rows, pairs=16)
    assert [one["presses"] for one in exact] == [*range(10)] and {one["measure"] for one in exact} == {"value_order"}
    assert [one["mean"] for one in exact] == [-n for n in range(10)]
    assert all(one["order"] == pytest.approx(1) and one["step_order"] == pytest.approx(1) for one in exact[1:])
    near = press_order(Known(name, most=3.0), None, name, Rows, pairs=16)
    assert [round(one["step_order"], 6) for one in near[1:]] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert 0 < near[9]["order"] < near[4]["order"] < near[3]["order"] == pytest.approx(1)
    assert exact[0]["order"] == ""


def test_scores_of_presses_stand_apart(tmp_path):
    key = CellKey("lights-2x3-play-v0", "cta")
    rows = [Score(*key, 0, 100, task, 10, 5) for task in ("presses2", "1", "presses10", "presses1")]
    assert [row.task for row in sorted(rows, key=order)] == ["1", "presses1", "presses2", "presses10"]
    assert [make_score(row.row()) for row in rows] == rows
    scores = Scores(tmp_path)
    scores.add(key, {}, rows)
    scores.add(key, {}, [Score(*key, 0, 100, "1", 10, 5)])
    assert {part.asked: len(part.rows) for part in scores.cell(key).parts()} == {"tasks": 1, "presses": 3}
    assert press_names(LIGHTS)[:2] == ("presses1", "presses2")
    starts, goals = draw_boards(LIGHTS, 3, 4, 0)
    assert (board_of(LIGHTS).least(starts ^ goals) == 3).all()


def test_from_a_run_to_a_figure(tmp_path, capsys):
    words = ["data", "generate", LIGHTS, "--episodes", "10", "--episode-steps", "60", "--out", str(tmp_path)]
    assert run(words) == 0
    small = ["--agent.batch-size", "8", "--agent.hidden", "8", "8", "--seeds", "2", "--steps", "4"]
    train = ["train", "--dataset", str(tmp_path / f"{LIGHTS}.npz"), "--agent", "gcivl", *small, "--eval-interval", "0"]
    assert run([*train, "--run-dir", str(tmp_path / "run"), "--log-interval", "2"]) == 0
    folder, asked = str(tmp_path / "results"), ["--ask", "presses", "--episodes", "3"]
    for said in ("2 scored into", "0 scored into"):
        assert run(["evaluate", str(tmp_path / "run"), *asked, "--results", folder]) == 0
        assert said in capsys.readouterr().out
    (cell,) = Scores(folder).cells()
    assert [(row.seed, row.task) for row in cell.rows] == [(s, f"presses{n}") for s in (0, 1) for n in (1, 2, 3)]
    assert cell.record["scoring"][0]["asked"] == "presses"
    assert run(["table", "presses", "--results", folder, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dataset,presses,agent") and [line.split(",")[1] for line in lines[1:4]] == [
        "1",
        "2",
        "3",
    ]
    for ending in ("png", "svg", "pdf"):
        assert run(["table", "--presses", str(tmp_path / f"curves.{ending}"), "--results", folder]) == 0
        assert (tmp_path / f"curves.{ending}").stat().st_size > 1000
    assert run(["results", "list", folder]) == 0
    assert "asked for presses" in capsys.readouterr().out
    assert run(["presses", "order", str(tmp_path / "run"), "--pairs", "8"]) == 0
    assert "up to n" in capsys.readouterr().out
    assert run(["presses", "order", str(tmp_path / "run"), "--agent", "nowhere:Nobody"]) == 1
    assert "cannot import nowhere" in capsys.readouterr().err
    header, *rows = (tmp_path / "run" / "press_order.csv").read_text().splitlines()
    assert len(rows) == 2 * 4 and header.split(",")[-2:] == ["order", "step_order"]


def boards(folder, capsys, *words):
    assert run(["table", "boards", "--results", str(folder), "--format", "csv", *words]) == 0
    return {line["agent"]: line for line in csv.DictReader(io.StringIO(capsys.readouterr().out))}


def test_agents_on_boards_beside_cta(tmp_path, capsys):
    """Tasks and their difference from CTA, presses and how far they reach, a line for each agent and setting."""

    def add(agent, tasks, presses=(), settings=""):
        key = CellKey("lights-2x3-play-v0", agent, settings)
        rows = [Score(*key, seed, 100, "1", 10, wins) for seed, wins in enumerate(tasks)]
        rows += [Score(*key, 0, 100, f"presses{n}", 10, wins) for n, wins in enumerate(presses, 1)]
        Scores(tmp_path).add(key, {}, rows)

    add("cta", [4, 6], [9, 5, 4])
    add("gcivl", [8, 8], [4, 9, 9])
    add("gcivl", [5], settings="lr=0.1")
    add("hiql", [], [10, 10, 10])
    found = boards(tmp_path, capsys)
    assert [*found] == ["cta", "gcivl", "gcivl (lr=0.1)", "hiql"]
    cta, ours, changed, hiql = found.values()
    assert (cta["tasks, %"], cta["beside cta (95%)"], cta["reach"], cta["seeds"]) == ("50.0 ± 10.0", "–", "2", "2")
    # Welch's interval of 80 ± 0 and 50 ± 10 with two seeds each: 12.7 deviations of the mean, which is 10.
    assert ours["beside cta (95%)"] == "+30.0 [-97.1, +157.1]" and ours["reach"] == "0"
    assert changed["beside cta (95%)"] == "+0.0" and changed["by presses, %"] == "–"
    assert (hiql["tasks, %"], hiql["by presses, %"], hiql["reach"]) == ("–", "100.0", "3")
    assert [*boards(tmp_path, capsys, "--agents", "gcivl")] == ["gcivl", "gcivl (lr=0.1)"]


def test_small_networks_stand_beside_small_networks(tmp_path, capsys):
    name = "lights-4x4-play-v0"
    changed = {"discount": 0.9}
    other = CellKey(
        name, "not-installed", settings_key(run_config("cta", name, size="small").agent, run_config("cta", name).agent)
    )
    Scores(tmp_path).add(other, {}, [Score(*other, 0, 100, "1", 10, 5)])
    for agent, size, more, wins in (
        ("cta", "paper", {}, 9), ("cta", "small", {}, 5), ("cta", "small", changed, 6), ("hiql", "small", {}, 4),
    ):  # fmt: skip
        usual = run_config(agent, name).agent
        settings = settings_key(run_config(agent, name, size=size, agent_settings=more).agent, usual)
        key = CellKey(name, agent, settings)
        Scores(tmp_path).add(key, {}, [Score(*key, 0, 100, "1", 10, wins)])
    found = {agent: line["beside cta (95%)"] for agent, line in boards(tmp_path, capsys).items()}
    assert found == {"cta": "–", "cta (small)": "–", "cta (small;discount=0.9)": "+10.0", "hiql (small)": "-10.0"} | {
        "not-installed (small)": "+0.0"
    }


def test_a_block_with_results_of_its_own(tmp_path, capsys):
    key = CellKey("lights-2x3-play-v0", "cta")
    Scores(tmp_path / "mine").add(key, {}, [Score(*key, 0, 100, f"presses{n}", 10, 9) for n in (1, 2, 3)])
    page = tmp_path / "page.md"
    block = "<!-- table: boards{} -->\n<!-- /table -->\n"
    picture = "<!-- presses: here.png --results mine -->\n<!-- /presses -->\n"
    page.write_text(block.format("") + block.format(" --results mine") + picture)
    (tmp_path / "none").mkdir()
    for words in (["--update", str(page)], ["--check", str(page)]):
        assert run(["table", *words, "--results", str(tmp_path / "none")]) == 0
    text = page.read_text()
    assert text.count("No results yet") == 1 and "| 90.0 | 3 |" in text and "](here.png)" in text


def test_the_page_shows_its_records():
    """Its figure and table are those of the score files, and what it says of boards is computed."""
    page = Path(__file__).parents[1] / "docs" / "beyond.md"
    assert run(["table", "--check", str(page), "--results", str(page.parent / "measurements" / "beyond-trial")]) == 0
    text = page.read_text()
    for rows, columns in LIGHTS_SIZES:
        here = board(rows, columns)
        lacking = re.search(rf"^\| .*{rows}x{columns}\b.* \| (\d+) \| (\d+) \| 1 in (\d+) \| (\d+) \|$", text, re.M)
        assert (lacking is None) == (here.rank == here.lights)
        if lacking:
            share = 2 ** (here.lights - here.rank)
            assert tuple(map(int, lacking.groups())) == (here.lights, here.rank, share, here.hardest)
    record = json.loads((page.parent / "measurements" / "beyond-trial" / "generate.json").read_text())
    assert f"{record['seconds']:.0f} s on two cores" in text and f"takes {record['steps_per_press']:.1f}" in text
