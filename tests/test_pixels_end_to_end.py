"""The agents of the paper's pixel table on rendered data: they train, act in the simulator, and come back from disk."""

import jax
import numpy as np
import pytest

import cta
from cta.agents.policy import Policy
from cta.cli import run
from cta.evaluation import Evaluator

NAME = "visual-cube-single-play-v0"
AGENTS = ("gcivl-dual", "hiql", "hiql-dual", "hiql-analogy", "cta")
pytestmark = [
    pytest.mark.gl,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision lowered"),
]


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Two steps on two rows: optimising the many encoders would take far longer than running them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frames")
    words = ["data", "generate", NAME, "--episodes", "2", "--episode-steps", "20", "--workers", "1"]
    assert run([*words, "--out", str(folder)]) == 0
    return folder / f"{NAME}.npz"


@pytest.mark.parametrize("agent", AGENTS)
def test_train_act_reload(agent, frames, tmp_path):
    settings = {"batch_size": 2, "hidden": (16,), "p_aug": 0.5}
    trained = cta.train(
        str(frames),
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
    with Evaluator(NAME, workers=1, max_episode_steps=2) as evaluator:
        (result,) = evaluator.run(lambda slots: Policy(again.agent, networks), run_seed=0, tasks=(1,), episodes=1)
    assert result.steps == 2
    data = cta.TrajectoryDataset.from_npz(frames)
    assert data.observations.dtype == np.uint8
    action = again.policy()(data.observations[0], data.observations[9])
    np.testing.assert_array_equal(action, trained.policy()(data.observations[0], data.observations[9]))
    assert action.shape == (5,)
