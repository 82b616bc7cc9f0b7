"""The out-of-combination section: what was cut, and how often the held-out pairs were done, directly or at all."""

from collections.abc import Sequence
from typing import Any

from cta.errors import CtaError
from cta.report.runs import RunRecord
from cta.training.logs import CsvLog

ALL, LENIENT = "all", "lenient"
KINDS = {"held-out": "pairs cut", "random": "random windows cut", "uncut": "nothing cut", "paper": "paper"}
NOTES = (
    "Each cell: direct success (success), in %. Direct means that the held-out task itself was carried out and nothing "
    "else changed on the way; success alone may be a detour. Lenient: the task's last completion happened in the "
    "held-out context, whatever came before.",
    "Means of the last three scored checkpoints, or of as many as were scored; ± one standard deviation over seeds.",
)


def studies(runs: Sequence[RunRecord], series: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One section a dataset on which held-out pairs were cut or asked for."""
    found = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == dataset]
        lines = _lines(runs, [one for one in series if one["dataset"] == dataset])
        cut = next((run.cut for run in mine if run.cut), None)
        if not lines and not cut:
            continue
        found.append(
            {
                "dataset": dataset,
                "intro": _intro(lines, cut),
                "cut": _cut_table(cut) if cut else None,
                "table": _table(lines, dataset) if lines else None,
                "notes": list(NOTES) if lines else [],
            }
        )
    return found


def _lines(runs: Sequence[RunRecord], series: Sequence[dict[str, Any]]) -> list[Any]:
    """A line of `cta.results.study_table` for every series that was asked for held-out pairs."""
    from cta.results.study_table import summarise

    lines = []
    for one in series:
        rows = [row for number in one["runs"] for row in _rows(runs[number])]
        if rows:
            kind = (runs[one["runs"][0]].cut or {}).get("kind", "uncut")
            lines += summarise(({**row, "agent": one["label"]} for row in rows), data=str(kind))
    return lines


def _rows(run: RunRecord) -> list[dict[str, str]]:
    path = run.path / "ooc.csv"
    rows = CsvLog(path).read()
    needed = {"seed", "step", "episodes", "successes", "pair", "direct", "lenient"}
    for row in rows:
        if (
            not needed <= set(row)
            or not all(row[name].isdigit() for name in needed - {"pair"})
            or row["episodes"] == "0"
        ):
            raise CtaError(f"{path}: not written by `cta ooc evaluate`; a row is {','.join(row.values())}")
    return rows


def _intro(lines: Sequence[Any], cut: dict[str, Any] | None) -> list[str]:
    """What the numbers allow to say."""
    texts = ["Some tasks in some contexts were taken out of the data, and the agents are asked for exactly those."]
    if cut and cut.get("kind") == "random":
        texts = ["As a control, windows at random places were taken out of the data."]
    held = [line for line in lines if line.data == "held-out"]
    if len(held) > 1:
        ranked = sorted(held, key=lambda line: -line.pairs[ALL]["direct"].mean)
        numbers = ", ".join(f"{line.agent} {line.pairs[ALL]['direct'].mean:.1f} %" for line in ranked)
        caution = (
            " With one seed each, this does not rank them."
            if max(line.seeds for line in held) < 2
            else " The ± in the table says how much seeds differ."
        )
        texts.append(f"Direct success over all pairs: {numbers}.{caution}")
    return texts


def _cut_table(cut: dict[str, Any]) -> dict[str, Any]:
    """The pairs, and how much of the training data went for each."""
    report = cut.get("report") or {}
    counts = report.get("pairs") or []
    first = int(cut.get("first_pair", 1))
    rows = []
    for place, pair in enumerate(cut.get("pair") or []):
        count = counts[place] if place < len(counts) else {}
        context, event = (
            ", ".join(f"{name.removesuffix('_lock').replace('_', ' ')} {value}" for name, value in pair[what].items())
            for what in ("context", "event")
        )
        rows.append(
            [
                f"{first + place} {pair.get('name', '')}",
                {"text": context, "class": "wrap"},
                event,
                *(_count(number) for number in (pair["K"], count.get("events"), count.get("removed"))),
            ]
        )
    gone, left = (int(report.get(name, 0)) for name in ("removed", "transitions_left"))
    titles = ("Pair", "Context", "Event", "K", "Events", "Transitions removed")
    return {
        "caption": f"What was cut: {gone:,} transitions, {left:,} left",
        "columns": [{"title": title, "number": place > 2} for place, title in enumerate(titles)],
        "rows": rows,
    }


def _count(number: int | None) -> dict[str, Any]:
    return {"text": "–" if number is None else f"{number:,}", "sort": number}


def _table(lines: Sequence[Any], dataset: str) -> dict[str, Any]:
    from cta.results.study_table import as_table, paper_lines

    agents = {line.agent for line in lines}
    together = [*lines, *(line for line in paper_lines(dataset) if line.agent in agents)]
    header, *texts = as_table(together)
    rows = []
    for line, row in zip(together, texts, strict=True):
        cells: list[Any] = [
            row[0],
            KINDS.get(row[1], row[1]),
            *({"text": t, "sort": int(t.replace(",", ""))} for t in row[2:4]),
        ]
        for name, text in zip(header[4:], row[4:], strict=True):
            rates = line.pairs.get(ALL if name.startswith(LENIENT) else name, {})
            rate = rates.get(LENIENT if name.startswith(LENIENT) else "direct")
            cells.append(
                {"text": text, "sort": rate.mean if rate else None, "class": "strong" if name == ALL else None}
            )
        rows.append(cells)
    titles = (name.replace("pair", "pair ").capitalize() for name in header)
    return {"columns": [{"title": title, "number": place > 1} for place, title in enumerate(titles)], "rows": rows}
