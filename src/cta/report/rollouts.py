"""What a policy does, for the players: recorded states on the embedded worlds, videos that exist on the others."""

import base64
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cta.envs.desk import TRAVEL, DeskTask, DeskWorld, decode, find_world
from cta.envs.protocol import Episode, Step
from cta.errors import CtaError
from cta.evaluation.rollout import plan_episodes, play
from cta.report.runs import RunRecord

CONTROL_RATE = 6.0
"""States per second at which a player shows an embedded world."""
FAILED = "goal not reached"
VIDEO_NAME = re.compile(r"task(\d+)_episode(\d+)_(success|failure)\.mp4")


def geometry(world: DeskWorld) -> dict[str, Any]:
    """What the page needs to draw an embedded world."""
    parts = [{"name": p.name, "base": p.base, "direction": p.direction, "locks": p.locks} for p in world.parts]
    buttons = [{"place": [round(at, 4) for at in b.place], "toggles": b.toggles} for b in world.buttons]
    return {"travel": TRAVEL, "parts": parts, "buttons": buttons}


def flat_states(world: DeskWorld, observations: np.ndarray) -> list[list[float]]:
    """[x, y, grip, part positions…, bits…] of every observation (T, 3 + m + n), with three decimals."""
    state = decode(world, observations)
    flat = np.concatenate([state.gripper, state.grip[:, None], state.parts, state.bits], axis=1)
    return np.round(flat.astype(float), 3).tolist()


def record_rollouts(run: RunRecord, *, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """(rollouts of the first seed not diverged, newest checkpoint, a line on their origin or why there are none).

    They are the first evaluation episodes of each task, whatever their outcome.
    """
    world = find_world(run.dataset)
    if world is None or world.pixels:
        return _videos(run)
    if not any((run.path / "checkpoints").glob("[0-9]*")):
        return [], "no rollouts, since there is no checkpoint."
    try:
        return _play(run, world, episodes)
    except CtaError as error:
        return [], f"no rollouts, since {error}."


class _Job(NamedTuple):
    """An episode to play: how the page calls it, its start and goal, its seed; of a pair's the log is judged."""

    key: str
    label: str
    episode: int
    task: DeskTask
    seed: int
    judge: Callable[[np.ndarray, bool], tuple[bool, list[list[Any]]]] = lambda *_: (None, None)  # pyright: ignore
    """(observations, success) → (whether it was direct, its events)"""


def _play(run: RunRecord, world: DeskWorld, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """The world's own tasks and, where pairs were held out, those: all episodes at once."""
    from cta.envs.desk_vector import DeskVectorWorld
    from cta.experiment import Run
    from cta.experiment.scoring import policy_maker

    opened = Run(run.path)
    policy = opened.policy()
    seed, step, names = policy.seed, policy.step, task_names(run.dataset)
    planned = plan_episodes(run_seed=seed, tasks=sorted(names), episodes=episodes, eval_seed=opened.config.eval_seed)
    jobs = [_Job(f"{p.task}/{p.episode}", names[p.task], p.episode, world.tasks[p.task - 1], p.seed) for p in planned]
    if run.cut or run.pair_rows:
        jobs += _held_out_jobs(run, episodes)
    seen, last = [[] for _ in jobs], {}

    def watch(playing: dict[int, Episode], at: Step) -> None:
        for place in playing:
            seen[place].append(np.array(at.observations[place]))
            last[place] = np.array(at.goals[place]), bool(at.success[place])

    # All side by side: slot after slot has the episode of its number.
    vector, act = DeskVectorWorld(world, slots=len(jobs)), (opened.agent, policy.networks, policy.units, opened.config)
    play([vector], policy_maker(*act, seed), [Episode(0, job.seed, job.task) for job in jobs], watch=watch)
    found = []
    for place, job in enumerate(jobs):
        observations, (goal, success) = np.stack(seen[place]), last[place]
        direct, happened = job.judge(observations, success)
        how = "" if direct is None else " directly" if direct else " by a detour"
        found.append(
            {
                "seed": seed,
                "step": step,
                "rate": CONTROL_RATE,
                "key": job.key,
                "label": f"{job.label}, episode {job.episode + 1}" if episodes > 1 else job.label,
                "success": success,
                "outcome": f"goal reached{how}" if success else FAILED,
                "direct": direct,
                "events": happened,
                "states": flat_states(world, observations),
                "goal": flat_states(world, goal[None])[0],
            }
        )
    which = "the first evaluation episode" if episodes == 1 else f"the first {episodes} evaluation episodes"
    return found, f"seed {seed} at step {step:,}, {which} of each task, whatever the outcome."


def _held_out_jobs(run: RunRecord, episodes: int) -> list[_Job]:
    """The first trials of each held-out pair, as `cta ooc evaluate` plays them."""
    from cta.experiment.weights import held_out_pairs
    from cta.ooc.evaluation import MID_POINTS, judge, write_log
    from cta.ooc.trials import Trial, desk_task, make_trials
    from cta.report.ooc import events, pair_names

    held_out = held_out_pairs(run.dataset, run.cut)
    layout, pairs, names = held_out.layout, dict(held_out.numbered()), pair_names(held_out)

    def judged(trial: Trial, observations: np.ndarray, success: bool) -> tuple[bool, list[list[Any]]]:
        values, pair = MID_POINTS.values(layout, layout.measure(observations, {})), pairs[trial.pair]
        log = write_log(trial, values, layout, success=success)
        return judge(log, pair, layout).direct, events(log, pair, layout)

    jobs = []
    for trial in make_trials(held_out, episodes=episodes):
        name, task = f"pair{trial.pair}", desk_task(trial, layout)
        key = f"{name}/{trial.episode}"
        jobs.append(_Job(key, names[name], trial.episode, task, trial.seed, partial(judged, trial)))
    return jobs


def _videos(run: RunRecord) -> tuple[list[dict[str, Any]], str]:
    """The mp4 files `cta evaluate --videos` left, of the newest step."""
    steps = {folder: folder.name.removeprefix("step_") for folder in (run.path / "videos").glob("step_*")}
    folders = sorted((f for f, step in steps.items() if step.isdecimal()), key=lambda folder: int(steps[folder]))
    if not folders:
        return [], f"no videos; `cta evaluate {run.path} --videos 1` records one per task."
    step, rollouts = int(steps[folders[-1]]), []
    # Videos from before folders of seeds lie in the step's own.
    folder = next(iter(sorted(folders[-1].glob("seed_*"))), folders[-1])
    seed = f" of seed {folder.name.removeprefix('seed_')}" if folder != folders[-1] else ""
    for file in sorted(folder.glob("*.mp4")):
        if named := VIDEO_NAME.fullmatch(file.name):
            task, episode, outcome = named.groups()
            success, video = outcome == "success", base64.b64encode(file.read_bytes()).decode()
            about = {"key": f"{task}/{episode}", "label": f"task {task}, episode {int(episode) + 1}", "step": step}
            outcome = "goal reached" if success else FAILED
            rollouts.append({**about, "success": success, "outcome": outcome, "video": video})
    return rollouts, f"videos{seed} at step {step:,}."


def task_names(dataset: str) -> dict[int, str]:
    """Readable names of a dataset's tasks where they are known without a simulator."""
    tasks = world.tasks if (world := find_world(dataset)) else ()
    return {number: task.name.split("_", 1)[1].replace("_", " ") for number, task in enumerate(tasks, 1)}
