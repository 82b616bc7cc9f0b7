"""Numbers that others fixed: sizes, shapes, limits, noise levels, and the protocol of scores."""

import inspect
import urllib.error
import urllib.request
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from cta.agents import Agent
from cta.cli import evaluate
from cta.config import AgentConfig, RunConfig
from cta.data import DATA_DIR_VARIABLE, TrajectoryDataset, dataset_folder
from cta.data.download import MIRRORS_VARIABLE, download
from cta.envs import simulated_data
from cta.envs import worlds as worlds_module
from cta.envs.desk import find_world
from cta.envs.desk_vector import DeskVectorWorld
from cta.envs.generate import plan_job
from cta.envs.names import KNOWN, expected_shapes
from cta.envs.simulated_data import ManipulationEpisodes, PointMazeEpisodes
from cta.envs.worlds import OgbenchWorld
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.evaluation.rollout import TASKS, plan_episodes
from cta.evaluation.worker import Slots
from cta.experiment.candidates import choose_steps
from cta.presets import run_preset
from cta.scores.paper import EPISODES as COUNTED
from cta.scores.paper import TASKS as TASK_NAMES
from cta.scores.paper import points_of
from cta.scores.schema import Score
from cta.training.learner import Learner, Slice, seed_keys, spec_of, to_device
from test_scores_store import cell_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*DISPLAY environment variable is missing"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning"),  # OGBench's own action space
]

# Sizes and shapes.

EPISODES = {
    "scene": 1000,
    "cube-single": 1000,
    "cube-double": 1000,
    "cube-triple": 3000,
    "puzzle-3x3": 1000,
    "puzzle-4x4": 1000,
    "puzzle-4x5": 3000,
    "puzzle-4x6": 5000,
}
MAZES = {
    "pointmaze-medium": (1000, 1000),
    "pointmaze-large": (1000, 1000),
    "pointmaze-giant": (500, 2000),
    "antmaze-medium": (1000, 1000),
    "antmaze-large": (1000, 1000),
    "antmaze-giant": (500, 2000),
    "humanoidmaze-medium": (1000, 2000),
    "humanoidmaze-large": (1000, 2000),
    "humanoidmaze-giant": (1000, 4000),
}
FORMS = ("{}-play-v0", "{}-noisy-v0", "visual-{}-play-v0")
SIZES = (
    {form.format(world): (episodes, 1000) for world, episodes in EPISODES.items() for form in FORMS}
    | {f"{maze}-navigate-v0": size for maze, size in MAZES.items()}
    | {"desk-play-v0": (500, 149)}
    | {f"lights-{rows}x{columns}-play-v0": (500, 149) for rows in (2, 3, 4) for columns in (2, 3, 4, 5, 6)}
    | {f"lights-4x{columns}-play-v0": (count, 200) for columns, count in ((4, 5000), (5, 15_000), (6, 25_000))}
    | {f"visual-{world}-play-v0": (500, 149) for world in ("desk", "lights-3x3")}
)
"""Episodes and transitions an episode."""

WORLDS = {
    "scene": (40, 5, 25, 24, 750),
    "cube-single": (28, 5, 21, 20, 200),
    "cube-double": (37, 5, 28, 26, 500),
    "cube-triple": (46, 5, 35, 32, 1000),
    "puzzle-3x3": (55, 5, 23, 23, 500),
    "puzzle-4x4": (83, 5, 30, 30, 500),
    "puzzle-4x5": (99, 5, 34, 34, 1000),
    "puzzle-4x6": (115, 5, 38, 38, 1000),
    "pointmaze-medium": (2, 2, 2, 2, 1000),
    "pointmaze-large": (2, 2, 2, 2, 1000),
    "pointmaze-giant": (2, 2, 2, 2, 1000),
    "antmaze-medium": (29, 8, 15, 14, 1000),
    "antmaze-large": (29, 8, 15, 14, 1000),
    "antmaze-giant": (29, 8, 15, 14, 1000),
    "humanoidmaze-medium": (69, 21, 28, 27, 2000),
    "humanoidmaze-large": (69, 21, 28, 27, 2000),
    "humanoidmaze-giant": (69, 21, 28, 27, 4000),
}
"""Sizes of an observation, an action, qpos and qvel, and the limit of an episode."""


def test_the_sizes_of_all_datasets(tmp_path):
    assert {name: (spec.episodes, spec.episode_steps) for name, spec in KNOWN.items()} == SIZES
    for name, (episodes, steps) in SIZES.items():
        if not KNOWN[name].needs_expert:
            job = plan_job(name, folder=tmp_path)
            assert (job.count("train"), job.episode_steps) == (episodes, steps)
            assert job.count("validation") == episodes // 10


@pytest.mark.parametrize("world", WORLDS)
def test_shapes_of_observations_and_actions(world):
    dim, actions, *_ = WORLDS[world]
    assert expected_shapes(f"{world}-v0") == ((dim,), actions)
    if world in EPISODES:
        assert expected_shapes(f"visual-{world}-v0") == ((64, 64, 3), actions)


@pytest.mark.parametrize("world", ["scene", "cube-double", "puzzle-4x4", *MAZES])
def test_worlds_have_these_shapes(world):
    made = OgbenchWorld(f"{world}-v0")
    made.reset(1, 0)
    sizes = *made.observation_shape, made.action_dim, *(made._env.data.qpos.size, made._env.data.qvel.size)
    assert sizes == WORLDS[world][:4]
    made.close()


@pytest.mark.parametrize("world", [*WORLDS, *(f"visual-{world}" for world in EPISODES)])
def test_limit_of_an_episode(monkeypatch, world):
    """What workers are told, and the step at which an episode without success is over; nothing is simulated."""
    limit = WORLDS[world.removeprefix("visual-")][-1]
    monkeypatch.setattr(worlds_module, "make_env", lambda *args, **options: NeverReached())
    slots = Slots(f"{world}-v0", None)
    assert slots.describe()[1] == limit
    made = slots.world(0)
    made.reset(1, 0)
    assert [made.step(np.zeros(2))[1:] for _ in range(limit)] == [(False, False)] * (limit - 1) + [(False, True)]


class NeverReached:
    """An environment of which no more is wanted than that it goes on."""

    task_infos = ({"task_name": "one"},)
    action_space = spaces.Box(-1.0, 1.0, (2,))

    def reset(self, seed, options):
        return np.zeros(1), {"goal": np.zeros(1)}

    def step(self, action):
        return np.zeros(1), 0.0, False, False, {"success": False}


@pytest.mark.parametrize(("name", "dim"), [("desk-play-v0", 8), ("lights-3x3-play-v0", 12)])
def test_the_embedded_worlds(name, dim):
    world = find_world(name)
    assert world is not None and world.observation_dim == dim
    assert DeskVectorWorld(world, slots=1).max_episode_steps == 80
    assert Evaluator(name)._worlds(1)[0].max_episode_steps == 80


def test_worlds_clip_actions(monkeypatch):
    world = OgbenchWorld("pointmaze-medium-v0")
    world.reset(1, 0)
    step, taken = world._env.step, []
    monkeypatch.setattr(world._env, "step", lambda action: (taken.append(np.array(action)), step(action))[1])
    for action in ([3.0, -0.5], [-1.5, 1.0]):
        world.step(np.array(action))
    np.testing.assert_array_equal(taken, [[1.0, -0.5], [-1.0, 1.0]])
    world.close()


# Where files come from and go to.


def test_files_come_from_ogbench_s_server(tmp_path, monkeypatch):
    asked = []

    def no_network(request, timeout):
        asked.append(request.full_url)
        raise urllib.error.URLError("no network")

    monkeypatch.delenv(MIRRORS_VARIABLE, raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    base = "https://rail.eecs.berkeley.edu/datasets/ogbench"
    with pytest.raises(CtaError, match="no network"):
        download("scene-play-v0", tmp_path)
    (tmp_path / "scene-play-v0-val.npz").touch()
    with pytest.raises(CtaError, match="no network"):
        download("scene-play-v0", tmp_path)
    assert asked == [f"{base}/scene-play-v0-val.npz", f"{base}/scene-play-v0.npz"]


def test_files_go_to_ogbench_s_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_DIR_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert dataset_folder() == tmp_path / ".ogbench" / "data"


# Generating: a world that costs nothing, an oracle that asks for nothing, so that actions are the noise alone.


class StillEnv:
    """Counts resets and notes stacking probabilities; a random action is not a number.

    `lost` are the numbers of the resets after which the cube slips away for one row.
    """

    def __init__(self, lost=()):
        self.lost, self.seeds, self.stacking, self.rows = lost, [], [], 0
        self.action_space = SimpleNamespace(seed=lambda seed: None, sample=lambda: np.full(5, np.nan))

    def reset(self, seed):
        self.seeds.append(seed)
        self.stacking.append([])
        self.rows = 0
        return np.full(1, len(self.seeds), np.float32), self.get_reset_info()

    def get_reset_info(self):
        return {"privileged/target_task": "any"}

    def set_new_target(self, return_info, p_stack):
        self.stacking[-1].append(p_stack)

    def step(self, action):
        qpos = np.zeros(25)
        qpos[15] = 0.29 * (len(self.seeds) in self.lost and self.rows == 2)
        self.rows += 1
        return np.full(1, len(self.seeds), np.float32), 0.0, False, False, {"prev_qpos": qpos, "prev_qvel": qpos}


class StillOracle:
    """Asks for no movement and is done at every other step."""

    def __init__(self):
        self.calls = 0

    @property
    def done(self):
        self.calls += 1
        return self.calls % 2 == 0

    def reset(self, observation, info):
        pass

    def select_action(self, observation, info):
        return np.zeros(5)


@pytest.fixture
def make(monkeypatch):
    """Episodes of a dataset in that world: (maker, world)."""

    def make(env_name: str, kind: str, **options: Any) -> tuple[ManipulationEpisodes, StillEnv]:
        env = StillEnv(**options)
        monkeypatch.setattr(simulated_data, "make_env", lambda *args, **settings: env)
        monkeypatch.setattr(simulated_data, "_make_oracles", lambda *args: {"any": StillOracle()})
        maker = ManipulationEpisodes(env_name, kind)
        env.seeds.clear()  # without the reset that compiles the model
        env.stacking.clear()
        return maker, env

    return make


NORMAL_QUARTILE = 0.6745
"""Half of a normal sample is nearer to its mean than so many deviations; clipping leaves that as it is."""


@pytest.mark.parametrize(("world", "random"), [("cube-double", 0.1), ("scene", 0.1), ("puzzle-4x4", 0.2)])
def test_noise_of_noisy_data(make, world, random):
    """A level ξ an episode, uniform up to 0.1; deviations ξ·(1, 1, 1, 3, 10); and a share of random actions."""
    maker, _ = make(f"{world}-v0", "noisy")
    episodes = np.stack([maker.episode((0, 0, index), 199)["actions"] for index in range(60)])
    drawn = np.isnan(episodes).all(axis=-1)
    assert abs(drawn.mean() - random) < 0.015  # four standard errors
    spread = np.nanmedian(np.abs(episodes), axis=1) / NORMAL_QUARTILE
    level = spread[:, :3].mean(axis=1)
    np.testing.assert_allclose((spread / level[:, None]).mean(axis=0), [1, 1, 1, 3, 10], rtol=0.05)
    assert level.min() < 0.01 and 0.09 < level.max() < 0.11
    np.testing.assert_allclose(np.quantile(level, [0.25, 0.5, 0.75]), [0.025, 0.05, 0.075], atol=0.015)
    assert np.nanmax(np.abs(episodes)) == 1  # clipped


@pytest.mark.parametrize("world", ["cube-double", "scene", "puzzle-4x4"])
def test_play_data_have_no_noise_but_the_plan_s(make, world):
    maker, _ = make(f"{world}-v0", "play")
    assert all((maker.episode((0, 0, index), 99)["actions"] == 0).all() for index in range(5))


@pytest.mark.parametrize("kind", ["play", "noisy"])
@pytest.mark.parametrize(
    ("world", "low", "high"),
    [("cube-single", 0, 0), ("cube-double", 0, 0.25), ("cube-triple", 0.05, 0.35), ("scene", 0.5, 0.5)],
)
def test_stacking_probability(make, kind, world, low, high):
    """One for each episode, uniform in a range of its world, for all targets but the first."""
    maker, env = make(f"{world}-v0", kind)
    for index in range(200):
        maker.episode((0, 0, index), 5)
    assert [(len(drawn), len(set(drawn))) for drawn in env.stacking] == [(3, 1)] * 200
    found = np.array([drawn[0] for drawn in env.stacking])
    assert low <= found.min() and found.max() <= high
    quantiles = np.quantile(found, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quantiles, np.linspace(low, high, 5), atol=0.1 * (high - low))


def test_an_episode_that_lost_the_cube_is_made_again(make):
    maker, env = make("scene-v0", "play", lost=(1, 2))
    rows = maker.episode((0, 0, 0), 4)
    assert len(env.seeds) == len(set(env.seeds)) == 3  # each attempt has its own seed
    assert rows["observations"].tolist() == [[3.0]] * 5  # all rows are the third's
    assert not rows["qpos"][:, 15].any()


@pytest.mark.parametrize("world", ["cube-single", "puzzle-3x3"])
def test_only_the_scene_is_checked(make, world):
    maker, env = make(f"{world}-v0", "play", lost=(1,))
    maker.episode((0, 0, 0), 4)
    assert len(env.seeds) == 1


def test_a_scene_that_always_loses_the_cube_gets_one_line(make, monkeypatch):
    monkeypatch.setattr(simulated_data, "HEALTHY_ATTEMPTS", 3)
    maker, env = make("scene-v0", "play", lost=(1, 2, 3))
    with pytest.raises(CtaError, match="3 attempts at an episode all lost the cube"):
        maker.episode((0, 0, 0), 4)
    assert len(env.seeds) == 3


def test_noise_of_point_maze_data(monkeypatch):
    """The unit direction to the next cell, and on each coordinate normal noise of deviation 0.5."""
    maker = PointMazeEpisodes("pointmaze-medium-v0")
    monkeypatch.setattr(maker._env, "get_oracle_subgoal", lambda place, goal: (place + np.array([3.0, 4.0]), None))
    actions = maker.episode((0, 0, 0), 1999)["actions"]
    lower, middle = np.quantile(actions, [0.25, 0.5], axis=0)
    np.testing.assert_allclose(middle, [0.6, 0.8], atol=0.05)
    np.testing.assert_allclose((middle - lower) / NORMAL_QUARTILE, 0.5, atol=0.05)
    assert actions.max() == 1
    maker.close()


# Validation batches.


@dataclass(frozen=True)
class Shows(Agent):
    """Its metrics are the batch it was given."""

    config: AgentConfig

    def init(self, key, spec):
        return {}

    def draw(self, key, table):
        names = "observations", "next_observations", "value_goals"
        return {name: table.valid_rows[: self.config.batch_size] + shift for shift, name in enumerate(names)}

    def loss(self, networks, targets, batch, key):
        return jnp.zeros(()), dict(batch)

    def act(self, networks, observations, goals, key, temperature, memory=None):
        raise NotImplementedError


@pytest.mark.parametrize("fetched", [False, True], ids=["resident", "fetched"])
def test_validation_batches_are_augmented_as_training_batches_are(fetched):
    images = np.random.default_rng(0).integers(0, 256, (22, 8, 8, 3), np.uint8)
    held_out = TrajectoryDataset.from_arrays(images, np.zeros((22, 2), np.float32), episode_lengths=[11, 11])
    agent = Shows(AgentConfig(batch_size=16, p_aug=1.0))
    learner, keys = Learner(agent, spec_of(held_out), block=1), seed_keys(0)

    @jax.jit
    def validate(data):
        state: Any = SimpleNamespace(networks={}, targets={}, step=5)
        rows = learner.draw_validation(keys, 5, data.table)
        if not fetched:
            return rows, learner.validate(state, keys, data)
        part = Slice(rows, {name: data.observations[index] for name, index in rows.items()})
        return rows, learner.validate_slice(state, keys, data.actions, part)

    rows, seen = jax.device_get(validate(to_device(held_out)))
    offsets = []
    for i in range(16):
        (offset,) = set.intersection(*(crops_of(images[index[i]], seen[name][i]) for name, index in rows.items()))
        offsets.append(offset)
    assert len(set(offsets)) > 8  # where images pass unchanged, all are (3, 3)


def crops_of(before, after):
    """The offsets at which the padded image holds the other one."""
    padded = np.pad(before, ((3, 3), (3, 3), (0, 0)), mode="edge")
    every = [(i, j) for i in range(7) for j in range(7)]
    return {(i, j) for i, j in every if (padded[i : i + 8, j : j + 8] == after).all()}


# Scores.


def test_an_evaluation_has_five_tasks_of_fifty_episodes():
    planned = plan_episodes(run_seed=0)
    assert [(one.task, one.episode) for one in planned] == [(task, i) for task in range(1, 6) for i in range(50)]
    assert TASKS == (1, 2, 3, 4, 5)
    for asks in (RunConfig, evaluate.Command):
        options = inspect.signature(asks).parameters
        found = [options[name].default for name in options if name in ("eval_episodes", "episodes")]
        assert found == [50]
    defaults = inspect.signature(Evaluator.run).parameters
    assert (defaults["episodes"].default, defaults["tasks"].default) == (50, TASKS)


@pytest.mark.parametrize(
    ("dataset", "points"),
    [
        ("scene-play-v0", (800_000, 900_000, 1_000_000)),
        ("puzzle-4x6-noisy-v0", (800_000, 900_000, 1_000_000)),
        ("antmaze-giant-navigate-v0", (800_000, 900_000, 1_000_000)),
        ("visual-scene-play-v0", (300_000, 400_000, 500_000)),
    ],
)
def test_results_are_made_of_the_last_three_evaluations(dataset, points):
    assert points_of(dataset) == points
    run = run_preset(RunConfig(AgentConfig(), dataset=dataset))
    assert (run.steps, run.eval_interval, run.eval_episodes) == (points[-1], 100_000, 50)
    steps = range(100_000, points[-1] + 1, 100_000)
    for seeds in (1, 8):  # too few seeds for a result, and enough
        cell = cell_of(scores(dataset, range(seeds), steps))
        assert (cell.tasks, COUNTED) == (TASK_NAMES, 50)
        assert (cell.state() == "complete") == (seeds == 8)
        assert sorted({row.step for row in cell.counted()}) == list(points)
        assert len(cell.counted()) == seeds * 3 * 5


def scores(dataset, seeds, steps):
    key = (dataset, "cta", "", "whole")
    return [Score(*key, seed, step, task, 50, 1) for seed in seeds for step in steps for task in TASK_NAMES]


@pytest.mark.parametrize("short", [{"episodes": 49}, {"task": "6"}])
def test_fewer_episodes_or_tasks_are_no_result(short):
    """One row that lacks an episode, or the fifth task of one evaluation under another number."""
    name = "scene-play-v0"
    points = (800_000, 900_000, 1_000_000)
    rows = scores(name, range(8), points)
    assert cell_of(rows).state() == "complete"
    rows[-1] = rows[-1]._replace(**short)
    assert cell_of(rows).state() != "complete"


def test_the_last_three_checkpoints():
    steps = list(range(100_000, 1_000_001, 100_000))
    run: Any = SimpleNamespace(steps=lambda: [*steps, 1_000_007], config=RunConfig(AgentConfig()))
    assert choose_steps(run, "last3") == steps[-3:]
