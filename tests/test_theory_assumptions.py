"""What the assumptions imply: support closure, global readings, failures on the sliders, restricted supports."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cta_theory.assumptions as assumptions
from cta_theory.assumptions import (
    blocks,
    check_abstraction,
    check_consistency,
    close_support,
    difference_decoder,
    global_decoder,
)
from cta_theory.distance import fields, temporal_distance
from cta_theory.mdp import sliders
from theory_worlds import check_probe_completeness, exogenous_product, random_mdp

quick = settings(max_examples=30, deadline=None)
supports = st.integers(1, 6).flatmap(lambda n: hnp.arrays(bool, (n, n)))


def check_closure(support: np.ndarray) -> None:
    closed = assumptions.close_support(support)
    assert not check_probe_completeness(closed)
    assert closed.all() == support.any()
    assert (closed >= support).all()


@quick
@given(supports)
def test_closure_of_a_nonempty_support_is_everything(support: np.ndarray) -> None:
    check_closure(support)


@quick
@given(supports)
def test_closure_witnesses_name_pairs_outside_the_support(support: np.ndarray) -> None:
    failures = check_probe_completeness(support)
    assert (not failures) == (support.all() or not support.any())
    for w in failures:
        assert support[w.pair] and not support[w.missing]
        assert w.missing[0] == w.probe and w.missing[1] in w.pair


def test_closure_fails_when_only_the_goal_column_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assumptions, "close_support", lambda support: support | support.any(axis=0)[None, :])
    with pytest.raises(AssertionError):
        check_closure(np.eye(3, dtype=bool)[[1, 0, 2]] & (np.arange(3) == 0))


def is_global(en_S: np.ndarray, en_G: np.ndarray) -> bool:
    return all((a == b).all() for a, b in zip((en_S, en_G), global_decoder(en_S[:, 0]), strict=True))


@pytest.mark.parametrize("states, labels", [(2, 3), (3, 2)])
def test_global_decomposition_is_forced_by_P1_and_P3(states: int, labels: int) -> None:
    """On the full support P3, in either form, holds exactly for the global readings: all decoders of two states and
    three labels; of three states and two labels, all en_S with four random en_G and the global one."""
    tables = [np.array(t).reshape(states, states) for t in product(range(labels), repeat=states**2)]
    rng = np.random.default_rng(0)
    found = 0
    for en_S in tables:
        some = tables if states == 2 else [tables[i] for i in rng.integers(0, len(tables), 4)]
        for en_G in [*some, global_decoder(en_S[:, 0])[1]]:
            main = not check_consistency(en_S, en_G, common_reading=False)
            assert main == (not check_consistency(en_S, en_G, common_reading=True)) == is_global(en_S, en_G)
            found += main
    assert found > 0


def test_witnesses_of_P3_failure_on_the_sliders() -> None:
    """The drawer reading of (0,w)→(3,w) breaks against every probe with another window, and only those or its ends."""
    mdp = sliders(4, 3)
    en_S, en_G = difference_decoder(mdp.coordinates)
    failures = check_consistency(en_S, en_G)
    assert failures
    for w in failures:
        s, g = w.pair
        assert w.readings[0] != w.readings[1]
        assert 0 <= w.probe < mdp.n_states and en_S[s, g] == en_S[w.pair]
    pair = (mdp.index(0, 1), mdp.index(3, 1))
    probes = {w.probe for w in failures if w.pair == pair and w.clause != "en_S(x,s) = ρ(x)"}
    other_window = set(np.flatnonzero(mdp.coordinates[:, 1] != 1).tolist())
    assert probes == other_window | set(pair)


def test_the_difference_reading_breaks_the_abstraction_too() -> None:
    """Moving the window leaves the drawer task, into a task that names the window: the context shows in the law."""
    mdp = sliders(4, 3)
    en_S, en_G = difference_decoder(mdp.coordinates)
    failures = check_abstraction(mdp, en_S, en_G)
    drawer = [w for w in failures if mdp.coordinates[w.first[0], 1] == mdp.coordinates[w.first[1], 1]]
    assert {"2+", "2-"} <= {mdp.actions[w.action] for w in drawer}


def restricted_example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States x, s, g, s', g': (s,g) and (s',g') are probed by x only, read as 0 for one, as 1 for the other."""
    support = np.zeros((5, 5), bool)
    en_S, en_G = np.zeros((5, 5), int), np.zeros((5, 5), int)
    for reading, (s, g) in enumerate([(1, 2), (3, 4)]):
        support[[0, 0, s], [s, g, g]] = True
        en_S[0, [s, g]] = reading
        en_G[0, s], en_G[0, g] = 7, 8
        en_S[s, g], en_G[s, g] = 7, 8
    return en_S, en_G, support


def test_restricted_supports_admit_different_readings_in_one_block() -> None:
    en_S, en_G, support = restricted_example()
    assert len(blocks(en_S, en_G, support)[7, 8]) == 2
    assert not check_consistency(en_S, en_G, support, common_reading=False)
    failures = check_consistency(en_S, en_G, support, common_reading=True)
    assert {w.clause for w in failures} == {"en_S(x,s) = ρ(x)"} and {w.probe for w in failures} == {0}
    # P1 rules the example out: its closure is everything, and there the main-text form fails already.
    assert check_probe_completeness(support)
    assert check_consistency(en_S, en_G, close_support(support), common_reading=False)


@quick
@given(st.integers(0, 2**31 - 1), st.integers(1, 3))
def test_the_exogenous_product_satisfies_every_assumption(seed: int, size: int) -> None:
    chain = np.random.default_rng(seed).dirichlet(np.ones(size), size=size)
    mdp = exogenous_product(random_mdp(seed, states=3), chain)
    en_S, en_G = global_decoder(mdp.coordinates[:, 0])
    assert not check_abstraction(mdp, en_S, en_G) and not check_consistency(en_S, en_G)
    assert not check_probe_completeness(np.ones_like(en_S, dtype=bool))


def test_drawer_tasks_under_two_windows_lie_in_two_blocks_and_share_a_field() -> None:
    """If some goal moves the window, a global reading separates windows; the equal fields are additivity, not P3."""
    mdp = sliders(4, 3)
    tasks = blocks(*global_decoder(np.arange(mdp.n_states)))
    pairs = np.array([(mdp.index(0, w), mdp.index(3, w)) for w in range(3)])
    assert all(len(tasks[int(s), int(g)]) == 1 for s, g in pairs)
    F = fields(temporal_distance(mdp, 0.9), pairs)
    assert (F[:1] == F).all()


@pytest.mark.parametrize(
    "table, entry, clause",
    [(0, (0, 2), "en_S(x,s) = en_S(x,g)"), (1, (0, 1), "en_G(x,s) = en_S(s,g)"), (1, (0, 2), "en_G(x,g) = en_G(s,g)")],
)
def test_each_clause_of_P3_is_checked(table: int, entry: tuple[int, int], clause: str) -> None:
    """One changed reading in the restricted example gives one failure, of its own clause."""
    en_S, en_G, support = restricted_example()
    (en_S, en_G)[table][entry] = 9
    failures = check_consistency(en_S, en_G, support, common_reading=False)
    assert [(w.pair, w.probe, w.clause) for w in failures] == [((1, 2), 0, clause)]
