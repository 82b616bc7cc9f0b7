"""What the record of a score says of the run that trained it and of the machine that scored it."""

import shlex
from pathlib import Path
from typing import Any

from cta.config import to_dict
from cta.experiment import Run
from cta.io import provenance
from cta.io.json_files import read_json
from cta.scores.protocol import CellScores
from cta.scores.records import CLOCK
from cta.scores.schema import order


def training_facts(run: Run, step: int) -> dict[str, Any]:
    """Commit, versions, hardware, kernels, data, settings, clock and command of a run that has come to `step`."""
    seen = run.files.provenance()
    data = seen.get("dataset", {})
    return {
        "steps": step,
        "command": _without_folders(seen.get("command", "")),
        "seeds_together": len(run.config.seeds),
        **{name: seen.get(name) for name in ("commit", "versions", "hardware", "seeding", "kernels", "products")},
        "data": {name: data.get(name) for name in ("fingerprint", "transitions", "provenance")}
        | ({"normalised": True} if data.get("normalised") else {}),
        "settings": to_dict(run.config.agent),
        **_clocks(run, step),
    }


def run_cell(run: Run) -> CellScores:
    """What a run says of its cell: eval.csv, ooc.csv, and who trained it."""
    rows = [*run.evaluations(), *run.files.scores(run.config, "ooc.csv")]
    steps = max([row.step for row in rows] or run.steps() or [0])
    training = [{"seeds": list(run.config.seeds), **training_facts(run, steps)}]
    latest = {(row.seed, row.step, row.task): row for row in rows}.values()
    return CellScores(run.cell, tuple(sorted(latest, key=order)), {"training": training, "scoring": []})


def _clocks(run: Run, step: int) -> dict[str, float]:
    """Wall-clock seconds, seed-steps per second over all of them, and in the steps alone (median over train.csv)."""
    seeds = len(run.config.seeds)
    rates = sorted(filter(None, map(_rate, run.files.train_log().read())))
    found: dict[str, float] = {}
    if (run.path / CLOCK).is_file():
        seconds = read_json(run.path / CLOCK).get("wall_clock_s")
        if isinstance(seconds, int | float) and seconds > 0:
            found |= {"wall_clock_s": round(seconds, 1), "seed_steps_per_s": round(seeds * step / seconds, 1)}
    if rates:
        found["seed_steps_per_s_steady"] = round(seeds * rates[len(rates) // 2], 1)
    return found


def _rate(row: dict[str, str]) -> float:
    try:
        return max(0.0, float(row["steps_per_s"]))
    except (KeyError, ValueError):
        return 0.0


def scoring_facts(**how: Any) -> dict[str, Any]:
    made = {name: getattr(provenance, name)() for name in ("commit", "versions", "hardware")}
    return {**how, "command": _without_folders(provenance.command()), **made}


def _without_folders(command: str) -> str:
    """Where files lay on a machine is nobody's business and of no use on another."""
    join = shlex.join
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its other half
        words = []
    if join(words) != command:  # earlier versions wrote words as they are, with spaces between them
        words, join = command.split(" "), " ".join
    return join([Path(word).name if word.startswith(("/", "~")) else word for word in words])
