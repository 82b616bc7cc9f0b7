"""Commands of installed packages are listed, explained and run like ours, and harm nothing if they are broken."""

import sys
import tomllib
from pathlib import Path

import pytest

from cta import cli, plugins
from cta.cli import run
from cta.cli.completion import help_pages

ROOT = Path(__file__).parents[1]
GREET = '''
"""cta greet"""
from dataclasses import dataclass
from cta.validation import Count

@dataclass(frozen=True)
class Command:
    """Say a word."""

    word: str = "hello"
    """What to say."""
    times: Count = 1
    """How often."""

    def __call__(self):
        print(" ".join([self.word] * self.times))
        return 4 if self.word == "bye" else None
'''
SEVERAL = GREET + 'COMMANDS = {"once": Command}\ndel Command\n'
POINTS = """[cta.commands]
greet = greet_command
many = several_commands
broken = broken_command
empty = empty_command
train = greet_command
help = greet_command
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """An installed distribution with six entry points."""
    monkeypatch.setattr(plugins, "loaded", [])
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\nSummary: say a word\n")
    (about / "entry_points.txt").write_text(POINTS)
    (tmp_path / "greet_command.py").write_text(GREET)
    (tmp_path / "several_commands.py").write_text(SEVERAL)
    (tmp_path / "broken_command.py").write_text("raise RuntimeError('not\\ntoday')")
    (tmp_path / "empty_command.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("greet_command", "several_commands", "broken_command", "empty_command"):
        sys.modules.pop(name, None)


def test_an_installed_command_runs(mine, capsys):
    assert run(["greet", "--times", "2"]) == 0
    assert capsys.readouterr().out == "hello hello\n"
    assert run(["greet", "--word", "bye"]) == 4
    assert run(["many", "once", "--word", "one"]) == 0
    assert capsys.readouterr().out == "bye\none\n"
    assert plugins.loaded, "programs of a process with others' code are not kept"


def test_its_mistakes_are_told_like_ours(mine, capsys):
    assert run(["greet", "--times", "0"]) == 1
    assert capsys.readouterr().err == "cta greet: --times must be at least 1, not 0\n"
    assert run(["greet", "--wrod", "x"]) == 2
    assert "--word" in capsys.readouterr().err
    assert run(["gret"]) == 2
    assert "did you mean 'cta greet'?" in capsys.readouterr().err


def test_the_overview_lists_it_and_imports_nothing(mine, capsys):
    assert run(["--help"]) == run(["help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("  greet      say a word\n") == 2 and not shown.err
    assert "train an agent on a dataset" in shown.out and not plugins.loaded and "greet_command" not in sys.modules


def test_help_pages_and_completion_have_it_and_name_what_is_broken(mine, capsys):
    pages = dict(help_pages())
    said = capsys.readouterr().err.splitlines()
    assert "usage: cta greet" in pages["greet",] and "usage: cta many once" in pages["many", "once"]
    assert ("broken",) not in pages and ("empty",) not in pages and "usage: cta doctor" in pages["doctor",]
    assert said == [
        "notice: the installed command broken_command cannot be loaded (RuntimeError: not today)",
        "notice: the installed command empty_command cannot be loaded "
        "(AttributeError: it has neither Command nor COMMANDS nor main)",
    ]
    assert run(["completion"]) == 0
    script = capsys.readouterr().out
    assert "'greet '*) words='--help --times --word'" in script and " greet many" in script and "broken" not in script


def test_a_broken_one_is_one_line_and_others_work(mine, capsys):
    assert run(["broken"]) == 1
    wanted = "cta broken: the installed command broken_command cannot be loaded (RuntimeError: not today)\n"
    assert capsys.readouterr().err == wanted
    assert run(["greet"]) == run(["train", "--print-config"]) == 0
    assert not capsys.readouterr().err


def test_none_replaces_ours(mine, capsys):
    assert cli.load("train").__name__ == "cta.cli.train" and "train" not in cli.installed()
    assert run(["train", "--help"]) == 0
    assert "--agent.batch-size" in capsys.readouterr().out and cli.commands()["train"] == cli.COMMANDS["train"]


@pytest.mark.parametrize("name", cli.APART)
def test_a_package_of_ours_that_is_not_installed(name, monkeypatch, capsys):
    monkeypatch.setattr(cli, "installed", dict)
    assert run([name]) == run([name, "--help"]) == 2
    line = f"cta {name}: not installed; from a checkout: pip install --no-deps ./packages/{name}\n"
    assert capsys.readouterr().err == 2 * line
    assert run(["--help"]) == 0 and f"  {name} " not in capsys.readouterr().out


@pytest.mark.parametrize("name", cli.APART)
def test_our_packages_are_where_the_line_says(name):
    about = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())["project"]
    assert about["name"] == f"cta-{name}" and about["entry-points"] == {"cta.commands": {name: f"cta_{name}.command"}}
    assert cli.commands()[name] == about["description"], "installed anew after a change? (make install)"
    assert f"-e packages/{name}" in (ROOT / "Makefile").read_text()
