"""Direct success in the real simulator: a scripted detour reaches the goal, but only the task itself is direct."""

import numpy as np
import pytest

from cta.cli import run as cta
from cta.data import TrajectoryDataset
from cta.envs.datasets import open_dataset
from cta.envs.protocol import Episode
from cta.evaluation.rollout import play
from cta.ooc import HeldOut, Pair, Rule, find_all, find_layout, held_out_of, plan_cut
from cta.ooc.cut import presses
from cta.ooc.evaluation import EventRecorder, PairEvaluator, judge, make_trials, task_info
from cta.ooc.pairs import PRESS
from ooc_arm import Arm, OneWorld

OPEN, SHUT = -0.16, 0.0


@pytest.fixture(scope="module")
def worlds():
    made: dict[str, OneWorld] = {}
    yield lambda name: made.setdefault(name, OneWorld(name))
    for world in made.values():
        world.close()


def perform(world: OneWorld, dataset: str, pair: int, chores, *, episode: int = 0):
    """(verdict, log) of the chores on an episode of a pair."""
    layout = find_layout(dataset)
    held_out = held_out_of(layout)
    trials = [t for t in make_trials(held_out, episodes=episode + 1) if (t.pair, t.episode) == (pair, episode)]
    recorder = EventRecorder(trials, layout)
    one = trials[0]
    planned = [Episode(one.pair, one.seed, task_info(one, layout), one.episode)]
    play([world], lambda slots: Arm(world.world, chores), planned, watch=recorder)
    (log,) = recorder.logs
    return judge(log, held_out.pairs[pair - 1], layout), log


@pytest.mark.parametrize(
    ("chores", "expected"),
    [
        ([("drawer", OPEN)], (True, True, True)),
        # Lock the window, open the drawer, unlock the window: the paper's first detour.
        ([("press", 1), ("drawer", OPEN), ("press", 1)], (True, False, False)),
        # Open the window, open the drawer, close the window: the paper's second.
        ([("window", 0.2), ("drawer", OPEN), ("window", 0.0)], (True, False, False)),
        # An excursion that is undone before the task is forgiven by the lenient rule alone.
        ([("press", 1), ("press", 1), ("drawer", OPEN)], (True, False, True)),
        ([("press", 1)], (False, False, False)),
    ],
    ids=["direct", "detour", "other detour", "excursion", "failure"],
)
@pytest.mark.slow
def test_opening_the_drawer(worlds, chores, expected):
    verdict, log = perform(worlds("scene-v0"), "scene-play-v0", 1, chores)
    assert (verdict.success, verdict.direct, verdict.lenient) == expected, log


@pytest.mark.slow
def test_closing_the_window(worlds):
    assert perform(worlds("scene-v0"), "scene-play-v0", 2, [("window", 0.0)])[0].direct
    # Unlock the drawer, close the window, lock the drawer again.
    detour = [("press", 0), ("window", 0.0), ("press", 0)]
    verdict, log = perform(worlds("scene-v0"), "scene-play-v0", 2, detour)
    assert (verdict.success, verdict.direct, verdict.lenient) == (True, False, False), log


@pytest.mark.slow
def test_putting_the_cube_into_the_drawer(worlds):
    assert perform(worlds("scene-v0"), "scene-play-v0", 3, [("cube", 0)], episode=2)[0].direct
    # Unlock the window, put the cube into the drawer, lock the window again; here the arm keeps clear of the window.
    detour = [("press", 1), ("cube", 0), ("press", 1)]
    verdict, log = perform(worlds("scene-v0"), "scene-play-v0", 3, detour, episode=2)
    assert (verdict.success, verdict.direct, verdict.lenient) == (True, False, False), log


@pytest.mark.parametrize("pair", [1, 5])
@pytest.mark.slow
def test_pressing_in_the_puzzle(worlds, pair):
    layout = find_layout("puzzle-4x4-play-v0")
    _, button = held_out_of(layout).pairs[pair - 1].event
    verdict, log = perform(worlds("puzzle-4x4-v0"), "puzzle-4x4-play-v0", pair, [(PRESS, button)])
    assert verdict.direct and verdict.lenient and len(log.changes) == 1
    neighbour = layout.patterns[button][0] if layout.patterns[button][0] != button else layout.patterns[button][1]
    detour = [(PRESS, neighbour), (PRESS, button), (PRESS, neighbour)]
    verdict, log = perform(worlds("puzzle-4x4-v0"), "puzzle-4x4-play-v0", pair, detour, episode=1)
    assert (verdict.success, verdict.direct, verdict.lenient) == (True, False, False)
    assert len(log.changes) == 3


@pytest.mark.parametrize("dataset", ["scene-play-v0", "puzzle-4x4-play-v0"])
@pytest.mark.slow
def test_every_start_and_goal_is_the_intended_one(worlds, dataset):
    """No pair is solved at its start, and start and goal observations show the trial's components."""
    world = worlds(f"{dataset.removesuffix('-play-v0')}-v0").world
    layout = find_layout(dataset)
    for trial in make_trials(held_out_of(layout), episodes=2):
        start, goal = world.reset(task_info(trial, layout), trial.seed)
        for observation, expected in ((start, trial.start), (goal, trial.goal)):
            measured = layout.measure(observation[None].astype(float), {})
            near = {
                name: round(value / (part.travel or 1))
                for name, value, part in zip(layout.names, measured[0], layout.components, strict=True)
            }
            assert near == dict(expected)
        assert not world.step(np.zeros(5))[1]


@pytest.mark.slow
def test_trials_in_worker_processes():
    """The same list through the real pool: starts are checked there, and logs come back for every episode."""
    held_out = held_out_of(find_layout("puzzle-4x4-play-v0"))
    still = lambda slots: lambda observations, goals, first: np.zeros((slots, 5), np.float32)  # noqa: E731
    with PairEvaluator("puzzle-4x4-play-v0", held_out, episodes=1, workers=1, max_episode_steps=3) as evaluator:
        logs = evaluator.ask(still)
    assert [(log.pair, log.steps, log.success) for log in logs] == [(pair, 3, False) for pair in range(1, 6)]
    assert all(not log.changes for log in logs)
    assert [log.seed for log in logs] == [trial.seed for trial in evaluator.trials]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A little play data of both worlds, from the real simulator."""
    folder = tmp_path_factory.mktemp("play")
    for name, episodes, steps in (("scene-play-v0", 1, 1000), ("puzzle-4x4-play-v0", 1, 250)):
        size = ["--episodes", str(episodes), "--episode-steps", str(steps)]
        assert cta(["data", "generate", name, *size, "--workers", "1", "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_simulated_scenes_have_the_events(played):
    layout = find_layout("scene-play-v0")
    held_out = held_out_of(layout)
    _, data, _ = open_dataset(played / "scene-play-v0.npz", info=True)
    # Events per million on 274 simulated episodes, with their errors.
    for events, (rate, error) in zip(find_all(data, held_out), ((318, 34), (536, 44), (102, 19)), strict=True):
        scale = 1e6 / data.num_transitions
        assert abs(len(events) * scale - rate) < 3 * np.hypot(max(len(events), 1) ** 0.5 * scale, error)
    everything = {name: Pair(name, {}, (name, 1), 15) for name in layout.names}
    changes = HeldOut(layout, tuple(everything.values()))
    found = find_all(data, changes)
    assert sum(len(events) for events in found) > 5
    # State and observation tell the same story.
    bare = TrajectoryDataset.from_arrays(data.observations, data.actions, data.terminals, name=data.name)
    for events, again in zip(found, find_all(bare, changes), strict=True):
        np.testing.assert_array_equal(events, again)
    cut = plan_cut(data, changes)
    assert cut.report.events_left == (0,) * len(everything) and cut.report.removed <= sum(
        p.nominal for p in cut.report.pairs
    )


@pytest.mark.slow
def test_simulated_presses_are_joints_that_cross(played):
    """The pattern of the lights and the joint's crossing of −0.02 are two tests of the same press."""
    layout = find_layout("puzzle-4x4-play-v0")
    _, data, _ = open_dataset(played / "puzzle-4x4-play-v0.npz", info=True)
    joints = data.info["qpos"][:, 14:30]
    crossed = (joints[:-1] > -0.02) & (joints[1:] <= -0.02)
    expected = np.where(crossed.any(axis=1), crossed.argmax(axis=1), -1)
    values = Rule().values(layout, layout.measure(None, data.info))
    found = presses(layout, values)[: len(expected)]
    assert (found[~data.terminals[:-1]] == expected[~data.terminals[:-1]]).all() and (expected >= 0).sum() > 3
    np.testing.assert_array_equal(values, Rule().values(layout, layout.measure(data.observations, {})))
