"""An agent from outside the package: the page that explains it, executed, and the table of agents."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from cta.agents import REGISTRY, find
from cta.cli.agents import main
from cta.envs.desk_play import generate_play
from cta.errors import CtaError
from cta.experiment import run_config
from cta.training.learner import Learner, spec_of, to_device
from cta.training.seeds import SeedGroup

PAGE = Path(__file__).parents[1] / "docs" / "new-agent.md"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The page's code as `filtered.py` in the current folder."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(code.splitlines()) < 60
    (tmp_path / "filtered.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "filtered:FilteredCloning"


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
    assert main(["--agent", module]) == 0
    assert "1,710,087" in capsys.readouterr().out
    assert main([]) == 0
    table = capsys.readouterr().out
    for count in ("5,395,913", "6,821,961", "2,810,907", "2,285,576"):
        assert count in table


def test_the_table_has_every_registered_agent(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setitem(REGISTRY, "newcomer", replace(REGISTRY["gcbc"], name="newcomer"))
    assert main([]) == 0
    assert "newcomer" in capsys.readouterr().out


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
