"""What the demo says at its end, and that it begins and continues where it should."""

import re
import shlex
import signal
from statistics import fmean, stdev

from scipy.stats import t

from cta.cli import COMMANDS, demo, run
from cta.grid.processes import DATA, Job, Process, python_path
from cta.scores.pair_table import PLAIN, PairAnswer
from cta.scores.schema import Score
from cta.scores.statistics import difference, seeds_to_tell


def scores(agent: str, counts: list[int], more: int = 0) -> list[Score]:
    """`counts` direct successes of 100 for each seed, and some by a detour."""
    return [Score("d", agent, "", "held-out", s, 9, "pair1", 100, n + more, n, n) for s, n in enumerate(counts)]


def answer(ours: list[int], theirs: list[int], more: int = 0) -> PairAnswer:
    return PairAnswer({"CTA": scores("cta", ours, more), "HIQL": scores("hiql", theirs)})


def test_the_sentence_has_the_difference_and_welch_s_interval():
    ours, theirs = [80, 84, 88, 76], [60, 70, 50, 64]
    error = ((stdev(ours) ** 2 + stdev(theirs) ** 2) / 4) ** 0.5
    freedom = error**4 / sum((stdev(x) ** 2 / 4) ** 2 / 3 for x in (ours, theirs))
    half = t.ppf(0.975, freedom) * error
    found = answer(ours, theirs)
    assert found.told
    assert found.sentence() == (
        "On pairs that were never shown CTA did the task directly in 82 % of episodes and HIQL in 61 %: "
        f"21 points more, 95 % interval {21 - half:+.1f} to {21 + half:+.1f} (4 seeds each)."
    )


def test_where_zero_is_inside_it_says_how_many_seeds_it_would_take():
    ours, theirs = [80, 50, 88, 70], [60, 70, 50, 64]
    found = answer(ours, theirs)
    enough = found.enough
    assert not found.told and enough is not None and enough > 4
    said = f"do not say which is better; with this spread it would take about {enough} seeds of each."
    assert "includes zero" in found.sentence() and found.sentence().endswith(said)

    def half(count: int) -> float:
        parts = [stdev(x) ** 2 / count for x in (ours, theirs)]
        freedom = sum(parts) ** 2 / sum(part**2 / (count - 1) for part in parts)
        return t.ppf(0.975, freedom) * sum(parts) ** 0.5

    gap = fmean(ours) - fmean(theirs)
    assert half(enough) < gap < half(enough - 1)


def test_of_the_same_and_of_one_seed_nothing_is_made():
    same = answer([70, 60], [60, 70])
    assert ": the same, 95 %" in same.sentence() and "would take" not in same.sentence()
    one = answer([90], [10])
    assert one.interval is None and one.sentence().endswith("from one seed each, which does not say which is better.")
    assert "20 points less" in answer([40, 41], [60, 61]).sentence()
    assert ": 1 point more" in answer([41, 42], [40, 41]).sentence()
    assert seeds_to_tell((50.0, 9.0, 1), (40.0, 9.0, 5)) is None
    assert (
        difference((50.0, 0.0, 3), (40.0, 0.0, 3))[1] == (10, 10) and seeds_to_tell((50.0, 0.0, 3), (40.0, 0.0, 3)) == 2
    )


def test_bars_are_as_long_as_the_rates_and_fit_80_columns():
    key, first, second = answer([80, 80], [31, 29], more=10).bars(PLAIN)
    assert first == "CTA   " + "#" * 40 + "+" * 5 + "." * 5 + "   80 %"
    assert second == "HIQL  " + "#" * 15 + "." * 35 + "   30 %"
    assert max(map(len, (key, first, second))) <= 80


def test_a_folder_with_other_things_or_another_demo_is_refused(tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    assert run(["demo", "--out", str(tmp_path)]) == 1
    assert "not empty" in capsys.readouterr().err
    out = tmp_path / "demo"
    demo.enter(out, "2", 30)
    demo.enter(out, "2", 30)
    assert "continuing" in capsys.readouterr().out
    assert run(["demo", "--seeds", "2", "--steps", "40", "--out", str(out)]) == 1
    assert "seeds 2 and steps 30" in capsys.readouterr().err


def test_what_comes_next_are_three_commands_of_this_program(tmp_path, capsys):
    found = {"CTA": scores("cta", [80, 82]), "HIQL": scores("hiql", [60, 61])}
    demo.conclude(found, tmp_path / "page" / "index.html", "runs/my demo/seeds-0-1")
    said = capsys.readouterr().out
    assert str(tmp_path / "page" / "index.html") in said
    lines = [line.split(" cta ")[-1] for line in re.findall(r"  # .*\n  (.*)", said)]
    commands = [shlex.split(line) for line in lines]
    assert len(commands) == 3 and {words[0] for words in commands} <= set(COMMANDS)
    assert commands[1][1] == "runs/my demo/seeds-0-1"


def test_a_job_that_does_not_end_in_time_is_killed(tmp_path):
    """A demo that is stopped while its training compiles ends with a word on how to go on, not with an error."""
    job = Job(DATA, "slow", ("doctor",), tmp_path / "log", None)
    assert Process(job, path=python_path()).wait(0.01) == -signal.SIGKILL
