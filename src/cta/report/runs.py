"""Run directories as plain data, without their weights, and series of them: runs that differ in their seeds alone."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.experiment.run_dir import RunDir, condition_of, cut_of
from cta.io.csv_log import CsvLog, whole_number
from cta.io.json_files import read_json
from cta.scores import statistics
from cta.scores.paper import ALL_PAIRS
from cta.scores.schema import DATA, Score, read_scores
from cta.scores.statistics import by_evaluation, seed_scores, task_scores

CONFIG = {"agent_name!": str, "dataset!": str, "seeds!": [int], "steps!": int}
"""What a page needs of config.json; whoever trains or acts reads all of it."""
MOST_POINTS = 200  # a training curve keeps at most this many points per seed
NOT_SETTINGS = {"seeds", "run_dir", "save_dir", "group", "videos", "video_frame_skip", "eval_workers", "size"}
NOT_SETTINGS |= {"wandb", "dataset_dir"}
"""Fields of a run's config that do not change what is learned or how it is scored."""


class RunRecord:
    """One run directory, read; a run that is still training, or was never scored, is fine."""

    def __init__(self, path: str | Path):
        files = RunDir.open(path)
        self.path, self.name = files.path, files.path.resolve().name
        self.config = read_json(files.path / "config.json", CONFIG)
        self.agent: str = self.config["agent_name"]
        self.seeds: list[int] = self.config["seeds"]
        self.provenance = files.provenance()
        self.made_of: dict[str, Any] = self.provenance.get("dataset") or {}  # what is known of the data
        self.fingerprint: str | None = self.made_of.get("fingerprint")
        self.cut, condition = cut_of(self.made_of), condition_of(self.made_of)
        # A name, also where the run was given a file; `data` says besides whether something was cut out of it.
        self.dataset = RunConfig(AgentConfig(), dataset=self.config["dataset"]).dataset_name
        self.data = self.dataset + DATA[condition]
        self.rows, self.pair_rows = (
            read_scores(file, condition=condition, growing=True) if file.exists() else []
            for file in (files.path / "eval.csv", files.path / "ooc.csv")
        )


def training_curves(path: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"steps": […], "seeds": {seed: […]}}} of offline.csv and train.csv, thinned; clocks are left out."""
    offline = _curves(path / "offline.csv", lambda name: name.endswith("_order"))
    training = _curves(path / "train.csv", lambda name: name.startswith(("training/", "validation/")))
    return {f"held-out trajectories/{name}": curve for name, curve in offline.items()} | training


def _curves(file: Path, shown: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    rows = CsvLog(file).read()
    at = {(whole_number(row, "seed", file), whole_number(row, "step", file)): row for row in rows}
    steps, seeds = sorted({step for _, step in at}), sorted({seed for seed, _ in at})
    steps = steps[:: max(1, -(-len(steps) // MOST_POINTS))]
    found = {}
    for name in rows[0] if rows else ():
        if shown(name) and any(_number(row[name]) is not None for row in rows):
            curves = {seed: [_number(at.get((seed, step), {}).get(name)) for step in steps] for seed in seeds}
            found[name] = {"steps": steps, "seeds": curves}
    return found


def _number(text: str | None) -> float | None:
    """A value of train.csv with four digits; what is missing or not finite becomes a gap."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return float(f"{value:.4g}") if abs(value) < float("inf") else None


def group_runs(runs: Sequence[RunRecord]) -> list[list[int]]:
    """Indices of runs, grouped: same agent, dataset and settings, and no seed twice."""
    groups: list[list[int]] = []
    for number, run in enumerate(runs):
        for group in groups:
            taken = {seed for other in group for seed in runs[other].seeds}
            if _settings(runs[group[0]]) == _settings(run) and not taken & set(run.seeds):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _settings(run: RunRecord) -> str:
    kept = {name: value for name, value in run.config.items() if name not in NOT_SETTINGS}
    return json.dumps({**kept, "dataset": [run.data, run.fingerprint]}, sort_keys=True)


def build_series(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """One entry per series: its label, curves, success overall and by task, and what it came to on held-out pairs."""
    groups = group_runs(runs)
    firsts = [runs[group[0]] for group in groups]
    agents = Counter((run.data, run.agent) for run in firsts)
    # The folder's name tells those apart whose agent occurs twice on a dataset.
    labels = [run.agent if agents[run.data, run.agent] == 1 else f"{run.agent} ({run.name})" for run in firsts]
    return [_series(runs, group, label) for group, label in zip(groups, labels, strict=True)]


def _series(runs: Sequence[RunRecord], group: list[int], label: str) -> dict[str, Any]:
    first, rows = runs[group[0]], [row for number in group for row in runs[number].rows]
    asked = _complete(row for number in group for row in runs[number].pair_rows)
    tasks, steps = task_scores(rows), sorted({row.step for row in rows})
    choices = {"all": {*tasks}, **{task: {task} for task in tasks}} if tasks else {}
    # Mean, deviation and IQM are over the seeds that have every task.
    whole = _complete(rows)
    success = measured(seed_scores(whole))
    return {
        "label": label,
        "agent": first.agent,
        "dataset": first.dataset,
        "data": first.data,
        "runs": group,
        "seeds": sorted({row.seed for row in rows} or {seed for number in group for seed in runs[number].seeds}),
        "steps": max((row.step for row in (*rows, *asked)), default=first.config["steps"]),
        "planned_steps": first.config["steps"],
        "episodes": sorted({row.episodes for row in rows}),
        "pair_episodes": sorted({row.episodes for row in asked}),
        "evaluations": min(statistics.LAST_EVALUATIONS, len(steps)),
        "curves": {name: _curve(rows, chosen, steps) for name, chosen in choices.items()},
        "tasks": {task: measured(by_seed) for task, by_seed in tasks.items()},
        "success": success and success | {"iqm": round(statistics.summarise(whole).iqm, 2)},
        "pairs": _pairs(asked),
    }


def _complete(rows: Iterable[Score]) -> list[Score]:
    """The rows of the seeds that have every task."""
    rows = list(rows)
    there = {(row.seed, row.task) for row in rows}
    tasks = {task for _, task in there}
    return [row for row in rows if all((row.seed, task) in there for task in tasks)]


def _pairs(rows: Sequence[Score]) -> dict[str, dict[str, Any]]:
    """{pair, and "all": {direct, successes, lenient: measured over seeds}}"""
    if not rows:
        return {}
    chosen = {ALL_PAIRS: rows, **{pair: [row for row in rows if row.task == pair] for pair in task_scores(rows)}}
    kinds = statistics.KINDS
    return {pair: {kind: measured(seed_scores(mine, kind)) for kind in kinds} for pair, mine in chosen.items()}


def measured(by_seed: Mapping[int, float]) -> dict[str, Any] | None:
    """What a bar shows: the seeds, their mean and deviation, and Student's interval of the mean; None of no seed."""
    values = [*by_seed.values()]
    if not values:
        return None
    interval = statistics.mean_interval(values)
    return {
        "mean": round(fmean(values), 2),
        "std": round(pstdev(values), 2),
        "interval": interval and [round(end, 2) for end in interval],
        "seeds": {seed: round(score, 2) for seed, score in by_seed.items()},
    }


def _curve(rows: Sequence[Score], tasks: Set[str], steps: Sequence[int]) -> dict[str, Any]:
    """{"steps": […], "seeds": {seed: [% or null]}}; an evaluation without one of the tasks is a gap."""
    mine = [row for row in rows if row.task in tasks]
    there = Counter((row.seed, row.step) for row in mine)
    found = {
        seed: [round(by_step[step], 2) if there[seed, step] == len(tasks) else None for step in steps]
        for seed, by_step in by_evaluation(mine).items()
    }
    return {"steps": steps, "seeds": found}
