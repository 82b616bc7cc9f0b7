"""Cutting held-out pairs: what goes, what stays, and that nothing of a pair is left."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cta.cli import run as cta
from cta.data import TrajectoryDataset
from cta.data.download import record_path, sha256_of
from cta.envs.datasets import generate_desk, open_dataset, simulator_notice
from cta.envs.names import lights_patterns
from cta.errors import CtaError
from cta.ooc import HeldOut, Pair, Rule, cut_files, find_all, find_layout, held_out_of, plan_cut
from cta.ooc.cut import presses, random_windows, read_rows, remaining_rows, run_lengths, windows_before

SCENE = find_layout("scene-play-v0")
PUZZLE = find_layout("puzzle-4x4-play-v0")


def episodes(*lengths: int) -> TrajectoryDataset:
    """Rows that know their own number."""
    rows = sum(lengths)
    return TrajectoryDataset.from_arrays(
        np.arange(rows, dtype=np.float32)[:, None],
        np.zeros((rows, 1), np.float32),
        episode_lengths=lengths,
        info={"number": np.arange(rows)},
    )


def without(data: TrajectoryDataset, gone: np.ndarray) -> TrajectoryDataset:
    return data.take(*remaining_rows(gone, data))


def segments(data: TrajectoryDataset) -> list[tuple[int, int]]:
    """(first, last) source row of every episode; its rows are consecutive."""
    bounds = zip(data.episode_starts, data.episode_ends, strict=True)
    found = [(int(data.info["number"][a]), int(data.info["number"][b])) for a, b in bounds]
    assert sum(b - a + 1 for a, b in found) == data.num_rows
    return found


# The five tests of the specification, 1 to 3: hand-worked cuts.


def test_an_event_in_the_middle_leaves_two_segments():
    data, K = episodes(60), 15
    cut = without(data, windows_before(np.array([40]), K, data))
    assert segments(cut) == [(0, 40 - K + 1), (41, 59)]
    transitions = [b - a for a, b in segments(cut)]
    assert transitions == [40 - K + 1, 60 - 1 - (40 + 1)]
    assert data.num_transitions - cut.num_transitions == K


def test_an_early_event_takes_what_is_there():
    data = episodes(60)
    gone = windows_before(np.array([5]), 20, data)
    cut = without(data, gone)
    assert int(gone.sum()) == 6 and segments(cut) == [(6, 59)]


def test_overlapping_windows_are_removed_once():
    data = episodes(60)
    gone = windows_before(np.array([30, 40]), 15, data)
    assert int(gone.sum()) == 25 and run_lengths(gone, data) == [25]
    assert segments(without(data, gone)) == [(0, 16), (41, 59)]


def test_windows_stop_at_their_episode_and_empty_segments_vanish():
    data = episodes(10, 10)
    assert segments(without(data, windows_before(np.array([12]), 20, data))) == [(0, 9), (13, 19)]
    # Events at both ends: nothing before the first, no transition after the second.
    assert segments(without(data, windows_before(np.array([0, 8]), 3, data))) == [(1, 6), (10, 19)]
    with pytest.raises(CtaError, match="nothing would be left"):
        without(data, np.ones(20, bool))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=5), st.lists(st.floats(0, 0.999), max_size=6), st.integers(1, 12)
)
def test_every_transition_is_kept_or_removed_exactly_once(lengths, places, window):
    data = episodes(*lengths)
    events = np.unique([data.valid_rows[int(place * data.num_transitions)] for place in places]).astype(int)
    gone = windows_before(events, window, data)
    if gone.sum() == data.num_transitions:
        return
    cut = without(data, gone)
    kept = {int(cut.info["number"][row]) for row in cut.valid_rows}
    for row in cut.valid_rows:  # a transition of the result is one of the source
        assert cut.info["number"][row + 1] == cut.info["number"][row] + 1
        assert not data.terminals[cut.info["number"][row]]
    assert kept == set(data.valid_rows.tolist()) - set(np.flatnonzero(gone).tolist())
    assert len(set(cut.info["number"].tolist())) == cut.num_rows
    lengths_cut = run_lengths(gone, data)
    assert sum(lengths_cut) == gone.sum()
    drawn = random_windows(lengths_cut, episodes(*lengths, *[400] * 3), seed=0)
    assert drawn.sum() == gone.sum()


def test_random_windows_are_seeded_and_stay_inside_episodes():
    data = episodes(*[30] * 10)
    gone = random_windows([10] * 8, data, seed=1)
    assert sum(run_lengths(gone, data)) == 80
    assert not (gone & data.terminals).any()
    np.testing.assert_array_equal(gone, random_windows([10] * 8, data, seed=1))
    assert (gone != random_windows([10] * 8, data, seed=2)).any()
    with pytest.raises(CtaError, match="no room"):
        random_windows([29] * 11, data, seed=0)
    with pytest.raises(CtaError, match="no room"):
        random_windows([301], data, seed=0)


# Events by hand.


def scene_data(drawer, window, locks, cube=None) -> TrajectoryDataset:
    rows = len(drawer)
    qpos = np.zeros((rows, 25))
    qpos[:, 14:17] = (0.35, 0.05, 0.02) if cube is None else cube
    qpos[:, 23], qpos[:, 24] = drawer, window
    return TrajectoryDataset.from_arrays(
        np.zeros((rows, 40), np.float32),
        np.zeros((rows, 5), np.float32),
        episode_lengths=[rows],
        name="scene-play-v0",
        info={"qpos": qpos, "button_states": np.array(locks)},
    )


def test_scene_events_need_their_context_at_the_row_before():
    held_out = held_out_of(SCENE)
    unlocked = [[1, 1]] * 4
    opening = [0.0, -0.07, -0.09, -0.16]
    found = find_all(scene_data(opening, [0.0] * 4, unlocked), held_out)
    assert [events.tolist() for events in found] == [[1], [], []]
    assert not find_all(scene_data(opening, [0.2] * 4, unlocked), held_out)[0].size  # window open
    assert not find_all(scene_data(opening, [0.0] * 4, [[1, 0]] * 4), held_out)[0].size  # window locked
    # The lock may change in the very step: row t decides.
    late = [[1, 1], [1, 1], [1, 0], [1, 0]]
    assert find_all(scene_data(opening, [0.0] * 4, late), held_out)[0].tolist() == [1]
    closing = find_all(scene_data([0.0] * 4, [0.2, 0.11, 0.1, 0.0], [[0, 1]] * 4), held_out)
    assert [events.tolist() for events in closing] == [[], [1], []]  # the mid-point itself is closed
    cube = [(0.33, 0.0, 0.1), (0.33, -0.1, 0.1), (0.33, -0.2, 0.1), (0.33, -0.24, 0.066)]
    put = find_all(scene_data([-0.16] * 4, [0.2] * 4, [[0, 0]] * 4, cube), held_out)
    assert [events.tolist() for events in put] == [[], [], [1]]


def test_thresholds_move_contexts_and_events():
    window = [0.2, 0.17, 0.15, 0.11, 0.09, 0.03]
    data = scene_data([-0.05] * 6, window, [[0, 1]] * 6)
    pair = held_out_of(SCENE).pairs[1]

    def events(**rule) -> list[int]:
        return find_all(data, HeldOut(SCENE, (pair,), Rule(**rule)))[0].tolist()

    assert events() == [3]
    assert events(event={"window": 0.16}) == [1]
    assert events(event={"window": 0.04}) == [4]
    assert events(context={"drawer": 0.04}) == []  # 5 cm open is not closed any more
    for bad in ({"context": {"window": 0.11}}, {"event": {"window": 0.0}}, {"context": {"cube": 0.1}}):
        with pytest.raises(CtaError, match="threshold"):
            Rule(**bad).check(SCENE)


def test_presses_are_told_by_their_pattern():
    patterns = lights_patterns(4, 4)
    assert patterns[5] == (1, 4, 5, 6, 9) and patterns[0] == (0, 1, 4) and patterns[15] == (11, 14, 15)
    values = np.zeros((4, 16), np.int8)
    values[1:, list(patterns[5])] ^= 1
    values[2:, list(patterns[15])] ^= 1
    values[3:, 7] ^= 1  # no press does that
    assert presses(PUZZLE, values).tolist() == [5, 15, -2]


@pytest.mark.parametrize("name", ["desk-play-v0", "lights-3x3-play-v0"])
def test_nothing_of_a_pair_is_left(name):
    layout = find_layout(name)
    held_out = held_out_of(layout)
    data, _ = generate_desk(name, episodes=60, episode_steps=149, seed=3)
    before = [len(events) for events in find_all(data, held_out)]
    assert min(before) > 0
    cut = plan_cut(data, held_out)
    assert [pair.events for pair in cut.report.pairs] == before
    assert all(pair.nominal == pair.events * 6 >= pair.removed > 0 for pair in cut.report.pairs)
    result = without(data, _gone(data, cut.rows, cut.terminals))
    assert [len(events) for events in find_all(result, held_out)] == [0] * len(before)
    assert data.num_transitions - result.num_transitions == cut.report.removed
    # Observations alone say the same as the simulator's state.
    bare = TrajectoryDataset.from_arrays(data.observations, data.actions, data.terminals, name=name)
    assert [len(events) for events in find_all(bare, held_out)] == before
    control = plan_cut(data, held_out, control_seed=0)
    assert control.report.removed == cut.report.removed and control.report.windows == cut.report.windows
    assert sum(control.report.events_left) > 0.5 * sum(before)


def _gone(data: TrajectoryDataset, rows: np.ndarray, terminals: np.ndarray) -> np.ndarray:
    """The removed transitions, from what remained."""
    gone = ~data.terminals
    gone[rows[~terminals]] = False
    return gone


def test_desk_events_are_those_of_the_world():
    layout = find_layout("desk-play-v0")
    assert layout.names == ("drawer", "window", "tray", "drawer_lock", "window_lock")
    data, _ = generate_desk("desk-play-v0", episodes=20, episode_steps=149, seed=0)
    rows = read_rows(data, layout, Rule())
    pair = Pair("tray", {}, ("tray", 1), 6)
    (events,) = find_all(data, HeldOut(layout, (pair,)))
    tray = data.info["qpos"][:, 5] > 0.5
    expected = [t for t in data.valid_rows if not tray[t] and tray[t + 1]]
    assert events.tolist() == expected and len(expected) > 20
    assert set(np.unique(rows.values)) == {0, 1}


# Files.


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    train, validation = generate_desk("desk-play-v0", episodes=40, episode_steps=149, seed=1)
    train.to_npz(folder / "desk-play-v0.npz")
    validation.to_npz(folder / "desk-play-v0-val.npz")
    return folder / "desk-play-v0.npz"


def test_the_files_of_a_cut(source, tmp_path, capsys):
    assert cta(["ooc", "cut", str(source), "--out", str(tmp_path)]) == 0
    assert "transitions in" in capsys.readouterr().out
    path = tmp_path / "desk-play-v0.npz"
    held_out = held_out_of(find_layout("desk-play-v0"))
    _, train, validation = open_dataset(path, info=True)
    _, whole, _ = open_dataset(source, info=True)
    assert set(train.info) == set(whole.info) and validation is not None
    for data in (train, validation):
        assert not any(len(events) for events in find_all(data, held_out))
    record = json.loads(record_path(path).read_text())
    assert record["sha256"] == sha256_of(path) and record["ooc"]["kind"] == "held-out"
    assert record["ooc"] == train.provenance["ooc"]
    assert record["source"]["fingerprint"] == whole.fingerprint()
    report = record["ooc"]["report"]
    assert whole.num_transitions - train.num_transitions == report["removed"]
    assert cta(["data", "info", str(path)]) == 0
    # The same cut gives the same bytes, and only cuts are replaced.
    assert cta(["ooc", "cut", str(source), "--out", str(tmp_path)]) == 0
    assert sha256_of(path) == record["sha256"]
    whole.to_npz(path)
    assert cta(["ooc", "cut", str(source), "--out", str(tmp_path)]) == 1
    assert "not the result of a cut" in capsys.readouterr().err
    assert cta(["ooc", "cut", str(source), "--out", str(source.parent)]) == 1
    assert "is what is being cut" in capsys.readouterr().err


def test_one_dataset_a_pair_and_the_control(source, tmp_path):
    held_out = held_out_of(find_layout("desk-play-v0"))
    reports = cut_files(source, tmp_path / "each", held_out, per_pair=True)
    assert [path.parent.name for path in reports] == ["pair1", "pair2", "pair3"]
    for number, path in enumerate(reports):
        left = [len(events) for events in find_all(open_dataset(path, info=True)[1], held_out)]
        assert [count > 0 for count in left] == [i != number for i in range(3)]
        assert open_dataset(path)[1].provenance["ooc"]["first_pair"] == number + 1
    (control,) = cut_files(source, tmp_path / "random", held_out, control_seed=0).values()
    (cut,) = cut_files(source, tmp_path / "cut", held_out).values()
    assert all(control[split].removed == cut[split].removed for split in ("train", "validation"))


def test_ogbench_reads_a_cut_file(tmp_path):
    """In OGBench's own reader the result has as many transitions, and no event crosses an episode."""
    ogbench_utils = pytest.importorskip("ogbench.utils")
    data = scene_data([0.0] * 20 + [-0.09] * 20, [0.0] * 40, [[1, 1]] * 40)
    data.to_npz(tmp_path / "scene-play-v0.npz")
    cut_files(tmp_path / "scene-play-v0.npz", tmp_path / "cut", held_out_of(SCENE))
    path = tmp_path / "cut" / "scene-play-v0.npz"
    loaded = ogbench_utils.load_dataset(str(path), add_info=True)
    assert len(loaded["observations"]) == 39 - 15
    assert loaded["qpos"].shape == (24, 25) and loaded["button_states"].shape == (24, 2)
    assert loaded["terminals"].sum() == 2
    assert simulator_notice(open_dataset(path)[1].provenance) == simulator_notice(None)


def test_images_are_cut_by_the_state_beside_them(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (40, 64, 64, 3), np.uint8)
    state = scene_data([0.0] * 20 + [-0.09] * 20, [0.0] * 40, [[1, 1]] * 40)
    pixels = TrajectoryDataset.from_arrays(frames, state.actions, state.terminals, info=state.info)
    pixels.to_npz(tmp_path / "visual-scene-play-v0.npz")
    cut_files(tmp_path / "visual-scene-play-v0.npz", tmp_path / "cut", held_out_of(find_layout("visual-scene-play-v0")))
    _, cut, _ = open_dataset(tmp_path / "cut" / "visual-scene-play-v0.npz", info=True)
    rows, _ = remaining_rows(windows_before(np.array([19]), 15, pixels), pixels)
    np.testing.assert_array_equal(cut.observations, frames[rows])
    bare = TrajectoryDataset.from_arrays(frames, state.actions, state.terminals, name="visual-scene-play-v0")
    with pytest.raises(CtaError, match="qpos and button_states"):
        find_all(bare, held_out_of(SCENE))


def test_worlds_without_components_are_refused(tmp_path, capsys):
    assert cta(["ooc", "cut", "cube-single-play-v0", "--out", str(tmp_path)]) == 1
    assert "no dataset with pairs" in capsys.readouterr().err
    assert cta(["ooc", "cut", "puzzle-3x3-play-v0", "--out", str(tmp_path)]) == 1
    assert "--pairs FILE" in capsys.readouterr().err
    assert cta(["ooc", "cut", "scene-play-v0", "--out", str(tmp_path), "--threshold", "window"]) == 1
    assert "PART=VALUE" in capsys.readouterr().err
    assert cta(["ooc", "cut", "desk-play-v0", "--out", str(tmp_path), "--control", "--seed", "-1"]) == 1
    assert "must be at least 0" in capsys.readouterr().err


# Rates.


def test_rates_by_hand(tmp_path, capsys):
    """Two openings in 78 transitions: 25,641 per million, which is 1.4 combined errors from the paper's 338."""
    once = scene_data([0.0] * 20 + [-0.09] * 20, [0.0] * 40, [[1, 1]] * 40)
    twice = TrajectoryDataset.from_arrays(
        np.tile(once.observations, (2, 1)),
        np.tile(once.actions, (2, 1)),
        np.tile(once.terminals, 2),
        info={key: np.tile(values, (2, 1)) for key, values in once.info.items()},
    )
    file = tmp_path / "scene-play-v0.npz"
    twice.to_npz(file)
    words = ["ooc", "rates", str(file), "--markdown"]
    assert cta([*words, "--record", str(tmp_path / "rates.json")]) == 0
    out = capsys.readouterr().out
    assert "| scene | 1 open the drawer | 2 | 25641 ± 18131 | 338 ± 18 (+1.4σ) |" in out
    assert "| scene | 2 close the window | 0 | 0 ± 12821 | 464 ± 22 (-0.0σ) |" in out
    record = json.loads((tmp_path / "rates.json").read_text())
    assert record["rates"][0]["events"] == [2, 0, 0] and {"commit", "versions", "command"} <= set(record)
    for level, events in ((0.14, 2), (0.04, 0)):  # 9 cm are beyond 2 cm, and short of 12 cm
        assert cta([*words, "--event-threshold", f"drawer={level}"]) == 0
        assert f"| 1 open the drawer | {events} |" in capsys.readouterr().out
