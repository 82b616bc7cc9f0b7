"""A LeRobot folder (format v3) of the embedded desk in units like a robot's, and the environment it comes from.

    python examples/lerobot_desk.py recordings/desk

`make` gives a Gymnasium environment in the same units, for `cta evaluate RUN --env lerobot_desk:make`.
"""

import json
import sys
from functools import partial
from pathlib import Path

import gymnasium
import jax
import numpy as np

from cta.envs.desk import find_world, observe, step, success
from cta.envs.desk_vector import start_and_goal

WORLD = find_world("desk")
MILLIMETRES = 75.0
"""Of a step of one in an observation: the desk has sides of 300."""
LOW, HIGH = np.float32([-60, -60, 0]), np.float32([60, 60, 100])
"""Of actions: two moves in millimetres, and the gripper's speed, from opening (0) to closing (100)."""
FPS = 10
advance = jax.jit(partial(step, WORLD))


def in_millimetres(observations: np.ndarray) -> np.ndarray:
    """The first two numbers are the gripper's place."""
    scale = np.ones(observations.shape[-1], np.float32)
    scale[:2] = MILLIMETRES
    return np.asarray(observations, np.float32) * scale


def to_robot(actions: np.ndarray) -> np.ndarray:
    return (LOW + (actions + 1) / 2 * (HIGH - LOW)).astype(np.float32)


class Desk(gymnasium.Env):
    """One desk with its five tasks; observations, goals and actions in the robot's units."""

    task_infos = WORLD.tasks

    def __init__(self):
        self.action_space = gymnasium.spaces.Box(LOW, HIGH)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.goal = start_and_goal(WORLD.tasks[options["task_id"] - 1], seed)
        return self.see(self.state), {"goal": self.see(self.goal)}

    def step(self, action):
        unit = 2 * (np.asarray(action, np.float32) - LOW) / (HIGH - LOW) - 1
        self.state = advance(self.state, unit)
        return self.see(self.state), 0.0, False, False, {"success": bool(success(self.state, self.goal))}

    def see(self, state):
        return in_millimetres(np.asarray(observe(state)))


def make():
    return Desk()


def write(folder: Path, observations: np.ndarray, actions: np.ndarray, rows: int) -> None:
    """Episodes of `rows` rows each, as LeRobot lays them out: data, episodes, tasks, information, statistics."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def lists(values: np.ndarray) -> pa.FixedSizeListArray:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])

    def save(table: dict, place: str) -> None:
        path = folder / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(table), path)

    count, episodes = len(actions), len(actions) // rows
    frames, starts = np.tile(np.arange(rows), episodes), np.arange(episodes) * rows
    plain = {
        "timestamp": (frames / FPS).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.repeat(np.arange(episodes), rows),
        "index": np.arange(count),
        "task_index": np.zeros(count, np.int64),
    }
    arrays = {"observation.state": observations, "action": actions}
    save({name: lists(values) for name, values in arrays.items()} | plain, "data/chunk-000/file-000")
    zeros, task = np.zeros(episodes, np.int64), "play with the desk"
    listed = {"episode_index": np.arange(episodes), "tasks": [[task]] * episodes, "length": np.full(episodes, rows)}
    listed |= {"data/chunk_index": zeros, "data/file_index": zeros}
    listed |= {"dataset_from_index": starts, "dataset_to_index": starts + rows}
    save(listed, "meta/episodes/chunk-000/file-000")
    save({"task_index": [0], "task": [task]}, "meta/tasks")
    features = {name: {"dtype": "float32", "shape": [v.shape[1]], "names": None} for name, v in arrays.items()}
    features |= {name: {"dtype": str(values.dtype), "shape": [1], "names": None} for name, values in plain.items()}
    info = {
        "codebase_version": "v3.0", "robot_type": "desk", "total_episodes": episodes, "total_frames": count,
        "total_tasks": 1, "chunks_size": 1000, "data_files_size_in_mb": 100, "video_files_size_in_mb": 500, "fps": FPS,
        "splits": {"train": f"0:{episodes}"}, "video_path": None, "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    }  # fmt: skip
    stats = {
        name: {"min": values.min(axis=0).tolist(), "max": values.max(axis=0).tolist(), "count": [count]}
        for name, values in arrays.items()
    }
    (folder / "meta/info.json").write_text(json.dumps(info, indent=4))
    (folder / "meta/stats.json").write_text(json.dumps(stats, indent=4))


if __name__ == "__main__":
    from cta.envs.datasets import generate_desk

    data, _ = generate_desk("desk-play-v0", episodes=500, episode_steps=149, seed=0)
    write(Path(sys.argv[1]), in_millimetres(data.observations), to_robot(data.actions), rows=150)
