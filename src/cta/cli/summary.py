"""What a run comes to, on a terminal."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console
from rich.table import Table

from cta.cli import DONE, INTERRUPTED, SEED_STOPPED
from cta.cli.orders import order_line, print_orders, read_offline
from cta.errors import CtaError
from cta.evaluation import seed_scores
from cta.evaluation.episodes import missing_seeds
from cta.experiment import Interrupted, Run, RunPolicy
from cta.experiment.scoring import policy_maker


def conclude(command: str, go: Callable[[], Run]) -> int:
    """Run a training command to its end, a summary, or to a line that says how to go on."""
    try:
        run = go()
    except Interrupted as stop:
        with contextlib.suppress(OSError):
            print(f"cta {command}: {stop}", file=sys.stderr)
        return INTERRUPTED
    finish(run)
    stopped = run.stopped()
    for why in stopped.values():
        print(f"cta {command}: {why}", file=sys.stderr)
    return SEED_STOPPED if stopped else DONE


def finish(run: Run) -> None:
    """The end of a training command: scores, where everything is, a picture, videos if asked for."""
    rows = run.evaluations()
    console = Console(highlight=False, soft_wrap=True)
    if not rows and (orders := read_offline(run.path)):
        print_orders([order_line(orders, str(run.path))])
    else:
        print_scores(rows, run)
    console.print(f"run directory: {run.path}")
    if (rows or run.config.videos) and (policy := _shown(run)):
        if rows and (path := draw(run, policy)):
            console.print(f"picture: {path}")
        if run.config.videos:
            record(run, policy)


def _shown(run: Run) -> RunPolicy | None:
    """The policy that the picture and videos show; where there is none, a line says why."""
    try:
        return run.policy()
    except CtaError as error:
        print(f"nothing to show: {error}", file=sys.stderr)
        return None


def draw(run: Run, policy: RunPolicy) -> Path | None:
    """RUN/picture.png: curve, success per task, and on the embedded worlds a rollout of a policy."""
    from cta.evaluation.picture import picture  # matplotlib

    config = run.config
    return picture(
        run.path / "picture.png",
        run.evaluations(),
        dataset_name=config.dataset_name,
        make_policy=policy_maker(run.agent, policy.networks, config, policy.seed),
        run_seed=policy.seed,
        title=f"{config.agent_name} on {config.dataset_name}, {policy.step:,} steps, {_seeds(config.seeds)}",
    )


def record(run: Run, policy: RunPolicy, *, episodes: int | None = None) -> None:
    """Videos of a policy, one file an episode, in RUN/videos/step_N/seed_S."""
    from cta.evaluation import record_videos  # rendering libraries

    run.tell_simulator()
    paths = record_videos(
        run.config.dataset_name,
        policy_maker(run.agent, policy.networks, run.config, policy.seed),
        run_seed=policy.seed,
        tasks=range(1, (run.config.eval_tasks or 5) + 1),
        episodes=episodes or run.config.videos,
        folder=run.files.videos / f"step_{policy.step}" / f"seed_{policy.seed}",
        frame_skip=run.config.video_frame_skip,
        eval_seed=run.config.eval_seed,
    )
    Console(highlight=False, soft_wrap=True).print(
        f"videos: {len(paths)} in {paths[0].parent}" if paths else "no videos"
    )


def print_scores(rows: Sequence[Mapping[str, Any]], run: Run) -> None:
    """Success per task at the newest step, averaged over seeds, and the last-three score per seed."""
    console = Console(highlight=False, soft_wrap=True)
    if not rows:
        console.print("no evaluation in this run")
        return
    last = max(int(row["step"]) for row in rows)
    table = Table(title=f"{run.config.agent_name} on {run.config.dataset_name}, step {last:,}, success in %")
    table.add_column("task")
    seeds = sorted({int(row["seed"]) for row in rows if int(row["step"]) == last})
    for seed in seeds:
        table.add_column(f"seed {seed}", justify="right")
    table.add_column("mean", justify="right", style="bold")
    newest = {(int(r["seed"]), int(r["task"])): r for r in rows if int(r["step"]) == last}
    tasks = sorted({task for _, task in newest})
    overall: dict[int, list[float]] = {seed: [] for seed in seeds}
    for task in tasks:
        rates = []
        for seed in seeds:
            row = newest[seed, task]
            rates.append(100 * int(row["successes"]) / int(row["episodes"]))
            overall[seed].append(rates[-1])
        table.add_row(str(task), *(f"{rate:.0f}" for rate in rates), f"{fmean(rates):.1f}")
    table.add_section()
    means = [fmean(overall[seed]) for seed in seeds]
    table.add_row("all", *(f"{mean:.1f}" for mean in means), f"{fmean(means):.1f}")
    console.print(table)
    episodes = int(next(iter(newest.values()))["episodes"])
    missing = missing_seeds(rows, run.config.seeds)
    scores = [100 * score for seed, score in seed_scores(rows).items() if seed not in missing]
    for seed in missing:
        console.print(f"[bold]seed {seed} is missing[/bold]: {run.stopped().get(seed, f'not scored at step {last:,}')}")
    if scores:
        spread = f" ± {pstdev(scores):.1f} over {len(scores)} seeds" if len(scores) > 1 else " (one seed)"
        count = min(3, len({row["step"] for row in rows}))
        console.print(
            f"score {fmean(scores):.1f}{spread}: mean over tasks and over the last {count} evaluation"
            f"{'s' if count > 1 else ''}, {episodes} episode{'s' if episodes != 1 else ''} a task"
        )


def _seeds(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
