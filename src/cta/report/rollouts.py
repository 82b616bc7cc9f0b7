"""What a policy does, for the players: recorded states on the embedded worlds, videos that exist on the others."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cta.envs.desk import TRAVEL, DeskTask, DeskWorld, decode, find_world
from cta.envs.protocol import Episode
from cta.errors import CtaError
from cta.evaluation.rollout import Policy
from cta.report.runs import RunRecord

CONTROL_RATE = 6.0
"""States per second at which a player shows an embedded world."""
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


def _play(run: RunRecord, world: DeskWorld, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """The world's own tasks and, where pairs were held out, those: all episodes at once."""
    from cta.evaluation.rollout import plan_episodes
    from cta.experiment import Run
    from cta.experiment.scoring import policy_maker

    opened = Run(run.path)
    policy = opened.policy()
    seed, step = policy.seed, policy.step
    names = task_names(run.dataset)
    planned = plan_episodes(run_seed=seed, tasks=sorted(names), episodes=episodes, eval_seed=opened.config.eval_seed)
    jobs = [_Job(f"{p.task}/{p.episode}", names[p.task], p.episode, world.tasks[p.task - 1], p.seed) for p in planned]
    if run.cut or (run.path / "ooc.csv").exists():
        jobs += _held_out_jobs(opened, episodes)
    films = _film(
        world, policy_maker(opened.agent, policy.networks, policy.units, opened.config, seed)(len(jobs)), jobs
    )
    common = {"seed": seed, "step": step, "rate": CONTROL_RATE}
    rollouts = [
        {**common, **_shown(world, job, film, many=episodes > 1)} for job, film in zip(jobs, films, strict=True)
    ]
    which = "the first evaluation episode" if episodes == 1 else f"the first {episodes} evaluation episodes"
    return rollouts, f"seed {seed} at step {step:,}, {which} of each task, whatever the outcome."


class _Job(NamedTuple):
    """An episode to play: how the page calls it, its start and goal, its seed; of a pair's the log is judged."""

    key: str
    label: str
    episode: int
    task: DeskTask
    seed: int
    judge: Callable[[np.ndarray, bool], tuple[bool, list[list[Any]]]] | None = None
    """(observations, success) → (whether it was direct, its events)"""


class _Film(NamedTuple):
    observations: np.ndarray
    goal: np.ndarray
    success: bool


def _held_out_jobs(opened: Any, episodes: int) -> list[_Job]:
    """The first trials of each held-out pair, as `cta ooc evaluate` plays them."""
    from cta.experiment.run_dir import cut_of
    from cta.experiment.weights import held_out_pairs
    from cta.ooc.evaluation import MID_POINTS, judge, write_log
    from cta.ooc.trials import Trial, desk_task, make_trials
    from cta.report.ooc import events, pair_names

    cut = cut_of(opened.files.provenance().get("dataset") or {})
    held_out = held_out_pairs(opened.config.dataset_name, cut)
    layout, pairs, names = held_out.layout, dict(held_out.numbered()), pair_names(held_out.numbered())

    def judged(trial: Trial, observations: np.ndarray, success: bool) -> tuple[bool, list[list[Any]]]:
        values, pair = MID_POINTS.values(layout, layout.measure(observations, {})), pairs[trial.pair]
        log = write_log(trial, values, layout, success=success)
        return judge(log, pair, layout).direct, events(log, pair, layout)

    found = [(f"pair{trial.pair}", trial) for trial in make_trials(held_out, episodes=episodes)]
    return [
        _Job(f"{pair}/{one.episode}", names[pair], one.episode, desk_task(one, layout), one.seed, partial(judged, one))
        for pair, one in found
    ]


def _film(world: DeskWorld, policy: Policy, jobs: Sequence[_Job]) -> list[_Film]:
    """Play all jobs side by side, each to its end."""
    from cta.envs.desk_vector import DeskVectorWorld

    vector = DeskVectorWorld(world, slots=len(jobs))
    vector.send(
        np.zeros((len(jobs), vector.action_dim), np.float32),
        {k: Episode(0, j.seed, j.task) for k, j in enumerate(jobs)},
    )
    seen: list[list[np.ndarray]] = [[] for _ in jobs]
    success, over, first = np.zeros(len(jobs), bool), np.zeros(len(jobs), bool), True
    while True:
        step = vector.receive()
        for k in np.flatnonzero(~over).tolist():
            seen[k].append(np.array(step.observations[k]))
            success[k] = step.success[k]
        over |= step.done
        if over.all():
            return [_Film(np.stack(rows), step.goals[k], bool(success[k])) for k, rows in enumerate(seen)]
        vector.send(policy(step.observations, step.goals, np.full(len(jobs), first)), {})
        first = False


def _shown(world: DeskWorld, job: _Job, film: _Film, *, many: bool) -> dict[str, Any]:
    direct, happened = job.judge(film.observations, film.success) if job.judge else (None, None)
    how = "" if direct is None else " directly" if direct else " by a detour"
    return {
        "key": job.key,
        "label": f"{job.label}, episode {job.episode + 1}" if many else job.label,
        **_outcome(film.success, how),
        "direct": direct,
        "events": happened,
        "states": flat_states(world, film.observations),
        "goal": flat_states(world, film.goal[None])[0],
    }


def _outcome(success: bool, how: str = "") -> dict[str, Any]:
    return {"success": success, "outcome": f"goal reached{how}" if success else "goal not reached"}


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
            about = {"key": f"{task}/{episode}", "label": f"task {task}, episode {int(episode) + 1}", "step": step}
            rollouts.append({**about, **_outcome(outcome == "success"), "file": file})
    return rollouts, f"videos{seed} at step {step:,}."


def task_names(dataset: str) -> dict[int, str]:
    """Readable names of a dataset's tasks where they are known without a simulator."""
    world = find_world(dataset)
    if world is None:
        return {}
    return {number: task.name.split("_", 1)[1].replace("_", " ") for number, task in enumerate(world.tasks, 1)}
