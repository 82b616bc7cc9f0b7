"""Pairs: the built-in ones are the paper's, files of one's own say what is wrong in one line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cta.cli import run as cta
from cta.envs.datasets import generate_desk, open_dataset
from cta.errors import CtaError
from cta.ooc import find_all, find_layout, held_out_of
from cta.ooc.evaluation import desk_task, make_trials, task_info
from cta.ooc.pairs import BUILT_IN, parse_held_out

LAYOUTS = {name: find_layout(f"{name}-play-v0") for name in ("scene", "puzzle-4x4", "puzzle-3x3", "desk", "lights-3x3")}


def test_the_pairs_of_the_paper():
    lines = {name: [pair.describe(LAYOUTS[name]) for pair in held_out_of(LAYOUTS[name]).pairs] for name in BUILT_IN}
    assert lines["scene"] == [
        "window closed, window_lock unlocked, drawer closed: drawer → open",
        "drawer closed, drawer_lock locked, window open: window → closed",
        "window open, window_lock locked, drawer open, cube outside: cube → inside",
    ]
    assert lines["puzzle-4x4"][0] == "light5 0, light1 1, light9 0, light4 1, light6 0: press 5"
    # A press's context is exactly what the press flips, which confirms the numbering.
    for name in ("puzzle-4x4", "lights-3x3"):
        for pair in held_out_of(LAYOUTS[name]).pairs:
            flips = {f"light{light}" for light in LAYOUTS[name].patterns[pair.event[1]]}
            assert set(pair.context) == flips


@pytest.mark.parametrize("name", BUILT_IN)
def test_pairs_read_back_what_they_write(name):
    held_out = held_out_of(LAYOUTS[name])
    assert parse_held_out(held_out.record(), layout=LAYOUTS[name], where="here") == held_out


GOOD = """\
[thresholds]
drawer = 0.04
[event_thresholds]
window = 0.16
[[pair]]
name = "open the drawer"
context = { window = "closed", window_lock = "unlocked" }
event = { drawer = "open" }
K = 15
"""


def test_a_file_of_pairs(tmp_path):
    path = tmp_path / "pairs.toml"
    path.write_text(GOOD)
    held_out = held_out_of(LAYOUTS["scene"], path)
    assert held_out.pairs[0].context == {"window": 0, "window_lock": 1} and held_out.pairs[0].event == ("drawer", 1)
    assert held_out.rule.context == {"drawer": 0.04} and held_out.rule.event == {"window": 0.16}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[pair]]", "[[pears]]", "unknown key 'pears'"),
        ("[[pair]]", "[pair]", "at least one"),
        ("K = 15", "K = 0", "K must be"),
        ("K = 15", "K = true", "K must be"),
        ("K = 15", "K = 0x" + "f" * 5000, "K must be"),
        ("K = 15", "", "K is missing"),
        ("K = 15", "K = 15\nk = 3", "unknown key 'k'"),
        ('"open the drawer"', '"two\\nlines"', "name must be"),
        ("{ drawer =", "{ door =", "no component 'door'"),
        ('drawer = "open" }', 'drawer = "ajar" }', '"closed" or "open", not \'ajar\''),
        ('drawer = "open" }', 'drawer = "open", window = "open" }', "one entry"),
        ('event = { drawer = "open" }', 'event = "open drawer"', "one entry, such as { drawer"),
        ("window_lock", "drawer = 'open', window_lock", "already"),
        ("drawer = 0.04", "drawer = 0.4", r"not in \(0, 0.08\]"),
        ("drawer = 0.04", "drawer = nan", "must be a number"),
        ("drawer = 0.04", "drawer = 0x" + "f" * 300, "must be a number"),
        ("drawer = 0.04", "cube = 0.04", "the sliding parts of scene are: drawer, window"),
        ("[thresholds]", "thresholds = 3\n[other]", "unknown key 'other'"),
        ("K = 15", "K = ", "not valid TOML"),
        ("K = 15", "K = " + "9" * 5000, "not valid TOML"),
        ("K = 15", "K = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, old, new, message):
    path = tmp_path / "pairs.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(CtaError, match=message) as error:
        held_out_of(LAYOUTS["scene"], path)
    assert "\n" not in str(error.value) and "pairs.toml" in str(error.value) and len(str(error.value)) < 400


def test_presses_are_the_only_events_of_lights(tmp_path, capsys):
    path = tmp_path / "pairs.toml"
    path.write_text("[[pair]]\ncontext = {}\nevent = { light3 = 1 }\nK = 20\n")
    with pytest.raises(CtaError, match="presses 0 to 8"):
        held_out_of(LAYOUTS["puzzle-3x3"], path)
    path.write_bytes(b"\xff\xfe\x00")
    assert cta(["ooc", "cut", "scene-play-v0", "--pairs", str(path), "--out", str(tmp_path)]) == 1
    assert "utf-8" in capsys.readouterr().err
    assert cta(["ooc", "cut", "scene-play-v0", "--pairs", str(tmp_path / "none.toml"), "--out", str(tmp_path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pair", "context", "event", "K", "name", "drawer", "window", "press", "thresholds"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["pair", "thresholds", "event_thresholds"]), JSON, max_size=3), st.booleans())
def test_any_content_is_pairs_or_one_line(content, wrapped):
    record = {"pair": [content]} if wrapped else content
    for layout in (LAYOUTS["scene"], LAYOUTS["puzzle-4x4"]):
        try:
            parse_held_out(record, layout=layout, where="file")
        except CtaError as error:
            assert str(error).startswith("file") and "\n" not in str(error)


def test_pairs_of_ones_own_are_cut(tmp_path):
    train, _ = generate_desk("desk-play-v0", episodes=20, episode_steps=149, seed=2)
    train.to_npz(tmp_path / "mine.npz")
    path = tmp_path / "pairs.toml"
    path.write_text('[[pair]]\ncontext = { tray = "open" }\nevent = { drawer_lock = "unlocked" }\nK = 4\n')
    words = ["ooc", "cut", str(tmp_path / "mine.npz"), "--pairs", str(path), "--out", str(tmp_path / "cut")]
    assert cta(words) == 1  # whose data is it?
    assert cta([*words, "--env", "desk-play-v0"]) == 0
    _, cut, _ = open_dataset(tmp_path / "cut" / "mine.npz", info=True)
    held_out = held_out_of(LAYOUTS["desk"], path)
    assert len(find_all(train, held_out)[0]) > 0 and len(find_all(cut, held_out)[0]) == 0


# Starts and goals.


@pytest.mark.parametrize("name", BUILT_IN)
def test_starts_have_the_context_and_goals_the_task_alone(name):
    layout = LAYOUTS[name]
    held_out = held_out_of(layout)
    trials = make_trials(held_out, episodes=50)
    assert trials == make_trials(held_out, episodes=50) != make_trials(held_out, episodes=50, seed=1)
    assert len(trials) == 50 * len(held_out.pairs) and len({trial.seed for trial in trials}) == len(trials)
    for trial in trials:
        pair = held_out.pairs[trial.pair - 1]
        assert pair.context.items() <= trial.start.items()
        changed = {key for key in layout.names if trial.start[key] != trial.goal[key]}
        what, value = pair.event
        if what == "press":
            assert changed == {layout.names[light] for light in layout.patterns[value]}
        else:
            assert changed == {what} and trial.goal[what] == value
        for part, needed in layout.needs.get(what, {}).items():
            assert trial.start[part] == needed
    # A longer list begins with the shorter one, and one pair alone keeps its list.
    assert make_trials(held_out.each()[1], episodes=5) == trials[50:55]


def test_what_the_scene_leaves_open():
    trials = make_trials(held_out_of(LAYOUTS["scene"]))
    third = [trial for trial in trials if trial.pair == 3]
    assert [trial.start["drawer_lock"] for trial in third[:4]] == [0, 1, 0, 1]
    places = np.array([trial.cube[0] for trial in trials if trial.cube])
    assert (places[:, :2] >= (0.3, -0.07)).all() and (places[:, :2] <= (0.45, 0.18)).all()
    assert all(trial.cube[1] == (0.33, -0.24, 0.066) for trial in third if trial.cube)
    info = task_info(trials[0], LAYOUTS["scene"])
    assert info["init"]["drawer_pos"] == 0.0 and info["goal"]["drawer_pos"] == -0.16
    assert info["init"]["button_states"].tolist() == [1, 1] and info["init"]["block_xyzs"].shape == (1, 3)
    puzzle = make_trials(held_out_of(LAYOUTS["puzzle-4x4"]))
    free = np.array([[trial.start[f"light{i}"] for i in (12, 13, 8)] for trial in puzzle])
    assert 0.4 < free.mean() < 0.6
    desk = desk_task(make_trials(held_out_of(LAYOUTS["desk"]), episodes=2)[1], LAYOUTS["desk"])
    assert (desk.start_parts, desk.start_bits) == ((0, 0, 1), (1, 1)) and desk.goal_parts == (1, 0, 1)


@pytest.mark.parametrize("numbers", [{"episodes": 0}, {"episodes": 10**12}, {"seed": -1}])
def test_numbers_that_make_no_sense_are_one_line(numbers):
    with pytest.raises(CtaError, match=f"not {next(iter(numbers.values()))}"):
        make_trials(held_out_of(find_layout("desk-play-v0")), **numbers)


def test_a_task_that_cannot_be_done_is_refused():
    record = {"pair": [{"context": {"drawer_lock": "locked"}, "event": {"drawer": "open"}, "K": 5}]}
    held_out = parse_held_out(record, layout=LAYOUTS["scene"], where="file")
    with pytest.raises(CtaError, match="drawer moves only with unlocked"):
        make_trials(held_out)
    with pytest.raises(CtaError, match="at least one episode"):
        make_trials(held_out_of(LAYOUTS["desk"]), episodes=0)
    with pytest.raises(CtaError, match="0 or more"):
        make_trials(held_out_of(LAYOUTS["desk"]), seed=-1)
