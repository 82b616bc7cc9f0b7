"""Killed anywhere and resumed: the same run, bit for bit. Real processes; the long form is kill_and_resume.py."""

import pytest

from kill_and_resume import campaign

WANTED = {"early": 1, "checkpoint": 2, "evaluation": 1}
STEPS = 120


@pytest.mark.slow
def test_a_killed_and_resumed_run_is_the_run_that_was_never_killed(tmp_path):
    kills, same = campaign(tmp_path, WANTED, steps=STEPS)
    print("\n".join(f"aimed at {kill.aim}: {kill.where}" for kill in kills.kills))
    fell = kills.counts()
    assert all(fell[kind] >= WANTED[kind] for kind in WANTED), fell
    assert same["train.csv"] == 2 * STEPS // 4 and same["eval.csv"] == 2 * (STEPS // 40) * 3, same
