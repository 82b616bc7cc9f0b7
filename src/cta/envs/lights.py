"""Lights out over F₂: the least number of presses between two boards, and boards drawn by that number.

To reach a goal from a start is to solve A·x = start + goal for the set of presses x. Without full rank some goals
cannot be reached, and the others by several sets, which differ by elements of the kernel of A.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from cta.envs.names import lights_patterns
from cta.errors import CtaError

LADDERS = {9: (1, 2, 4, 6, 9), 6: (1, 2, 4, 5, 6)}  # presses of the five tasks, if the hardest goal needs so many


@dataclass(frozen=True)
class Board:
    """A board of rows × columns lights; light i = columns·row + column, and boards are arrays of 0 and 1, (…, n)."""

    rows: int
    columns: int

    @property
    def lights(self) -> int:
        return self.rows * self.columns

    @cached_property
    def patterns(self) -> np.ndarray:
        """patterns[i, j] = 1 ⇔ press i flips light j, (n, n); symmetric, so it is A as well."""
        patterns = lights_patterns(self.rows, self.columns)
        return np.array([[light in flips for light in range(self.lights)] for flips in patterns], np.uint8)

    @cached_property
    def _reduced(self) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """(E, R, pivots): E·A = R in reduced row echelon form, the pivot of row i in column pivots[i]."""
        n, pivots = self.lights, []
        both = np.concatenate([self.patterns, np.eye(n, dtype=np.uint8)], axis=1)
        for column in range(n):
            row = len(pivots)
            found = row + np.flatnonzero(both[row:, column])
            if len(found):
                both[[row, found[0]]] = both[[found[0], row]]
                others = np.flatnonzero(both[:, column])
                both[others[others != row]] ^= both[row]
                pivots.append(column)
        return both[:, n:], both[:, :n], pivots

    @property
    def rank(self) -> int:
        """Of the presses over F₂: from every board 2^rank boards can be reached, a share of 2^(rank − n)."""
        return len(self._reduced[2])

    @cached_property
    def kernel(self) -> np.ndarray:
        """All sets of presses that change nothing, (2^(n − rank), n)."""
        _, reduced, pivots = self._reduced
        free = [column for column in range(self.lights) if column not in pivots]
        basis = np.zeros((len(free), self.lights), np.uint8)
        basis[:, free], basis[:, pivots] = np.eye(len(free)), reduced[: self.rank, free].T
        return _all_bits(len(free)) @ basis % 2

    def presses(self, change: np.ndarray) -> np.ndarray:
        """(…, n) a smallest set of presses that makes this change; all −1 where none does."""
        transform, _, pivots = self._reduced
        product = np.asarray(change, np.uint8) @ transform.T % 2
        some = np.zeros(product.shape, np.int8)
        some[..., pivots] = product[..., : self.rank]
        best, least = some, some.sum(axis=-1, keepdims=True)
        for nothing in self.kernel[1:]:
            other = some ^ nothing.astype(np.int8)
            count = other.sum(axis=-1, keepdims=True)
            best, least = np.where(count < least, other, best), np.minimum(count, least)
        return np.where(product[..., self.rank :].any(axis=-1, keepdims=True), np.int8(-1), best)

    def least(self, change: np.ndarray) -> np.ndarray:
        """(…) the least number of presses that make this change; −1 where none do."""
        return np.maximum(self.presses(change).sum(axis=-1, dtype=np.int64), -1)

    def distance(self, start: Sequence[int], goal: Sequence[int]) -> int:
        """The least number of presses from one board to another; an error in one line if there are none."""
        number = int(self.least(np.bitwise_xor(start, goal)))
        if number < 0:
            ends = " to ".join("".join(map(str, np.asarray(lights).tolist())) for lights in (start, goal))
            rank = f"rank {self.rank} of {self.lights}, and 1 in {2 ** (self.lights - self.rank)} goals can be reached"
            raise CtaError(f"no presses lead from {ends}: the {self.rows}x{self.columns} board has {rank}")
        return number

    def lit_by(self, presses: Sequence[int]) -> tuple[int, ...]:
        """What is lit after these presses, from all off."""
        return tuple((self.patterns[list(presses)].sum(axis=0) % 2).tolist())

    @cached_property
    def hardest(self) -> int:
        if self.rank == self.lights:
            return self.lights
        return int(max(self.least(block @ self.patterns % 2).max() for block in self._sets_of_presses()))

    def _sets_of_presses(self) -> list[np.ndarray]:
        """One set for every change that can be made, in blocks."""
        sets = np.zeros((2**self.rank, self.lights), np.uint8)
        sets[:, self._reduced[2]] = _all_bits(self.rank)
        return np.array_split(sets, max(1, len(sets) // 4096))

    def draw(self, presses: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """(count, n) changes that need exactly so many presses, each such change as likely as any other."""
        if not 0 <= presses <= self.hardest:
            here = f"no goal on the {self.rows}x{self.columns} board"
            raise CtaError(f"{here} needs {presses} presses: the hardest needs {self.hardest}")
        found, missing = [np.zeros((0, self.lights), np.uint8)], count
        while missing > 0:
            sets = (np.argsort(rng.random((256, self.lights)), axis=1) < presses).astype(np.uint8)
            counts = (sets[:, None] ^ self.kernel).sum(axis=-1)
            # A change that k smallest sets make is drawn k times as often: it is kept once in k times.
            tied = (counts == presses).sum(axis=1)
            kept = (counts.min(axis=1) == presses) & (rng.random(len(sets)) * tied < 1)
            found.append((sets[kept] @ self.patterns % 2)[:missing])
            missing -= len(found[-1])
        return np.concatenate(found)

    def tasks(self) -> list[tuple[int, tuple[int, ...]]]:
        """The five tasks of a world on this board: (presses needed, lights to be lit from all off), drawn once."""
        ladder = next((steps for least, steps in LADDERS.items() if self.hardest >= least), (1, 2, 3, 4, 5))
        rng = np.random.default_rng((self.rows, self.columns))
        numbers = [min(number, self.hardest) for number in ladder]
        return [(number, tuple(self.draw(number, 1, rng)[0].tolist())) for number in numbers]


board = cache(Board)  # the board of (rows, columns); it computes its tables once


def board_of(dataset_name: str) -> Board:
    """The board of `lights-RxC` or `puzzle-RxC` data; other worlds have none."""
    named = re.fullmatch(r"(?:visual-)?(?:lights|puzzle)-(\d)x(\d)-.*", dataset_name)
    if named is None:
        raise CtaError(f"{dataset_name} has no board to press: presses are counted in lights-RxC and puzzle-RxC")
    return board(int(named[1]), int(named[2]))


def read_board(text: str, lights: int, flag: str) -> tuple[int, ...]:
    """A board written as zeros and ones, row after row; spaces and commas are for the eye."""
    found = re.sub(r"[\s,]", "", text)
    if not re.fullmatch(f"[01]{{{lights}}}", found):
        raise CtaError(f"{flag} {text!r:.40}: give {lights} zeros and ones, one for each light, row after row")
    return tuple(map(int, found))


def _all_bits(width: int) -> np.ndarray:
    """(2^width, width) all vectors of zeros and ones; the first is zero."""
    return (np.arange(2**width)[:, None] >> np.arange(width) & 1).astype(np.uint8)
