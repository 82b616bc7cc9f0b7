"""One episode of navigate data in a point maze: wander from goal to goal along shortest paths."""

import numpy as np

from cta.envs.manipulation_data import Recorder
from cta.envs.ogbench import close_env, global_numpy_seed, make_env, spread_seed

ACTION_NOISE = 0.5


class PointMazeEpisodes:
    """Makes episodes of one dataset; each is a function of its seed."""

    def __init__(self, env_name: str) -> None:
        self._env = make_env(env_name, data_collection=True)
        self._cells, self._vertices = maze_cells(self._env.maze_map)

    def episode(self, seed: tuple[int, ...], steps: int) -> dict[str, np.ndarray]:
        """`steps` transitions as `steps + 1` rows: the unit direction to the next cell, plus N(0, σ²), clipped."""
        scene, box, shared_seed = spread_seed(np.random.SeedSequence(seed), 3)
        env, record = self._env, Recorder()
        env.action_space.seed(box)
        with global_numpy_seed(shared_seed):
            shared = np.random.mtrand._rand
            start = self._cells[shared.randint(len(self._cells))]
            goal = self._vertices[shared.randint(len(self._vertices))]
            observation, _ = env.reset(seed=scene, options={"task_info": {"init_ij": start, "goal_ij": goal}})
            for _ in range(steps + 1):
                place = env.get_xy()
                toward = env.get_oracle_subgoal(place, env.cur_goal_xy)[0] - place
                direction = toward / (np.linalg.norm(toward) + 1e-6)
                action = np.clip(direction + shared.normal(0, ACTION_NOISE, size=2), -1, 1)
                following, _, _, _, info = env.step(action)
                if info["success"]:
                    goal = self._vertices[shared.randint(len(self._vertices))]
                    env.set_goal(goal_xy=env.add_noise(env.ij_to_xy(goal)))
                record.add(observation, action, info)
                observation = following
        return record.arrays()

    def close(self) -> None:
        close_env(self._env)


def maze_cells(maze: np.ndarray) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """All free cells, and the vertices: free cells that are not the inside of a straight corridor."""
    cells, vertices = [], []
    for i, j in np.argwhere(maze == 0).tolist():
        cells.append((i, j))
        up, down, left, right = maze[i - 1, j], maze[i + 1, j], maze[i, j - 1], maze[i, j + 1]
        corridor = (up, down, left, right) in ((0, 0, 1, 1), (1, 1, 0, 0))
        if not corridor:
            vertices.append((i, j))
    return cells, vertices
