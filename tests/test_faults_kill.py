"""Killed anywhere and resumed: the same run, bit for bit. Real processes; the long form is kill_and_resume.py."""

import pytest

from kill_and_resume import campaign


@pytest.mark.slow
def test_a_killed_and_resumed_run_is_the_run_that_was_never_killed(tmp_path):
    wanted = {"early": 1, "checkpoint": 2, "evaluation": 1, "random": 1}
    kills, same = campaign(tmp_path, wanted)
    print("\n".join(f"aimed at {kill.aim}: {kill.where}" for kill in kills.kills))
    fell = kills.counts()
    assert all(fell[kind] >= wanted[kind] for kind in ("early", "checkpoint", "evaluation")), fell
    assert same["train.csv"] == 2 * 240 // 4 and same["eval.csv"] == 2 * 6 * 3, same
