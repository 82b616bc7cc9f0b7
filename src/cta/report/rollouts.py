"""What a policy does, for the players: recorded states on the embedded worlds, videos that exist on the others."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from cta.envs.desk import TRAVEL, DeskWorld, decode, find_world
from cta.errors import CtaError
from cta.report.runs import RunRecord

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
    """(rollouts of the first seed at the newest checkpoint, a line on where they come from or why there are none).

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
    from cta.evaluation.episodes import plan_episodes
    from cta.evaluation.scenes import DeskScene, play_scene
    from cta.experiment import Run
    from cta.experiment.scoring import policy_maker

    opened = Run(run.path)
    step, networks = opened.networks()
    seed = opened.config.seeds[0]
    scene = DeskScene(world.dataset_name)
    policy = policy_maker(opened.agent, networks[0], opened.config, seed)(1)
    planned = plan_episodes(
        run_seed=seed, tasks=range(1, len(world.tasks) + 1), episodes=episodes, eval_seed=opened.config.eval_seed
    )
    rollouts = []
    for episode in planned:
        states = list(play_scene(scene, policy, episode))
        observations = np.stack([state[0] for state in states])
        rollouts.append(
            {
                "task": episode.task,
                "episode": episode.episode,
                "seed": seed,
                "step": step,
                "success": bool(states[-1][2]),
                "states": flat_states(world, observations),
                "goal": flat_states(world, np.asarray(states[0][1])[None])[0],
                "rate": scene.control_rate,
            }
        )
    return rollouts, f"seed {seed} at step {step:,}, the first {episodes} evaluation episodes of each task."


def _videos(run: RunRecord) -> tuple[list[dict[str, Any]], str]:
    """The mp4 files `cta evaluate --videos` left, of the newest step."""
    folders = sorted((run.path / "videos").glob("step_*"), key=lambda folder: int(folder.name.split("_")[1]))
    if not folders:
        return [], f"no videos; `cta evaluate {run.path} --videos 1` records one a task."
    step = int(folders[-1].name.split("_")[1])
    rollouts = []
    for file in sorted(folders[-1].glob("*.mp4")):
        named = VIDEO_NAME.fullmatch(file.name)
        if named:
            task, episode, outcome = named.groups()
            about = {"task": int(task), "episode": int(episode), "seed": run.seeds[0], "step": step}
            rollouts.append({**about, "success": outcome == "success", "file": file})
    return rollouts, f"videos of seed {run.seeds[0]} at step {step:,}."


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
