"""Weights & Biases: the real package where it is installed, without a connection; and what it may refuse."""

import sys
from types import SimpleNamespace

import pytest

from cta.errors import CtaError
from cta.experiment.console import WandbLog


def test_each_seed_is_a_run_on_disk(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log = WandbLog(tmp_path / "run", {"agent": "cta"}, (0, 3), None)
    for seed in (0, 3):
        log.scalars(seed, 10, {"training/loss": 1.0})
    log.close()
    assert len(list(tmp_path.rglob("*-seed0.wandb"))) == len(list(tmp_path.rglob("*-seed3.wandb"))) == 1


def test_a_refusal_gets_a_line_that_says_what_to_do(tmp_path, monkeypatch):
    class Refused(Exception):
        pass

    def init(**options):
        raise Refused("No API key configured. Use `wandb login` to log in.\nand much more")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Error=Refused, init=init))
    with pytest.raises(CtaError) as found:
        WandbLog(tmp_path / "run", {}, (0,), None)
    assert str(found.value) == (
        "Weights & Biases: No API key configured. Use `wandb login` to log in; "
        "without a connection, set WANDB_MODE=offline"
    )


def test_without_the_package_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(CtaError, match=r"pip install 'cta\[wandb\]'"):
        WandbLog(tmp_path / "run", {}, (0,), None)
