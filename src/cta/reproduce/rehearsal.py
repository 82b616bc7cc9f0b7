"""While data are made the accelerator has nothing to do: training on random rows of their shape compiles and shows the
speed, so that the run itself starts at once and with as many seeds as the time allows.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from cta.envs.names import CONTROL_DIMS, STATE_DIMS, known_spec, validation_count
from cta.reproduce.plan import PlannedCell
from cta.reproduce.schedule import Choice
from cta.reproduce.units import Unit
from cta.reproduce.work import Workspace

FOLDER = "rehearsal"
SHARE = 50
"""A rehearsal has this part of the steps."""


def rehearsed(space: Workspace, choice: Choice) -> Unit | None:
    """The run of a rehearsal, with random rows to train on; None for worlds whose rows have no known shape."""
    cell = choice.cell
    if known_spec(cell.dataset).env_name not in STATE_DIMS:
        return None
    target = random_file(space, cell)
    _write(cell, target)
    steps = max(1, cell.steps // SHARE)
    few = replace(cell, steps=steps, points=(steps,), curve_points=())
    path = target.parent / cell.agent.replace(":", "-") / "-".join(map(str, choice.seeds))
    shutil.rmtree(path, ignore_errors=True)
    return Unit(few, choice.seeds, path)


def random_file(space: Workspace, cell: PlannedCell) -> Path:
    return space.folder / FOLDER / f"{cell.dataset}.npz"


def _write(cell: PlannedCell, target: Path) -> None:
    spec = known_spec(cell.dataset)
    episodes, rows = cell.data.episodes or spec.episodes, (cell.data.episode_steps or spec.episode_steps) + 1
    target.parent.mkdir(parents=True, exist_ok=True)
    for path, count in ((target.with_name(f"{target.stem}-val.npz"), validation_count(episodes)), (target, episodes)):
        if not path.exists():
            draw = np.random.default_rng(0)
            arrays = {
                "observations": draw.random((count * rows, STATE_DIMS[spec.env_name]), np.float32),
                "actions": draw.random((count * rows, CONTROL_DIMS[spec.family]), np.float32),
                "terminals": np.tile(np.arange(rows) == rows - 1, count),
            }
            fresh = path.with_name(f".{path.stem}.tmp.npz")
            try:
                np.savez(fresh, **arrays)
                os.replace(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)
