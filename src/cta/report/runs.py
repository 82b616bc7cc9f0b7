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
    """One run directory, read."""

    path: Path
    config: dict[str, Any]
    provenance: dict[str, Any]
    rows: list[Score] = field(repr=False)

    def scores(self, name: str) -> list[Score]:
        """The rows of one of its files of scores."""
        path, condition = self.path / name, condition_of(self.made_of)
        return read_scores(path, condition=condition, growing=True) if path.exists() else []

    @property
    def made_of(self) -> dict[str, Any]:
        """What its provenance says of the data."""
        return self.provenance.get("dataset") or {}

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def agent(self) -> str:
        return self.config["agent_name"]

    @property
    def dataset(self) -> str:
        """The dataset's name, also when it was given as a file."""
        return RunConfig(AgentConfig(), dataset=self.config["dataset"]).dataset_name

    @property
    def cut(self) -> dict[str, Any] | None:
        """What `cta ooc cut` took out of the data, if it did."""
        return cut_of(self.made_of)

    @property
    def data(self) -> str:
        """The dataset in words: its name, and whether something was cut out of it."""
        return self.dataset + DATA[condition_of(self.made_of)]

    @property
    def fingerprint(self) -> str | None:
        return self.made_of.get("fingerprint")

    @property
    def seeds(self) -> list[int]:
        return self.config["seeds"]


def read_run(path: str | Path) -> RunRecord:
    """Read a run directory; a run that is still training, or was never scored, is fine."""
    files = RunDir.open(path)
    config = read_json(files.path / "config.json", CONFIG)
    record = RunRecord(files.path, config, files.provenance(), [])
    record.rows += record.scores("eval.csv")
    return record


def training_curves(path: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"steps": […], "seeds": {seed: […]}}} of offline.csv and train.csv, thinned; clocks are left out."""
    offline = _curves(path / "offline.csv", lambda name: name.endswith("_order"))
    training = _curves(path / "train.csv", lambda name: name.startswith(("training/", "validation/")))
    return {f"held-out trajectories/{name}": curve for name, curve in offline.items()} | training


def _curves(file: Path, shown: Callable[[str], bool]) -> dict[str, dict[str, Any]]:
    rows = CsvLog(file).read()
    at = {(whole_number(row, "seed", file), whole_number(row, "step", file)): row for row in rows}
    steps = sorted({step for _, step in at})
    steps = steps[:: max(1, -(-len(steps) // MOST_POINTS))]
    seeds = sorted({seed for seed, _ in at})
    return {
        name: {
            "steps": steps,
            "seeds": {seed: [_number(at.get((seed, step), {}).get(name)) for step in steps] for seed in seeds},
        }
        for name in (rows[0] if rows else [])
        if shown(name) and any(_number(row[name]) is not None for row in rows)
    }


def _number(text: str | None) -> float | None:
    """A value of train.csv with four digits; what is missing or not finite becomes a gap."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return float(f"{value:.4g}") if abs(value) < float("inf") else None
