"""CTA learns: three thousand steps on the desk reach far more than a broken agent would."""

import subprocess
import sys

import pytest

from cta.experiment import Run


@pytest.mark.slow
def test_cta_learns_on_the_desk(tmp_path):
    words = ["train", "--dataset", "desk-play-v0", "--seeds", "1", "--steps", "3000", "--eval-interval", "3000"]
    command = [sys.executable, "-m", "cta", *words, "--eval-episodes", "12", "--run-dir", str(tmp_path / "run")]
    subprocess.run(command, check=True, timeout=500)
    (score,) = Run(tmp_path / "run").scores().values()
    assert score > 0.2
