"""What a run comes to, on a terminal."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console
from rich.table import Table

from cta.cli import DONE, INTERRUPTED
from cta.evaluation import seed_scores
from cta.experiment import Interrupted, Run
from cta.experiment.scoring import policy_maker


def conclude(command: str, go: Callable[[], Run]) -> int:
    """Run a training command to its end, a summary, or to a line that says how to go on."""
    try:
        run = go()
    except Interrupted as stop:
        print(f"cta {command}: {stop}", file=sys.stderr)
        return INTERRUPTED
    finish(run)
    return DONE


def finish(run: Run) -> None:
    """The end of a training command: scores, where everything is, a picture, videos if asked for."""
    rows = run.evaluations()
    console = Console(highlight=False, soft_wrap=True)
    print_scores(rows, run)
    console.print(f"run directory: {run.path}")
    if rows:
        console.print(f"picture: {draw(run)}")
    if run.config.videos:
        step, networks = run.networks()
        record(run, step, networks[0])


def draw(run: Run) -> Path:
    """RUN/picture.png: curve, success per task, and on the embedded worlds a rollout of the first seed."""
    from cta.evaluation.picture import picture  # matplotlib

    config = run.config
    step, networks = run.networks()
    return picture(
        run.path / "picture.png",
        run.evaluations(),
        dataset_name=config.dataset_name,
        make_policy=policy_maker(run.agent, networks[0], config, config.seeds[0]),
        run_seed=config.seeds[0],
        title=f"{config.agent_name} on {config.dataset_name}, {step:,} steps, {_seeds(config.seeds)}",
    )


def record(run: Run, step: int, networks: Any, *, episodes: int | None = None) -> None:
    """Videos of the first seed's policy, one file an episode."""
    from cta.evaluation import record_videos  # rendering libraries

    seed = run.config.seeds[0]
    paths = record_videos(
        run.config.dataset_name,
        policy_maker(run.agent, networks, run.config, seed),
        run_seed=seed,
        tasks=range(1, (run.config.eval_tasks or 5) + 1),
        episodes=episodes or run.config.videos,
        folder=run.files.videos / f"step_{step}",
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
    seeds = sorted({int(row["seed"]) for row in rows})
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
    episodes = next(iter(newest.values()))["episodes"]
    scores = [100 * score for score in seed_scores(rows).values()]
    if scores:
        spread = f" ± {pstdev(scores):.1f} over {len(scores)} seeds" if len(scores) > 1 else " (one seed)"
        count = min(3, len({row["step"] for row in rows}))
        console.print(
            f"score {fmean(scores):.1f}{spread}: mean over tasks and over the last {count} evaluation"
            f"{'s' if count > 1 else ''}, {episodes} episodes a task"
        )


def _seeds(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
