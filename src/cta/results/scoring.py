"""Scoring trained policies into a results folder: the world's five tasks or, after a cut, the held-out pairs."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from cta.config import RunConfig
from cta.cores import usable_cores
from cta.evaluation import Evaluator
from cta.evaluation.evaluator import MOST_WORKERS
from cta.experiment.scoring import policy_maker, score_rows
from cta.ooc.evaluation import PairEvaluator
from cta.ooc.logs import count_rows
from cta.ooc.pairs_file import HeldOut
from cta.results.candidates import Candidate
from cta.results.facts import scoring_facts
from cta.results.protocol import TASKS
from cta.results.records import empty
from cta.results.rows import PairRow, Row, make_row
from cta.results.store import Results

Progress = Callable[[str, int, int], None]
"""Called with (what is being scored, episodes done, episodes in all)."""


def score_into(
    results: Results,
    found: Iterable[Candidate],
    *,
    episodes: int,
    workers: int | None = None,
    eval_seed: int = 0,
    again: bool = False,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Score what is not there yet (all of it with `again`), writing each as it is done; returns (scored, skipped)."""
    scored = skipped = 0
    count = min(usable_cores(), MOST_WORKERS) if workers is None else workers
    with _Players(episodes=episodes, eval_seed=eval_seed, workers=count) as players:
        for item in sorted(found, key=lambda c: (c.dataset, c.agent_name, c.step, c.seed)):
            home, pairs = item.home(results), item.held_out
            tasks = TASKS if pairs is None else len(pairs.pairs)
            done = home.cell(item.dataset, item.agent_name).scored(episodes=episodes, tasks=tasks)
            if (item.seed, item.step) in done and not again:
                skipped += 1
                continue
            facts = scoring_facts(episodes=episodes, weights=item.precision, workers=count, eval_seed=eval_seed)
            begin = time.monotonic()
            rows = players.play(item, pairs, progress)
            record = empty(item.dataset, item.agent_name) | {
                "training": [{"seeds": [item.seed], **item.training}],
                "scoring": [{"scored": [[item.seed, item.step, round(time.monotonic() - begin, 1)]], **facts}],
            }
            home.add(record, rows, replace=again)
            scored += 1
    return scored, skipped


class _Players:
    """The evaluator of one dataset at a time; its workers are kept from one policy to the next."""

    def __init__(self, *, episodes: int, eval_seed: int, workers: int):
        self._episodes, self._eval_seed, self._workers = episodes, eval_seed, workers
        self._asked: Any = None
        self._evaluator: Any = None

    def play(self, item: Candidate, pairs: HeldOut | None, progress: Progress | None) -> list[Any]:
        """The rows of one policy."""
        asked = item.dataset, None if pairs is None else pairs.record()
        if asked != self._asked:
            self.close()
            self._evaluator, self._asked = self._open(item.dataset, pairs), asked
        common = {"agent_name": item.agent_name, "dataset": item.dataset, "seeds": (item.seed,)}
        config = RunConfig(item.agent.config, **common, eval_episodes=self._episodes, eval_seed=self._eval_seed)

        def advance(done: int, total: int) -> None:
            if progress:
                progress(item.label, done, total)

        if pairs is None:
            told = lambda seed, done, total: advance(done, total)  # noqa: E731
            rows = score_rows(self._evaluator, item.agent, [item.load()], config, item.step, told)
            return [make_row(Row, row) for row in rows]
        logs = self._evaluator.run(policy_maker(item.agent, item.load(), config, item.seed), progress=advance)
        names = {"dataset": item.dataset, "agent": item.agent_name, "seed": item.seed, "step": item.step}
        return [make_row(PairRow, row) for row in count_rows(logs, pairs.numbered(), pairs.layout, names)]

    def _open(self, dataset: str, pairs: HeldOut | None) -> Evaluator | PairEvaluator:
        if pairs is None:
            return Evaluator(dataset, workers=self._workers)
        options = {"episodes": self._episodes, "seed": self._eval_seed, "workers": self._workers}
        return PairEvaluator(dataset, pairs, **options)

    def close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()

    def __enter__(self) -> "_Players":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
