"""`cta theory` through the real command line."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

import cta
from cta.cli import run
from cta.config import DualConfig


def test_cli_report_prints_the_facts_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", "--no-bridge"]) == 0
    text = capsys.readouterr().out
    for fact in ("12/16", "3872/4096", "constant × analogy", "core rank 8/8", "theory report in"):
        assert fact in text


def test_cli_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "figures"
    before = dict(matplotlib.rcParams)
    assert run(["theory", "--no-bridge", "--out", str(out)]) == 0
    assert dict(matplotlib.rcParams) == before  # whoever draws next has their own style
    names = {path.stem for path in out.iterdir()}
    assert names == {"fields", "surrogate_fields", "spectra", "completion", "lights"}
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in out.iterdir())
    assert str(out / "fields.png").split("/")[-1] in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, complaint",
    [
        (["--gamma", "1.5"], "outside (0, 1)"),
        (["--expectile", "0"], "--expectile must lie in (0, 1)"),
        (["--seeds", "0"], "at least 1"),
        (["--run", "no-such-run"], "no-such-run"),
    ],
)
def test_cli_bad_input_is_one_line(argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", *argv]) == 1
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_cli_out_must_not_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert run(["theory", "--out", str(file)]) == 1
    assert "is a file, give a folder" in capsys.readouterr().err


def test_cli_without_the_bridge_needs_no_jax() -> None:
    code = (
        "import sys; from cta.cli import run; run(['theory', '--no-bridge']); "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("agent", "measured"), [("gcivl-dual", True), ("hiql", False), ("gcbc", False)])
def test_cli_measures_runs_with_a_dual_representation(
    agent: str, measured: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden": (8,), "batch_size": 8}
    if measured:
        small["dual"] = DualConfig(hidden=(8,), dim=4)
    path = tmp_path / "run"
    settings = {"steps": 2, "eval_interval": 0, "checkpoint_interval": 0, "run_dir": str(path), "quiet": True}
    cta.train("desk-play-v0", agent=agent, agent_settings=small, **settings)
    capsys.readouterr()
    assert run(["theory", "--run", str(path)]) == (0 if measured else 1)
    said = capsys.readouterr()
    if measured:
        assert "gcivl-dual, seed 0, step 2" in " ".join(said.out.split()) and "drawer" in said.out
    else:
        assert f"agent '{agent}' has no dual representation" in said.err
