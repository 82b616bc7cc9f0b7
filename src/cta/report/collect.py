"""Collecting everything a page shows, within its size."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cta.envs.desk import find_world
from cta.errors import CtaError
from cta.io import provenance
from cta.io.files import write_whole
from cta.report import map_section, ooc, rollouts
from cta.report.comparison import PAPER_NOTE, paper_tables, result_tables
from cta.report.page import render
from cta.report.runs import RunRecord, read_run, training_curves
from cta.report.series import build_series
from cta.report.summary import opening, title

LIMIT_BYTES = 15_000_000
ROOM = 20_000
"""Kept free for the notes on what was left out."""
SCORE_NOTE = (
    "Success: mean over tasks and over the last evaluations (three where there are three), ± one standard deviation "
    "over seeds. The 95% interval of the mean is Student's over seeds; one seed has none. [[IQM]] over seeds and tasks."
)
Say = Callable[[str], None]


@dataclass
class Report:
    """A written page: where it is, how large, and what did not fit."""

    path: Path
    size: int
    left_out: list[str] = field(default_factory=list)


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
    pieces = _Pieces(data, limit)
    for number, run in enumerate(runs):
        _add_map(pieces, number, run, say)
        _add_rollouts(pieces, number, run, episodes, say)
    for number, run in enumerate(runs):
        _add_frames(pieces, number, run, say)
    data["rollout_notes"] = [*pieces.remarks(), *pieces.notes()]
    page = render(data)
    if len(page) > limit:
        raise CtaError(f"scores alone make a page of {len(page) / 1e6:.1f} MB, over {limit / 1e6:.0f}: name fewer runs")
    folder = Path(out).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "index.html", page.decode())
    return Report(folder / "index.html", len(page), pieces.notes())


def _numbers(runs: Sequence[RunRecord], *, results: Path | None) -> dict[str, Any]:
    """Everything but the heavy pieces: scores, curves, settings."""
    series = build_series(runs)
    labels = {number: one["label"] for one in series for number in one["runs"]}
    datasets = list(dict.fromkeys(run.dataset for run in runs))
    worlds = {dataset: find_world(dataset) for dataset in datasets}
    studies = ooc.studies(runs, series)
    tables = paper_tables(series, datasets)
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
        "results": result_tables(results) if results else [],
        "ooc": studies,
        "maps": [],
        "rollouts": [],
        "rollout_notes": [],
        "foot": [_foot()],
    }


def _foot() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    version, commit = provenance.versions()["cta"], provenance.commit() or "unknown"
    return f"Written by `{provenance.command()}` on {now}. cta {version}, commit {commit}."


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


class _Pieces:
    """Heavy pieces, added while they fit."""

    def __init__(self, data: dict[str, Any], limit: int):
        self.data = data
        self._left = limit - len(render(data)) - ROOM
        self._out: Counter[str] = Counter()
        self._remarks: dict[str, list[str]] = {}

    def fits(self, piece: Any, what: str) -> bool:
        """Take the room of a piece, or note that there is none."""
        size = len(json.dumps(piece))
        if size > self._left:
            self._out[what] += 1
            return False
        self._left -= size
        return True

    def remark(self, words: str, label: str) -> None:
        """A note on a run's rollouts; runs of which the same is said share a line."""
        self._remarks.setdefault(words, []).append(label)

    def remarks(self) -> list[str]:
        return [f"{', '.join(labels)}: {words}" for words, labels in self._remarks.items()]

    def notes(self) -> list[str]:
        return [f"Left out to keep the page small: {count} × {what}." for what, count in self._out.items()]


def _add_map(pieces: _Pieces, number: int, run: RunRecord, say: Say) -> None:
    found = map_section.read_map(run.path)
    if found is None:
        return
    say(f"analogy map of {run.name}")
    entry = {**found, "run": number}
    if pieces.fits(entry, f"analogy map of {run.name}"):
        pieces.data["maps"].append(entry)


def _add_frames(pieces: _Pieces, number: int, run: RunRecord, say: Say) -> None:
    entry = next((one for one in pieces.data["maps"] if one["run"] == number), None)
    if entry is None:
        return
    if files := map_section.frame_files(run.path):
        say(f"{len(files)} frames of {run.name}")
    for point, pair in files.items():
        images = [map_section.small_image(file) for file in pair]
        if pieces.fits(images, f"frames of {run.name}"):
            entry["frames"][point] = images


def _add_rollouts(pieces: _Pieces, number: int, run: RunRecord, episodes: int, say: Say) -> None:
    if not episodes:
        return
    say(f"rollouts of {run.name}")
    found, words = rollouts.record_rollouts(run, episodes=episodes)
    pieces.remark(words, pieces.data["runs"][number]["label"])
    for rollout in found:
        if file := rollout.pop("file", None):
            rollout["video"] = base64.b64encode(file.read_bytes()).decode()
        if pieces.fits(rollout, f"rollout of {run.name}"):
            pieces.data["rollouts"].append({**rollout, "run": number})
