"""Bad input to the tabular theory gets one line that names the offending row."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from cta.errors import CtaError
from cta_theory import (
    MDP,
    bilinear_complete,
    context_invariance,
    dual_accuracy,
    factorise,
    field,
    sliders,
    surrogate_return,
    temporal_distance,
)
from cta_theory.assumptions import blocks
from cta_theory.distance import value_iteration
from cta_theory.factorisation import held_out_moves
from theory_worlds import one_way_door


def broken_law(value: float) -> np.ndarray:
    P = np.full((3, 2, 3), 1 / 3)
    P[2, 1, 0] = value
    return P


@pytest.mark.parametrize("value", [0.5, -1.0, np.nan], ids=["sum", "negative", "nan"])
def test_errors_a_law_names_state_and_action(value: float) -> None:
    with pytest.raises(CtaError, match="state 2, action 1 is not a probability distribution"):
        MDP(broken_law(value))


@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.5, 1.5, float("nan")])
@pytest.mark.parametrize(
    "call",
    [
        lambda gamma: temporal_distance(sliders(2), gamma),
        lambda gamma: value_iteration(sliders(2), gamma),
        lambda gamma: surrogate_return(np.zeros(2), gamma),
    ],
    ids=["distance", "values", "return"],
)
def test_errors_gamma_outside_the_unit_interval(call: Callable[[float], object], gamma: float) -> None:
    with pytest.raises(CtaError, match=r"outside \(0, 1\)"):
        call(gamma)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: factorise(np.zeros(4), 1), "expected a matrix"),
        (lambda: bilinear_complete(np.eye(3), np.ones(3, bool), 1), "the mask has shape"),
        (lambda: value_iteration(sliders(2), 0.9, reached=np.ones(4, bool)), "`reached` has shape"),
        (lambda: blocks(np.zeros((2, 2)), np.zeros((2, 2)), np.ones(2, bool)), "must be equal squares"),
        (lambda: held_out_moves(sliders(2, 2), 7, one_step=False), "no pair starts at slider 2 = 7"),
    ],
)
def test_errors_shapes_that_do_not_fit_are_not_stretched(call: Callable[[], object], complaint: str) -> None:
    with pytest.raises(CtaError, match=complaint):
        call()


def test_errors_unreachable_goals_name_the_row() -> None:
    D = temporal_distance(one_way_door())
    with pytest.raises(CtaError, match="state 1 cannot reach 0"):
        field(D, 0, 2)
    with pytest.raises(CtaError, match="row 1 is not finite in column 0"):
        factorise(D, 2)


@pytest.mark.parametrize("dim", [0, 13])
def test_errors_a_rank_larger_than_the_matrix(dim: int) -> None:
    D = temporal_distance(sliders(4, 3))
    with pytest.raises(CtaError, match="choose 1 to 12"):
        factorise(D, dim)
    with pytest.raises(CtaError, match="choose 1 to 12"):
        bilinear_complete(D, np.ones_like(D, dtype=bool), dim)


def test_errors_a_mask_without_a_core() -> None:
    with pytest.raises(CtaError, match="no row is observed everywhere"):
        bilinear_complete(np.ones((3, 3)), ~np.eye(3, dtype=bool), 1)


def test_errors_shapes_of_the_metrics() -> None:
    with pytest.raises(CtaError, match="expected"):
        context_invariance(np.zeros((3, 2)), np.zeros(2), np.zeros(3))
    with pytest.raises(CtaError, match="one task seen in two contexts"):
        context_invariance(np.zeros((2, 2)), np.array([0, 1]), np.array([0, 1]))
    with pytest.raises(CtaError, match="differ in shape"):
        dual_accuracy(np.zeros(3), np.zeros(2), 0.9)


def test_errors_an_unknown_successor() -> None:
    with pytest.raises(CtaError, match="state 1, action 0 leads to 5"):
        MDP.deterministic(np.array([[0], [5]]))


def test_errors_importing_the_tabular_part_needs_neither_jax_nor_matplotlib() -> None:
    code = "import sys, cta_theory; print([m for m in ('jax', 'matplotlib', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
