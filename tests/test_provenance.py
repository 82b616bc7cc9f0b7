"""The command that a record names can be typed again."""

import sys

import pytest

from cta import provenance
from cta.results.facts import scoring_facts


@pytest.mark.parametrize("program", ["/somewhere/bin/cta", "/somewhere/cta/__main__.py"])
def test_a_command_is_recorded_as_it_is_typed(monkeypatch, program):
    monkeypatch.setattr(sys, "argv", [program, "analogies", "my run", "--query", "open the drawer"])
    assert provenance.command() == "cta analogies 'my run' --query 'open the drawer'"


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [
        ("cta train --dataset '/data/my sets/x y.npz' --seeds 0,1", "cta train --dataset 'x y.npz' --seeds 0,1"),
        ("cta train --dataset '~/x.npz' --agent.hidden 8", "cta train --dataset x.npz --agent.hidden 8"),
        ("", ""),
        # Earlier versions wrote words without quotes.
        ("cta train --dataset ~/x.npz --agent.hidden 8", "cta train --dataset x.npz --agent.hidden 8"),
        ("cta train --dataset /data/x.npz --group O'Neill", "cta train --dataset x.npz --group O'Neill"),
        ("cta train --dataset /Anna's/x.npz --group O'Neill", "cta train --dataset x.npz --group O'Neill"),
    ],
)
def test_folders_are_left_out_of_a_command(monkeypatch, recorded, kept):
    monkeypatch.setattr(provenance, "command", lambda: recorded)
    assert scoring_facts(episodes=1, weights="float32", workers=1, eval_seed=0)["command"] == kept
