"""T8–T11: where the field ignores the context, where it does not, and what the algorithm learns instead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cta_theory.distance as distance
import cta_theory.mdp as worlds
from cta_theory.assumptions import check_abstraction, check_consistency, difference_decoder, global_decoder
from cta_theory.invariance import context_invariance, context_pairs
from cta_theory.mdp import MDP

GAMMA = 0.9
quick = settings(max_examples=20, deadline=None)
sizes = st.tuples(st.integers(2, 5), st.integers(2, 5))


def contexts_of_a_task(mdp: MDP, start: int, end: int) -> list[tuple[int, int, int]]:
    """(s, g, context) for the task "coordinate 0 from start to end", over all values of coordinate 1."""
    return [(mdp.index(start, w), mdp.index(end, w), int(w)) for w in np.unique(mdp.coordinates[:, 1])]


def check_additive_product(n: int, m: int) -> None:
    """d* = |Δ₁| + |Δ₂| and the field of "slider 1: d₁ → d₂" is |x₁−d₂| − |x₁−d₁| in every context."""
    mdp = worlds.sliders(n, m)
    D = distance.temporal_distance(mdp, GAMMA)
    x = mdp.coordinates
    np.testing.assert_array_equal(D, np.abs(x[:, None] - x[None, :]).sum(axis=-1))
    for d1 in range(n):
        for d2 in range(n):
            expected = np.abs(x[:, 0] - d2) - np.abs(x[:, 0] - d1)
            for s, g, _ in contexts_of_a_task(mdp, d1, d2):
                np.testing.assert_array_equal(distance.field(D, s, g), expected)


@quick
@given(sizes)
def test_T08_additive_product(size: tuple[int, int]) -> None:
    check_additive_product(*size)


def test_T08_holds_without_consistency() -> None:
    """The fields agree although neither decoder of the drawer story satisfies P3 and the abstraction together."""
    mdp = worlds.sliders(4, 3)
    assert check_consistency(*difference_decoder(mdp.coordinates))
    en_S, en_G = global_decoder(np.arange(mdp.n_states))
    assert not check_consistency(en_S, en_G) and not check_abstraction(mdp, en_S, en_G)
    # The only globally consistent reading that keeps every goal apart puts different windows into different blocks.
    pairs = contexts_of_a_task(mdp, 0, 3)
    assert len({(int(en_S[s, g]), int(en_G[s, g])) for s, g, _ in pairs}) == len(pairs)


def test_T08_fails_when_both_sliders_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    right = worlds.sliders
    monkeypatch.setattr(worlds, "sliders", lambda *size: right(*size, simultaneous=True))
    with pytest.raises(AssertionError):
        check_additive_product(4, 3)


@quick
@given(st.tuples(st.integers(3, 5), st.integers(2, 4)))
def test_T09_simultaneous_moves_break_invariance(size: tuple[int, int]) -> None:
    mdp = worlds.sliders(*size, simultaneous=True)
    D = distance.temporal_distance(mdp, GAMMA)
    x = mdp.coordinates
    np.testing.assert_array_equal(D, np.abs(x[:, None] - x[None, :]).max(axis=-1))
    pairs, tasks, contexts = context_pairs(mdp)
    F = distance.fields(D, pairs)
    for task in np.unique(tasks):
        rows = F[tasks == task]
        assert (np.abs(rows[:, None] - rows[None, :]).max(axis=-1) + np.eye(len(rows)) > 0).all()
    assert context_invariance(F, tasks, contexts).ratio > 0.1


def test_T09_the_drawer_reading_is_not_consistent_against_another_window() -> None:
    mdp = worlds.sliders(4, 3, simultaneous=True)
    failures = check_consistency(*difference_decoder(mdp.coordinates))
    pair = (mdp.index(0, 0), mdp.index(3, 0))
    probes = {w.probe for w in failures if w.pair == pair and w.clause == "en_G(x,s) = en_S(s,g)"}
    assert {mdp.index(0, 1), mdp.index(2, 2)} <= probes


@pytest.mark.parametrize("n", [4, 6])
def test_T10_a_lock_breaks_invariance(n: int) -> None:
    mdp = worlds.locked_slider(n)
    D = distance.temporal_distance(mdp, GAMMA)
    (locked_s, locked_g, _), (open_s, open_g, _) = contexts_of_a_task(mdp, 0, 3)
    assert (D[open_s, open_g], D[locked_s, locked_g]) == (3, 5)
    assert (distance.field(D, open_s, open_g) != distance.field(D, locked_s, locked_g)).any()
    failures = check_abstraction(mdp, *global_decoder(mdp.coordinates[:, 0]))
    assert {mdp.actions[w.action] for w in failures} == {"left", "right"}
    assert all(mdp.coordinates[w.first[0], 1] != mdp.coordinates[w.second[0], 1] for w in failures)


def test_T10_the_desk_skeleton_has_both_kinds_of_context() -> None:
    """On the desk the drawer's field ignores window and tray, but not the drawer's lock."""
    mdp = worlds.desk_skeleton()
    D = distance.temporal_distance(mdp, GAMMA)
    pairs, tasks, _ = context_pairs(mdp, (0,))
    F = distance.fields(D, pairs)
    others, lock = mdp.coordinates[pairs[:, 0]][:, [1, 2, 4]], mdp.coordinates[pairs[:, 0], 3]
    for task in np.unique(tasks):
        for bit in (0, 1):
            rows = F[(tasks == task) & (lock == bit)]
            assert len(rows) == len(np.unique(others, axis=0)) and (rows == rows[0]).all()
        assert (F[(tasks == task) & (lock == 0)][0] != F[(tasks == task) & (lock == 1)][0]).any()


def check_surrogate_fields(n: int, m: int) -> None:
    """Ṽ(x,g) − Ṽ(x,s) = γ^{|x₂−w|}·(γ^{|x₁−d₂|} − γ^{|x₁−d₁|})/(1−γ): the context enters as a factor."""
    mdp = worlds.sliders(n, m)
    D = distance.temporal_distance(mdp, GAMMA)
    V = distance.surrogate_return(D, GAMMA)
    x = mdp.coordinates
    for d1 in range(n):
        for d2 in set(range(n)) - {d1}:
            drawer = (GAMMA ** np.abs(x[:, 0] - d2) - GAMMA ** np.abs(x[:, 0] - d1)) / (1 - GAMMA)
            rows = {
                w: (distance.field(D, s, g), distance.field(V, s, g)) for s, g, w in contexts_of_a_task(mdp, d1, d2)
            }
            for w, (d_field, v_field) in rows.items():
                np.testing.assert_array_equal(d_field, rows[0][0])
                np.testing.assert_allclose(v_field, GAMMA ** np.abs(x[:, 1] - w) * drawer, atol=1e-9)
                ratio = GAMMA ** (np.abs(x[:, 1] - w) - np.abs(x[:, 1]).astype(float))
                np.testing.assert_allclose(v_field, ratio * rows[0][1], atol=1e-9)
                assert w == 0 or np.abs(v_field - rows[0][1]).max() > 1e-3


@quick
@given(sizes)
def test_T11_surrogate_fields_are_not_context_invariant(size: tuple[int, int]) -> None:
    check_surrogate_fields(*size)


def test_T11_fails_if_the_return_were_linear_in_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "surrogate_return", lambda d, gamma: -np.asarray(d))
    with pytest.raises(AssertionError):
        check_surrogate_fields(4, 3)
