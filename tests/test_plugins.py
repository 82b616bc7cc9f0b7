"""An agent from outside the package: the page that explains it, executed, and the table of agents."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from cta import plugins
from cta.agents import REGISTRY, find, paper_names
from cta.cli import run
from cta.envs.desk_play import generate_play
from cta.errors import CtaError
from cta.experiment import Run, run_config
from cta.training.learner import Learner, spec_of, to_device
from cta.training.seeds import SeedGroup

ROOT = Path(__file__).parents[1]
(CODE,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "new-agent.md").read_text(), re.S)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The page's code as `filtered.py` in the current folder."""
    (tmp_path / "filtered.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "filtered:FilteredCloning"
    sys.modules.pop("filtered", None)
    REGISTRY.pop("filtered", None)
    plugins.loaded.clear()


def test_the_pages_agent_trains(module):
    config = run_config(module, "desk-play-v0", agent_settings={"batch_size": 16, "hidden": (8,), "margin": 0.1}).agent
    train, _ = generate_play("desk", episodes=3, validation_episodes=1, episode_steps=20, seed=0)
    group = SeedGroup(Learner(find(module).build(config), spec_of(train), block=3), [0], to_device(train))
    before = group.networks()[0]
    group.run(3)
    (metrics,) = group.read_metrics(3)
    assert np.isfinite(metrics["total_loss"]) and 0 < metrics["actor/kept"] < 1
    changed = jax.tree.map(lambda a, b: bool(np.any(a != b)), before, group.networks()[0])
    assert all(any(jax.tree.leaves(part)) for part in changed.values())


def test_the_table_of_agents(module, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["agents", "--agent", module]) == 0
    assert "1,710,087" in capsys.readouterr().out
    assert run(["agents"]) == 0
    table = capsys.readouterr().out
    for count in ("5,395,913", "6,821,961", "2,810,907", "2,285,576"):
        assert count in table


def test_the_table_has_every_registered_agent(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setitem(REGISTRY, "newcomer", replace(REGISTRY["gcbc"], name="newcomer"))
    assert run(["agents"]) == 0
    assert "newcomer" in capsys.readouterr().out


def test_the_page_of_agents_shows_what_the_command_prints(capsys):
    assert run(["agents", "--markdown"]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = [line for line in (ROOT / "docs" / "agents.md").read_text().splitlines() if line.startswith("|")]
    assert set(shown) <= set(printed)
    assert {line.split("|")[1].strip() for line in shown[2:]} == set(paper_names().values())


def in_copy(folder, *words):
    """A command in the copy of the package in this folder."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "160"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_file_is_all_that_an_agent_needs(tmp_path):
    """Dropped into the package it is listed, trained and under contract."""
    assert len(CODE.splitlines()) < 60
    shutil.copytree(ROOT / "src" / "cta", tmp_path / "cta", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cta" / "agents" / "filtered.py").write_text(CODE)
    assert "filtered" in in_copy(tmp_path, "-m", "cta", "agents")
    small = ["--agent.batch-size", "16", "--agent.hidden", "8", "--agent.margin", "0.1", "--eval-interval", "0"]
    in_copy(tmp_path, "-m", "cta", "train", "--agent", "filtered", *small, "--steps", "2", "--run-dir", "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["agent"]["margin"] == 0.1
    assert (tmp_path / "run" / "checkpoints" / "2").is_dir()
    contract = [ROOT / "tests" / "test_agents_contract.py", "-k", "filtered", "-p", "no:cacheprovider", "-q"]
    assert re.search(r"\d\d? passed", in_copy(tmp_path, "-m", "pytest", *contract))


def test_installed_packages_bring_agents_and_broken_ones_are_named(tmp_path):
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[cta.agents]\nfiltered = filtered\nbroken = broken\n")
    (tmp_path / "filtered.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')")
    shown = "from cta.agents import REGISTRY, plugins; print(*REGISTRY, *plugins.loaded)"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", shown], env=environment, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == ["filtered", "filtered", "broken"], done.stderr
    assert "the agents of broken cannot be loaded (RuntimeError: not today)" in done.stderr


COMMANDS = ["resume RUN", "evaluate RUN", "export RUN --out out", "analogies RUN", "ooc evaluate RUN"]


def test_a_name_in_a_run_imports_nothing(module, tmp_path, capfd):
    """A run of the page's agent, as a stranger would get it: the code beside it is imported if the command names it."""
    small = ["--agent.batch-size", "8", "--agent.hidden", "8", "--eval-interval", "0", "--steps", "2"]
    assert run(["train", "--agent", module, *small, "--run-dir", "RUN"]) == 0
    sys.modules.pop("filtered")
    REGISTRY.pop("filtered")
    plugins.loaded.clear()
    for command in COMMANDS:
        assert run(command.split()) == 1
        line = f"RUN/config.json: agent {module} is code of its own; to run it, give --agent {module} too"
        assert line in capfd.readouterr().err
    with pytest.raises(CtaError, match=f"give --agent {module} too"):
        Run("RUN")
    assert "filtered" not in sys.modules and not (tmp_path / "out").exists()
    assert run(["resume", "RUN", "--agent", "cta"]) == 1
    assert f"this run's agent is {module}, not cta" in capfd.readouterr().err

    assert run(["export", "RUN", "--out", "out", "--agent", module]) == 0
    plugins.loaded.clear()
    assert Run("RUN", agent=module).policy().step == 2
    plugins.loaded.clear()
    assert run(["resume", "RUN", "--steps", "1", "--agent", module]) == 1
    assert run(["resume", "RUN", "--steps", "4", "--agent", module]) == 0
    assert json.loads((tmp_path / "RUN" / "status.json").read_text())["state"] == "finished"


def test_a_folder_brings_no_modules(tmp_path):
    """A file of the name of a module, in the folder that a command is given in, is not imported by its processes."""
    (tmp_path / "mujoco.py").write_text("open('ran', 'w')")
    (tmp_path / "threading.py").write_text("open('ran', 'w')")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*plugins.PYTHON, "-m", "cta", "doctor"], cwd=tmp_path, env=environment, check=True)
    assert not (tmp_path / "ran").exists()
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "packages").rglob("*.py")]
    begun = [path.name for path in files if "sys.executable" in path.read_text()]
    assert begun == ["plugins.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Agent", "cannot import no_such_module"),
        ("json:loads", "json has no class loads"),
        ("cta.agents.flat:Nobody", "has no class Nobody"),
    ],
)
def test_mistakes_get_one_clear_line(name, message):
    with pytest.raises(CtaError, match=message) as error:
        find(name)
    assert "\n" not in str(error.value)
