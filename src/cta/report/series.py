"""From runs to series: runs of one agent on one dataset with the same settings are one series with more seeds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import fmean, pstdev
from typing import Any

from cta.report.runs import RunRecord
from cta.scores.paper import ALL_PAIRS
from cta.scores.schema import Score
from cta.scores.statistics import (
    KINDS,
    LAST_EVALUATIONS,
    by_evaluation,
    mean_interval,
    seed_scores,
    summarise,
    task_scores,
)

NOT_SETTINGS = (
    "seeds", "run_dir", "save_dir", "group", "videos", "video_frame_skip", "eval_workers", "wandb", "dataset_dir",
    "size",
)  # fmt: skip
"""Fields of a run's config that do not change what is learned or how it is scored."""


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
        "evaluations": min(LAST_EVALUATIONS, len(steps)),
        "curves": {name: _curve(rows, chosen, steps) for name, chosen in choices.items()},
        "tasks": {task: measured(by_seed) for task, by_seed in tasks.items()},
        "success": success and success | {"iqm": round(summarise(whole).iqm, 2)},
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
    return {pair: {kind: measured(seed_scores(mine, kind)) for kind in KINDS} for pair, mine in chosen.items()}


def measured(by_seed: Mapping[int, float]) -> dict[str, Any] | None:
    """What a bar shows: the seeds, their mean and deviation, and Student's interval of the mean; None of no seed."""
    values = [*by_seed.values()]
    if not values:
        return None
    interval = mean_interval(values)
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
