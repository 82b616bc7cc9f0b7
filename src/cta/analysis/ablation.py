"""The paper's ablations: one setting over a grid, everything else as it is. Stopped anywhere, it continues."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from cta import provenance
from cta.analysis.readings import read, readings_of
from cta.config import ConditionedConfig, RunConfig, TwoLevelConfig, to_dict
from cta.data.files import write_whole
from cta.errors import CtaError
from cta.evaluation import seed_scores
from cta.experiment import Run, resume, run_config, start

READING = "reading"
DEFAULT_VALUES = {"k": (10, 20, 30, 40), "b": (4, 8, 16, 32)}
MEANING = {
    "k": "subgoal steps k",
    "b": "transductive feature dimension b",
    READING: "reading of a place where the paper's text and the released code differ",
}
EVALUATIONS = 10
"""How often a run is scored on the way, unless asked otherwise."""


Values = tuple[int, ...] | tuple[str, ...]
"""Numbers of k or b, or names of readings."""


def default_values(what: str, agent: str, dataset: str) -> Values:
    """The paper's grid, or every reading of the agent."""
    return readings_of(run_config(agent, dataset)) if what == READING else DEFAULT_VALUES[what]


def parse_values(what: str, words: Sequence[str] | None) -> Values:
    """Values as they are typed."""
    if what == READING:
        return tuple(words or ())
    wrong = [word for word in words or () if not word.lstrip("-").isdecimal()]
    if wrong:
        raise CtaError(f"--values: {wrong[0]!r} is not a whole number")
    return tuple(map(int, words or ()))


@dataclass(frozen=True)
class Ablation:
    """What is varied, over which values, and how each value is trained; `None` is the preset's."""

    what: str
    values: Values
    out: Path
    datasets: tuple[str, ...] = ("desk-play-v0",)
    agent: str = "cta"
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    eval_interval: int | None = None
    eval_episodes: int | None = None
    dataset_dir: str | None = None

    def check(self) -> None:
        """Complain in one line about what cannot be, before any cell is trained."""
        for name, chosen in (("--values", self.values), ("--dataset", self.datasets)):
            if not chosen or len(set(chosen)) != len(chosen):
                raise CtaError(f"{name}: name each once, and at least one")
        if self.what != READING and min(map(int, self.values)) < 1:
            raise CtaError(f"--values: {MEANING[self.what]} is at least 1, not {min(map(int, self.values))}")
        if self.eval_interval == 0:
            raise CtaError("--eval-interval must be at least 1, not 0: the curves are made of evaluations")
        for dataset in self.datasets:
            for value in self.values:
                config = self.config(dataset, value)
                config.check()
                _check_same_experiment(self.folder(dataset, value), config)

    def config(self, dataset: str, value: int | str) -> RunConfig:
        """The preset of this agent and dataset with the one setting changed."""
        base = run_config(self.agent, dataset)
        steps = base.steps if self.steps is None else self.steps
        interval = max(1, steps // EVALUATIONS) if self.eval_interval is None else self.eval_interval
        config = replace(
            base,
            seeds=self.seeds,
            steps=steps,
            eval_interval=interval,
            checkpoint_interval=interval,
            eval_episodes=base.eval_episodes if self.eval_episodes is None else self.eval_episodes,
            log_interval=min(base.log_interval, steps),
            dataset_dir=self.dataset_dir,
            run_dir=str(self.folder(dataset, value)),
        )
        if self.what == READING:
            return read(config, str(value))
        return replace(config, agent=_changed(base.agent, self.what, int(value), self.agent))

    def folder(self, dataset: str, value: int | str) -> Path:
        """The run directory of one cell."""
        name = value if self.what == READING else f"{self.what}{value}"
        return self.out / Path(dataset).name.removesuffix(".npz") / str(name)


def _changed(config: Any, what: str, value: int, agent: str) -> Any:
    if what == "k":
        if not isinstance(config, TwoLevelConfig):
            raise CtaError(f"{agent} has no subgoals: k belongs to the two-level agents")
        return replace(config, subgoal_steps=value)
    if not isinstance(config, ConditionedConfig) or config.networks != "bilinear":
        raise CtaError(f"{agent} has no bilinear networks: b belongs to cta, cta-gcb and gcivl-analogy")
    return replace(config, trunk=replace(config.trunk, rank=value))


def run_ablation(ablation: Ablation, *, say: Callable[[str], None], quiet: bool = False) -> list[dict[str, Any]]:
    """Train what is not trained yet, and write everything anew after each run; returns the summary."""
    ablation.check()
    rows: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    for dataset in ablation.datasets:
        for value in ablation.values:
            run = _train(ablation, dataset, value, say=say, quiet=quiet)
            mine = [{"setting": ablation.what, "value": value, **row} for row in run.evaluations()]
            if not mine:
                raise CtaError(f"{run.path} has no evaluation: {dataset} belongs to no known environment")
            rows += mine
            records.append({"dataset": run.config.dataset_name, "value": value, **_facts(run)})
            _write(ablation, rows, records)
    return summary(rows)


def _train(ablation: Ablation, dataset: str, value: int | str, *, say: Callable[[str], None], quiet: bool) -> Run:
    """Train one cell, go on training it, or find it finished."""
    config = ablation.config(dataset, value)
    path = ablation.folder(dataset, value)
    label = f"{config.dataset_name}, {ablation.what} = {value}"
    if not _begun(path):
        say(f"{label}: {config.steps:,} steps")
        return start(config, quiet=quiet)
    run = Run(path)
    if "finished" in run.files.provenance():
        say(f"{label}: finished before")
        return run
    say(f"{label}: going on")
    return resume(path, quiet=quiet)


def _begun(path: Path) -> bool:
    return (path / "config.json").exists()


def _check_same_experiment(path: Path, config: RunConfig) -> None:
    """Refuse a cell whose folder holds another experiment."""
    if not _begun(path):
        return
    old, new = _comparable(Run(path).config), _comparable(config)
    different = sorted(key for key in old | new if old.get(key) != new.get(key))
    if different:
        raise CtaError(f"{path} was trained with other settings ({', '.join(different)}); choose another --out")


def _comparable(config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same experiment."""
    values = to_dict(config)
    kept = ("agent_name", "dataset", "seeds", "steps", "eval_interval", "eval_episodes", "eval_temperature")
    return {name: values[name] for name in kept} | {f"agent.{name}": v for name, v in values["agent"].items()}


def _facts(run: Run) -> dict[str, Any]:
    known = run.files.provenance()
    kept = ("command", "commit", "versions", "hardware", "finished")
    data = {key: known.get("dataset", {}).get(key) for key in ("name", "fingerprint", "transitions")}
    config = to_dict(replace(run.config, run_dir=None))
    return {**{key: known.get(key) for key in kept}, "stopped": run.stopped(), "data": data, "config": config}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line for each dataset and value: success in per cent, mean of the last three evaluations, over seeds."""
    lines = []
    for dataset, value in dict.fromkeys((row["dataset"], row["value"]) for row in rows):
        mine = [row for row in rows if (row["dataset"], row["value"]) == (dataset, value)]
        scores = [100 * score for score in seed_scores(mine).values()]
        lines.append(
            {
                "dataset": dataset,
                "agent": mine[0]["agent"],
                "setting": mine[0]["setting"],
                "value": value,
                "steps": max(int(row["step"]) for row in mine),
                "episodes": int(mine[0]["episodes"]),
                "seeds": len(scores),
                "success": round(fmean(scores), 1),
                "sd": round(pstdev(scores), 1),
                "per_seed": " ".join(f"{score:.1f}" for score in scores),
            }
        )
    return lines


def _write(ablation: Ablation, rows: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> None:
    from cta.analysis.ablation_figure import draw

    out = ablation.out
    lines = summary(rows)
    write_whole(out / "evaluations.csv", csv_text(rows))
    write_whole(out / "summary.csv", csv_text(lines))
    record = {
        "setting": ablation.what,
        "meaning": MEANING[ablation.what],
        "values": list(ablation.values),
        "summary": lines,
        "command": provenance.command(),
        "commit": provenance.commit(),
        "runs": list(records),
    }
    write_whole(out / "record.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    draw(out / "ablation.png", rows, what=ablation.what)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
