"""Run directories as plain data: what was trained, on what, and how it scored. Nothing here needs the weights."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.experiment.run_dir import RunDir, condition_of, cut_of
from cta.io.csv_log import CsvLog, whole_number
from cta.io.json_files import read_json
from cta.scores.schema import DATA, Score, read_scores

CONFIG = {"agent_name!": str, "dataset!": str, "seeds!": [int], "steps!": int}
"""What a page needs of config.json; whoever trains or acts reads all of it."""
MOST_POINTS = 200
"""A training curve keeps at most this many points per seed."""


@dataclass
class RunRecord:
    """One run directory, read.

    `dataset` is a name also where the run was given a file; `data` says besides whether something was cut out of it,
    and `cut` what. `made_of` is what the provenance says of the data.
    """

    path: Path
    name: str
    config: dict[str, Any]
    provenance: dict[str, Any]
    made_of: dict[str, Any]
    agent: str
    dataset: str
    data: str
    cut: dict[str, Any] | None
    fingerprint: str | None
    seeds: list[int]
    rows: list[Score] = field(repr=False)
    pair_rows: list[Score] = field(repr=False)


def read_run(path: str | Path) -> RunRecord:
    """Read a run directory; a run that is still training, or was never scored, is fine."""
    files = RunDir.open(path)
    config, provenance = read_json(files.path / "config.json", CONFIG), files.provenance()
    made_of = provenance.get("dataset") or {}
    condition, dataset = condition_of(made_of), RunConfig(AgentConfig(), dataset=config["dataset"]).dataset_name

    def scores(name: str) -> list[Score]:
        file = files.path / name
        return read_scores(file, condition=condition, growing=True) if file.exists() else []

    return RunRecord(
        path=files.path,
        name=files.path.resolve().name,
        config=config,
        provenance=provenance,
        made_of=made_of,
        agent=config["agent_name"],
        dataset=dataset,
        data=dataset + DATA[condition],
        cut=cut_of(made_of),
        fingerprint=made_of.get("fingerprint"),
        seeds=config["seeds"],
        rows=scores("eval.csv"),
        pair_rows=scores("ooc.csv"),
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
