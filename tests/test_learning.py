"""CTA learns: three thousand steps on the desk reach far more than an untrained or a broken agent."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from cta.agents import find
from cta.agents.policy import Policy
from cta.envs.desk_play import generate_play
from cta.evaluation import Evaluator
from cta.presets import agent_preset
from cta.training.learner import Learner, spec_of, to_device
from cta.training.seeds import SeedGroup


def success(agent, networks):
    with Evaluator("desk-play-v0") as evaluator:
        results = evaluator.run(lambda slots: Policy(agent, networks), run_seed=0, episodes=60)
    return sum(result.success for result in results) / len(results)


def learn():
    train, _ = generate_play("desk")
    entry = find("cta")
    agent = entry.build(agent_preset(entry.config, "desk-play-v0"))
    group = SeedGroup(Learner(agent, spec_of(train), block=500), [0], to_device(train))
    assert success(agent, group.networks()[0]) < 0.05
    for _ in range(6):
        group.run(500)
    reached = success(agent, group.networks()[0])
    print(f"success after 3,000 steps: {reached:.0%} ({jax.default_backend()})")
    assert reached > 0.2


@pytest.mark.slow
def test_cta_learns_on_the_desk():
    """In a process of its own, as compiled for people: here computing takes longer than compiling."""
    environment = {**os.environ, "XLA_FLAGS": ""}
    command = [sys.executable, "-c", "from test_learning import learn; learn()"]
    done = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
