"""What a policy does, for the players: recorded states on the embedded worlds, videos that exist on the others."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cta.envs.desk import TRAVEL, DeskTask, DeskWorld, decode, find_world
from cta.envs.protocol import Episode
from cta.errors import CtaError
from cta.evaluation.rollout import Policy
from cta.report.runs import RunRecord

CONTROL_RATE = 6.0
"""States a second at which a player shows an embedded world."""
VIDEO_NAME = re.compile(r"task(\d+)_episode(\d+)_(success|failure)\.mp4")


def world_of(dataset: str) -> DeskWorld | None:
    """The embedded world of a dataset, or None for a simulator's."""
    return find_world(dataset)


def geometry(world: DeskWorld) -> dict[str, Any]:
    """What the page needs to draw an embedded world."""
    parts = [{"name": p.name, "base": p.base, "direction": p.direction, "locks": p.locks} for p in world.parts]
    buttons = [{"place": [round(at, 4) for at in b.place], "toggles": b.toggles} for b in world.buttons]
    return {"travel": TRAVEL, "parts": parts, "buttons": buttons}


def flat_states(world: DeskWorld, observations: np.ndarray) -> list[list[float]]:
    """[x, y, grip, part positions…, bits…] of every observation (T, 3 + m + n), with three decimals."""
    state = decode(world, observations)
    flat = np.concatenate([state.gripper, state.grip[:, None], state.parts, state.bits], axis=1)
    return [[round(float(value), 3) for value in row] for row in flat]


def record_rollouts(run: RunRecord, *, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """(rollouts of the first seed that is well, newest checkpoint, a line on their origin or why there are none).

    They are the first evaluation episodes of each task, whatever their outcome.
    """
    world = world_of(run.dataset)
    if world is None:
        return _videos(run)
    if not any((run.path / "checkpoints").glob("[0-9]*")):
        return [], "no rollouts, since there is no checkpoint."
    try:
        return _play(run, world, episodes)
    except CtaError as error:
        return [], f"no rollouts, since {error}."


def _play(run: RunRecord, world: DeskWorld, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """The world's own tasks and, where pairs were held out, those: all episodes at once."""
    from cta.evaluation.episodes import plan_episodes
    from cta.experiment import Run
    from cta.experiment.scoring import policy_maker

    opened = Run(run.path)
    policy = opened.policy()
    seed, step = policy.seed, policy.step
    names = task_names(run.dataset)
    planned = plan_episodes(run_seed=seed, tasks=sorted(names), episodes=episodes, eval_seed=opened.config.eval_seed)
    jobs = [
        _Job(f"{p.task}/{p.episode}", f"{p.task} {names[p.task]}", p.episode, world.tasks[p.task - 1], p.seed)
        for p in planned
    ]
    if run.cut or (run.path / "ooc.csv").exists():
        jobs += _held_out_jobs(opened, episodes)
    films = _film(world, policy_maker(opened.agent, policy.networks, opened.config, seed)(len(jobs)), jobs)
    common = {"seed": seed, "step": step, "rate": CONTROL_RATE}
    rollouts = [
        {**common, **_shown(world, job, film, many=episodes > 1)} for job, film in zip(jobs, films, strict=True)
    ]
    which = "the first evaluation episode" if episodes == 1 else f"the first {episodes} evaluation episodes"
    return rollouts, f"seed {seed} at step {step:,}, {which} of each task, whatever the outcome."


@dataclass(frozen=True)
class _Job:
    """An episode to play: how the page calls it, its start and goal, its seed, and its verdict if it is a pair's."""

    key: str
    label: str
    episode: int
    task: DeskTask
    seed: int
    direct: Callable[[np.ndarray, bool], bool] | None = None


@dataclass(frozen=True)
class _Film:
    observations: np.ndarray
    goal: np.ndarray
    success: bool


def _held_out_jobs(opened: Any, episodes: int) -> list[_Job]:
    """The first trials of each held-out pair, as `cta ooc evaluate` plays them."""
    from cta.ooc.evaluation import MID_POINTS, write_log
    from cta.ooc.logs import judge
    from cta.ooc.scoring import held_out_of_run
    from cta.ooc.trials import Trial, desk_task, make_trials

    held_out = held_out_of_run(opened)
    layout, pairs = held_out.layout, dict(held_out.numbered())

    def verdict(trial: Trial) -> Callable[[np.ndarray, bool], bool]:
        def direct(observations: np.ndarray, success: bool) -> bool:
            values = MID_POINTS.values(layout, layout.measure(observations, {}))
            return judge(write_log(trial, values, layout, success=success), pairs[trial.pair], layout).direct

        return direct

    return [
        _Job(
            f"pair{trial.pair}/{trial.episode}",
            f"held-out pair {trial.pair}, {pairs[trial.pair].name}",
            trial.episode,
            desk_task(trial, layout),
            trial.seed,
            verdict(trial),
        )
        for trial in make_trials(held_out, episodes=episodes)
    ]


def _film(world: DeskWorld, policy: Policy, jobs: Sequence[_Job]) -> list[_Film]:
    """Play all jobs side by side, each to its end."""
    from cta.envs.desk_vector import DeskVectorWorld

    vector = DeskVectorWorld(world, slots=len(jobs), tasks=[job.task for job in jobs])
    vector.send(
        np.zeros((len(jobs), vector.action_dim), np.float32), {k: Episode(k + 1, j.seed) for k, j in enumerate(jobs)}
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
    outcome = "goal reached" if film.success else "goal not reached"
    if film.success and job.direct is not None:
        outcome += " directly" if job.direct(film.observations, film.success) else " by a detour"
    return {
        "key": job.key,
        "label": f"{job.label}, episode {job.episode}" if many else job.label,
        "success": film.success,
        "outcome": outcome,
        "states": flat_states(world, film.observations),
        "goal": flat_states(world, film.goal[None])[0],
    }


def _videos(run: RunRecord) -> tuple[list[dict[str, Any]], str]:
    """The mp4 files `cta evaluate --videos` left, of the newest step."""
    folders = sorted((run.path / "videos").glob("step_*"), key=lambda folder: int(folder.name.split("_")[1]))
    if not folders:
        return [], f"no videos; `cta evaluate {run.path} --videos 1` records one a task."
    step = int(folders[-1].name.split("_")[1])
    rollouts = []
    # Videos from before folders of seeds lie in the step's own.
    folder = next(iter(sorted(folders[-1].glob("seed_*"))), folders[-1])
    seed = folder.name.removeprefix("seed_") if folder != folders[-1] else None
    for file in sorted(folder.glob("*.mp4")):
        named = VIDEO_NAME.fullmatch(file.name)
        if named:
            task, episode, outcome = named.groups()
            about = {"key": f"{task}/{episode}", "label": f"task {task}, episode {episode}", "step": step}
            words = "goal reached" if outcome == "success" else "goal not reached"
            rollouts.append({**about, "success": outcome == "success", "outcome": words, "file": file})
    return rollouts, f"videos{f' of seed {seed}' if seed else ''} at step {step:,}."


def task_names(dataset: str) -> dict[int, str]:
    """Readable names of a dataset's tasks where they are known without a simulator."""
    world = world_of(dataset)
    if world is None:
        return {}
    return {number: task.name.split("_", 1)[1].replace("_", " ") for number, task in enumerate(world.tasks, 1)}


def read_video(file: Path) -> bytes:
    """The bytes of a video."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise CtaError(f"{file}: cannot be read ({error.strerror})") from error
