"""What a run comes to, on a terminal."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Sequence
from statistics import fmean

from cta.cli.scores import order_line, print_orders
from cta.errors import CtaError
from cta.exit_codes import DONE, INTERRUPTED, SEED_STOPPED
from cta.experiment import Interrupted, Run, RunPolicy
from cta.experiment.scoring import policy_maker
from cta.io.text_tables import print_table
from cta.scores.schema import Score
from cta.scores.statistics import LAST_EVALUATIONS, missing_seeds, seed_scores, summarise, task_scores


def conclude(command: str, go: Callable[[], Run]) -> int:
    """Run a training command to its end, a summary, or to a line that says how to continue."""
    try:
        run = go()
    except Interrupted as stop:
        with contextlib.suppress(OSError):
            print(f"cta {command}: {stop}", file=sys.stderr)
        return INTERRUPTED
    rows = run.evaluations()
    if not rows and (orders := run.offline()):
        print_orders([order_line(orders, str(run.path))])
    else:
        print_scores(rows, run)
    print(f"run directory: {run.path}")
    if rows:
        print(f"a page with curves and rollouts: cta report {shlex.quote(str(run.path))}")
    if run.config.videos:
        try:
            record(run, run.policy())
        except CtaError as error:
            print(f"no videos: {error}", file=sys.stderr)
    stopped = run.stopped()
    for why in stopped.values():
        print(f"cta {command}: {why}", file=sys.stderr)
    return SEED_STOPPED if stopped else DONE


def record(run: Run, policy: RunPolicy, *, episodes: int | None = None) -> None:
    """Videos of a policy, one file per episode, in RUN/videos/step_N/seed_S."""
    from cta.evaluation import record_videos  # rendering libraries

    run.tell_simulator()
    paths = record_videos(
        run.config.dataset_name,
        policy_maker(run.agent, policy.networks, policy.units, run.config, policy.seed),
        run_seed=policy.seed,
        tasks=range(1, (run.config.eval_tasks or 5) + 1),
        episodes=episodes or run.config.videos,
        folder=run.files.videos / f"step_{policy.step}" / f"seed_{policy.seed}",
        frame_skip=run.config.video_frame_skip,
        eval_seed=run.config.eval_seed,
    )
    print(f"videos: {len(paths)} in {paths[0].parent}" if paths else "no videos")


def print_scores(rows: Sequence[Score], run: Run) -> None:
    """Success per task at the newest step, averaged over seeds, and the last-three score per seed."""
    if not rows:
        print("no evaluation in this run")
        return
    last = max(row.step for row in rows)
    newest = [row for row in rows if row.step == last]
    tasks, seeds = {**task_scores(newest), "all": seed_scores(newest)}, seed_scores(newest)
    table = [["task", *(f"seed {seed}" for seed in seeds), "mean"]]
    for task, rates in tasks.items():
        cells = [f"{rates[seed]:.{int(task == 'all')}f}" if seed in rates else "–" for seed in seeds]
        table.append([task, *cells, f"{fmean(rates.values()):.1f}"])
    title = f"{run.config.agent_name} on {run.config.dataset_name}, step {last:,}, success in %"
    print_table(table, left=1, title=title)
    missing = missing_seeds(rows, run.config.seeds)
    for seed in missing:
        print(f"seed {seed} is missing: {run.stopped().get(seed, f'not scored at step {last:,}')}")
    if counted := [row for row in rows if row.seed not in missing]:
        found, episodes = summarise(counted), newest[0].episodes
        over = f"over {found.seeds} seeds" if found.seeds > 1 else "(one seed)"
        count = min(LAST_EVALUATIONS, len({row.step for row in rows}))
        print(
            f"score {found} {over}: mean over tasks and over the last {count} evaluation{'s' * (count > 1)}, "
            f"{episodes} episode{'s' * (episodes != 1)} per task"
        )
