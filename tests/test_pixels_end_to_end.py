"""The agents of the paper's pixel table and GCIVL on images: they train, act, and come back from disk."""

import numpy as np
import pytest

import cta
from cta.agents.policy import Policy
from cta.cli import run
from cta.evaluation import Evaluator

DRAWN, RENDERED = "visual-desk-play-v0", "visual-cube-single-play-v0"
CASES = [(DRAWN, agent) for agent in ("gcivl", "hiql", "hiql-dual", "hiql-analogy", "cta")]
CASES += [pytest.param(RENDERED, "gcivl-dual", marks=pytest.mark.gl)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision lowered"),
]


@pytest.mark.parametrize(("name", "agent"), CASES)
def test_train_act_reload(name, agent, tmp_path):
    words = ["data", "generate", name, "--episodes", "2", "--episode-steps", "12", "--workers", "1"]
    assert run([*words, "--out", str(tmp_path)]) == 0
    file = tmp_path / f"{name}.npz"
    settings = {"batch_size": 2, "hidden": (16,), "p_aug": 0.5}
    trained = cta.train(
        str(file),
        agent=agent,
        steps=2,
        log_interval=2,
        eval_interval=0,
        run_dir=str(tmp_path / "run"),
        agent_settings=settings,
        quiet=True,
    )
    again = cta.Run(trained.path)
    _, (networks,) = again.networks()
    with Evaluator(name, workers=1, max_episode_steps=2) as evaluator:
        (result,) = evaluator.run(lambda slots: Policy(again.agent, networks), run_seed=0, tasks=(1,), episodes=1)
    assert result.steps == 2
    data = cta.TrajectoryDataset.from_npz(file)
    assert data.observations.dtype == np.uint8
    action = again.policy()(data.observations[0], data.observations[9])
    np.testing.assert_array_equal(action, trained.policy()(data.observations[0], data.observations[9]))
    assert action.shape == (data.action_dim,)
