"""Lights Out: ranks, distances and stabilisers from the group, checked against tables and brute force."""

import numpy as np
import pytest

from cta.errors import CtaError
from cta_theory.distance import field, surrogate_return, temporal_distance
from cta_theory.lights import LightsOut, walsh_hadamard
from theory_worlds import lights_out


@pytest.mark.parametrize(
    "rows, columns, rank", [(2, 3, 4), (3, 3, 9), (4, 4, 12), (4, 5, 20), (4, 6, 24)], ids=lambda v: str(v)
)
def test_lights_press_ranks(rows: int, columns: int, rank: int) -> None:
    assert LightsOut(rows, columns).rank == rank


def test_lights_distances_of_the_table_are_weights_of_the_group() -> None:
    """2×3: 64 patterns in four orbits; within one, d* is the weight of the difference, across them infinite."""
    board, mdp = LightsOut(2, 3), lights_out(2, 3)
    D = temporal_distance(mdp, 0.9)
    assert np.isfinite(D).mean() == board.reachable_probability == 0.25
    assert np.bincount(D[0][np.isfinite(D[0])].astype(int)).tolist() == np.bincount(board.weights).tolist()
    states = np.arange(64)
    np.testing.assert_array_equal(D, D[0][states[:, None] ^ states[None, :]])


def test_lights_full_rank_is_hamming_distance_with_a_stabiliser_of_index_two() -> None:
    board = LightsOut(3, 3)
    hamming = np.array([bin(y).count("1") for y in range(512)])
    np.testing.assert_array_equal(board.weights, hamming)
    assert [board.stabiliser_size(i) for i in range(9)] == [256] * 9


def test_lights_full_rank_fields_depend_on_one_bit() -> None:
    mdp, board = lights_out(3, 3), LightsOut(3, 3)
    D = temporal_distance(mdp, 0.9)
    for press in (0, 4):
        starts = range(0, 512, 7)
        distinct = {tuple(field(D, s, int(s ^ board.patterns[press] @ (1 << np.arange(9))))) for s in starts}
        assert len(distinct) == 2


def test_lights_4x4_orbit() -> None:
    board = LightsOut(4, 4)
    assert np.bincount(board.weights).tolist() == [1, 16, 120, 560, 1387, 1440, 540, 32]
    assert board.reachable_probability == 1 / 16


def brute_force_stabiliser(board: LightsOut, press: int) -> int:
    f = board.press_field(press)
    y = np.arange(len(f))
    return sum(int((f[y ^ c] == f).all()) for c in y)


@pytest.mark.parametrize("press", [0, 1, 5])
def test_lights_4x4_stabilisers_are_trivial(press: int) -> None:
    board = LightsOut(4, 4)
    assert board.stabiliser_size(press) == 1 == brute_force_stabiliser(board, press)


@pytest.mark.parametrize("rows, columns", [(1, 3), (2, 3), (3, 3), (2, 4)])
def test_lights_stabilisers_by_walsh_support_equal_brute_force(rows: int, columns: int) -> None:
    board = LightsOut(rows, columns)
    for press in range(board.lights):
        assert board.stabiliser_size(press) == brute_force_stabiliser(board, press)


@pytest.mark.parametrize("rows, columns", [(2, 3), (2, 4), (3, 3)])
def test_lights_spectrum_equals_dense_singular_values(rows: int, columns: int) -> None:
    board = LightsOut(rows, columns)
    y = np.arange(len(board.weights))
    D = board.weights[y[:, None] ^ y[None, :]].astype(float)
    np.testing.assert_allclose(board.spectrum(), np.linalg.svd(D, compute_uv=False), atol=1e-8)
    V = surrogate_return(D, 0.9)
    np.testing.assert_allclose(board.spectrum(0.9), np.linalg.svd(V, compute_uv=False), atol=1e-8)


def test_lights_walsh_hadamard_is_its_own_inverse_up_to_size() -> None:
    f = np.random.default_rng(0).normal(size=64)
    np.testing.assert_allclose(walsh_hadamard(walsh_hadamard(f)), 64 * f, atol=1e-10)


def test_lights_a_board_that_is_too_large_is_refused() -> None:
    with pytest.raises(CtaError, match=r"an orbit of 2\^24 states is too large"):
        _ = LightsOut(4, 6).weights
