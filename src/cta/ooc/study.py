"""The whole study: cut, train, ask, and put the numbers where others find them. Stopped anywhere, it continues."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.config import to_dict
from cta.data.files import resolve, write_whole
from cta.errors import CtaError
from cta.evaluation.episodes import LAST_EVALUATIONS
from cta.experiment import Run, resume, run_config, start
from cta.experiment.chosen import choose_steps
from cta.ooc.cut import cut_files
from cta.ooc.evaluation import check_can_ask
from cta.ooc.logs import COLUMNS
from cta.ooc.pairs_file import HeldOut
from cta.ooc.scoring import Progress, evaluate_run, scoring_facts
from cta.ooc.trials import EPISODES, make_trials
from cta.training.logs import CsvLog

AGENTS = ("cta", "hiql-analogy", "hiql-dual", "gciql-dual", "hiql")
HELD_OUT, UNCUT, RANDOM = "held-out", "uncut", "random"
CONTROLS = (UNCUT, RANDOM)


@dataclass(frozen=True)
class Study:
    """What is trained and asked.

    `controls` are the data beside the cut ones: `uncut` (what the cut costs) and `random` (as many random windows cut:
    what cutting itself costs). `steps` None is the preset's.
    """

    dataset: str
    held_out: HeldOut
    out: Path
    agents: tuple[str, ...] = AGENTS
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    steps: int | None = None
    controls: tuple[str, ...] = ()
    per_pair: bool = False
    episodes: int = EPISODES
    workers: int | None = None
    dataset_dir: str | None = None

    @property
    def name(self) -> str:
        return resolve(self.dataset).name

    def check(self) -> None:
        """Complain in one line about what cannot be, before anything is written or trained."""
        unknown = [control for control in self.controls if control not in CONTROLS]
        if unknown:
            raise CtaError(f"--controls: there is no '{unknown[0]}'; there are {', '.join(CONTROLS)}")
        if not self.agents or len(set(self.agents)) != len(self.agents):
            raise CtaError("--agents: name each agent once")
        if self.per_pair and RANDOM in self.controls:
            raise CtaError("--per-pair: the control of random windows goes with all pairs cut at once")
        check_can_ask(self.name)
        make_trials(self.held_out, episodes=self.episodes)
        steps: dict[str, Any] = {} if self.steps is None else {"steps": self.steps}
        for agent in self.agents:
            run_config(agent, self.name, seeds=self.seeds, **steps).check()


@dataclass(frozen=True)
class Condition:
    """One set of data to train on, and the pairs to ask for."""

    kind: str
    folder: str
    dataset: str
    held_out: HeldOut


def run_study(
    study: Study, *, say: Callable[[str], None], progress: Progress | None = None, quiet: bool = False
) -> None:
    """Do what is not done yet: OUT/data, OUT/runs, and OUT/results/CONDITION/DATASET.AGENT.csv with its record."""
    study.check()
    _same_study(study)
    for condition in prepare(study, say):
        for agent in study.agents:
            say(f"{agent} on {condition.folder} data")
            run = _train(study, condition, agent, quiet=quiet)
            rows = _ask(study, condition, run, progress)
            _publish(study, condition, run, rows)


def prepare(study: Study, say: Callable[[str], None]) -> list[Condition]:
    """Cut the data, unless it is there already."""
    data = study.out / "data"
    file = f"{study.name}.npz"
    cuts = [(HELD_OUT, None)] + ([(RANDOM, 0)] if RANDOM in study.controls else [])
    for kind, seed in cuts:
        whole = [data / kind / file]
        if study.per_pair:
            whole = [data / kind / f"pair{alone.first}" / file for alone in study.held_out.each()]
        if all(path.exists() for path in whole):
            continue
        reports = cut_files(
            study.dataset,
            data / kind,
            study.held_out,
            per_pair=study.per_pair,
            control_seed=seed,
            dataset_dir=study.dataset_dir,
        )
        for path, splits in reports.items():
            report = splits["train"]
            events = ", ".join(f"pair {pair.number}: {pair.events}" for pair in report.pairs)
            say(
                f"{path}: {report.removed:,} transitions removed ({kind}), {report.transitions:,} left; events {events}"
            )
    return _conditions(study, data, file)


def _conditions(study: Study, data: Path, file: str) -> list[Condition]:
    if study.per_pair:
        found = [
            Condition(HELD_OUT, f"{HELD_OUT}-pair{a.first}", str(data / HELD_OUT / f"pair{a.first}" / file), a)
            for a in study.held_out.each()
        ]
    else:
        found = [Condition(HELD_OUT, HELD_OUT, str(data / HELD_OUT / file), study.held_out)]
    for control in study.controls:
        dataset = study.dataset if control == UNCUT else str(data / control / file)
        found.append(Condition(control, control, dataset, study.held_out))
    return found


def _train(study: Study, condition: Condition, agent: str, *, quiet: bool) -> Run:
    """Train, go on training, or find the finished run. Rollouts on the world's own tasks are left out."""
    path = study.out / "runs" / condition.folder / agent.replace(":", "-")
    if (path / "config.json").exists():
        finished = "finished" in Run(path).files.provenance()
        return Run(path) if finished else resume(path, quiet=quiet)
    settings: dict[str, Any] = {
        "seeds": study.seeds,
        "eval_interval": 0,
        "run_dir": str(path),
        "keep": LAST_EVALUATIONS,
    }
    if condition.kind == UNCUT:
        settings["dataset_dir"] = study.dataset_dir
    base = run_config(agent, condition.dataset)
    steps = base.steps if study.steps is None else study.steps
    # The last three checkpoints stand where the last three of ten evaluations would.
    settings |= {
        "steps": steps,
        "checkpoint_interval": max(1, steps // 10),
        "log_interval": min(base.log_interval, steps),
    }
    return start(run_config(agent, condition.dataset, **settings), quiet=quiet)


def _ask(study: Study, condition: Condition, run: Run, progress: Progress | None) -> list[dict[str, Any]]:
    """Rows of the last three checkpoints; those that are scored already are not scored again."""
    table = CsvLog(run.path / "ooc.csv", COLUMNS)
    wanted = choose_steps(run, "last3")
    known = [row for row in table.read() if int(row["episodes"]) == study.episodes]
    scored = Counter(int(row["step"]) for row in known)
    missing = [s for s in wanted if scored[s] != len(run.good_seeds(s)) * len(condition.held_out.pairs)]
    evaluate_run(
        run, condition.held_out, steps=missing, episodes=study.episodes, workers=study.workers, progress=progress
    )
    return [row for row in table.read() if int(row["step"]) in wanted]


def _publish(study: Study, condition: Condition, run: Run, rows: Sequence[dict[str, Any]]) -> None:
    """OUT/results/CONDITION/DATASET.AGENT.csv and its record, with the columns of `results/ooc`."""
    path = results_path(study.out, condition.kind, study.name, run.config.agent_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = CsvLog(path, COLUMNS)
    pairs = {row["pair"] for row in rows}
    table.exchange(lambda row: row["pair"] in pairs, rows)
    facts = run.files.provenance()
    training = {"data": condition.folder, "seeds": list(run.config.seeds), "steps": run.config.steps, **facts}
    training["settings"] = to_dict(run.config.agent)
    record_file = path.with_suffix(".json")
    record = json.loads(record_file.read_text()) if record_file.exists() else {}
    old = [entry for entry in record.get("training", []) if entry["data"] != condition.folder]
    scoring = {**record.get("scoring", {}), condition.folder: scoring_facts(run)}
    record = {
        "dataset": study.name,
        "agent": run.config.agent_name,
        "condition": condition.kind,
        "pairs": [pair.record(study.held_out.layout) for pair in study.held_out.pairs],
        "training": [*old, training],
        "scoring": scoring,
    }
    write_whole(record_file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def results_path(out: Path, condition: str, dataset: str, agent: str) -> Path:
    """Where the rows of a cell are."""
    return out / "results" / condition / f"{dataset}.{agent.replace(':', '-')}.csv"


def read_results(out: Path) -> dict[str, list[dict[str, str]]]:
    """{condition: rows} of a study's folder."""
    found: dict[str, list[dict[str, str]]] = {}
    for kind in (HELD_OUT, *CONTROLS):
        paths = sorted((out / "results" / kind).glob("*.csv"))
        rows = [row for path in paths for row in CsvLog(path).read()]
        if rows:
            found[kind] = rows
    return found


def _same_study(study: Study) -> None:
    """A folder belongs to one study; agents and controls may be added to it."""
    path = study.out / "study.json"
    mine = {
        "dataset": str(study.dataset),
        "seeds": list(study.seeds),
        "steps": study.steps,
        "episodes": study.episodes,
        "per_pair": study.per_pair,
        **study.held_out.record(),
    }
    if not path.exists():
        write_whole(path, json.dumps(mine, indent=1, ensure_ascii=False) + "\n")
        return
    try:
        theirs = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CtaError(f"{path}: cannot be read ({error})") from None
    other = next((key for key in mine if theirs.get(key) != mine[key]), None)
    if other is not None:
        raise CtaError(f"{study.out} holds a study with another '{other}': give another --out")
