"""The dual learner on tabular worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents.base import Spec
from cta.agents.dual import DualLearner
from cta.config import DualConfig
from cta_theory.bridge import BridgeConfig, DualOnly, InvarianceRow, observe, play
from cta_theory.mdp import locked_slider
from cta_theory.report import learned_rows, learned_table


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], InvarianceRow]:
    """The table of the report, by (kind of world, quantity)."""
    table = learned_rows(expectile=0.9, steps=1000, seeds=1)
    return {("locked" if "locked" in row.world else "additive", row.quantity): row for row in table}


def check_learned(row: InvarianceRow) -> None:
    assert row.accuracy.rank_correlation > 0.8
    assert row.accuracy.value_correlation > 0.75


@pytest.mark.parametrize("world", ["additive", "locked"])
def test_bridge_learned_products_approach_the_surrogate_return(
    rows: dict[tuple[str, str], InvarianceRow], world: str
) -> None:
    check_learned(rows[world, "learned"])
    with pytest.raises(AssertionError):
        check_learned(rows[world, "untrained"])


def test_bridge_context_invariance_of_exact_and_learned(rows: dict[tuple[str, str], InvarianceRow]) -> None:
    """Exact d* ignores the window, exact Ṽ does not quite, the learned field less; a lock is ignored by none."""
    ratio = {key: row.field.ratio for key, row in rows.items()}
    assert ratio["additive", "exact d*"] < 1e-6
    assert 0.05 < ratio["additive", "exact Ṽ"] < ratio["additive", "learned"] < 1
    assert min(ratio["locked", q] for q in ("exact d*", "exact Ṽ", "learned")) > 0.1


def test_bridge_learned_vectors_are_less_invariant_than_the_fields_they_carry(
    rows: dict[tuple[str, str], InvarianceRow],
) -> None:
    for world in ("additive", "locked"):
        row = rows[world, "learned"]
        assert row.vector.ratio > row.field.ratio


def test_bridge_rows_are_printed(
    rows: dict[tuple[str, str], InvarianceRow], capsys: pytest.CaptureFixture[str]
) -> None:
    learned_table(list(rows.values()))
    text = capsys.readouterr().out
    assert all(f"{row.world}: {row.quantity}" in text for row in rows.values())


def batch_of(states: np.ndarray, goals: np.ndarray, following: np.ndarray) -> dict[str, jax.Array]:
    n = len(states)
    names = ("observations", "value_goals", "next_observations")
    fields = {k: jnp.asarray(v) for k, v in zip(names, (states, goals, following), strict=True)}
    return {**fields, "actions": jnp.zeros((n, 3)), "rewards": -jnp.ones(n), "masks": jnp.ones(n)}


def test_bridge_trains_the_projects_own_loss_with_the_reward_of_equal_states() -> None:
    agent = DualOnly(BridgeConfig(dual=DualConfig(hidden=(8,), dim=4)))
    assert isinstance(agent.dual, DualLearner)
    rng = np.random.default_rng(0)
    states, goals, following = (rng.normal(size=(4, 2)).astype(np.float32) for _ in range(3))
    goals[0] = states[0]
    batch = batch_of(states, goals, following)
    reached = jnp.array([1.0, 0, 0, 0])

    @jax.jit
    def losses(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        networks = agent.init(key, Spec(2, 3))
        by_state = agent.dual.loss(networks, networks, {**batch, "rewards": reached - 1, "masks": 1 - reached})
        by_row = agent.dual.loss(networks, networks, batch)
        return agent.loss(networks, networks, batch, key)[0], by_state[0], by_row[0]

    actual, by_state, by_row = (float(value) for value in losses(jax.random.key(0)))
    assert actual == pytest.approx(by_state) and actual != pytest.approx(by_row)


def test_bridge_play_follows_the_process() -> None:
    mdp = locked_slider(4)
    looks = observe(mdp, width=3)
    data = play(mdp, looks, action_dim=5)
    assert looks.shape == (8, 3) and (looks[:, 2] == 0).all() and np.abs(looks).max() == 1
    states = (data.observations[:, None] == looks[None]).all(axis=-1).argmax(axis=1)
    rows = data.valid_rows
    actions = data.actions[rows].argmax(axis=1)
    assert (mdp.P.argmax(axis=-1)[states[rows], actions] == states[rows + 1]).all()
    assert len(np.unique(states)) == mdp.n_states
