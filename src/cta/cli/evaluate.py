"""cta evaluate"""

import csv
import io
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress
from tyro.conf import Positional, arg

from cta.alone import alone
from cta.cli import DONE, evaluate_results
from cta.data.files import write_whole
from cta.errors import CtaError
from cta.training.logs import CsvLog

DESCRIPTION = """\
Score a run's policies by OGBench's protocol: five tasks, 50 episodes each, temperature 0.

Start, goal and settling steps of every episode are fixed by its seed, so scores are paired across checkpoints and
methods. Results are added to RUN/evaluate.csv (columns as in eval.csv, and env, temperature, noise, eval_seed,
and mujoco: its version, empty where it plays no part); scoring the same step again in the same way replaces its rows.

  cta evaluate RUN                          the newest checkpoint of every seed
  cta evaluate RUN --step 800000,900000     these checkpoints
  cta evaluate RUN --episodes 10 --videos 2 a quick look, and two videos a task
  cta evaluate RUN --env my_env:make        in a Gymnasium environment of your own (docs/own-data.md)
  cta evaluate WEIGHTS.safetensors…         what `cta reproduce` kept, into the results folder it lies in
  cta evaluate RUN --results DIR            a run into a results folder; --help after either says more
"""


TABLE = "evaluate.csv"


@dataclass(frozen=True)
class Settings:
    """How to score."""

    run: Annotated[Positional[str], arg(metavar="RUN")]
    """Run directory."""
    env: Annotated[str | None, arg(metavar="MODULE:FACTORY")] = None
    """A function that makes an environment of your own, with goals."""
    max_episode_steps: int | None = None
    """Length of an episode in --env (default: what the environment says, else 1000)."""
    step: str = "last"
    """Checkpoints to score: `last`, `last3`, `all`, or steps separated by commas."""
    episodes: Annotated[int, arg(aliases=["--eval-episodes"])] = 50
    """Episodes per task."""
    tasks: Annotated[int | None, arg(aliases=["--eval-tasks"])] = None
    """Only the first N tasks."""
    temperature: Annotated[float, arg(aliases=["--eval-temperature"])] = 0.0
    """Policy temperature (0: the mean action)."""
    noise: Annotated[float, arg(aliases=["--eval-gaussian"])] = 0.0
    """Standard deviation of noise added to actions."""
    workers: int | None = None
    """Processes that step the simulator (default: the number of cores)."""
    eval_seed: int = 0
    """Base seed of the episodes."""
    videos: Annotated[int, arg(aliases=["--video-episodes"])] = 0
    """Videos per task of the first seed that is well."""
    video_frame_skip: int = 3
    """Record every N-th frame."""


def main(argv: list[str]) -> int:
    if evaluate_results.wanted(argv):
        return evaluate_results.main(argv)
    settings = tyro.cli(Settings, args=argv, prog="cta evaluate", description=DESCRIPTION)
    from cta.cli.summary import print_scores, record
    from cta.envs.names import KNOWN
    from cta.experiment import Run
    from cta.experiment.chosen import choose_steps

    run = Run(settings.run)
    if settings.env is None and run.config.dataset_name not in KNOWN:
        raise CtaError(
            f"{run.config.dataset_name} belongs to no known environment: give yours with --env module:factory"
        )
    if settings.env is not None and settings.videos:
        raise CtaError("--videos: videos are of known environments only, not of --env")
    if settings.max_episode_steps is not None and (settings.env is None or settings.max_episode_steps < 1):
        raise CtaError("--max-episode-steps is a number from 1 on, for an environment of --env")
    run.config = replace(
        run.config,
        eval_episodes=settings.episodes,
        eval_tasks=settings.tasks,
        eval_temperature=settings.temperature,
        eval_gaussian=settings.noise,
        eval_workers=settings.workers,
        eval_seed=settings.eval_seed,
        video_frame_skip=settings.video_frame_skip,
    )
    run.config.check()
    if settings.env is None:
        run.tell_simulator()
    rows = _score(run, choose_steps(run, settings.step), _evaluator(run, settings), settings.env)
    print_scores(rows, run)
    print(f"rows: {run.path / TABLE}")
    if settings.videos:
        record(run, run.policy(step=int(rows[-1]["step"])), episodes=settings.videos)
    return DONE


def _evaluator(run: Any, settings: Settings) -> Any:
    from cta.evaluation import Evaluator

    config = run.config
    if settings.env is None:
        return Evaluator(config.dataset_name, workers=config.eval_workers)
    from cta.evaluation.own import OwnEvaluator

    return OwnEvaluator(
        settings.env,
        shape=run.spec.observation_shape,
        data=lambda: run.open_data()[1],
        workers=config.eval_workers,
        max_episode_steps=settings.max_episode_steps,
    )


def _mujoco(run: Any, env: str | None) -> str:
    """The simulator's version; nothing for the desk. An environment of one's own may or may not use it."""
    from cta.envs.names import DESK_DATASETS
    from cta.provenance import versions

    return "" if env is None and run.config.dataset_name in DESK_DATASETS else versions(("mujoco",))["mujoco"]


def _open_table(run: Any, more: tuple[str, ...]) -> CsvLog:
    """RUN/evaluate.csv; a table from before one of these columns gets it, empty."""
    path = run.path / TABLE
    with alone(path):
        rows = CsvLog(path).read()
        if not rows:
            path.unlink(missing_ok=True)  # no more than a header
        elif missing := [name for name in more if name not in rows[0]]:
            text = io.StringIO()
            writer = csv.DictWriter(text, [*rows[0], *missing], restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            write_whole(path, text.getvalue())
    return run.files.eval_log(TABLE, more=more)


def _fits(row: dict[str, str], values: dict[str, str]) -> bool:
    return all(row.get(name, value) == value for name, value in values.items())


def _score(run: Any, steps: list[int], evaluator: Any, env: str | None) -> list[dict[str, Any]]:
    from cta.experiment.chosen import chosen_networks
    from cta.experiment.scoring import score_rows

    rows: list[dict[str, Any]] = []
    config = run.config
    how = {
        "env": env or "",
        "temperature": str(config.eval_temperature),
        "noise": str(config.eval_gaussian),
        "eval_seed": str(config.eval_seed),
        "mujoco": _mujoco(run, env),
    }
    log = _open_table(run, tuple(how))
    with evaluator, Progress(console=Console(stderr=True), transient=True) as bar:
        for step, networks in chosen_networks(run, steps):
            task = bar.add_task(f"step {step:,}")

            def progress(seed: int, done: int, total: int, task: Any = task, step: int = step) -> None:
                bar.update(task, completed=done, total=total, description=f"step {step:,}, seed {seed}")

            good = run.good_seeds(step)  # the others are named beneath the table
            fresh = score_rows(evaluator, run.agent, networks, config, step, progress, seeds=good)
            same = {**how, "step": str(step)}
            log.exchange(lambda row, same=same: _fits(row, same), [{**row, **how} for row in fresh])
            rows += fresh
    if not rows:
        raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to score")
    return rows
