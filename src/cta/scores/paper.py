"""The paper's tables, as package data."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from cta.agents import paper_names

OOC = "ooc"
TABLES = ("main", OOC, "gcb", "maze", "pixel", "noisy", "hierarchy")
"""Names `cta table` knows."""
SEEDS = 4
"""Of a cell that the paper does not have."""
AVERAGE = "average"
ALL_PAIRS = "all"
_AS_PRINTED = {"average_printed": AVERAGE, "overall_printed": ALL_PAIRS}


@dataclass(frozen=True)
class PaperScore:
    """Success in %, mean ± standard deviation over seeds; averages are printed without ±."""

    dataset: str
    agent: str
    mean: float
    std: float | None
    seeds: int

    @property
    def text(self) -> str:
        return f"{self.mean:g}" + ("" if self.std is None else f" ± {self.std:g}")


@dataclass(frozen=True)
class PaperPair:
    """Held-out pairs: direct success and success in %."""

    dataset: str
    agent: str
    pair: str
    direct: float
    direct_std: float
    success: float
    success_std: float
    seeds: int

    @property
    def text(self) -> str:
        return f"{self.direct:g}±{self.direct_std:g} ({self.success:g}±{self.success_std:g})"


def paper_scores(table: str) -> list[PaperScore]:
    """The lines of a table, in the paper's order."""
    return [PaperScore(*row) for row in _read(table)]


def paper_pairs() -> list[PaperPair]:
    return [PaperPair(*row) for row in (*_read("ooc_scene"), *_read("ooc_puzzle"))]


def in_paper(dataset: str, agent: str, table: str = "") -> list[int]:
    """Over how many seeds the tables of the paper that have this agent on this dataset are; `table`: that one alone.

    Without a name: those of success rates.
    """
    names = [table] if table else [name for name in TABLES if name != OOC]
    lines = [line for name in names for line in (paper_pairs() if name == OOC else paper_scores(name))]
    return [line.seeds for line in lines if (line.dataset, line.agent) == (dataset, agent)]


def paper_seeds(dataset: str, agent: str, table: str = "") -> int:
    """How many seeds make a cell complete: as many as the paper has, at most; where it has none, four."""
    return max(in_paper(dataset, agent, table), default=SEEDS)


def paper_pair_names(dataset: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.pair for s in paper_pairs() if s.dataset == dataset and s.pair != ALL_PAIRS))


@cache
def _read(name: str) -> list[list[Any]]:
    """The rows of a file, without the name of its table and with our names of agents and averages."""
    text = files("cta.scores").joinpath("paper", f"{name}.csv").read_text("utf-8")
    return [
        [_value(env), paper_names()[method], *map(_value, values), int(seeds)]
        for _, env, method, *values, seeds in csv.reader(text.splitlines()[1:])
    ]


def _value(word: str) -> str | float | None:
    return _AS_PRINTED.get(word, word) if word[:1].isalpha() else float(word) if word else None
