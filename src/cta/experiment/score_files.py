"""Scoring trained policies into files: a results folder, or a run's own `evaluate.csv` and `ooc.csv`."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cta.config import RunConfig
from cta.cpu_count import cpu_count
from cta.envs.names import DESK_DATASETS, KNOWN
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.evaluation.evaluator import MOST_WORKERS, PressEvaluator, press_names
from cta.experiment import Run
from cta.experiment.candidates import pair_names, scoring_facts
from cta.experiment.scoring import policy_maker, score_rows
from cta.experiment.weights import RULES, Candidate
from cta.io import provenance
from cta.io.csv_log import CsvLog, csv_text
from cta.io.files import file_lock, write_whole
from cta.io.json_files import read_json, write_json
from cta.ooc.evaluation import EpisodeLog, PairEvaluator, count_rows, write_logs
from cta.ooc.pairs import HeldOut
from cta.scores.schema import COLUMNS, PRESSES, SCORED_HOW, TASKS, CellKey, Score
from cta.scores.store import Scores

EVALUATE = "evaluate.csv"
OOC = "ooc"  # of the table and the folder of a run's own pairs
Progress = Callable[[Candidate, int, int], None]  # called with (what is being scored, episodes done, episodes in all)


@dataclass(frozen=True)
class How:
    """How to score. `ask`: tasks, pairs (their file: `pairs`) or presses; by default pairs if some were cut out."""

    episodes: int = 50
    eval_seed: int = 0
    workers: int | None = None
    temperature: float = 0.0
    noise: float = 0.0
    tasks: int | None = None
    ask: str | None = None
    pairs: str | None = None

    def config(self, item: Candidate, **more: Any) -> RunConfig:
        """The same as the settings of a run with this policy's seed alone."""
        return RunConfig(
            item.agent.config, agent_name=item.key.agent, dataset=item.key.dataset, seeds=(item.seed,),
            eval_episodes=self.episodes, eval_seed=self.eval_seed, eval_tasks=self.tasks,
            eval_temperature=self.temperature, eval_gaussian=self.noise, **more,
        )  # fmt: skip


class Players(ExitStack):
    """Plays policies one after the other; the workers are kept from one to the next of the same dataset."""

    def __init__(self, how: How, progress: Progress, own: Evaluator | None = None):
        super().__init__()
        self.how, self._progress, self._own = how, progress, own
        if how.workers is not None and how.workers < 1:
            raise CtaError(f"--workers is at least 1, not {how.workers}")
        self.workers = min(cpu_count(), MOST_WORKERS) if how.workers is None else how.workers
        self._asked: Any = None
        self._evaluator = own and self.enter_context(own)

    def play(self, item: Candidate, pairs: HeldOut | None) -> tuple[list[Score], list[EpisodeLog], dict[str, Any]]:
        """The rows of one policy, of held-out pairs the event logs they were counted from, and how it was done."""
        how, evaluator = self.how, self._open(item.key.dataset, pairs)
        told, begin, networks = partial(self._progress, item), time.monotonic(), item.load()
        config = how.config(item)
        policies = policy_maker(item.agent, networks, item.units, config, item.seed)
        logs: list[EpisodeLog] = []
        if isinstance(evaluator, PairEvaluator):
            assert pairs is not None
            logs = evaluator.ask(policies, progress=told)
            rows = count_rows(logs, pairs.numbered(), pairs.layout, item.key, item.seed, item.step)
        elif isinstance(evaluator, PressEvaluator):
            counts = evaluator.ask(policies, progress=told)
            rows = [Score(*item.key, item.seed, item.step, task, *count) for task, count in counts.items()]
        else:
            policy = item.agent, {item.seed: networks}, item.units, config, item.step, item.key
            rows = score_rows(evaluator, *policy, lambda seed, done, total: told(done, total))
        facts = scoring_facts(
            episodes=how.episodes, temperature=how.temperature, noise=how.noise, eval_seed=how.eval_seed,
            asked=rows[0].asked if rows else TASKS, weights=item.precision, workers=self.workers,
            worlds_per_worker=evaluator.worlds_per_worker(sum(row.episodes for row in rows)),
        )  # fmt: skip
        return rows, logs, {"scored": [[item.seed, item.step, round(time.monotonic() - begin, 1)]], **facts}

    def _open(self, dataset: str, pairs: HeldOut | None) -> Evaluator:
        if self._own is not None:
            return self._own
        asked = dataset, None if pairs is None else [pairs.first, pairs.record()]
        if self._evaluator is None or asked != self._asked:
            self.close()
            if dataset not in KNOWN:
                raise CtaError(f"{dataset} belongs to no known environment: give yours with --env module:factory")
            options = {"episodes": self.how.episodes, "seed": self.how.eval_seed, "workers": self.workers}
            if pairs is not None:
                opened = PairEvaluator(dataset, pairs, **options)
            elif self.how.ask == PRESSES:
                opened = PressEvaluator(dataset, most=self.how.tasks, **options)
            else:
                opened = Evaluator(dataset, workers=self.workers)
            self._evaluator, self._asked = self.enter_context(opened), asked
        return self._evaluator


def score_into(scores: Scores, item: Candidate, players: Players, *, again: bool = False) -> bool:
    """Score a policy into a results folder, unless it is there already (also then with `again`); whether it was."""
    how, pairs = players.how, item.held_out(players.how.ask, players.how.pairs)
    names = press_names(item.key.dataset) if how.ask == PRESSES else pair_names(pairs)
    done = scores.cell(item.key).scored(episodes=how.episodes, tasks=names[: how.tasks])
    if (item.seed, item.step) in done and not again:
        return False
    rows, logs, facts = players.play(item, pairs)
    record = {"training": [{"seeds": [item.seed], **item.training}], "scoring": [facts]}
    # What is there and not enough, such as fewer episodes, is replaced.
    there = any(row[4:6] == (item.seed, item.step) and row.asked == rows[0].asked for row in scores.cell(item.key).rows)
    scores.add(item.key, record, rows, replace=again or there)
    if logs:
        write_logs(scores.events_file(item.key, item.seed, item.step), logs)
    return True


def score_run(run: Run, items: Iterable[Candidate], players: Players, env: str = "") -> list[Score]:
    """Score a run's policies into RUN/evaluate.csv; what was scored before in the same way is replaced."""
    how, found = players.how, []
    # An environment of one's own may or may not use MuJoCo; the desk does not.
    mujoco = "" if not env and run.config.dataset_name in DESK_DATASETS else provenance.versions(("mujoco",))["mujoco"]
    shown = env, str(how.temperature), str(how.noise), str(how.eval_seed), mujoco
    said: dict[str, str] = dict(zip(SCORED_HOW, shown, strict=True))
    log = _open_log(run.path / EVALUATE, (*COLUMNS, *SCORED_HOW), run.cell)
    for item in items:
        rows = players.play(item, None)[0]
        _exchange(log, item, [row.row() | said for row in rows], said)
        found += rows
    return found


def ask_run(run: Run, items: Iterable[Candidate], held_out: HeldOut, players: Players, name: str = OOC) -> list[Score]:
    """Ask a run's policies for pairs: logs to RUN/NAME/step_N/seed_S.jsonl.gz, facts beside, counts to RUN/NAME.csv."""
    facts_file, mine = run.path / name / "record.json", _facts(held_out)
    for facts in (read_json(facts_file) if facts_file.exists() else {}).values():
        # Numbers of different pairs never stand in one table, where they would be averaged.
        if not isinstance(facts, dict) or {key: facts[key] for key in ("first_pair", *RULES) if key in facts} != mine:
            where = run.path / f"{name}.csv"
            raise CtaError(f"{where} has scores of other pairs: give these with --pairs FILE, under another file name")
    table, found = _open_log(run.path / f"{name}.csv", COLUMNS, run.cell), []
    for item in items:
        rows, logs, facts = players.play(item, held_out)
        write_logs(run.path / name / f"step_{item.step}" / f"seed_{item.seed}.jsonl.gz", logs)
        with file_lock(facts_file):
            known = read_json(facts_file) if facts_file.exists() else {}
            write_json(facts_file, known | {f"{item.step}/{item.seed}": {**mine, **facts}})
        _exchange(table, item, [row.row() for row in rows], {})
        found += rows
    return found


def _exchange(log: CsvLog, item: Candidate, rows: list[dict[str, Any]], said: Mapping[str, str]) -> None:
    """These rows in place of those of the same policy, scored in the same way."""
    same = {**said, "seed": str(item.seed), "step": str(item.step)}
    log.exchange(lambda row: all(row.get(name, value) == value for name, value in same.items()), rows)


def table_name(held_out: HeldOut, own: HeldOut, pairs: str | Path | None) -> str:
    """`ooc` for the run's own pairs; those of another file have a table of their own, named after it."""
    return OOC if pairs is None or _facts(held_out) == _facts(own) else f"{OOC}-{Path(pairs).stem}"


def _facts(held_out: HeldOut) -> dict[str, Any]:
    """Which pairs these are, as a record has it."""
    return json.loads(json.dumps({"first_pair": held_out.first, **held_out.record()}))


def _open_log(path: Path, columns: Sequence[str], key: CellKey) -> CsvLog:
    """A growing file of scores; one of an earlier layout is brought to the present one."""
    with file_lock(path):
        rows = CsvLog(path).read()
        if not rows:
            path.unlink(missing_ok=True)  # no more than a header
        elif tuple(rows[0]) != tuple(columns):
            said = {"settings": key.settings, "condition": key.condition}
            rows = [{**said, **row, "task": row.get("pair", row.get("task", ""))} for row in rows]
            write_whole(path, csv_text([columns, *([row.get(name, "") for name in columns] for row in rows)]))
    return CsvLog(path, columns)
