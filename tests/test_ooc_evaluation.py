"""Verdicts from event logs, and the desk asked for its pairs."""

import numpy as np
import pytest

from cta.cli import run as cta
from cta.envs.desk import CLOSED, SPEED, TRAVEL, decode, find_world, handles
from cta.errors import CtaError
from cta.grid.studies import AGENTS
from cta.io.csv_log import CsvLog
from cta.ooc import HeldOut, Pair, find_layout, held_out_of
from cta.ooc.evaluation import (
    EpisodeLog,
    PairEvaluator,
    count_rows,
    judge,
    make_trials,
    read_logs,
    write_log,
    write_logs,
)
from cta.scores.pair_table import as_table, pair_lines, paper_lines
from cta.scores.schema import HELD_OUT, CellKey, Score

DESK, SCENE, LIGHTS = (find_layout(f"{name}-play-v0") for name in ("desk", "scene", "lights-3x3"))
DRAWER = held_out_of(DESK).pairs[0]
START = {"drawer": "closed", "window": "closed", "tray": "closed", "drawer_lock": "unlocked", "window_lock": "unlocked"}


def verdict(*changes, success=True, pair=DRAWER, layout=DESK, start=START) -> tuple[bool, bool, bool]:
    log = EpisodeLog(1, 0, 0, start, tuple(enumerate(changes)), success, 80)
    found = judge(log, pair, layout)
    return found.success, found.direct, found.lenient


def test_verdicts_by_hand():
    opened = {"drawer": "open"}
    lock, unlock = {"window_lock": "locked"}, {"window_lock": "unlocked"}
    assert verdict(opened) == (True, True, True)
    assert verdict(opened, success=False) == (False, False, False)
    assert verdict() == (True, False, False)  # success without the event cannot be direct
    assert verdict(lock, opened, unlock) == (True, False, False)
    assert verdict({"window": "open"}, opened, {"window": "closed"}) == (True, False, False)
    assert verdict(lock, unlock, opened) == (True, False, True)
    assert verdict({"tray": "open"}, opened, {"tray": "closed"}) == (True, False, True)
    assert verdict(opened, {"drawer": "closed"}, opened) == (True, False, True)  # once, says the strict rule
    # The last completion decides: done in context, undone, and done again outside it.
    assert verdict(opened, {"drawer": "closed"}, lock, opened, unlock) == (True, False, False)
    assert verdict(opened | {"tray": "open"}, {"tray": "closed"}) == (True, False, True)  # two things in one step
    assert verdict(opened | {"tray": "open"}) == (True, False, True)


def test_verdicts_on_lights():
    pair = held_out_of(LIGHTS).pairs[0]  # press 0 when 0=1, 1=0, 3=1
    start = {f"light{i}": int(i in (0, 3)) for i in range(9)}

    def press(button: int, state: dict) -> dict:
        flips = {f"light{i}": 1 - state[f"light{i}"] for i in LIGHTS.patterns[button]}
        state.update(flips)
        return flips

    state = dict(start)
    assert verdict(press(0, state), pair=pair, layout=LIGHTS, start=start) == (True, True, True)
    state = dict(start)
    detour = [press(button, state) for button in (1, 0, 1)]
    assert verdict(*detour, pair=pair, layout=LIGHTS, start=start) == (True, False, False)
    state = dict(start)
    far = [press(button, state) for button in (8, 0, 8)]  # the context's lights are as they were
    assert verdict(*far, pair=pair, layout=LIGHTS, start=start) == (True, False, True)


def test_logs_are_read_back(tmp_path):
    held_out = held_out_of(DESK)
    trial = make_trials(held_out, episodes=1)[0]
    values = np.array([[0, 0, 0, 1, 1]] * 3 + [[1, 0, 0, 1, 1]] * 2 + [[1, 0, 1, 0, 1]], np.int8)
    log = write_log(trial, values, DESK, success=True)
    assert log.changes == ((2, {"drawer": "open"}), (4, {"tray": "open", "drawer_lock": "locked"}))
    assert log.steps == 5 and log.start == START
    for name in ("log.jsonl", "packed.jsonl.gz"):
        write_logs(tmp_path / name, [log, log])
        assert read_logs(tmp_path / name) == [log, log]
    assert (tmp_path / "packed.jsonl.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert read_logs(tmp_path / "log.jsonl.gz") == [log, log]  # as earlier versions wrote it
    rows = count_rows([log, log], [(1, DRAWER)], DESK, CellKey("d", "a"), 0, 9)
    assert rows == [Score("d", "a", "", "whole", 0, 9, "pair1", 2, 2, 0, 2)]
    (tmp_path / "log.jsonl").write_text('{"pair": 1}\n')
    with pytest.raises(CtaError, match="line 1: not an episode's event log"):
        read_logs(tmp_path / "log.jsonl")


# The desk, by hand.


class Hand:
    """Does chores on many desks at once: ("drawer", 1), ("press", 1); one list for all slots."""

    def __init__(self, chores) -> None:
        self.world = find_world("desk")
        self.chores = chores
        self.done: list[int] = []
        self.bits: list = []

    def __call__(self, observations, goals, first) -> np.ndarray:
        if not self.done:
            self.done, self.bits = [0] * len(first), [None] * len(first)
        return np.stack([self.act(slot, observation) for slot, observation in enumerate(observations)])

    def act(self, slot: int, observation: np.ndarray) -> np.ndarray:
        state = decode(self.world, observation)
        if self.bits[slot] is None:
            self.bits[slot] = state.bits.copy()
        if self.done[slot] == len(self.chores):
            return np.array([0, 0, -1], np.float32)
        what, value = self.chores[self.done[slot]]
        closed = state.grip > CLOSED
        names = [part.name for part in self.world.parts]
        if what == "press":
            place, finished = self.world.places[value], state.bits[value] != self.bits[slot][value]
            pull = np.zeros(2)
        else:
            part = names.index(what)
            place, missing = handles(self.world, state.parts)[part], value - state.parts[part]
            finished = abs(missing) < 0.03
            pull = self.world.directions[part] * np.clip(missing * TRAVEL / SPEED, -1, 1)
        if finished and state.grip < 0.1:
            self.done[slot] += 1
            self.bits[slot] = None
            return np.array([0, 0, -1], np.float32)
        near = np.abs(place - state.gripper).max() < 0.03
        if finished or (closed and not near):
            return np.array([0, 0, -1], np.float32)
        if not near:
            return np.array([*np.clip((place - state.gripper) / SPEED, -1, 1), -1], np.float32)
        return np.array([*(pull if closed else np.zeros(2)), 1], np.float32)


@pytest.mark.parametrize(
    ("chores", "direct", "lenient"),
    [
        ([("drawer", 1)], 4, 4),
        ([("press", 1), ("drawer", 1), ("press", 1)], 0, 0),
        ([("window", 1), ("window", 0), ("drawer", 1)], 0, 4),
    ],
)
def test_the_desk_done_by_hand(chores, direct, lenient):
    held_out = HeldOut(DESK, (DRAWER,))
    with PairEvaluator("desk-play-v0", held_out, episodes=4) as evaluator:
        logs = evaluator.ask(lambda slots: Hand(chores))
    (row,) = count_rows(logs, held_out.numbered(), DESK, CellKey("d", "a"), 0, 0)
    assert (row.successes, row.direct, row.lenient) == (4, direct, lenient), logs


def test_images_are_not_asked():
    with pytest.raises(CtaError, match="images"):
        PairEvaluator("visual-scene-play-v0", held_out_of(SCENE))


# The command line, from cut to table.


@pytest.fixture(scope="module")
def asked_run(tmp_path_factory):
    """A small agent, trained for few steps on cut data and asked for the pairs."""
    folder = tmp_path_factory.mktemp("asked")
    assert cta(["ooc", "cut", "desk-play-v0", "--out", str(folder)]) == 0
    words = ["--agent", "gcbc", "--dataset", str(folder / "desk-play-v0.npz"), "--seeds", "2", "--steps", "20"]
    words += ["--eval-interval", "0", "--checkpoint-interval", "2", "--run-dir", str(folder / "run")]
    assert cta(["train", *words]) == 0
    assert cta(["ooc", "evaluate", str(folder / "run"), "--episodes", "3", "--step", "last3"]) == 0
    return folder / "run"


def test_evaluating_a_run(asked_run, capsys, tmp_path):
    run = str(asked_run)
    pairs = tmp_path / "own.toml"
    pairs.write_text('[[pair]]\nname = "lock it"\ncontext = {}\nevent = { drawer_lock = "locked" }\nK = 3\n')
    assert cta(["ooc", "evaluate", run, "--episodes", "2", "--pairs", str(pairs), "--step", "18,20"]) == 0
    said = capsys.readouterr().out
    assert "drawer_lock → locked" in said and "ooc-own.csv" in said
    folder = asked_run
    # In a table of their own: pair1 is another pair here.
    assert [row["step"] for row in CsvLog(folder / "ooc.csv").read()] == ["16"] * 6 + ["18"] * 6 + ["20"] * 6
    assert [row["step"] for row in CsvLog(folder / "ooc-own.csv").read()] == ["18"] * 2 + ["20"] * 2
    assert cta(["ooc", "evaluate", run, "--episodes", "2", "--pairs", str(pairs), "--step", "20"]) == 0
    assert len(CsvLog(folder / "ooc-own.csv").read()) == 4  # replaced, never added
    pairs.write_text(pairs.read_text().replace('"locked"', '"unlocked"'))
    assert cta(["ooc", "evaluate", run, "--episodes", "2", "--pairs", str(pairs), "--step", "20"]) == 1
    assert "ooc-own.csv has scores of other pairs" in capsys.readouterr().err
    looser, plain = tmp_path / "looser.toml", pairs.read_text()
    for text, code in ((plain + "[thresholds]\ndrawer = 0.2\n", 0), (plain, 1)):
        looser.write_text(text)
        assert cta(["ooc", "evaluate", run, "--episodes", "2", "--pairs", str(looser), "--step", "20"]) == code
    assert "ooc-looser.csv has scores of other pairs" in capsys.readouterr().err
    assert cta(["ooc", "evaluate", run, "--step", "newest"]) == 1
    assert "`last3`" in capsys.readouterr().err


def test_tables_beside_the_paper():
    rows = [
        Score("d", "cta", "", HELD_OUT, seed, step, f"pair{pair}", 50, 40, 20 + 10 * seed, 30)
        for pair in (1, 2, 3)
        for seed in (0, 1)
        for step in (100, 200)
    ]
    header, ours, paper = as_table(pair_lines(rows), paper_lines("scene-play-v0"))
    assert header[-2:] == ["all", "lenient, all"]
    assert ours == ["cta", "held-out", "2", "200", *["50±10 (80±0)"] * 4, "60±0"]
    assert paper[4:] == ["57±12 (98±2)", "83±7 (98±2)", "80±8 (86±7)", "73±9 (94±4)", "–"]
    assert not paper_lines("desk-play-v0")
    assert {line.agent for line in paper_lines("puzzle-4x4-play-v0")} == set(AGENTS)


def test_a_press_is_named():
    assert Pair("p", {"light0": 1}, ("press", 3), 6).describe(LIGHTS) == "light0 1: press 3"
