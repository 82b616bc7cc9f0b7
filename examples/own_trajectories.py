"""From trajectories of one's own to a policy: a walk on a square, small networks, minutes on a laptop.

python examples/own_trajectories.py
"""

import numpy as np

import cta

EPISODES, ROWS, STEPS = 100, 51, 5_000


def wander(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """States and actions of one episode: somebody walks to one place after another."""
    place, goal = rng.uniform(-1, 1, 2), rng.uniform(-1, 1, 2)
    states, actions = [], []
    for step in range(ROWS):
        if step % 10 == 0:
            goal = rng.uniform(-1, 1, 2)
        action = np.clip(5 * (goal - place), -1, 1)
        states.append(place)
        actions.append(action)
        place = np.clip(place + 0.1 * action, -1, 1)
    return np.array(states), np.array(actions)


rng = np.random.default_rng(0)
episodes = [wander(rng) for _ in range(EPISODES)]
data = cta.TrajectoryDataset.from_arrays(
    observations=np.concatenate([states for states, _ in episodes]),
    actions=np.concatenate([actions for _, actions in episodes]),
    episode_lengths=[ROWS] * EPISODES,
    name="walk",
)
run = cta.train(data, agent="cta", steps=STEPS, size="small", agent_settings={"subgoal_steps": 5})

policy, place, goal = run.policy(), np.array([-0.8, -0.8]), np.array([0.8, 0.5])
begin = np.linalg.norm(goal - place)
for _ in range(40):
    place = np.clip(place + 0.1 * policy(place, goal), -1, 1)
print(f"distance to the goal: {begin:.2f} at the start, {np.linalg.norm(goal - place):.2f} after 40 steps")
print(f"run directory: {run.path}")
