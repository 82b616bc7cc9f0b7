"""Collecting everything a page shows, within its size."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cta.envs.desk import find_world
from cta.errors import CtaError
from cta.io import provenance
from cta.io.files import write_whole
from cta.report import map_section, ooc, rollouts
from cta.report.page import render, table
from cta.report.runs import RunRecord, read_run, training_curves
from cta.report.series import build_series
from cta.report.summary import opening, title
from cta.scores.paper import AVERAGE, TABLES, paper_scores
from cta.scores.store import Scores
from cta.scores.tables import SHOWN, Selection
from cta.scores.tables import build as build_table

LIMIT_BYTES = 15_000_000
ROOM = 20_000
"""Kept free for the notes on what was left out."""
SCORE_NOTE = (
    "Success: mean over tasks and over the last evaluations (three where there are three), ± one standard deviation "
    "over seeds. The 95% interval of the mean is Student's over seeds; one seed has none. [[IQM]] over seeds and tasks."
)
TITLES = {
    "main": "Main table",
    "noisy": "Noisy data",
    "maze": "Mazes",
    "pixel": "Images",
    "gcb": "Other analogies (GCB)",
    "hierarchy": "Without hierarchy",
}
PAPER_NOTE = "The paper's numbers: 1M steps (500k on images), mean of the last three evaluations."
Say = Callable[[str], None]


class Report(NamedTuple):
    """A written page: where it is, how large, and what did not fit."""

    path: Path
    size: int
    left_out: list[str]


def build(
    paths: Sequence[str | Path],
    *,
    out: str | Path,
    episodes: int = 4,
    limit: int = LIMIT_BYTES,
    results: Path | None = None,
    say: Say = lambda _: None,
) -> Report:
    """Write OUT/index.html about these run directories.

    `episodes` rollouts per task are shown (0: none), and the tables of a `results` folder. Maps, rollouts and
    frames that would make the page larger than `limit` are left out and named.
    """
    if not paths:
        raise CtaError("name at least one run directory")
    runs = [read_run(path) for path in paths]
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise CtaError("a run directory is named twice")
    say("scores")
    data = _numbers(runs, results=results)
    left_out = _add_pieces(data, runs, episodes, limit, say)
    page = render(data)
    if len(page) > limit:
        raise CtaError(f"scores alone make a page of {len(page) / 1e6:.1f} MB, over {limit / 1e6:.0f}: name fewer runs")
    path = Path(out).expanduser() / "index.html"
    write_whole(path, page)
    return Report(path, len(page), left_out)


def _add_pieces(data: dict[str, Any], runs: Sequence[RunRecord], episodes: int, limit: int, say: Say) -> list[str]:
    """Add maps, rollouts and frames while they fit; returns what was left out."""
    left, out = limit - len(render(data)) - ROOM, Counter[str]()
    remarks: dict[str, list[str]] = defaultdict(list)

    def fits(piece: Any, what: str) -> bool:
        nonlocal left
        size = len(json.dumps(piece))
        if size > left:
            out[what] += 1
            return False
        left -= size
        return True

    for number, run in enumerate(runs):
        if found := map_section.read_map(run.path):
            say(f"analogy map of {run.name}")
            if fits(entry := {**found, "run": number}, f"analogy map of {run.name}"):
                data["maps"].append(entry)
        if episodes:
            say(f"rollouts of {run.name}")
            played, words = rollouts.record_rollouts(run, episodes=episodes)
            remarks[words].append(data["runs"][number]["label"])  # runs of which the same is said share a line
            data["rollouts"] += [{**one, "run": number} for one in played if fits(one, f"rollout of {run.name}")]
    for entry in data["maps"]:
        run = runs[entry["run"]]
        say(f"frames of {run.name}")
        for point, pair in map_section.frame_files(run.path).items():
            images = [map_section.small_image(file) for file in pair]
            if fits(images, f"frames of {run.name}"):
                entry["frames"][point] = images
    left_out = [f"Left out to keep the page small: {count} × {what}." for what, count in out.items()]
    data["rollout_notes"] = [*(f"{', '.join(labels)}: {words}" for words, labels in remarks.items()), *left_out]
    return left_out


def _numbers(runs: Sequence[RunRecord], *, results: Path | None) -> dict[str, Any]:
    """Everything but the heavy pieces: scores, curves, settings."""
    series = build_series(runs)
    labels = {number: one["label"] for one in series for number in one["runs"]}
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    worlds = {dataset: find_world(dataset) for dataset in datasets}
    studies = ooc.studies(runs, series)
    version, commit = provenance.versions()["cta"], provenance.commit() or "unknown"
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    foot = f"Written by `{provenance.command()}` on {now}. cta {version}, commit {commit}."
    tables = _paper_tables(series, datasets)
    return {
        "title": title(series),
        "opening": opening(runs, series, studies),
        "series": series,
        "training": [_training(runs, one) for one in series],
        "runs": [_run(run, number, labels[number], series) for number, run in enumerate(runs)],
        "task_names": {dataset: rollouts.task_names(dataset) for dataset in datasets},
        "worlds": {dataset: rollouts.geometry(world) for dataset, world in worlds.items() if world},
        "data_notes": [_data_note(run) for run in {run.data: run for run in runs}.values()],
        "score_note": SCORE_NOTE,
        "paper": tables,
        "paper_notes": [PAPER_NOTE] if tables else [],
        "results": _result_tables(results) if results else [],
        "ooc": studies,
        "maps": [],
        "rollouts": [],
        "rollout_notes": [],
        "foot": [foot],
    }


def _run(run: RunRecord, number: int, label: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    alone = all(one["runs"] == [number] for one in series if number in one["runs"])
    # The record of a cut has a section of its own.
    made = {name: value for name, value in (run.made_of.get("provenance") or {}).items() if name != "ooc"}
    return {
        "label": label if alone else f"{label} ({run.name})",
        "name": run.name,
        "agent": run.agent,
        "dataset": run.dataset,
        "config": run.config,
        "provenance": {**run.provenance, "dataset": {**run.made_of, "provenance": made}},
    }


def _training(runs: Sequence[RunRecord], one: dict[str, Any]) -> dict[str, Any]:
    """The training curves of a series: those of its first run, with the seeds of the others added."""
    merged = training_curves(runs[one["runs"][0]].path)
    for number in one["runs"][1:]:
        for name, curve in training_curves(runs[number].path).items():
            if name in merged and merged[name]["steps"] == curve["steps"]:
                merged[name]["seeds"] |= curve["seeds"]
    return merged


def _data_note(run: RunRecord) -> str:
    source = run.made_of.get("provenance") or {}
    whole = source.get("source") or {}
    command = source.get("command") or (whole.get("provenance") or {}).get("command")
    made = f"made by `{command}`" if command else "of unknown origin"
    made = f"cut from {whole['name']}, {made}" if whole.get("name") else made
    mark = f", fingerprint {str(run.fingerprint)[:12]}" if run.fingerprint else ""
    return f"{run.data}: {made}{mark}."


def _paper_tables(series: Sequence[dict[str, Any]], datasets: Sequence[str]) -> list[dict[str, Any]]:
    """The paper's lines about these datasets with ours beside them. Data with something cut out are not compared."""
    ours = {
        (one["dataset"], one["agent"]): {name: one["success"][name] for name in ("mean", "std")}
        | {"seeds": len(one["success"]["seeds"]), "steps": one["steps"]}
        for one in series
        if one["success"] and one["data"] == one["dataset"]
    }
    tables = []
    for name, heading in TITLES.items():
        rows = [
            {**vars(score), "ours": ours.get((score.dataset, score.agent))}
            for score in paper_scores(name)
            if score.dataset in datasets and score.dataset != AVERAGE
        ]
        if rows:
            tables.append({"title": heading, "rows": rows})
    return tables


def _result_tables(folder: Path) -> list[dict[str, Any]]:
    """The tables of `cta table` that a results folder has a line for."""
    scores = Scores(folder).existing()
    found = [build_table(name, scores, Selection(ours=True)) for name in TABLES]
    return [
        {"title": one.title, "notes": list(one.notes)}
        | table(one.columns[:SHOWN], (line[:SHOWN] for line in one.lines), words=1 + one.columns.index("agent"))
        for one in found
        if one.lines
    ]
