"""The paper's numbers for the datasets at hand."""

import csv
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from cta.presets import PAPER_NAMES

TABLES = ("main", "noisy", "maze", "pixel", "gcb", "hierarchy")


def paper_scores(datasets: Iterable[str]) -> list[dict[str, Any]]:
    """Rows {table, dataset, method, agent, mean, std, seeds} of the paper's tables about these datasets."""
    wanted, rows = set(datasets), []
    for table in TABLES:
        for row in read_table(table):
            if row["env"] in wanted:
                rows.append(
                    {
                        "table": table,
                        "dataset": row["env"],
                        "method": row["method"],
                        "agent": PAPER_NAMES.get(row["method"], ""),
                        "mean": float(row["mean"]),
                        "std": float(row["std"]),
                        "seeds": int(row["seeds"]),
                    }
                )
    return rows


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of one of the paper's tables, as text."""
    text = (files("cta.results") / "paper" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
