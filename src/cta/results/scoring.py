"""Scoring trained policies into a results folder: checkpoints of a run, or files of weights."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.agents import Agent, Networks
from cta.config import RunConfig
from cta.cores import usable_cores
from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.evaluation.evaluator import MOST_WORKERS
from cta.experiment import Run
from cta.experiment.scoring import score_rows
from cta.results.facts import scoring_facts, training_facts
from cta.results.protocol import TASKS
from cta.results.records import empty
from cta.results.rows import Row
from cta.results.store import Results
from cta.results.weights import open_weights

Progress = Callable[[str, int, int], None]
"""Called with (what is being scored, episodes done, episodes in all)."""


@dataclass(frozen=True)
class Candidate:
    """One seed at one step that can be scored."""

    dataset: str
    agent_name: str
    agent: Agent
    seed: int
    step: int
    precision: str
    training: dict[str, Any]
    load: Callable[[], Networks]

    @property
    def label(self) -> str:
        return f"{self.agent_name} on {self.dataset}, seed {self.seed}, step {self.step:,}"


def candidates(path: Path, steps: Sequence[int] = ()) -> list[Candidate]:
    """Everything in a file of weights, or the checkpoints of a run (default: the newest) at these steps."""
    if path.suffix == ".safetensors":
        file = open_weights(path)
        return [
            Candidate(
                file.dataset, file.agent_name, file.agent, file.seed, step, file.precision, file.training,
                lambda file=file, step=step: file.networks(step),
            )
            for step in file.steps if not steps or step in steps
        ]  # fmt: skip
    run = Run(path)
    if run.config.dataset_name not in KNOWN:
        raise CtaError(f"{run.config.dataset_name} belongs to no known environment, so there is nothing to roll out in")
    found = []
    for step in steps or run.steps()[-1:]:
        _, networks = run.networks(step)
        good = run.good_seeds(step)
        for seed, weights in zip(run.config.seeds, networks, strict=True):
            if seed not in good:
                print(
                    f"notice: {run.path}: seed {seed} had diverged by step {step:,} and is not scored", file=sys.stderr
                )
                continue
            found.append(
                Candidate(
                    run.config.dataset_name, run.config.agent_name, run.agent, seed, step, "float32",
                    training_facts(run, step), lambda weights=weights: weights,
                )
            )  # fmt: skip
    return found


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
    evaluator: Evaluator | None = None
    count = min(usable_cores(), MOST_WORKERS) if workers is None else workers
    try:
        for item in sorted(found, key=lambda c: (c.dataset, c.agent_name, c.step, c.seed)):
            done = results.cell(item.dataset, item.agent_name).scored(episodes=episodes, tasks=TASKS)
            if (item.seed, item.step) in done and not again:
                skipped += 1
                continue
            if evaluator is None or evaluator.dataset_name != item.dataset:
                if evaluator is not None:
                    evaluator.close()
                evaluator = Evaluator(item.dataset, workers=count)
            facts = scoring_facts(episodes=episodes, weights=item.precision, workers=count, eval_seed=eval_seed)
            begin = time.monotonic()
            rows = _play(evaluator, item, episodes=episodes, eval_seed=eval_seed, progress=progress)
            record = empty(item.dataset, item.agent_name) | {
                "training": [{"seeds": [item.seed], **item.training}],
                "scoring": [{"scored": [[item.seed, item.step, round(time.monotonic() - begin, 1)]], **facts}],
            }
            results.add(record, rows, replace=again)
            scored += 1
    finally:
        if evaluator is not None:
            evaluator.close()
    return scored, skipped


def _play(
    evaluator: Evaluator, item: Candidate, *, episodes: int, eval_seed: int, progress: Progress | None
) -> list[Row]:
    config = RunConfig(
        item.agent.config,
        agent_name=item.agent_name,
        dataset=item.dataset,
        seeds=(item.seed,),
        eval_episodes=episodes,
        eval_seed=eval_seed,
    )

    def advance(seed: int, done: int, total: int) -> None:
        if progress:
            progress(item.label, done, total)

    rows = score_rows(evaluator, item.agent, [item.load()], config, item.step, advance)
    return [Row.of(row) for row in rows]
