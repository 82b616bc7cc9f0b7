"""`cta scores` on a file worked by hand."""

import pytest

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
    (tmp_path / "eval.csv").write_text(EVALS.partition("\n")[0] + "\n")
    assert run(["scores", str(tmp_path)]) == 1
    assert "no evaluation yet; those of a plan are in its --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folders", "names"),
    [(("runs/b", "runs/a"), ("b", "a")), (("b/desk", "more/a/desk"), ("b/desk", "a/desk")), (("b", "./b"), ("b", "b"))],
)
def test_runs_of_one_agent_are_told_apart_and_stay_in_order(folders, names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in folders:
        _write(tmp_path / folder, EVALS)
    assert run(["scores", *folders, "--markdown"]) == 0
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("| run | dataset | agent |")
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name in names]


def test_runs_of_several_agents_need_no_names(tmp_path, capsys):
    for agent in ("hiql", "cta"):
        _write(tmp_path / agent, EVALS.replace(",cta,", f",{agent},"))
    assert run(["scores", str(tmp_path / "hiql"), str(tmp_path / "cta"), "--markdown"]) == 0
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("| dataset | agent |")
    assert [line.split(" | ")[1] for line in lines] == ["hiql", "cta"]


def test_cut_data_have_a_name_of_their_own(tmp_path, capsys):
    head, *lines = EVALS.splitlines()
    cut = [head.replace("seed", "settings,condition,seed") + ",direct,lenient"]
    cut += [line.replace(",cta,", ",cta,,held-out,") + ",," for line in lines]
    _write(tmp_path / "whole", EVALS)
    _write(tmp_path / "cut", "\n".join(cut) + "\n")
    assert run(["scores", str(tmp_path / "whole"), str(tmp_path / "cut"), "--markdown"]) == 0
    names = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["| desk-play-v0", "| desk-play-v0, pairs cut"]


def test_one_seed_has_no_deviation(tmp_path, capsys):
    _write(tmp_path, "\n".join(line for line in EVALS.splitlines() if ",cta,1," not in line))
    assert run(["scores", str(tmp_path), "--markdown"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("| 40.0 |")


def _write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.csv").write_text(text)
