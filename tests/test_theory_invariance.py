"""The measures of context invariance, on arrays worked by hand and on the exact worlds."""

import numpy as np
import pytest

from cta_theory.distance import fields, surrogate_return, temporal_distance
from cta_theory.factorisation import dual_analogy, factorise
from cta_theory.invariance import context_invariance, context_pairs, dual_accuracy
from cta_theory.mdp import desk_skeleton, locked_slider, sliders

TASKS, CONTEXTS = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])


def test_invariance_of_vectors_that_know_only_the_task() -> None:
    measured = context_invariance(np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]]), TASKS, CONTEXTS)
    assert (measured.within, measured.ratio, measured.retrieval) == (0, 0, 1)
    assert measured.between == pytest.approx(np.sqrt(2))


def test_invariance_of_vectors_that_know_only_the_context() -> None:
    """Same task: always √2 apart. Different tasks: 0 or √2. The nearest of another context is a tie of both tasks."""
    measured = context_invariance(np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]), TASKS, CONTEXTS)
    assert measured.within == pytest.approx(np.sqrt(2)) and measured.between == pytest.approx(1)
    assert measured.retrieval == pytest.approx(0.5)


@pytest.mark.parametrize("size, d_exact", [((4, 3), True), ((6, 4), True)])
def test_invariance_of_exact_fields_on_additive_sliders(size: tuple[int, int], d_exact: bool) -> None:
    mdp = sliders(*size)
    D = temporal_distance(mdp)
    pairs, tasks, contexts = context_pairs(mdp)
    assert (context_invariance(fields(D, pairs), tasks, contexts).within == 0) == d_exact
    surrogate = context_invariance(fields(surrogate_return(D, 0.9), pairs), tasks, contexts)
    assert 0.05 < surrogate.ratio < 0.3 and surrogate.retrieval == 1


def test_invariance_of_exact_fields_under_a_lock() -> None:
    mdp = locked_slider(6)
    pairs, tasks, contexts = context_pairs(mdp)
    assert context_invariance(fields(temporal_distance(mdp), pairs), tasks, contexts).ratio > 0.1


def test_invariance_of_an_exact_embedding_equals_that_of_its_fields() -> None:
    mdp = sliders(4, 3)
    D = temporal_distance(mdp)
    phi, psi = factorise(D, 6)
    pairs, tasks, contexts = context_pairs(mdp)
    analogies = dual_analogy(psi, pairs)
    vector, learned, exact = (
        context_invariance(vectors, tasks, contexts) for vectors in (analogies, analogies @ phi.T, fields(D, pairs))
    )
    assert vector.within < 1e-6
    assert learned.between == pytest.approx(exact.between) and learned.within < 1e-6


def test_invariance_pairs_of_the_desk_agree_outside_the_part() -> None:
    mdp = desk_skeleton()
    pairs, tasks, contexts = context_pairs(mdp, (2,))
    assert len(pairs) == 32 and len(np.unique(tasks)) == 2 and len(np.unique(contexts)) == 16
    moved = mdp.coordinates[pairs[:, 0]] != mdp.coordinates[pairs[:, 1]]
    assert (moved == (np.arange(5) == 2)).all()


def test_invariance_dual_accuracy_of_exact_and_of_reversed_values() -> None:
    D = temporal_distance(sliders(4, 3))
    exact = dual_accuracy(surrogate_return(D, 0.9), D, 0.9)
    assert exact.distance_error < 1e-9
    assert exact.rank_correlation == pytest.approx(1) and exact.value_correlation == pytest.approx(1)
    reversed_values = dual_accuracy(surrogate_return(D.max() - D, 0.9), D, 0.9)
    assert reversed_values.rank_correlation == pytest.approx(-1)
