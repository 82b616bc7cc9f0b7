"""`cta theory` through the real command line."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from cta.cli import run


def test_cli_report_prints_the_facts_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", "--no-bridge"]) == 0
    text = capsys.readouterr().out
    for fact in ("12/16", "3872/4096", "constant × analogy", "core rank 8/8", "theory report in"):
        assert fact in text


def test_cli_draws_the_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "fields.png"
    before = dict(matplotlib.rcParams)
    assert run(["theory", "--no-bridge", "--figure", str(out)]) == 0
    assert dict(matplotlib.rcParams) == before  # whoever draws next has their own style
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 5000
    assert str(out) in capsys.readouterr().out
    assert run(["theory", "--no-bridge", "--figure", str(out.with_suffix(".svg"))]) == 0
    drawn = out.with_suffix(".svg").read_text()
    assert "</svg>" in drawn
    # Only where distances add up does the context not matter: one of the four rows of fields.
    assert drawn.count("<!-- difference: none -->") == 1 and drawn.count("<!-- difference: up to") == 3


@pytest.mark.parametrize(
    "argv, complaint",
    [
        (["--gamma", "1.5"], "outside (0, 1)"),
        (["--expectile", "0"], "--expectile must lie in (0, 1)"),
        (["--seeds", "0"], "at least 1"),
        (["--figure", "fields.gif"], "figures are written as .png, .pdf, .svg"),
    ],
)
def test_cli_bad_input_is_one_line(argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["theory", *argv]) == 1
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_cli_without_the_bridge_needs_no_jax() -> None:
    code = (
        "import sys; from cta.cli import run; run(['theory', '--no-bridge']); "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
