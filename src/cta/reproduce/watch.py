"""How far jobs have come, read from the files they write."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from cta.envs.generate import SPLITS, plan_job
from cta.reproduce.board import clock
from cta.reproduce.jobs import GENERATE, REHEARSE, TRAIN, Job
from cta.reproduce.plan import PlannedCell
from cta.reproduce.units import Unit
from cta.reproduce.work import Workspace
from cta.results import records
from cta.training.logs import CsvLog


def training_progress(unit: Unit) -> tuple[int, float]:
    """(last logged step, steps per second: the median of the last logged blocks, 0 before the first)."""
    try:
        rows = CsvLog(unit.path / "train.csv").read()
    except FileNotFoundError:  # a run that could not begin has just removed it
        rows = []
    if not rows:
        return unit.step, 0.0
    rates = sorted(float(row["steps_per_s"]) for row in rows[-5 * len(unit.seeds) :])
    return int(rows[-1]["step"]), rates[len(rates) // 2]


def generated_share(space: Workspace, cell: PlannedCell) -> float:
    """Share of a dataset's episodes that are there."""
    if space.generated_file(cell).exists():
        return 1.0
    size = {"episodes": cell.data.episodes, "episode_steps": cell.data.episode_steps, "seed": cell.data.seed}
    job = plan_job(cell.dataset, folder=space.data_folder(cell), **size)
    try:
        parts = sum(name.endswith(".npz") for name in os.listdir(job.workshop()))
    except FileNotFoundError:
        parts = 0
    return min(1.0, parts / sum(job.count(split) for split in SPLITS))


def progress(space: Workspace, jobs: Sequence[Job]) -> dict[str, tuple[float | None, str]]:
    """{job: (share done, a word on it)}."""
    shown: dict[str, tuple[float | None, str]] = {}
    for job in jobs:
        if job.kind in (TRAIN, REHEARSE):
            unit = job.subject
            step, rate = training_progress(unit)
            left = f", {clock((unit.cell.steps - step) / rate)} left" if rate else ""
            note = f"{step:,} of {unit.cell.steps:,}, {rate * len(unit.seeds):,.0f} seed-steps/s{left}"
            shown[job.name] = step / unit.cell.steps, note if rate else "starting"
        elif job.kind == GENERATE:
            share = generated_share(space, job.subject)
            shown[job.name] = share, f"{share:.0%}"
        else:
            shown[job.name] = None, clock(job.seconds)
    return shown


def data_notices(space: Workspace, unit: Unit) -> list[str] | None:
    """What the records know of other fingerprints of this run's data; None until the run has read them."""
    seen = _json(unit.path / "provenance.json")
    if "dataset" not in seen:
        return None
    here = records.empty(unit.cell.dataset, unit.cell.agent)
    here["training"] = [{"seeds": [0], "data": seen["dataset"], "hardware": seen.get("hardware")}]
    known = [cell.record for cell in space.store(unit.cell).cells() if cell.dataset == unit.cell.dataset]
    return records.notices([*known, here])


def _json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
