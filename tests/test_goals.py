"""The goal sampler: every kind of goal in its proportion and range, never across an episode."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cta.config import AgentConfig, TwoLevelConfig
from cta.data import TrajectoryDataset
from cta.goals import GoalMix, RowTable, flat_rows, gather, mixed_rows, random_rows, trajectory_rows, two_level_rows

N = 40_000


def table_of(lengths):
    rows = sum(lengths)
    data = TrajectoryDataset.from_arrays(
        np.arange(rows, dtype=np.float32)[:, None], np.zeros((rows, 1), np.float32), episode_lengths=lengths, name="t"
    )
    return data, RowTable(jnp.asarray(data.valid_rows), jnp.asarray(data.goal_limits))


def episode_of(lengths, rows):
    return np.searchsorted(np.cumsum(lengths), rows, side="right")


LENGTHS = [5, 60, 2, 200]
DATA, TABLE = table_of(LENGTHS)
LAST_VALID = np.cumsum(LENGTHS) - 2


def test_rows_are_uniform_over_those_with_a_successor():
    rows = np.asarray(random_rows(jax.random.key(0), TABLE, N))
    counts = np.bincount(rows, minlength=sum(LENGTHS))
    assert not counts[np.cumsum(LENGTHS) - 1].any()
    assert stats.chisquare(counts[DATA.valid_rows]).pvalue > 1e-4


@given(st.lists(st.integers(2, 30), min_size=1, max_size=6), st.booleans(), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_trajectory_goals_stay_in_the_episode(lengths, geometric, seed):
    _, table = table_of(lengths)
    keys = jax.random.split(jax.random.key(seed))
    rows = random_rows(keys[0], table, 64)
    goals = np.asarray(trajectory_rows(keys[1], table, rows, geometric, 0.9))
    rows = np.asarray(rows)
    last = (np.cumsum(lengths) - 2)[episode_of(lengths, rows)]
    assert np.all(goals >= np.minimum(rows + 1, last))
    assert np.all(goals <= last)


def test_geometric_offsets():
    start = sum(LENGTHS[:3])
    rows = jnp.full(N, start)
    offsets = np.asarray(trajectory_rows(jax.random.key(1), TABLE, rows, True, 0.9)) - start
    # P(G = n) = 0.1·0.9^(n−1); everything beyond 30 pooled
    edges = np.arange(1, 31)
    expected = 0.1 * 0.9 ** (edges - 1)
    counts = np.array([np.sum(offsets == n) for n in edges] + [np.sum(offsets > 30)])
    assert offsets.min() == 1
    assert stats.chisquare(counts, N * np.append(expected, 0.9**30)).pvalue > 1e-4


def test_geometric_offsets_are_clipped_to_the_end():
    start = sum(LENGTHS[:1])
    goals = np.asarray(trajectory_rows(jax.random.key(2), TABLE, jnp.full(N, start), True, 0.99))
    # 58 valid steps remain: P(clipped) = P(G ≥ 58) = 0.99^57
    assert abs(np.mean(goals == LAST_VALID[1]) - 0.99**57) < 0.01


def test_uniform_goals_reach_both_ends_at_half_weight():
    start = LAST_VALID[3] - 11  # candidates start+1 … start+11, the two ends half as likely
    goals = np.asarray(trajectory_rows(jax.random.key(3), TABLE, jnp.full(N, start), False, 0.9))
    counts = np.bincount(goals - start, minlength=12)[1:]
    weights = np.r_[0.5, np.ones(9), 0.5] / 10
    assert stats.chisquare(counts, N * weights).pvalue > 1e-4


def test_last_valid_row_is_its_own_goal():
    rows = jnp.asarray(LAST_VALID)
    for geometric in (True, False):
        np.testing.assert_array_equal(trajectory_rows(jax.random.key(4), TABLE, rows, geometric, 0.9), LAST_VALID)


@pytest.mark.parametrize("mix", [(0.2, 0.5, 0.3), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_goal_kinds_have_their_frequency(mix):
    start = sum(LENGTHS[:3]) + 20
    goals = np.asarray(mixed_rows(jax.random.key(5), TABLE, jnp.full(N, start), GoalMix(*mix, True), 0.9))
    valid = len(DATA.valid_rows)
    later = np.arange(start + 1, LAST_VALID[3] + 1)
    by_chance = mix[2] / valid
    assert abs(np.mean(goals == start) - (mix[0] + by_chance)) < 0.01
    assert abs(np.mean(np.isin(goals, later)) - (mix[1] + by_chance * len(later))) < 0.01
    assert abs(np.mean(goals < start) - by_chance * np.sum(DATA.valid_rows < start)) < 0.01


def test_two_level_rows():
    config = TwoLevelConfig(batch_size=N)
    rows = {k: np.asarray(v) for k, v in two_level_rows(jax.random.key(6), TABLE, config, 7).items()}
    i, last = rows["observations"], LAST_VALID[episode_of(LENGTHS, rows["observations"])]
    np.testing.assert_array_equal(rows["next_observations"], i + 1)
    np.testing.assert_array_equal(rows["low_actor_goals"], np.minimum(i + 7, last))
    high = rows["high_actor_goals"]
    assert np.all((high >= np.minimum(i + 1, last)) & (high <= last))
    np.testing.assert_array_equal(rows["high_actor_targets"], np.minimum(i + 7, high))


def test_subgoals_of_any_distance_stay_in_the_episode():
    """The row so many steps ahead is beyond 32 bits."""
    config = replace(TwoLevelConfig(batch_size=500), subgoal_steps=2**31 - 1)
    config.check()
    rows = {k: np.asarray(v) for k, v in two_level_rows(jax.random.key(6), TABLE, config, 2**31 - 1).items()}
    last = LAST_VALID[episode_of(LENGTHS, rows["observations"])]
    np.testing.assert_array_equal(rows["low_actor_goals"], last)
    np.testing.assert_array_equal(rows["high_actor_targets"], rows["high_actor_goals"])


def test_random_high_goals_aim_at_the_low_goal():
    config = replace(TwoLevelConfig(batch_size=2000), actor_p_randomgoal=1.0, actor_p_trajgoal=0.0)
    rows = {k: np.asarray(v) for k, v in two_level_rows(jax.random.key(7), TABLE, config, 7).items()}
    np.testing.assert_array_equal(rows["high_actor_targets"], rows["low_actor_goals"])
    assert len(np.unique(episode_of(LENGTHS, rows["high_actor_goals"]))) == len(LENGTHS)


def test_gather_rewards_only_the_row_itself():
    rows = flat_rows(jax.random.key(8), TABLE, AgentConfig(batch_size=4000))
    batch = gather(jnp.asarray(DATA.observations), jnp.asarray(DATA.actions), rows)
    same = np.asarray(batch["value_goals"] == batch["observations"])[:, 0]
    np.testing.assert_array_equal(batch["rewards"], same - 1.0)
    np.testing.assert_array_equal(batch["masks"], 1.0 - same)
    np.testing.assert_array_equal(batch["next_observations"], batch["observations"] + 1)
    assert 0.15 < same.mean() < 0.25


def test_large_indices_stay_exact():
    # Beyond 2^24 float32 cannot hold every index; the sampler must still hit single rows.
    big = 20_000_000
    table = RowTable(jnp.arange(big, big + 9), jnp.full(big + 10, 0).at[big:].set(big + 8))
    goals = np.asarray(trajectory_rows(jax.random.key(9), table, jnp.full(2000, big), False, 0.9))
    assert set(np.unique(goals)) == set(range(big + 1, big + 9))
