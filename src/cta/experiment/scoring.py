"""Turning weights into rows of eval.csv."""

from collections.abc import Callable, Sequence
from typing import Any

from cta.agents import Agent, Networks
from cta.agents.policy import Policy
from cta.config import RunConfig
from cta.evaluation import Evaluator, scores

Progress = Callable[[int, int, int], None]
"""Called with (seed, episodes done, episodes in all)."""


def policy_maker(agent: Agent, networks: Networks, config: RunConfig, seed: int) -> Callable[[int], Policy]:
    """A fresh policy for each group of episodes that act together."""

    def make(slots: int) -> Policy:
        settings = {"temperature": config.eval_temperature, "noise": config.eval_gaussian}
        return Policy(agent, networks, **settings, seed=config.eval_seed + seed)

    return make


def task_numbers(evaluator: Evaluator, config: RunConfig) -> tuple[int, ...]:
    """Which tasks a run is scored on."""
    count = len(evaluator.task_names)
    return tuple(range(1, min(count, config.eval_tasks or count) + 1))


def score_rows(
    evaluator: Evaluator,
    agent: Agent,
    networks: Sequence[Networks],
    config: RunConfig,
    step: int,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Rows of eval.csv for one step, in order of seed and task."""
    rows = []
    tasks = task_numbers(evaluator, config)
    for seed, weights in zip(config.seeds, networks, strict=True):
        results = evaluator.run(
            policy_maker(agent, weights, config, seed),
            run_seed=seed,
            tasks=tasks,
            episodes=config.eval_episodes,
            eval_seed=config.eval_seed,
            progress=(lambda done, total, seed=seed: progress(seed, done, total)) if progress else None,
        )
        common = {"dataset": config.dataset_name, "agent": config.agent_name, "seed": seed, "step": step}
        for task, (episodes, successes) in scores(results).items():
            rows.append({**common, "task": task, "episodes": episodes, "successes": successes})
    return rows
