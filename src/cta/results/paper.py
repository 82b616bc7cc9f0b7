"""The paper's tables, as package data."""

import csv
from dataclasses import dataclass
from importlib.resources import files

from cta.presets import PAPER_NAMES

TABLES = ("main", "ooc", "gcb", "maze", "pixel", "noisy", "hierarchy")
"""Names `cta table` knows."""
AVERAGE = "average"
OOC_FILES = ("ooc_scene", "ooc_puzzle")
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


def paper_scores(table: str) -> list[PaperScore]:
    """The lines of a table, in the paper's order."""
    return [
        PaperScore(
            _AS_PRINTED.get(row["env"], row["env"]),
            PAPER_NAMES[row["method"]],
            float(row["mean"]),
            float(row["std"]) if row["std"] else None,
            int(row["seeds"]),
        )
        for row in _read(table)
    ]


def paper_pairs() -> list[PaperPair]:
    """The lines of both tables of held-out pairs."""
    return [
        PaperPair(
            row["env"],
            PAPER_NAMES[row["method"]],
            _AS_PRINTED.get(row["pair"], row["pair"]),
            float(row["direct_mean"]),
            float(row["direct_std"]),
            float(row["success_mean"]),
            float(row["success_std"]),
            int(row["seeds"]),
        )
        for name in OOC_FILES
        for row in _read(name)
    ]


def in_paper(dataset: str, agent: str, *, held_out: bool) -> bool:
    """Whether a table of the paper has this agent on this dataset."""
    lines = paper_pairs() if held_out else [score for name in TABLES if name != "ooc" for score in paper_scores(name)]
    return any((line.dataset, line.agent) == (dataset, agent) for line in lines)


def _read(name: str) -> list[dict[str, str]]:
    text = files("cta.results").joinpath("paper", f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
