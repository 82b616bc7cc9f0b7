"""From runs to series: runs of one agent on one dataset with the same settings are one series with more seeds."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from cta.evaluation.episodes import LAST_EVALUATIONS
from cta.report.runs import Rates, RunRecord, last_rates, rates
from cta.results.statistics import Summary, summarise

NOT_SETTINGS = (
    "seeds",
    "run_dir",
    "save_dir",
    "group",
    "videos",
    "video_frame_skip",
    "eval_workers",
    "wandb",
    "dataset_dir",
)
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


def build_series(runs: Sequence[RunRecord], *, intervals: bool = True) -> list[dict[str, Any]]:
    """One entry a series: its label, curves by task, success by task, score, and IQM with its interval."""
    groups = group_runs(runs)
    found = [rates(row for number in group for row in runs[number].rows) for group in groups]
    return [
        _series(runs, group, one, label, _summary(last_rates(one), intervals=intervals))
        for group, one, label in zip(groups, found, _labels(runs, groups), strict=True)
    ]


def _summary(last: dict[int, dict[int, float]], *, intervals: bool) -> Summary | None:
    """Mean, deviation and IQM over the seeds that have every task, by the rules of `cta table`."""
    tasks = sorted({task for by_task in last.values() for task in by_task})
    complete = [[by_task[task] for task in tasks] for by_task in last.values() if set(by_task) == set(tasks)]
    return summarise(complete, intervals=intervals) if complete else None


def _labels(runs: Sequence[RunRecord], groups: list[list[int]]) -> list[str]:
    """The agent's name; with the folder's name where an agent occurs twice on a dataset."""
    keys = [(runs[group[0]].data, runs[group[0]].agent) for group in groups]
    return [
        agent if keys.count((dataset, agent)) == 1 else f"{agent} ({runs[group[0]].name})"
        for (dataset, agent), group in zip(keys, groups, strict=True)
    ]


def _series(
    runs: Sequence[RunRecord], group: list[int], found: Rates, label: str, summary: Summary | None
) -> dict[str, Any]:
    first = runs[group[0]]
    last = last_rates(found)
    scores = {seed: 100 * fmean(by_task.values()) for seed, by_task in last.items()}
    episodes = sorted({int(row["episodes"]) for number in group for row in runs[number].rows})
    steps = sorted({step for by_step in found.values() for step in by_step})
    return {
        "label": label,
        "agent": first.agent,
        "dataset": first.dataset,
        "data": first.data,
        "runs": group,
        "seeds": sorted(scores) or sorted(seed for number in group for seed in runs[number].seeds),
        "steps": steps[-1] if steps else int(first.config.get("steps", 0)),
        "planned_steps": int(first.config.get("steps", 0)),
        "episodes": episodes,
        "evaluations": min(LAST_EVALUATIONS, len(steps)),
        "curves": _curves(found),
        "tasks": {
            task: {seed: round(100 * by_task[task], 2) for seed, by_task in last.items() if task in by_task}
            for task in sorted(found)
        },
        "scores": {seed: round(score, 2) for seed, score in scores.items()},
        "mean": round(summary.mean, 2) if summary else None,
        "std": round(summary.std, 2) if summary else None,
        "iqm": round(summary.iqm, 2) if summary else None,
        "interval": [round(end, 2) for end in summary.iqm_interval] if summary and summary.iqm_interval else None,
    }


def _curves(found: Rates) -> dict[str, dict[str, Any]]:
    """{"all" or task: {"steps": […], "seeds": {seed: [% or null]}}}."""
    steps = sorted({step for by_step in found.values() for step in by_step})
    seeds = sorted({seed for by_step in found.values() for at in by_step.values() for seed in at})

    def at(task: int, step: int, seed: int) -> float | None:
        return found[task].get(step, {}).get(seed)

    def percent(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(100 * fmean(known), 2) if len(known) == len(values) and known else None

    choices = {"all": sorted(found), **{str(task): [task] for task in sorted(found)}}
    return {
        name: {
            "steps": steps,
            "seeds": {seed: [percent([at(task, step, seed) for task in tasks]) for step in steps] for seed in seeds},
        }
        for name, tasks in choices.items()
        if tasks
    }
