"""Drawing training rows and their goals: index arithmetic on the device, nothing else.

Rows are indices into the dataset; `end(i)` is the last row of i's episode that still has a successor, so a goal never
lies in another episode and the very last state of an episode is never a goal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from cta.config import AgentConfig

Rows = Int[Array, " batch"]


class RowTable(NamedTuple):
    """What the sampler needs to know of a dataset."""

    valid_rows: Int[Array, " transitions"]
    """Rows that have a successor."""
    goal_limits: Int[Array, " rows"]
    """end(i) of every row."""


class GoalMix(NamedTuple):
    """Probabilities of the three goal kinds, and how far ahead a trajectory goal lies."""

    current: float
    trajectory: float
    random: float
    geometric: bool


def value_mix(config: AgentConfig) -> GoalMix:
    """The mix of value goals."""
    c = config
    return GoalMix(c.value_p_curgoal, c.value_p_trajgoal, c.value_p_randomgoal, c.value_geom_sample)


def actor_mix(config: AgentConfig) -> GoalMix:
    """The mix of actor goals."""
    c = config
    return GoalMix(c.actor_p_curgoal, c.actor_p_trajgoal, c.actor_p_randomgoal, c.actor_geom_sample)


def random_rows(key: PRNGKeyArray, table: RowTable, count: int) -> Rows:
    """Uniform over the rows that have a successor, with replacement."""
    return table.valid_rows[jax.random.randint(key, (count,), 0, table.valid_rows.shape[0])]


def trajectory_rows(key: PRNGKeyArray, table: RowTable, rows: Rows, geometric: bool, discount: float) -> Rows:
    """Later rows of the same episode.

    Geometric: `min(i+G, end(i))`, G ~ Geometric(1−γ) on {1,2,…}. Uniform: the nearest row to a uniform point of
    [min(i+1, end(i)), end(i)], so the two ends are half as likely as the rows between them.
    """
    end = table.goal_limits[rows]
    if geometric:
        # Inverse transform on (0,1]; the cap keeps the sum inside 32 bits.
        u = 1.0 - jax.random.uniform(key, rows.shape)
        offset = 1 + jnp.minimum(jnp.floor(jnp.log(u) / jnp.log(discount)), 1e6).astype(rows.dtype)
        return jnp.minimum(rows + offset, end)
    # Measured back from the end: indices beyond 2^24 are not exact in float32, distances within an episode are.
    span = (end - jnp.minimum(rows + 1, end)).astype(jnp.float32)
    return end - jnp.round(span * jax.random.uniform(key, rows.shape)).astype(rows.dtype)


def mixed_rows(key: PRNGKeyArray, table: RowTable, rows: Rows, mix: GoalMix, discount: float) -> Rows:
    """Goals of the three kinds: trajectory or random first, then overwritten by the current row."""
    keys = jax.random.split(key, 4)
    far = trajectory_rows(keys[0], table, rows, mix.geometric, discount)
    anywhere = random_rows(keys[1], table, rows.shape[0])
    p_trajectory = mix.trajectory / max(1.0 - mix.current, 1e-12)
    goals = jnp.where(jax.random.uniform(keys[2], rows.shape) < p_trajectory, far, anywhere)
    return jnp.where(jax.random.uniform(keys[3], rows.shape) < mix.current, rows, goals)


def transition_rows(rows: Rows) -> dict[str, Rows]:
    """The rows of a transition itself."""
    return {"observations": rows, "next_observations": rows + 1}


def _ahead(rows: Rows, steps: int, limits: Rows) -> Rows:
    """`min(i + steps, limit)` for limits not before i, of any number of steps: i + steps may be beyond 32 bits."""
    return rows + jnp.minimum(steps, limits - rows)


def two_level_rows(key: PRNGKeyArray, table: RowTable, config: AgentConfig, subgoal_steps: int) -> dict[str, Rows]:
    """Rows of a two-level batch: transition, value goal, low goal, high goal and high target.

    low goal `min(i+k, end(i))`; high goal a later row (with probability `actor_p_randomgoal` any row), high target
    `min(i+k, high goal)` (for a random high goal: the low goal).
    """
    keys = jax.random.split(key, 5)
    rows = random_rows(keys[0], table, config.batch_size)
    low = _ahead(rows, subgoal_steps, table.goal_limits[rows])
    far = trajectory_rows(keys[2], table, rows, config.actor_geom_sample, config.discount)
    anywhere = random_rows(keys[3], table, config.batch_size)
    at_random = jax.random.uniform(keys[4], rows.shape) < config.actor_p_randomgoal
    return {
        **transition_rows(rows),
        "value_goals": mixed_rows(keys[1], table, rows, value_mix(config), config.discount),
        "low_actor_goals": low,
        "high_actor_goals": jnp.where(at_random, anywhere, far),
        "high_actor_targets": jnp.where(at_random, low, _ahead(rows, subgoal_steps, far)),
    }


def flat_rows(key: PRNGKeyArray, table: RowTable, config: AgentConfig) -> dict[str, Rows]:
    """Rows of a flat batch: transition, value goal and actor goal."""
    keys = jax.random.split(key, 3)
    rows = random_rows(keys[0], table, config.batch_size)
    return {
        **transition_rows(rows),
        "value_goals": mixed_rows(keys[1], table, rows, value_mix(config), config.discount),
        "actor_goals": mixed_rows(keys[2], table, rows, actor_mix(config), config.discount),
    }


Batch = dict[str, Array]


def gather(observations: Num[Array, "rows ..."], actions: Float[Array, "rows act"], rows: dict[str, Rows]) -> Batch:
    """The batch at these rows: every field an observation, plus its `labels`."""
    return {name: observations[index] for name, index in rows.items()} | labels(actions, rows)


def labels(actions: Float[Array, "rows act"], rows: dict[str, Rows]) -> Batch:
    """`actions`, and `rewards`, `masks` of the value goal.

    success ⇔ the value goal is the row itself; reward = success − 1, mask = 1 − success.
    """
    batch = {"actions": actions[rows["observations"]]}
    if "value_goals" in rows:
        success = (rows["value_goals"] == rows["observations"]).astype(actions.dtype)
        batch["rewards"] = success - 1.0
        batch["masks"] = 1.0 - success
    return batch
