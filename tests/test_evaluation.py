"""Episodes, scores and the evaluator on the embedded worlds."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from cta.config import RunConfig
from cta.envs.desk import WORLDS, decode
from cta.errors import CtaError
from cta.evaluation import EpisodeResult, Evaluator, episode_seed, scores
from cta.evaluation import evaluator as evaluator_module
from cta.experiment.scoring import policy_maker
from cta.units import UNKNOWN
from tiny_agents import SPEC, tiny

DESK = WORLDS["desk"]


def pull_the_tray(slots: int):
    """A memoryless policy for task 1: go to the tray's handle, close, pull to the right."""

    def policy(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
        assert observations.shape == goals.shape == (slots, 8) and first.shape == (slots,)
        state = decode(DESK, observations)
        handle = np.array([0.45, 0.4]) + np.asarray(state.parts)[:, 2:] * np.array([0.4, 0.0])
        offset = handle - state.gripper
        near = (np.abs(offset).max(axis=1) < 0.05)[:, None]
        pull = near & (np.asarray(state.grip) > 0.6)[:, None]
        move = np.where(pull, [1.0, 0.0], np.where(near, 0.0, np.clip(offset / 0.2, -1, 1)))
        return np.concatenate([move, np.where(near, 1.0, -1.0)], axis=1)

    return policy


def stand_still(slots: int):
    return lambda observations, goals, first: np.zeros((slots, 3))


def test_seeds_are_a_function_of_their_four_numbers() -> None:
    seeds = {episode_seed(*key) for key in np.ndindex(2, 3, 5, 10)}
    assert len(seeds) == 300
    assert episode_seed(0, 1, 2, 3) == episode_seed(0, 1, 2, 3) != episode_seed(0, 1, 3, 2)


def test_an_able_policy_succeeds_and_an_idle_one_runs_into_the_limit() -> None:
    calls = []
    with Evaluator("desk-play-v0") as evaluator:
        results = evaluator.run(
            pull_the_tray,
            run_seed=0,
            tasks=(2, 1),
            episodes=20,
            progress=lambda done, total: calls.append((done, total)),
        )
        assert [(result.task, result.episode) for result in results] == [(t, e) for t in (1, 2) for e in range(20)]
        assert scores(results) == {1: (20, 20), 2: (20, 0)}
        assert all(3 <= result.steps < 15 for result in results[:20])
        assert {result.steps for result in results[20:]} == {80}
        assert results[3].seed == episode_seed(0, 0, 1, 3)
        assert calls[-1] == (40, 40) and [done for done, _ in calls] == sorted({done for done, _ in calls})
        assert scores(evaluator.run(stand_still, run_seed=0, episodes=2)) == dict.fromkeys(range(1, 6), (2, 0))
        assert evaluator.task_names[0] == "task1_tray"


def test_results_do_not_depend_on_the_number_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    with Evaluator("desk-play-v0", max_episode_steps=12) as evaluator:
        together = evaluator.run(pull_the_tray, run_seed=3, tasks=(1, 3), episodes=15)
        monkeypatch.setattr(evaluator_module, "DESK_SLOTS", 7)
        queued = evaluator.run(pull_the_tray, run_seed=3, tasks=(1, 3), episodes=15)
        other = evaluator.run(pull_the_tray, run_seed=4, tasks=(1, 3), episodes=15)
    assert together == queued
    assert {result.success for result in together} == {True, False}
    assert [result.steps for result in other] != [result.steps for result in queued]


def test_first_marks_the_beginning_of_every_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "DESK_SLOTS", 3)
    firsts: list[np.ndarray] = []

    def make_policy(slots: int):
        able = pull_the_tray(slots)

        def policy(observations, goals, first):
            # Only the start has its tray exactly shut, its gripper exactly open and its bits at 1, 1.
            firsts.append(first)
            state = decode(DESK, observations[first])
            assert np.all(np.asarray(state.parts)[:, 2] == 0) and np.all(np.asarray(state.grip) == 0)
            return able(observations, goals, first)

        return policy

    Evaluator("desk-play-v0").run(make_policy, run_seed=0, tasks=(1,), episodes=8)
    assert np.sum(firsts) == 8
    assert firsts[0].all() and not firsts[1].any()


def test_bad_policies_are_told_in_one_line() -> None:
    evaluator = Evaluator("desk-play-v0")
    with pytest.raises(CtaError, match=r"shape \(5, 2\); this world needs \(5, 3\)"):
        evaluator.run(lambda slots: lambda *_: np.zeros((slots, 2)), run_seed=0, episodes=1)
    with pytest.raises(CtaError, match="diverged"):
        evaluator.run(lambda slots: lambda *_: np.full((slots, 3), np.nan), run_seed=0, episodes=1)
    with pytest.raises(CtaError, match="tasks 1 to 5, not 9"):
        evaluator.run(stand_still, run_seed=0, tasks=(9,), episodes=1)
    with pytest.raises(CtaError, match="at least one task"):
        evaluator.run(stand_still, run_seed=0, episodes=0)


def test_scores_count_by_task() -> None:
    results = [EpisodeResult(2, 0, 7, True, 3), EpisodeResult(1, 0, 8, False, 9), EpisodeResult(2, 1, 9, False, 9)]
    assert scores(results) == {1: (1, 0), 2: (2, 1)}


def test_temperature_noise_and_seeds_of_a_run_reach_its_policy() -> None:
    agent = tiny("gcbc")
    networks = agent.init(jax.random.key(0), SPEC)
    config = RunConfig(agent.config, agent_name="gcbc", dataset="desk-play-v0")
    seen = np.random.default_rng(0).normal(size=(2, 4, SPEC.observation_dim)).astype(np.float32)

    def actions(seed: int = 0, **changes: float) -> np.ndarray:
        return policy_maker(agent, networks, UNKNOWN, replace(config, **changes), seed)(4)(*seen, np.ones(4, bool))

    plain = actions()
    np.testing.assert_array_equal(actions(seed=1, eval_seed=1), plain)  # nothing is drawn
    for how in ({"eval_temperature": 1.0}, {"eval_gaussian": 0.5}):
        drawn = actions(**how)
        assert np.abs(drawn - plain).mean() > 0.05
        np.testing.assert_array_equal(actions(**how), drawn)
        for other in (actions(seed=1, **how), actions(eval_seed=1, **how)):
            assert np.abs(other - drawn).mean() > 0.05
