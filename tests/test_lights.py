"""Boards of lights: presses counted over F₂, a world for every size, and what is refused."""

import hashlib
from itertools import combinations

import numpy as np
import pytest

from cta.cli import run
from cta.envs import desk_play
from cta.envs.desk import WORLDS, distance
from cta.envs.lights import Board, board, board_of
from cta.envs.names import KNOWN, LIGHTS_SIZES
from cta.errors import CtaError
from cta.experiment import run_config

RANKS = {(2, 3): 4, (2, 5): 9, (3, 2): 4, (3, 5): 12, (4, 4): 12}
"""Boards without full rank; all others have one."""


@pytest.mark.parametrize("size", [(2, 2), (2, 3), (3, 3), (2, 5)])
def test_least_presses_are_those_of_a_search(size):
    here = Board(*size)
    found = {}
    for count in range(here.lights + 1):
        for presses in combinations(range(here.lights), count):
            found.setdefault(here.lit_by(presses), count)
    boards = np.array([*np.ndindex(*[2] * here.lights)])
    assert here.least(boards).tolist() == [found.get(tuple(one), -1) for one in boards.tolist()]
    assert here.hardest == max(found.values()) and len(found) == 2**here.rank
    sets = here.presses(np.array([*found]))
    assert (sets @ here.patterns % 2 == np.array([*found])).all() and sets.sum(axis=1).tolist() == [*found.values()]


def test_ranks():
    assert {size: board(*size).rank for size in LIGHTS_SIZES} == {
        size: RANKS.get(size, size[0] * size[1]) for size in LIGHTS_SIZES
    }
    assert board(4, 4).hardest == 7 and board(4, 5).hardest == 20 and len(board(4, 4).kernel) == 16


@pytest.mark.parametrize("size", [(2, 3), (3, 3), (4, 4)])
def test_drawn_changes_need_so_many_presses_and_are_equally_likely(size):
    here, rng = Board(*size), np.random.default_rng(0)
    for presses in range(here.hardest + 1):
        assert set(here.least(here.draw(presses, 50, rng)).tolist()) == {presses}
    drawn, counts = np.unique(here.draw(2, 4000, rng), axis=0, return_counts=True)
    all_of_them = {change for p in combinations(range(here.lights), 2) if here.least(change := here.lit_by(p)) == 2}
    assert {tuple(one) for one in drawn.tolist()} == all_of_them
    mean = 4000 / len(all_of_them)
    assert (np.abs(counts - mean) < 5 * mean**0.5).all()
    with pytest.raises(CtaError, match=f"the hardest needs {here.hardest}"):
        here.draw(here.hardest + 1, 1, rng)


def test_a_longer_draw_begins_with_a_shorter_one():
    few, many = (board(4, 4).draw(5, count, np.random.default_rng(1)) for count in (3, 300))
    assert (many[:3] == few).all()


@pytest.mark.parametrize("size", LIGHTS_SIZES)
def test_a_world_for_every_size(size):
    world, here = WORLDS[f"lights-{size[0]}x{size[1]}"], board(*size)
    assert world.dataset_name in KNOWN and board_of(world.dataset_name) is here
    assert (world.toggles == here.patterns).all() and len(world.tasks) == 5
    needed = [here.distance(task.start_bits, task.goal_bits) for task in world.tasks]
    assert needed == sorted(needed) and needed[0] == 1
    # One press is never two: no place is in reach of two buttons, and the oracle's are in reach of one.
    places = np.random.default_rng(0).random((2000, 1, 2), np.float32)
    assert (np.asarray(distance(places, world.places)) < world.reach).sum(axis=1).max() == 1
    assert world.reach > desk_play.NEAR and world.episode_limit >= 6.5 * here.hardest


def test_the_smallest_lights_stay_as_they_were():
    """The world that others have trained on: its tasks, and the bits of its play data."""
    world = WORLDS["lights-3x3"]
    assert (world.reach, world.episode_limit, KNOWN[world.dataset_name].episodes) == (0.1, 80, 500)
    assert [task.name for task in world.tasks][::4] == ["task1_centre", "task5_four_edges"]
    assert world.tasks[4].goal_bits == (0, 1, 0, 1, 0, 1, 0, 1, 0)
    data, held_out = desk_play.generate_play("lights-3x3", episodes=40, validation_episodes=4, episode_steps=150)
    bits = b"".join(part.info["button_states"].astype(np.int64).tobytes() for part in (data, held_out))
    assert hashlib.sha256(bits).hexdigest()[:16] == "e04c47490974d46a"


def test_blocks_leave_no_trace(monkeypatch):
    whole = desk_play.generate_play("lights-2x3", episodes=9, validation_episodes=2, episode_steps=20)
    monkeypatch.setattr(desk_play, "TOGETHER", 4)
    for one, other in zip(
        whole, desk_play.generate_play("lights-2x3", episodes=9, validation_episodes=2, episode_steps=20), strict=True
    ):
        assert (one.observations == other.observations).all() and (one.actions == other.actions).all()


def test_settings_of_larger_boards():
    assert (run_config("cta", "lights-4x3-play-v0").steps, run_config("cta", "lights-4x4-play-v0").steps) == (
        10_000,
        30_000,
    )
    found = {name: run_config("cta", f"lights-{name}-play-v0").agent for name in ("3x3", "4x4", "4x5")}
    assert [agent.subgoal_steps for agent in found.values()] == [5, 5, 5]
    assert [agent.discount for agent in found.values()] == [0.95, 0.97, 0.95]
    assert [agent.batch_size for agent in found.values()] == [128, 256, 256]
    assert found["4x4"].hidden == (512, 512, 512) != found["3x3"].hidden


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data", "generate", "lights-9x9-play-v0"], "a lights board has 2 to 4 rows and 2 to 6 columns"),
        (["train", "--dataset", "lights-1x1-play-v0"], "a lights board has 2 to 4 rows and 2 to 6 columns"),
        (["presses", "board", "lights-4x4", "--goal", "1" + "0" * 15], "no presses lead from 0000000000000000 to 1000"),
        (["presses", "board", "lights-4x4", "--goal", "11"], "give 16 zeros and ones"),
        (["presses", "board", "desk"], "desk-play-v0 has no board to press"),
    ],
)
def test_what_cannot_be_is_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 1
    error = capsys.readouterr().err
    assert said in error and error.rstrip().splitlines()[-1].startswith("cta ")


def test_a_board_in_exact_numbers(capsys):
    assert run(["presses", "board", "puzzle-4x4", "--goal", "1100100000000000"]) == 0
    assert capsys.readouterr().out == "1 presses: 0\n"
    assert run(["presses", "board", "lights-4x4"]) == 0
    assert "rank 12 over F₂: 1 in 16 goals can be reached" in capsys.readouterr().out
