"""Scoring a run on held-out pairs: event logs on disk, and the rows of `ooc.csv` counted from them."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cta import provenance
from cta.alone import alone
from cta.data.files import write_whole
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.chosen import chosen_networks
from cta.experiment.scoring import policy_maker
from cta.ooc.components import find_layout
from cta.ooc.cut import RECORD_KEY
from cta.ooc.evaluation import PairEvaluator
from cta.ooc.logs import COLUMNS, count_rows, read_logs, write_logs
from cta.ooc.pairs_file import HeldOut, held_out_of, parse_held_out
from cta.ooc.trials import EPISODES
from cta.training.logs import CsvLog

NAME = "ooc"
"""Of the table and the folder of a run's own pairs."""
PAIRS = ("first_pair", "pair", "thresholds", "event_thresholds")
"""What a record says of the pairs."""
Progress = Callable[[int, int, int, int], None]
"""Called with (step, seed, episodes done, episodes in all)."""


def held_out_of_run(run: Run, pairs: str | Path | None = None) -> HeldOut:
    """The pairs of a file, or those that were cut out of the run's data, or those that come with its world."""
    layout = find_layout(run.config.dataset_name)
    record = (run.files.provenance().get("dataset", {}).get("provenance") or {}).get(RECORD_KEY)
    if pairs is not None or record is None:
        return held_out_of(layout, pairs)
    kept = {key: record[key] for key in PAIRS[1:] if key in record}
    held_out = parse_held_out(kept, layout=layout, where=f"{run.path}/provenance.json")
    return HeldOut(layout, held_out.pairs, held_out.rule, int(record.get("first_pair", 1)))


def table_name(run: Run, held_out: HeldOut, pairs: str | Path | None) -> str:
    """`ooc` for the run's own pairs; those of another file have a table of their own, named after it."""
    if pairs is None or _facts(held_out) == _facts(held_out_of_run(run)):
        return NAME
    return f"{NAME}-{Path(pairs).stem}"


def log_path(run: Run, step: int, seed: int, name: str = NAME) -> Path:
    """Where the event logs of a seed's policy at a step are kept."""
    return run.path / name / f"step_{step}" / f"seed_{seed}.jsonl"


def evaluate_run(
    run: Run,
    held_out: HeldOut,
    *,
    steps: Sequence[int],
    episodes: int = EPISODES,
    eval_seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    name: str = NAME,
) -> list[dict[str, Any]]:
    """Play the pairs with every seed's policy at these checkpoints.

    Writes the event logs to RUN/NAME/step_N/seed_S.jsonl, then counts the rows of RUN/NAME.csv from these files; rows
    of the same step are replaced. RUN/NAME/record.json says how it was done.
    """
    config = run.config
    _check_same_pairs(run, held_out, name)
    table = CsvLog(run.path / f"{name}.csv", COLUMNS)
    rows: list[dict[str, Any]] = []
    if steps:
        run.tell_simulator()
    with PairEvaluator(config.dataset_name, held_out, episodes=episodes, seed=eval_seed, workers=workers) as evaluator:
        for step, networks in chosen_networks(run, steps):
            fresh = []
            good = run.good_seeds(step)
            for seed, weights in zip(config.seeds, networks, strict=True):
                if seed not in good:
                    continue  # its networks have diverged: there is no policy to ask
                began = time.monotonic()
                told = None if progress is None else _for(progress, step, seed)
                logs = evaluator.run(policy_maker(run.agent, weights, config, seed), progress=told)
                path = log_path(run, step, seed, name)
                write_logs(path, logs)
                common = {"dataset": config.dataset_name, "agent": config.agent_name, "seed": seed, "step": step}
                fresh += count_rows(read_logs(path), held_out.numbered(), held_out.layout, common)
                facts = {"episodes": episodes, "eval_seed": eval_seed, **_facts(held_out)}
                _record(run, name, f"{step}/{seed}", facts | {"seconds": round(time.monotonic() - began, 2)})
            table.exchange(lambda row, step=step: int(row["step"]) == step, fresh)
            rows += fresh
    if steps and not rows:
        raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to ask")
    return rows


def _for(progress: Progress, step: int, seed: int) -> Callable[[int, int], None]:
    return lambda done, total: progress(step, seed, done, total)


def _facts(held_out: HeldOut) -> dict[str, Any]:
    """Which pairs these are, as a record has it."""
    return json.loads(json.dumps({"first_pair": held_out.first, **held_out.record()}))


def _check_same_pairs(run: Run, held_out: HeldOut, name: str) -> None:
    """Numbers of different pairs never stand in one table, where they would be averaged."""
    mine = _facts(held_out)
    for facts in _read(run.path / name / "record.json").values():
        if {key: facts[key] for key in PAIRS if key in facts} != mine:
            where = run.path / f"{name}.csv"
            raise CtaError(f"{where} has scores of other pairs: give these with --pairs FILE, under another file name")


def _record(run: Run, name: str, which: str, facts: dict[str, Any]) -> None:
    """Facts of the newest scoring of each (step, seed)."""
    path = run.path / name / "record.json"
    facts |= {
        "temperature": run.config.eval_temperature,
        "noise": run.config.eval_gaussian,
        "command": provenance.command(),
        "commit": provenance.commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }
    with alone(path):
        known = _read(path) | {which: facts}
        write_whole(path, json.dumps(known, indent=1, ensure_ascii=False) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CtaError(f"{path}: cannot be read ({error})") from None
    return known if isinstance(known, dict) else {}


def scoring_facts(run: Run) -> list[dict[str, Any]]:
    """How the run was scored, equal facts once: [{"scored": [[step, seed, seconds], …], …}, …]."""
    groups: dict[str, dict[str, Any]] = {}
    for which, facts in _read(run.path / NAME / "record.json").items():
        same = {key: value for key, value in facts.items() if key != "seconds"}
        group = groups.setdefault(json.dumps(same, sort_keys=True), {"scored": [], **same})
        group["scored"].append([*map(int, which.split("/")), facts["seconds"]])
    return list(groups.values())
