"""Finding completion events: where in the data a pair's task is completed in its context."""

from dataclasses import dataclass

import numpy as np

from cta.data import TrajectoryDataset
from cta.ooc.components import Layout, Rule
from cta.ooc.pairs import PRESS, Pair
from cta.ooc.pairs_file import HeldOut

NO_PRESS, UNEXPLAINED = -1, -2


@dataclass(frozen=True)
class Rows:
    """A dataset's rows in discrete terms: `measured` (N, C), `values` (N, C) and `terminals` (N,)."""

    measured: np.ndarray
    values: np.ndarray
    terminals: np.ndarray


def read_rows(dataset: TrajectoryDataset, layout: Layout, rule: Rule) -> Rows:
    """Measure every row. The dataset's `info` arrays are used where it has them, else its observations."""
    measured = layout.measure(dataset.observations, dataset.info)
    return Rows(measured, rule.values(layout, measured), dataset.terminals)


def presses(layout: Layout, values: np.ndarray) -> np.ndarray:
    """(N − 1,) the button pressed between rows t and t + 1: the one whose pattern is the difference of the lights.

    −1 is none, −2 a difference that no single press explains (an episode's end, two presses at once).
    """
    flipped = values[1:] != values[:-1]
    found = np.where(flipped.any(axis=1), UNEXPLAINED, NO_PRESS)
    for button, lights in enumerate(layout.patterns):
        pattern = np.zeros(len(layout.components), bool)
        pattern[list(lights)] = True
        found[(flipped == pattern).all(axis=1)] = button
    return found


def find_events(rows: Rows, pair: Pair, layout: Layout, rule: Rule) -> np.ndarray:
    """The transitions t (rows t → t + 1 of one episode) that complete the pair's task with its context at row t.

    What the context says about the event's own component is the event's to decide: it was not there, now it is.
    """
    if len(rows.terminals) < 2:
        return np.zeros(0, int)
    what, value = pair.event
    if what == PRESS:
        happened = presses(layout, rows.values) == value
    else:
        column = layout.index(what)
        reached = rule.reached(layout.components[column], rows.measured[:, column], value)
        happened = ~reached[:-1] & reached[1:]
    happened &= ~rows.terminals[:-1]
    for name, held in pair.context.items():
        if name != what:
            happened &= rows.values[:-1, layout.index(name)] == held
    return np.flatnonzero(happened)


def find_all(dataset: TrajectoryDataset, held_out: HeldOut) -> list[np.ndarray]:
    """`find_events` for every pair."""
    rows = read_rows(dataset, held_out.layout, held_out.rule)
    return [find_events(rows, pair, held_out.layout, held_out.rule) for pair in held_out.pairs]
