"""Run directories as plain data: what was trained, on what, and how it scored. Nothing here needs the weights."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from cta.config import AgentConfig, RunConfig
from cta.errors import CtaError
from cta.evaluation.episodes import LAST_EVALUATIONS
from cta.experiment.run_dir import RunDir, read_json
from cta.training.logs import CsvLog

MOST_POINTS = 200
"""A training curve keeps at most this many points a seed."""

Rates = dict[int, dict[int, dict[int, float]]]
"""{task: {step: {seed: success in [0, 1]}}}"""


@dataclass
class RunRecord:
    """One run directory, read."""

    path: Path
    config: dict[str, Any]
    provenance: dict[str, Any]
    rows: list[dict[str, str]] = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def agent(self) -> str:
        return str(self.config.get("agent_name", "?"))

    @property
    def dataset(self) -> str:
        """The dataset's name, also when it was given as a file."""
        return RunConfig(AgentConfig(), dataset=str(self.config.get("dataset", "?"))).dataset_name

    @property
    def cut(self) -> dict[str, Any] | None:
        """What `cta ooc cut` took out of the data, if it did."""
        made = (self.provenance.get("dataset") or {}).get("provenance") or {}
        return made.get("ooc")

    @property
    def data(self) -> str:
        """The dataset in words: its name, and whether something was cut out of it."""
        if not self.cut:
            return self.dataset
        return f"{self.dataset}, {'random windows cut' if self.cut.get('kind') == 'random' else 'pairs cut'}"

    @property
    def fingerprint(self) -> str | None:
        return (self.provenance.get("dataset") or {}).get("fingerprint")

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self.config.get("seeds", [])]


def read_run(path: str | Path) -> RunRecord:
    """Read a run directory; a run that is still training, or was never scored, is fine."""
    files = RunDir.open(path)
    config = read_json(files.path / "config.json")
    where = files.path / "provenance.json"
    provenance = read_json(where) if where.exists() else {}
    rows = CsvLog(files.path / "eval.csv").read()
    try:
        _check_rows(rows)
    except (KeyError, ValueError) as error:
        raise CtaError(f"{files.path}/eval.csv: a row is not seed,step,task,episodes,successes ({error})") from error
    return RunRecord(files.path, config, provenance, rows)


def _check_rows(rows: Iterable[Mapping[str, str]]) -> None:
    for row in rows:
        numbers = [int(row[name]) for name in ("seed", "step", "task", "episodes", "successes")]
        if not 0 <= numbers[4] <= numbers[3] or numbers[3] < 1:
            raise ValueError(f"{numbers[4]} successes in {numbers[3]} episodes")


def rates(rows: Iterable[Mapping[str, str]]) -> Rates:
    """Success by task, step and seed."""
    found: Rates = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        success = int(row["successes"]) / int(row["episodes"])
        found[int(row["task"])][int(row["step"])][int(row["seed"])] = success
    return found


def last_rates(found: Rates, *, last: int = LAST_EVALUATIONS) -> dict[int, dict[int, float]]:
    """{seed: {task: mean of its last three evaluations}}."""
    result: dict[int, dict[int, float]] = defaultdict(dict)
    for task, by_step in sorted(found.items()):
        curves: dict[int, list[float]] = defaultdict(list)
        for step in sorted(by_step):
            for seed, rate in by_step[step].items():
                curves[seed].append(rate)
        for seed, curve in sorted(curves.items()):
            result[seed][task] = fmean(curve[-last:])
    return result


def training_curves(path: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"steps": […], "seeds": {seed: […]}}} of train.csv, thinned; clocks and sizes are left out."""
    rows = CsvLog(path / "train.csv").read()
    if not rows:
        return {}
    names = [name for name in rows[0] if name.startswith(("training/", "validation/"))]
    steps = sorted({int(row["step"]) for row in rows})
    steps = steps[:: -(-len(steps) // MOST_POINTS)]
    at = {(row["seed"], int(row["step"])): row for row in rows}
    seeds = sorted({row["seed"] for row in rows}, key=int)
    return {
        name: {
            "steps": steps,
            "seeds": {seed: [_number(at.get((seed, step), {}).get(name)) for step in steps] for seed in seeds},
        }
        for name in names
    }


def _number(text: str | None) -> float | None:
    """A value of train.csv with four digits; what is missing or not finite becomes a gap."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return float(f"{value:.4g}") if abs(value) < float("inf") else None
