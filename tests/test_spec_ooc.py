"""The held-out pairs that come with the worlds, the box that is the drawer's inside, and how often a pair is asked."""

import inspect
import itertools

import numpy as np
import pytest

from cta.cli import evaluate
from cta.cli.ooc import COMMANDS
from cta.envs.worlds import OgbenchWorld
from cta.experiment.score_files import How
from cta.grid.studies import study_plan
from cta.ooc import find_layout, held_out_of
from cta.ooc.components import SCENE
from cta.ooc.evaluation import PairEvaluator, make_trials
from cta.ooc.pairs import BUILT_IN
from cta.scores.pair_table import pair_lines
from cta.scores.schema import HELD_OUT, Score
from ooc_arm import state_of

CLOSED_UNLOCKED = {"window": "closed", "window_lock": "unlocked", "drawer": "closed"}
DRAWER_LOCKED = {"drawer": "closed", "drawer_lock": "locked", "window": "open"}
WINDOW_LOCKED = {"window": "open", "window_lock": "locked", "drawer": "open"}
PAIRS = {
    "scene": [
        (CLOSED_UNLOCKED, {"drawer": "open"}),
        (DRAWER_LOCKED, {"window": "closed"}),
        (WINDOW_LOCKED | {"cube": "outside"}, {"cube": "inside"}),
    ],
    "puzzle-4x4": [
        ({5: 0, 1: 1, 9: 0, 4: 1, 6: 0}, 5),
        ({2: 1, 1: 0, 3: 1, 6: 0}, 2),
        ({15: 0, 11: 1, 14: 1}, 15),
        ({10: 1, 6: 0, 14: 1, 9: 0, 11: 1}, 10),
        ({0: 1, 1: 0, 4: 1}, 0),
    ],
    "desk": [
        (CLOSED_UNLOCKED, {"drawer": "open"}),
        (DRAWER_LOCKED, {"window": "closed"}),
        (WINDOW_LOCKED | {"tray": "closed"}, {"tray": "open"}),
    ],
    "lights-3x3": [
        ({0: 1, 1: 0, 3: 1}, 0),
        ({1: 1, 0: 0, 2: 1, 4: 0}, 1),
        ({8: 0, 5: 1, 7: 1}, 8),
        ({4: 0, 1: 1, 7: 0, 3: 1, 5: 0}, 4),
        ({3: 1, 0: 0, 4: 1, 6: 0}, 3),
    ],
}
"""Context before the event, and the event; lights and presses by number."""
WINDOWS = {"scene": 15, "puzzle-4x4": 20, "desk": 6, "lights-3x3": 6}


def record(context, event, window):
    """A pair in the form of a pairs file."""
    if isinstance(event, int):
        context, event = {f"light{light}": value for light, value in context.items()}, {"press": event}
    return {"context": context, "event": event, "K": window}


@pytest.mark.parametrize("name", PAIRS)
def test_the_pairs_of_a_world(name):
    layout = find_layout(f"{name}-play-v0")
    found = [pair.record(layout) for pair in held_out_of(layout).pairs]
    assert [{key: pair[key] for key in ("context", "event", "K")} for pair in found] == [
        record(context, event, WINDOWS[name]) for context, event in PAIRS[name]
    ]


def test_no_other_world_has_pairs():
    assert set(BUILT_IN) == set(PAIRS)


@pytest.fixture(scope="module")
def scene():
    world = OgbenchWorld("scene-v0")
    world.reset(1, 0)
    yield world
    world.close()


@pytest.mark.parametrize("drawer", [0.0, -0.03, -0.08, -0.125, -0.16])
def test_a_cube_is_in_the_drawer_where_ogbench_says_so(scene, drawer):
    """Just inside and just outside of all six faces, at every combination of the three coordinates."""
    state = state_of(scene)
    state["qpos"][23] = drawer
    scene._env.set_state(**state)
    shift, near = -0.24 - drawer, 1e-4
    sides = ((0.21, 0.45), (shift - 0.27, shift - 0.07), (0.0, 0.15))
    axes = [(low - near, low + near, (low + high) / 2, high - near, high + near) for low, high in sides]
    cubes = np.array(list(itertools.product(*axes)))
    theirs = np.array([scene._env._is_in_drawer(cube) for cube in cubes])
    assert theirs.sum() == 3**3  # the grid's inner places: the faces are where they were looked for

    qpos = np.tile(state["qpos"], (len(cubes), 1))
    qpos[:, 14:17] = cubes
    observations = np.zeros((len(cubes), 40))
    observations[:, 19:22], observations[:, 36] = 10 * (cubes - (0.425, 0.0, 0.0)), 18 * drawer
    buttons = np.tile(state["button_states"], (len(cubes), 1))
    inside = SCENE.index("cube")
    for measured in (SCENE.measure(None, {"qpos": qpos, "button_states": buttons}), SCENE.measure(observations, {})):
        np.testing.assert_array_equal(measured[:, inside] == 1, theirs)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_asked_fifty_times(name):
    trials = make_trials(held_out_of(find_layout(f"{name}-play-v0")))
    assert [trial.pair for trial in trials] == [pair for pair in range(1, len(PAIRS[name]) + 1) for _ in range(50)]


@pytest.mark.parametrize(
    "asks", [make_trials, PairEvaluator, How, study_plan, COMMANDS["evaluate"], COMMANDS["study"], evaluate.Command]
)
def test_everything_that_asks_does_so_fifty_times(asks):
    assert inspect.signature(asks).parameters["episodes"].default == 50


def test_a_study_has_four_seeds():
    assert inspect.signature(study_plan).parameters["seeds"].default == (0, 1, 2, 3)
    assert inspect.signature(COMMANDS["study"]).parameters["seeds"].default == "4"


def test_rates_are_means_of_the_last_three_evaluations():
    direct = {1: 25, 700: 25, 1000: 25, 800: 5, 900: 0}
    rows = [Score("d", "cta", "", HELD_OUT, 0, s, "pair1", 50, 2 * count, count, 0) for s, count in direct.items()]
    (line,) = pair_lines(rows)
    assert line.pairs["pair1"]["direct"][0] == pytest.approx(100 * (5 + 0 + 25) / 150)
    assert line.pairs["pair1"]["successes"][0] == pytest.approx(200 * (5 + 0 + 25) / 150)
