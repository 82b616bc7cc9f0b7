"""Ours beside the paper's: the runs at hand, and the tables of a results folder."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cta.scores.paper import AVERAGE, TABLES, paper_scores
from cta.scores.store import Scores
from cta.scores.tables import SHOWN, Selection, build

TITLES = {
    "main": "Main table",
    "noisy": "Noisy data",
    "maze": "Mazes",
    "pixel": "Images",
    "gcb": "Other analogies (GCB)",
    "hierarchy": "Without hierarchy",
}
PAPER_NOTE = "The paper's numbers: 1M steps (500k on images), mean of the last three evaluations."
NUMBER = re.compile(r"[-−]?\d+(\.\d+)?")


def paper_tables(series: Sequence[dict[str, Any]], datasets: Sequence[str]) -> list[dict[str, Any]]:
    """The paper's lines about these datasets with ours beside them. Data with something cut out are not compared."""
    ours = {
        (one["dataset"], one["agent"]): {name: one["success"][name] for name in ("mean", "std")}
        | {"seeds": len(one["success"]["seeds"]), "steps": one["steps"]}
        for one in series
        if one["success"] and one["data"] == one["dataset"]
    }
    tables = []
    for name, title in TITLES.items():
        rows = [
            {**vars(score), "ours": ours.get((score.dataset, score.agent))}
            for score in paper_scores(name)
            if score.dataset in datasets and score.dataset != AVERAGE
        ]
        if rows:
            tables.append({"title": title, "rows": rows})
    return tables


def result_tables(folder: Path) -> list[dict[str, Any]]:
    """The tables of `cta table` that a results folder has a line for."""
    scores, shown = Scores(folder).existing(), []
    for name in TABLES:
        table = build(name, scores, Selection(ours=True))
        if table.lines:
            columns = [{"title": title} for title in table.columns[:SHOWN]]
            rows = [[{"text": text, "sort": _key(text)} for text in line[:SHOWN]] for line in table.lines]
            shown.append({"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)})
    return shown


def _key(text: str) -> float | str:
    """What a cell is sorted by: the number it begins with, if it does."""
    found = NUMBER.match(text)
    return float(found[0].replace("−", "-")) if found else text
