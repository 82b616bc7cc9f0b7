"""What the record of a result says of the run that trained it, read from the run directory."""

import shlex
from pathlib import Path
from typing import Any

from cta import provenance
from cta.config import to_dict
from cta.experiment import Run
from cta.experiment.run_dir import read_json
from cta.results.records import CLOCK


def training_facts(run: Run, step: int) -> dict[str, Any]:
    """Commit, versions, hardware, data, settings, clock and command of a run that has come to `step`."""
    seen = run.files.provenance()
    data = seen.get("dataset", {})
    facts: dict[str, Any] = {
        "steps": step,
        "command": _without_folders(seen.get("command", "")),
        "commit": seen.get("commit"),
        "versions": seen.get("versions"),
        "hardware": seen.get("hardware"),
        "seeds_together": len(run.config.seeds),
        "seeding": seen.get("seeding"),
        "data": {name: data.get(name) for name in ("fingerprint", "transitions", "provenance")},
        "settings": to_dict(run.config.agent),
    }
    return facts | clocks(run, step)


def clocks(run: Run, step: int) -> dict[str, float]:
    """Wall-clock seconds, seed-steps per second over all of them, and in the steps alone (median over train.csv)."""
    seeds = len(run.config.seeds)
    rates = sorted(float(row["steps_per_s"]) for row in run.files.train_log().read() if float(row["steps_per_s"]) > 0)
    found: dict[str, float] = {}
    if (run.path / CLOCK).is_file():
        seconds = float(read_json(run.path / CLOCK)["wall_clock_s"])
        if seconds > 0:
            found |= {"wall_clock_s": round(seconds, 1), "seed_steps_per_s": round(seeds * step / seconds, 1)}
    if rates:
        found["seed_steps_per_s_steady"] = round(seeds * rates[len(rates) // 2], 1)
    return found


def scoring_facts(*, episodes: int, weights: str, workers: int, eval_seed: int) -> dict[str, Any]:
    """The same for the machine that scores."""
    return {
        "episodes": episodes,
        "temperature": 0.0,
        "eval_seed": eval_seed,
        "weights": weights,
        "workers": workers,
        "command": _without_folders(provenance.command()),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }


def _without_folders(command: str) -> str:
    """Where files lay on a machine is nobody's business and of no use on another."""
    words, join = _split(command), shlex.join
    if join(words) != command:  # earlier versions wrote words as they are, with spaces between them
        words, join = command.split(" "), " ".join
    return join([Path(word).name if word.startswith(("/", "~")) else word for word in words])


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its other half
        return []
