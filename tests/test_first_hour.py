"""What a new user stumbles over: names, messages, waiting without a word, settings that lead nowhere."""

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import cta
from cta.analysis.pairs import MEASURES
from cta.cli import analogies, evaluate, run
from cta.cli.completion import help_pages
from cta.cli.train import parse
from cta.config import to_dict
from cta.data.dataset import count_transitions
from cta.errors import CtaError
from cta.experiment import console, run_config
from cta.experiment.trainer import LONG_S, Trainer

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_package_shows_its_names():
    assert {"train", "resume", "Run", "load_policy", "TrajectoryDataset", "CtaError"} <= set(dir(cta))


def test_doctor_needs_no_home(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert run(["doctor"]) == 0
    assert "disk free" in capsys.readouterr().out


def test_downloads_go_where_they_are_told(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("cta.cli.data.download", lambda name, folder, **options: asked.update(options, to=folder) or [])
    assert run(["data", "download", "scene-play-v0", "--out", str(tmp_path)]) == 0
    assert asked["to"] == tmp_path and f"--out {tmp_path}" in asked["advice"]


def test_a_table_without_our_results_says_where_it_looked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["table", "main", "--ours"]) == 0
    assert f"looked in {tmp_path / 'results'}; --results DIR" in capsys.readouterr().err


def test_wandb_is_missed_before_anything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run(["train", "--wandb", "--run-dir", str(tmp_path / "run")]) == 1
    assert "pip install 'cta[wandb]'" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_timeouts_end_episodes(tmp_path):
    rows = {"observations": np.zeros((12, 2)), "actions": np.zeros((12, 1))}
    ends = {"terminals": np.arange(12) == 11, "timeouts": np.isin(np.arange(12), (3, 7))}
    np.savez(tmp_path / "d4rl.npz", **rows, **ends)
    data = cta.TrajectoryDataset.from_npz(tmp_path / "d4rl.npz", info=True)
    assert data.episode_ends.tolist() == [3, 7, 11] and not data.info
    assert count_transitions(tmp_path / "d4rl.npz") == 9
    np.savez(tmp_path / "odd.npz", **rows, **{**ends, "timeouts": np.zeros((12, 1), bool)})
    with pytest.raises(CtaError, match="timeouts"):
        cta.TrajectoryDataset.from_npz(tmp_path / "odd.npz")
    assert count_transitions(tmp_path / "odd.npz") is None


def test_small_networks_on_any_dataset():
    paper, small = (run_config("cta", "scene-play-v0", size=size) for size in ("paper", "small"))
    desk = run_config("cta", "desk-play-v0")
    assert small.agent.hidden == desk.agent.hidden != paper.agent.hidden
    assert (small.agent.dual.hidden, small.agent.trunk) == (desk.agent.dual.hidden, desk.agent.trunk)
    # What belongs to the world stays: how far ahead to look, and how long to train.
    assert (small.agent.discount, small.agent.subgoal_steps) == (paper.agent.discount, paper.agent.subgoal_steps)
    assert small.steps == paper.steps
    assert to_dict(run_config("cta", "desk-play-v0", size="small").agent) == to_dict(desk.agent)
    typed = parse(["--dataset", "my.npz", "--size", "small", "--agent.batch-size", "7"])
    assert typed.agent.batch_size == 7 and typed.agent.hidden == desk.agent.hidden


def test_printed_settings_can_be_trained_with(tmp_path, capsys):
    words = ["--dataset", "scene-play-v0", "--agent", "hiql", "--agent.subgoal-steps", "7", "--steps", "123"]
    assert run(["train", *words, "--print-config"]) == 0
    file = tmp_path / "mine.json"
    file.write_text(capsys.readouterr().out)
    assert parse(["--config", str(file)]) == parse(words)
    assert parse(["--config", str(file), "--seeds", "3"]) == replace(parse(words), seeds=(0, 1, 2))
    for wrong, said in [
        (["--config", str(tmp_path / "none.json")], "none.json"),
        (["--config", str(file), "--agent", "cta"], "agent is hiql, not cta"),
    ]:
        assert run(["train", *wrong]) == 1
        assert said in capsys.readouterr().err
    file.write_text(json.dumps({**json.loads(file.read_text()), "stepz": 3}))
    assert run(["train", "--config", str(file)]) == 1
    assert "unknown setting 'stepz'" in capsys.readouterr().err


def test_a_log_is_never_silent_for_long(monkeypatch, capsys):
    monkeypatch.setattr(console, "SILENCE_S", 0.05)
    with console.RunConsole() as shown:
        shown.waiting("compiling")
        time.sleep(0.3)
        shown.steps(20, 100, 5.0)
        time.sleep(0.3)
    said = capsys.readouterr().err
    assert "compiling, 0 s so far" in said and "training: step 20 of 100, 0 s so far" in said
    with console.RunConsole(quiet=True) as shown:
        shown.waiting("compiling")
        time.sleep(0.2)
    assert not capsys.readouterr().err


def test_the_bar_does_not_call_the_time_gone_the_time_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with console.RunConsole() as shown:
        shown.waiting("compiling")
        shown._progress.refresh()
        shown.steps(20, 100, 2.0)
        shown._progress.refresh()
    said = capsys.readouterr().err
    assert "compiling" in said and "left compiling" not in said and "0:00:40 left" in said


@pytest.mark.parametrize(
    ("size", "left", "advised"), [("paper", LONG_S + 1, True), ("paper", 60.0, False), ("small", LONG_S + 1, False)]
)
def test_long_trainings_on_a_cpu_are_told_of_small_networks(size, left, advised, capsys):
    trainer = SimpleNamespace(config=SimpleNamespace(size=size), console=console.RunConsole(), _rate=10.0)
    Trainer._estimate(trainer, left)  # pyright: ignore[reportArgumentType]
    said = capsys.readouterr().err
    assert "of training at 10 steps/s" in said and ("--size small" in said) is advised


def test_evaluation_in_a_pipe_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "LINE_SECONDS", 0.0)
    with evaluate.episode_bar() as progress:
        progress(SimpleNamespace(label="seed 0"), 30, 250)
    assert capsys.readouterr().err == "seed 0: 30 of 250 episodes\n"


def test_a_finished_run_is_not_compiled_again(tmp_path, capsys):
    rng = np.random.default_rng(0)
    arrays = {"observations": rng.normal(size=(40, 3)), "actions": rng.uniform(-1, 1, (40, 2))}
    small = {"hidden": (8,), "batch_size": 8}
    data = cta.TrajectoryDataset.from_arrays(**arrays, episode_lengths=[20, 20], name="mine")
    cta.train(data, agent="gcbc", steps=4, run_dir=tmp_path / "run", agent_settings=small)
    assert "compiling" in capsys.readouterr().err
    assert run(["resume", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "resuming at step 4" in said and "compiling" not in said


@pytest.mark.parametrize("name", ["own_trajectories", "compare_agents"])
def test_examples_run(name, tmp_path, monkeypatch, capsys):
    code = (EXAMPLES / f"{name}.py").read_text()
    quick = {
        "100, 51, 5_000": "4, 21, 4",
        '("cta", "hiql"), 2, 3_000': '("gcbc",), 1, 4',
        "steps=STEPS)": "steps=4, eval_episodes=1)",
        'agent="cta"': 'agent="gcbc"',  # compiled in a tenth of the time
        ', agent_settings={"subgoal_steps": 5}': "",
    }
    for slow, fast in quick.items():
        code = code.replace(slow, fast)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    said = capsys.readouterr().out
    assert "after 40 steps" in said if name == "own_trajectories" else (tmp_path / "page" / "index.html").exists()


def test_purity_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shares = {f"{name}_%": 34.5 for name in (*MEASURES, "purity_shuffled_labels")}
    spread = {f"{name}_sd": 10.1 for name in (*MEASURES, "purity_shuffled_labels")}
    rows = [{"representation": "η(α∨)", "network": "untrained", "seeds": 3, **shares, **spread}]
    tasks = [{"task": "unlock the drawer", "queries": 1234, **{f"{name}_%": 34.5 for name in MEASURES}}]
    about = {"purity": rows, "purity_by_task": tasks, "among": "pairs of other episodes", "representation": "α∨"}
    analogies._print_purity(Console(), about)
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, said.splitlines())) <= 80 and said.count("34.5 ± 10.1") >= 3 and "across contexts" in said


def test_notes_below_a_table_fit_80_columns_and_are_whole_in_a_pipe(monkeypatch, capsys):
    words = ["table", "main", "--ours", "--results", str(EXAMPLES.parent / "results")]
    assert run(words) == 0
    piped = capsys.readouterr().out
    assert "the interval of the difference is Welch's, over the seeds of both\n" in piped
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert run(words) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 80 and "Welch's, over the seeds of both" in " ".join(shown.split())


def test_datasets_fit_80_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["data", "list", "--dataset-dir", str(tmp_path)]) == 0
    table = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()[1:-1]
    assert len(table) > 30 and max(map(len, table)) <= 80
    assert "visual-puzzle-4x6-play-v0" in "".join(table) and "no room" not in "".join(table)


def test_records_are_described_in_words(tmp_path, capsys):
    assert run(["data", "generate", "lights-3x3-play-v0", "--out", str(tmp_path), "--episodes", "2"]) == 0
    capsys.readouterr()
    assert run(["data", "info", str(tmp_path / "lights-3x3-play-v0.npz")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"versions: cta [\d.]+, jax [\d.]+", said) and "{" not in said


@pytest.fixture(scope="module")
def pages():
    return dict(help_pages())


def test_help_says_each_default_once(pages):
    assert len(pages) > 25
    for words, page in pages.items():
        plain = re.sub(r"[\s│]+", " ", page)
        assert "default: None" not in plain and "default: )" not in plain, words
        assert not re.search(r"\(default: [^)]*\)\.? \(default", plain), words
    assert "(default: the newest)" in re.sub(r"[\s│]+", " ", pages["export",])


def test_the_list_of_commands_fits_80_columns(capsys):
    assert run(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_lines_reach_a_pipe_when_they_are_printed():
    ask = "import sys; from cta import cli; cli.run = lambda words: print(sys.stdout.line_buffering) or 0; cli.main()"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        script = tmp_path_factory.mktemp("completion") / "cta.sh"
        with script.open("w") as file:
            patch.setattr(sys, "stdout", file)
            assert run(["completion"]) == 0
    return script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("cta tra", ["train"]),
        ("cta data g", ["generate"]),
        ("cta ooc study --see", ["--seeds"]),
        ("cta train --agent gcivl-", ["gcivl-dual", "gcivl-analogy"]),
        ("cta train --agent.subgoal-s", ["--agent.subgoal-steps"]),
        ("cta train --dataset lights-3x3", ["lights-3x3-play-v0"]),
        ("cta train --run-dir ", []),
    ],
)
def test_bash_completes(completion, typed, offered):
    words = typed.split(" ")
    ask = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cta; echo "${COMPREPLY[@]}"; complete -p cta'
    said = subprocess.run(["bash", "-c", ask, completion, *words], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[0].split() == offered and "-F _cta cta" in said.stdout and not said.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(completion):
    keys = """zmodload zsh/zpty
zpty shell "PS1='> ' zsh -f -i"
zpty -w shell "source $1; echo READY"
zpty -r -m shell seen '*READY*READY*'
zpty -w -n shell $'cta ooc stu\t--see\t'
zpty -r -m shell seen '*study*--seeds*' && echo completed"""
    said = subprocess.run(["zsh", "-fc", keys, "zsh", completion], capture_output=True, text=True, timeout=60)
    assert "completed" in said.stdout


def test_a_dry_run_says_whose_speed_it_quotes(tmp_path, capsys):
    plan = EXAMPLES.parent / "plans" / "paper-core.toml"
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert run(["reproduce", str(plan), *folders, "--budget", "28m", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"cta on puzzle-4x4-play-v0: .*of training on NVIDIA H200", said)
    assert "not in this budget" in said and "this machine (cpu) is not measured" in said
