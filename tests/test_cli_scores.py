"""`cta scores` on a file worked by hand."""

from cta.cli import run

EVALS = "dataset,agent,seed,step,task,episodes,successes\n" + "".join(
    f"desk-play-v0,cta,{seed},{step},{task},10,{wins}\n"
    for step, base in ((1, 0), (2, 2), (3, 4), (4, 6))
    for seed in (0, 1)
    for task, wins in ((1, base + 2 * seed), (2, base))
)


def test_scores_are_the_mean_of_the_last_three(tmp_path, capsys):
    (tmp_path / "eval.csv").write_text(EVALS)
    assert run(["scores", str(tmp_path), "--markdown"]) == 0
    # Seed 0: 20, 40, 60 → 40; seed 1: task 1 is 20 points better, so 50. Task 1: 50, task 2: 40; ± is 5.
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "| desk-play-v0 | cta | 4 | 2 | 10 | 50 | 40 | – | – | – | 45.0 ± 5.0 |"


def test_no_run_gets_a_line(tmp_path, capsys):
    assert run(["scores", str(tmp_path)]) == 1
    assert "no eval.csv" in capsys.readouterr().err
