"""T1–T7: temporal distances, the surrogate return, fields and the greedy rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cta_theory.distance as distance
import theory_worlds
from cta.errors import CtaError
from cta_theory.assumptions import blocks, check_abstraction, global_decoder
from cta_theory.mdp import MDP, locked_slider, sliders
from theory_worlds import (
    check_finite_distances,
    directed_cycle,
    exogenous_product,
    one_way_door,
    policy_values,
    random_graph,
    random_mdp,
    surrogate_iteration,
)

GAMMA = 0.9
quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)


@st.composite
def stochastic_mdps(draw: st.DrawFn) -> MDP:
    return random_mdp(draw(seeds), states=draw(st.integers(2, 6)), actions=draw(st.integers(1, 3)))


@st.composite
def deterministic_mdps(draw: st.DrawFn) -> MDP:
    states, actions = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    row = st.lists(st.integers(0, states - 1), min_size=actions, max_size=actions)
    return MDP.deterministic(np.array(draw(st.lists(row, min_size=states, max_size=states))))


@st.composite
def chains(draw: st.DrawFn) -> np.ndarray:
    n = draw(st.integers(1, 4))
    return np.random.default_rng(draw(seeds)).dirichlet(np.ones(n), size=n)


def by_value_iteration(mdp: MDP) -> np.ndarray:
    """The distances of a process, also of a deterministic one, from its values."""
    return distance.temporal_distance(mdp, GAMMA, reached=np.eye(mdp.n_states, dtype=bool))


def check_quasimetric(mdp: MDP) -> None:
    D = distance.temporal_distance(mdp, GAMMA)
    n = mdp.n_states
    assert (np.diag(D) == 0).all()
    assert (D[~np.eye(n, dtype=bool)] > 1e-9).all()
    assert (D[:, None, :] <= D[:, :, None] + D[None, :, :] + 1e-7).all()


@quick
@given(st.one_of(stochastic_mdps(), deterministic_mdps()))
def test_T01_quasimetric(mdp: MDP) -> None:
    check_quasimetric(mdp)


def test_T01_asymmetry_on_a_directed_cycle() -> None:
    D = distance.temporal_distance(directed_cycle(3), GAMMA)
    assert (D[0, 1], D[1, 0]) == (1, 2)


@quick
@given(deterministic_mdps())
def test_T01_value_iteration_agrees_with_breadth_first_search(mdp: MDP) -> None:
    by_search = distance.temporal_distance(mdp, GAMMA)
    by_values = by_value_iteration(mdp)
    np.testing.assert_allclose(by_values, by_search, atol=1e-9)


def test_T01_with_the_endogenous_reward_only_a_pseudo_quasimetric() -> None:
    mdp = exogenous_product(directed_cycle(3), np.array([[0.5, 0.5], [0.2, 0.8]]))
    en = mdp.coordinates[:, 0]
    D = distance.temporal_distance(mdp, GAMMA, reached=en[:, None] == en[None, :])
    assert D[0, 1] == 0 and D[1, 0] == 0
    assert (D[:, None, :] <= D[:, :, None] + D[None, :, :] + 1e-7).all()


def test_T01_fails_when_distances_are_squared(monkeypatch: pytest.MonkeyPatch) -> None:
    right = distance.breadth_first
    monkeypatch.setattr(distance, "breadth_first", lambda mdp: right(mdp) ** 2)
    with pytest.raises(AssertionError):
        check_quasimetric(sliders(4, 3))


def check_monotone_map(mdp: MDP) -> None:
    D = by_value_iteration(mdp)
    by_dynamic_programming = surrogate_iteration(mdp, GAMMA)
    formula = distance.surrogate_return(D, GAMMA)
    np.testing.assert_allclose(formula, by_dynamic_programming, atol=1e-9)
    finite = np.isfinite(D)
    np.testing.assert_allclose(distance.implied_distance(formula, GAMMA)[finite], D[finite], atol=1e-6)
    order = np.argsort(D[finite])
    steps = np.diff(D[finite][order])
    assert (np.diff(formula[finite][order])[steps > 1e-6] < 0).all()


@quick
@given(st.one_of(stochastic_mdps(), deterministic_mdps()))
def test_T02_monotone_map(mdp: MDP) -> None:
    check_monotone_map(mdp)


@quick
@given(stochastic_mdps())
def test_T02_both_rewards_have_the_same_optimal_actions(mdp: MDP) -> None:
    values = distance.value_iteration(mdp, GAMMA)
    surrogate = surrogate_iteration(mdp, GAMMA)
    for s in range(mdp.n_states):
        for g in range(mdp.n_states):
            strict = distance.optimal_actions(mdp, values, s, g, tolerance=1e-10)
            assert (strict <= distance.optimal_actions(mdp, surrogate, s, g, tolerance=1e-7)).all()


def test_T02_fails_for_a_linear_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "surrogate_return", lambda d, gamma: -np.asarray(d))
    with pytest.raises(AssertionError):
        check_monotone_map(sliders(4, 3))


def check_bellman_closure(mdp: MDP, en: np.ndarray, endogenous_values: np.ndarray) -> None:
    """V* under 1[en(s) = en(g)] is constant on task blocks and equals the values of the endogenous factor."""
    values = distance.value_iteration(mdp, GAMMA, reached=en[:, None] == en[None, :])
    np.testing.assert_allclose(values, endogenous_values[np.ix_(en, en)], atol=1e-9)


@quick
@given(stochastic_mdps(), chains())
def test_T03_bellman_closure(endogenous: MDP, chain: np.ndarray) -> None:
    mdp = exogenous_product(endogenous, chain)
    en = mdp.coordinates[:, 0]
    assert not check_abstraction(mdp, *global_decoder(en))
    check_bellman_closure(mdp, en, distance.value_iteration(endogenous, GAMMA))


def test_T03_fails_when_the_context_gates_the_dynamics() -> None:
    mdp = locked_slider(4)
    with pytest.raises(AssertionError):
        check_bellman_closure(mdp, mdp.coordinates[:, 0], distance.value_iteration(sliders(4), GAMMA))


def check_block_fields(mdp: MDP, en: np.ndarray) -> None:
    """All pairs of one task block have the same field."""
    D = distance.temporal_distance(mdp, GAMMA, reached=en[:, None] == en[None, :])
    for pairs in blocks(*global_decoder(en)).values():
        F = distance.fields(D, pairs)
        np.testing.assert_allclose(F, np.broadcast_to(F[0], F.shape), atol=1e-6)


@quick
@given(stochastic_mdps(), chains())
def test_T04_field_equality_within_a_block(endogenous: MDP, chain: np.ndarray) -> None:
    mdp = exogenous_product(endogenous, chain)
    check_block_fields(mdp, mdp.coordinates[:, 0])


@quick
@given(stochastic_mdps(), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_T04_a_global_reading_needs_no_abstraction(mdp: MDP, labels: list[int]) -> None:
    """A goal enters 1[en(s) = en(g)] through en(g) only, so that T4 holds for any labels on any process."""
    check_block_fields(mdp, np.array(labels[: mdp.n_states]))


def test_T04_fails_for_the_reward_of_equal_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    right = distance.temporal_distance
    monkeypatch.setattr(distance, "temporal_distance", lambda mdp, gamma, reached: right(mdp, gamma))
    mdp = locked_slider(4)
    with pytest.raises(AssertionError):
        check_block_fields(mdp, mdp.coordinates[:, 0])


def check_greedy_optimality(mdp: MDP) -> None:
    """The greedy rule on the field finds the optimal action set, and following it attains V*."""
    D = by_value_iteration(mdp)
    values = distance.value_iteration(mdp, GAMMA)
    for g in range(mdp.n_states):
        policy = np.zeros(mdp.n_states, int)
        for s in range(mdp.n_states):
            F = distance.field(D, s, g)
            chosen = theory_worlds.greedy_from_field(mdp, D, s, F, gamma=GAMMA)
            assert (chosen <= distance.optimal_actions(mdp, values, s, g, tolerance=1e-6)).all()
            assert (distance.optimal_actions(mdp, values, s, g, tolerance=1e-10) <= chosen).all()
            policy[s] = int(np.flatnonzero(chosen)[0])
        np.testing.assert_allclose(policy_values(mdp, policy, g, GAMMA), values[:, g], atol=1e-6)


@quick
@given(stochastic_mdps())
def test_T05_sufficiency_of_the_field(mdp: MDP) -> None:
    check_greedy_optimality(mdp)


@pytest.mark.parametrize(
    "mdp", [sliders(4, 3), sliders(3, 3, simultaneous=True), locked_slider(4)], ids=lambda m: m.name
)
def test_T05_deterministic_form_minimises_field_plus_return_distance(mdp: MDP) -> None:
    check_greedy_optimality(mdp)
    D = distance.temporal_distance(mdp, GAMMA)
    for s in range(mdp.n_states):
        for g in range(mdp.n_states):
            score = (distance.field(D, s, g) + D[:, s])[mdp.P[s].argmax(axis=-1)]
            greedy = theory_worlds.greedy_from_field(mdp, D, s, distance.field(D, s, g), gamma=GAMMA)
            assert ((score == score.min()) == greedy).all()


def strongly_connected_graphs(count: int) -> list[MDP]:
    graphs = (random_graph(seed) for seed in range(10 * count))
    return [g for g in graphs if np.isfinite(distance.temporal_distance(g, GAMMA)).all()][:count]


def test_T05_fails_without_the_return_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    right = theory_worlds.greedy_from_field
    monkeypatch.setattr(
        theory_worlds, "greedy_from_field", lambda *a, **options: right(*a, **options, return_distance=False)
    )
    with pytest.raises(AssertionError):
        for mdp in strongly_connected_graphs(10):
            check_greedy_optimality(mdp)


def field_alone_errors(mdp: MDP) -> tuple[int, int]:
    """(wrong, cases): pairs at which minimising the field alone picks some action that is not optimal."""
    D = distance.temporal_distance(mdp, GAMMA)
    wrong = cases = 0
    for s in range(mdp.n_states):
        for g in range(mdp.n_states):
            if s != g:
                F = distance.field(D, s, g)
                alone = theory_worlds.greedy_from_field(mdp, D, s, F, gamma=GAMMA, return_distance=False)
                wrong += int((alone & ~distance.optimal_actions(mdp, GAMMA**D, s, g)).any())
                cases += 1
    return wrong, cases


def test_T06_the_return_distance_is_needed_on_directed_graphs() -> None:
    counts = np.array([field_alone_errors(mdp) for mdp in strongly_connected_graphs(60)])
    wrong, cases = counts.sum(axis=0)
    assert cases == 60 * 30
    assert 0.03 < wrong / cases < 0.2


@quick
@given(seeds, st.integers(2, 8))
def test_T06_field_alone_is_harmless_on_undirected_graphs(seed: int, states: int) -> None:
    assert field_alone_errors(random_graph(seed, states=states, undirected=True))[0] == 0


def test_T07_finite_distances_matter() -> None:
    mdp = one_way_door()
    D = distance.temporal_distance(mdp, GAMMA)
    assert D[0, 2] == 2 and np.isinf(D[1, 0])
    with pytest.raises(CtaError, match="state 1 cannot reach 0"):
        distance.field(D, 0, 2)
    assert any(w.pair == (0, 2) and w.missing == (1, 0) for w in check_finite_distances(D))
    # As extended reals the field exists (−∞ at the probe 1); what is undefined is T5's exponent, −∞ + ∞.
    with np.errstate(invalid="ignore"):
        extended = D[:, 2] - D[:, 0]
        assert extended[1] == -np.inf and np.isnan(extended[1] + D[1, 0])
    # The task itself is trivial: values choose "forward" although the field cannot.
    best = distance.optimal_actions(mdp, distance.value_iteration(mdp, GAMMA), 0, 2)
    assert best.tolist() == [False, True]


def test_T07_the_field_is_defined_again_once_the_door_opens_both_ways() -> None:
    mdp = sliders(3)
    D = distance.temporal_distance(mdp, GAMMA)
    assert not check_finite_distances(D)
    greedy = theory_worlds.greedy_from_field(mdp, D, 0, distance.field(D, 0, 2), gamma=GAMMA)
    assert [mdp.actions[a] for a in np.flatnonzero(greedy)] == ["1+"]
