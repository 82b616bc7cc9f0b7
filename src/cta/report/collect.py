"""Collecting everything a page shows, within its size."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cta.envs.desk import find_world
from cta.envs.names import family
from cta.errors import CtaError
from cta.io import provenance
from cta.io.files import write_whole
from cta.report import behaviour, map_section
from cta.report.page import render, table
from cta.report.runs import RunRecord, build_series, training_curves
from cta.scores.paper import ALL_PAIRS, AVERAGE, TABLES, paper_scores
from cta.scores.statistics import difference, seeds_to_tell
from cta.scores.store import Scores
from cta.scores.tables import SHOWN, Selection
from cta.scores.tables import build as build_table

LIMIT_BYTES = 15_000_000
ROOM = 20_000  # kept free for the notes on what was left out
SCORE_NOTE = (
    "Success: mean over tasks and over the last evaluations (three where there are three), ± one standard deviation "
    "over seeds. The 95% interval of the mean is Student's over seeds; one seed has none. [[IQM]] over seeds and tasks."
)
TITLES = {"main": "Main table", "noisy": "Noisy data", "maze": "Mazes", "pixel": "Images"}
TITLES |= {"gcb": "Other analogies (GCB)", "hierarchy": "Without hierarchy"}
PAPER_NOTE = "The paper's numbers: 1M steps (500k on images), mean of the last three evaluations."
LIGHTS = "presses the buttons of a board of lights; a press switches its own light and those beside it."
WORLDS = {  # what happens in a world, by the first word of its datasets
    "desk": "A gripper slides a drawer, a window and a tray, and presses buttons that lock and unlock the first two.",
    "lights": f"A gripper {LIGHTS}",
    "puzzle": f"A robot arm {LIGHTS}",
    "scene": "A robot arm moves a cube, a drawer and a window, and presses two buttons that lock and unlock them.",
    "cube": "A robot arm picks up cubes on a table and puts them down elsewhere.",
    "pointmaze": "A point moves through a maze.",
    "antmaze": "A four-legged robot walks through a maze.",
    "humanoidmaze": "A humanoid robot walks through a maze.",
}
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
    """Write OUT/index.html about runs, at most `limit` bytes: `episodes` rollouts per task, the tables of `results`."""
    if not paths:
        raise CtaError("name at least one run directory")
    runs = [RunRecord(path) for path in paths]
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
    mapped: list[tuple[RunRecord, dict[str, Any], dict[int, list[Path]]]] = []

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
            if fits(entry := {**found[0], "run": number}, f"analogy map of {run.name}"):
                data["maps"].append(entry)
                mapped.append((run, entry, found[1]))
        if episodes:
            say(f"rollouts of {run.name}")
            played, words = behaviour.record_rollouts(run, episodes=episodes)
            remarks[words].append(data["runs"][number]["label"])  # runs of which the same is said share a line
            data["rollouts"] += [{**one, "run": number} for one in played if fits(one, f"rollout of {run.name}")]
    for run, entry, frames in mapped:
        say(f"frames of {run.name}")
        for point, pair in frames.items():
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
    studies = behaviour.studies(runs, series)
    made = f"cta {provenance.versions()['cta']}, commit {provenance.commit() or 'unknown'}"
    foot = f"Written by `{provenance.command()}` on {datetime.now(UTC):%Y-%m-%d %H:%M UTC}. {made}."
    tables = _paper_tables(series, datasets)
    return {
        "title": title(series),
        "opening": opening(runs, series, studies),
        "series": series,
        "training": [_training(runs, one) for one in series],
        "runs": [_run(run, number, labels[number], series) for number, run in enumerate(runs)],
        "task_names": {dataset: behaviour.task_names(dataset) for dataset in datasets},
        "worlds": {dataset: behaviour.geometry(world) for dataset in datasets if (world := find_world(dataset))},
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
        scores = [score for score in paper_scores(name) if score.dataset in datasets and score.dataset != AVERAGE]
        rows = [{**score._asdict(), "ours": ours.get((score.dataset, score.agent))} for score in scores]
        tables += [{"title": heading, "rows": rows}] if rows else []
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


def title(series: Sequence[dict[str, Any]]) -> str:
    """cta and hiql on desk-play-v0."""
    agents, datasets = (list(dict.fromkeys(one[name] for one in series)) for name in ("agent", "data"))
    who = _and(agents) if len(agents) <= 4 else f"{len(agents)} agents"
    where = _and(datasets) if len(datasets) <= 3 else f"{len(datasets)} datasets"
    return f"{who} on {where}"


def opening(
    runs: Sequence[RunRecord], series: Sequence[dict[str, Any]], studies: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The question, the answer on each dataset, how much was done, and what the world is."""
    asked = [one for one in series if one["pairs"]]
    answers = []
    for dataset in dict.fromkeys(one["data"] for one in series):
        mine = [one for one in series if one["data"] == dataset]
        found = {one["label"]: one["pairs"][ALL_PAIRS]["direct"] for one in mine if one["pairs"]}
        if not asked:
            found = {one["label"]: one["success"] for one in mine if one["success"]}
        if found:
            several = len({one["data"] for one in (asked or series)}) > 1
            where = f"On {dataset}, " if several else "Asked for what was cut out, " if asked else ""
            unequal = len({one["steps"] for one in mine}) > 1
            more = " They were trained for different numbers of steps." if unequal else ""
            answers.append(where + verdict(found, asked=bool(asked)) + more)
    question = "How often is the goal reached?" if answers else "What was trained?"
    return {
        "question": "Can an agent do a known task in a context it never saw it in?" if asked else question,
        "answer": answers,
        "done": _done(series),
        "world": [_world(run, studies) for run in {run.dataset: run for run in runs}.values()],
    }


def verdict(scored: dict[str, dict[str, Any]], *, asked: bool = False) -> str:
    """The agents of one dataset from best to worst (`asked`: by direct success), and whether the best two are apart."""
    ranked = sorted(scored.items(), key=lambda one: -one[1]["mean"])
    (best, first), rest = ranked[0], ranked[1:]
    numbers = [f"{best} {'does it directly' if asked else 'reaches the goal'} in {first['mean']:.0f} % of episodes"]
    numbers += [f"{label} in {one['mean']:.0f} %" for label, one in rest[:3]]
    text = f"{', '.join(numbers)}{f', and {len(rest) - 3} more below' if len(rest) > 3 else ''}."
    if not rest:
        return text if len(first["seeds"]) > 1 else f"{text} One seed says little about the next."
    ours, theirs = ((one["mean"], one["std"], len(one["seeds"])) for one in (first, rest[0][1]))
    gap, interval = difference(ours, theirs)
    if interval is None:
        return f"{text} With a single seed the difference may be chance: this does not rank them."
    which = "difference" if len(rest) == 1 else "difference between the first two"
    seeds = _range({ours[2], theirs[2]}, "seed")
    told = "is more than chance" if interval[0] > 0 else "may be chance"
    low, high = (f"{end:.0f}".replace("-", "−") for end in interval)
    enough = seeds_to_tell(ours, theirs) if interval[0] <= 0 else None
    more = f"; about {enough} would tell" if enough else ""
    return f"{text} The {which}, {gap:.0f} points, {told} (95% interval {low} to {high}, {seeds} each{more})."


def _done(series: Sequence[dict[str, Any]]) -> str:
    """lights-3x3-play-v0, pairs cut · 3 seeds · 6,000 steps · 50 episodes per pair"""
    datasets = list(dict.fromkeys(one["data"] for one in series))
    episodes = {count for one in series for count in (one["pair_episodes"] or one["episodes"])}
    per = "pair" if any(one["pairs"] for one in series) else "task"
    parts = [datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"]
    parts += [_range({len(one["seeds"]) for one in series}, "seed"), _range({one["steps"] for one in series}, "step")]
    parts.append(f"{_range(episodes, 'episode')} per {per}" if episodes else "nothing was scored yet")
    return " · ".join(parts)


def _range(values: set[int], word: str) -> str:
    low, high = min(values), max(values)
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} {word}{'' if high == 1 else 's'}"


def _world(run: RunRecord, studies: Sequence[dict[str, Any]]) -> str:
    """A sentence on a dataset's world and one on what was held out."""
    scored = len({row.task for row in run.rows})
    rest = f"Nothing was held out; scored are the world's {scored} tasks." if scored else ""
    held = next((study["held_out"] for study in studies if study["dataset"] == run.dataset), rest)
    unknown = f"The agents learned from {run.dataset}, trajectories recorded elsewhere."
    return f"{WORLDS.get(family(run.dataset), unknown)} {held}".strip()


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
