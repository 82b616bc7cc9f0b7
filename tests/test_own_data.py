"""Own data from file to exported policy: the page that explains it, executed; Minari, splits, orders, environments."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from cta import CtaError, TrajectoryDataset, load_policy, train
from cta.agents.policy import GoalPolicy
from cta.cli import run
from cta.data.dataset import hold_out
from cta.data.other_formats import goal_vector, join, leaves, read_minari
from cta.envs.worlds import OwnWorld
from cta.evaluation.evaluator import complete_goal
from cta.evaluation.offline import rank_correlation, trajectory_order
from cta.experiment import Run
from tiny_agents import SPEC, tiny, with_targets

PAGE = Path(__file__).parents[1] / "docs" / "own-data.md"
SHORT = "--steps 6 --eval-interval 3 --log-interval 3 --agent.batch-size 16 --agent.hidden 8 --agent.dual.hidden 8"
QUICK = {
    "--steps 5000 --eval-interval 1000": SHORT,
    "--episodes 20 --max-episode-steps 50": "--episodes 2 --max-episode-steps 5 --workers 1",
    "--steps 6000 --eval-interval 3000": SHORT.partition(" --agent.dual")[0],
    "--episodes 20 --max-episode-steps 80": "--episodes 1 --max-episode-steps 2 --workers 1",
    "steps=10,": "steps=2, log_interval=2, eval_interval=2, quiet=True,",
    '{"batch_size": 32}': '{"batch_size": 8, "hidden": (8,)}',
}
"""What makes the page's commands quick; nothing else of them is changed."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A folder in which the page was followed to its end, with the names its Python left behind."""
    folder = tmp_path_factory.mktemp("page")
    text = PAGE.read_text()
    for slow, quick in QUICK.items():
        assert text.count(slow) == 1, slow
        text = text.replace(slow, quick)
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        saved: str | None = None
        shutil.copy(PAGE.parents[1] / "examples" / "lerobot_desk.py", folder)
        for before, kind, code in re.findall(r"([^`]*)```(\w+)\n(.*?)```", re.sub(r"`([^`\n]+)`", r"'\1'", text), re.S):
            saved = next(iter(re.findall(r"[Ss]ave this as '(\w+\.py)'", before)), None)
            if saved:
                (folder / saved).write_text(code)
            elif kind == "python" and "sys.path" in code:
                (folder / "use.py").write_text(code)
            elif kind == "python":
                exec(code, names)
            else:
                for line in code.splitlines():
                    program, *words = line.split()
                    if program == "python":
                        patch.setattr(sys, "argv", words)
                        runpy.run_path(str(folder / words[0]), run_name="__main__")
                    else:
                        assert run(words) == 0, line
    return folder, names


@pytest.mark.slow
def test_the_page_ends_in_a_policy(page):
    folder, names = page
    assert names["action"].shape == (2,) and names["actions"].shape == (7, 2) and names["noisy"].shape == (2,)
    assert np.ndim(names["near"]) == 0 and names["change"].ndim == 1
    assert names["data"].num_episodes == 100 and names["moves"].shape == (5, 2)
    np.testing.assert_allclose(names["moves"][0], load_policy(folder / "run")(np.zeros(2), np.ones(2)), atol=1e-6)
    desk = load_policy(folder / "run-desk")
    assert desk.bounds.high.tolist() == [60, 60, 100] and desk.units.normalisation.scale[0] > 10
    found = Run(folder / "run")
    assert [row["step"] for row in found.offline()] == ["3", "6"] and found.steps() == [3, 6]
    assert all(-1 <= float(row[key]) <= 1 for row in found.offline() for key in ("value_order", "dual_order"))
    assert found.offline()[0]["episodes"] == "10"  # a tenth of 100
    assert found.files.provenance()["dataset"]["held_out_episodes"] == 10
    assert "validation/total_loss" in (folder / "run" / "train.csv").read_text().splitlines()[0]
    scored = (folder / "run" / "evaluate.csv").read_text().splitlines()
    assert len(scored) == 2 and ",whole,0,6,1,2," in scored[1]
    assert scored[1].startswith('walk,gcivl-dual,"batch_size=16;')


USE = """
import sys
for name in ("cta", "equinox", "optax", "orbax"):
    sys.modules[name] = None  # an import of it fails
exec(open("use.py").read())
pairs = np.load("pairs.npy")
np.save("actions.npy", policy(pairs[0], pairs[1]))
np.save("hot.npy", policy(pairs[0], pairs[1], temperature=0.7))
np.save("values.npy", policy.ask("value", pairs[0], pairs[1]))
try:
    policy.ask("subgoal", pairs[0], pairs[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_exported_policy_acts_alike_without_the_package(page):
    folder, _ = page
    pairs = np.random.default_rng(0).uniform(-1, 1, (2, 1000, 2)).astype(np.float32)
    np.save(folder / "pairs.npy", pairs)
    done = subprocess.run([sys.executable, "-c", USE], cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "has no subgoal; it has analogy, dual_value, value" in done.stdout
    policy = load_policy(folder / "run")
    np.testing.assert_allclose(np.load(folder / "actions.npy"), policy(*pairs), atol=1e-6)
    np.testing.assert_allclose(np.load(folder / "values.npy"), policy.value(*pairs), atol=1e-5)
    hot = np.load(folder / "hot.npy")
    assert np.abs(hot - policy(*pairs)).max() > 0.01 and np.abs(hot).max() <= 0.1 + 1e-6
    about = json.loads((folder / "policy" / "policy.json").read_text())
    assert about["action"]["low"] == pytest.approx([-0.1, -0.1])
    assert about["observation"] == {"shape": [2], "dtype": "float32"} and about["platforms"] == ["cpu", "cuda"]
    assert about["functions"]["act"]["inputs"][0] == {"name": "observations", "shape": ["b", 2], "dtype": "float32"}
    assert about["provenance"]["seed"] == 0 and about["provenance"]["training"]["dataset"]["fingerprint"]
    unread = [name for name in about["functions"]["act"]["weights"] if name.startswith(("critic", "phi"))]
    assert not unread


def test_a_wrong_setting_gets_the_nearest_name():
    data = straight()
    for settings, complaint in [
        (
            {"agent_settings": {"subgoal_step": 3}},
            "unknown setting 'subgoal_step' of agent cta: did you mean 'subgoal_steps'?",
        ),
        ({"stepz": 3}, "unknown setting 'stepz' of a run: did you mean 'steps'?"),
        ({"agent_settings": {"zzz": 3}}, "unknown setting 'zzz' of agent cta: there are "),
    ]:
        with pytest.raises(CtaError, match=re.escape(complaint)) as error:
            train(data, **settings)
        assert "\n" not in str(error.value)


def test_policies_complain_in_one_line():
    agent = tiny("gcbc")
    policy = GoalPolicy(agent, with_targets(agent)[0], SPEC, name="gcbc")
    good = np.zeros(6)
    wrong = [(np.zeros(5), good, "shape"), (good, np.zeros((1, 6)), "same shape"), (["a"] * 6, good, "dtype")]
    wrong += [(np.full(6, np.nan), good, "finite"), (np.zeros((0, 6)), np.zeros((0, 6)), "shape"), (3.0, good, "shape")]
    for s, g, message in wrong:
        with pytest.raises(CtaError, match=message):
            policy(s, g)
    with pytest.raises(CtaError, match="temperature"):
        policy(good, good, temperature=-1)
    for question, reason in [("value", "no value"), ("analogy", "no analogies"), ("subgoal", "one level")]:
        with pytest.raises(CtaError, match=f"no {question} from this policy: the agent 'gcbc' .*{reason}"):
            getattr(policy, question)(good, good)


def straight(episodes=6, rows=8):
    line = np.repeat(np.arange(rows, dtype=np.float32)[None], episodes, axis=0).reshape(-1, 1)
    states = np.repeat(line, 6, axis=1) + np.repeat(np.arange(episodes), rows)[:, None].astype(np.float32) * 100
    return TrajectoryDataset.from_arrays(
        states, np.zeros((len(states), 3), np.float32), episode_lengths=[rows] * episodes
    )


def test_held_out_episodes_are_whole_and_always_the_same():
    data = straight(episodes=20)
    train, held = hold_out(data, 0.1)
    assert held is not None and (train.num_episodes, held.num_episodes) == (18, 2)
    starts = {int(row[0]) // 100 for row in held.observations}
    assert not starts & {int(row[0]) // 100 for row in train.observations} and len(starts) == 2
    np.testing.assert_array_equal(hold_out(data, 0.1)[1].observations, held.observations)
    assert hold_out(straight(episodes=2), 0.9)[0].num_episodes == 1
    assert hold_out(straight(episodes=1), 0.5)[1] is None and hold_out(data, 0.0) == (data, None)


def test_the_order_of_trajectories():
    class Knows(type(tiny("qrl"))):
        def value(self, networks, states, goals):
            return -abs(states - goals).sum(axis=-1)

    agent = Knows(tiny("qrl").config)
    orders = trajectory_order(agent, {}, straight())
    assert list(orders) == ["value_order"] and orders["value_order"].tolist() == [1.0] * 6
    assert trajectory_order(tiny("gcbc"), {}, straight()) == {}
    assert rank_correlation(np.array([3.0, 2, 1]), np.arange(3)) == -1
    assert rank_correlation(np.ones(3), np.arange(3)) == 0
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5/√(4.5·5)
    assert rank_correlation(np.array([0.0, 5, 5, 9]), np.arange(4)) == pytest.approx(0.9486832980505138)
    assert np.isnan(rank_correlation(np.array([np.nan, 1.0]), np.arange(2)))


def test_joining_observations():
    goal_env = {"desired_goal": np.ones(2), "achieved_goal": np.full(2, 3.0), "observation": np.array([7, 8, 9])}
    np.testing.assert_array_equal(join(goal_env, rows=False, label="x"), [7, 8, 9, 3, 3])
    np.testing.assert_array_equal(goal_vector(goal_env, {}, label="x"), [np.nan] * 3 + [1, 1])
    states = {"observation": np.zeros(2), "achieved_goal": np.zeros(2), "desired_goal": np.ones(2)}
    np.testing.assert_array_equal(goal_vector(states, {}, label="x"), [1, 1])
    np.testing.assert_array_equal(goal_vector(np.zeros(2), {"goal": [4.0, 5.0]}, label="x"), [4, 5])
    for observation, message in [(np.zeros(2), "gives no goal"), ({**states, "desired_goal": np.ones(3)}, "shape")]:
        with pytest.raises(CtaError, match=message):
            goal_vector(observation, {}, label="x")
    with pytest.raises(CtaError, match="cannot be mixed"):
        join({"a": np.zeros((4, 4, 3), np.uint8), "b": np.zeros(2)}, rows=False, label="x")
    rows = np.array([[0, 0, 5], [1, 1, 6], [2, 2, 7]], np.float32)
    np.testing.assert_array_equal(
        complete_goal(np.array([1.2, 1.2, np.nan], np.float32), rows), np.float32([1.2, 1.2, 6])
    )


def test_nested_observations_lose_nothing_and_goals_follow_their_order():
    assert list(leaves({"x": {"a": 1}, "y": {"a": 2}, "z": 3})) == ["x/a", "y/a", "z"]
    np.testing.assert_array_equal(join({"y": {"a": [2]}, "x": {"a": [1]}}, rows=False, label="x"), [1, 2])
    both = {"observation": {"a": [1.0]}, "achieved_goal": {"b": [2.0, 3]}}  # of other shapes inside
    np.testing.assert_array_equal(join(both, rows=False, label="x"), [1, 2, 3])
    nested = {"observation": {"b": [2.0], "a": [1.0]}, "achieved_goal": [3.0], "desired_goal": [9.0]}
    np.testing.assert_array_equal(join(nested, rows=False, label="x"), [1, 2, 3])
    np.testing.assert_array_equal(goal_vector(nested, {}, label="x"), [np.nan, np.nan, 9])
    with pytest.raises(CtaError, match="two parts of an observation are called a/b: rename one"):
        join({"a/b": [1.0], "a": {"b": [2.0]}}, rows=False, label="x")


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def make_minari(name, observations, actions, observation_space, action_space):
    import minari
    from minari.data_collector import EpisodeBuffer

    zeros, flags = [0.0] * len(actions[0]), [False] * len(actions[0])
    buffers = [
        EpisodeBuffer(id=i, observations=seen, actions=done, rewards=zeros, terminations=flags, truncations=flags)
        for i, (seen, done) in enumerate(zip(observations, actions, strict=True))
    ]
    minari.create_dataset_from_buffers(
        name, buffers, observation_space=observation_space, action_space=action_space, description="x",
        algorithm_name="x", author="x", author_email="x", code_permalink="x",
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_minari(minari_root, tmp_path, capfd):
    box = gymnasium.spaces.Box
    small = {"observation": box(-9, 9, (3,)), "achieved_goal": box(-9, 9, (2,)), "desired_goal": box(-9, 9, (2,))}
    seen = [{key: np.full((5, space.shape[0]), i, np.float32) for key, space in small.items()} for i in (1, 2)]
    acted = [np.array([[0.0], [1.0], [2.0], [4.0]], np.float32)] * 2
    make_minari("own/goals-v0", seen, acted, gymnasium.spaces.Dict(small), box(0, 4, (1,)))
    data = read_minari("own/goals-v0")
    assert (data.num_episodes, data.num_transitions, data.observation_shape, data.name) == (
        2,
        8,
        (5,),
        "minari-own-goals-v0",
    )
    np.testing.assert_array_equal(data.actions[:5, 0], [0, 1, 2, 4, 2])
    assert (data.bounds.low, data.bounds.high) == (0, 4)
    assert data.provenance["observation_parts"] == {"observation": 3, "achieved_goal": 2}
    assert run(["train", "--dataset", "minari:own/goals-v0", "--print-config"]) == 0
    assert '"minari:own/goals-v0"' in capfd.readouterr().out
    assert run(["data", "info", "minari:own/goals-v0"]) == 0
    assert "observation (3), achieved_goal (2)" in capfd.readouterr().out

    parts = {key: gymnasium.spaces.Dict({"a": box(-9, 9, (1,))}) for key in "xy"}
    seen = [{key: {"a": np.full((5, 1), i, np.float32)} for i, key in enumerate("xy")}] * 2
    make_minari("own/nested-v0", seen, acted, gymnasium.spaces.Dict(parts), box(0, 4, (1,)))
    data = read_minari("own/nested-v0")
    assert data.observations[0].tolist() == [0, 1] and data.provenance["observation_parts"] == {"x/a": 1, "y/a": 1}

    plain = [np.zeros((5, 3), np.float32)] * 2
    make_minari("own/discrete-v0", plain, [np.zeros(4, np.int64)] * 2, box(-9, 9, (3,)), gymnasium.spaces.Discrete(3))
    make_minari("own/endless-v0", plain, acted, box(-9, 9, (3,)), box(-np.inf, np.inf, (1,)))
    (minari_root / "own/goals-v0/data/main_data.hdf5").write_bytes(b"broken")
    forged = minari_root / "own/forged-v0/data"
    forged.mkdir(parents=True)
    (forged / "metadata.json").write_text('{"env_spec": "{}", "data_format": "hdf5"}')
    for name, message in [
        ("own/discrete-v0", "Discrete"), ("own/endless-v0", "finite bounds"), ("own/absent-v0", "minari download"),
        ("own/goals-v0", "cannot be read"), ("own/forged-v0", "does not describe"), ("../../etc", "not a name"),
    ]:  # fmt: skip
        with pytest.raises(CtaError, match=message):
            read_minari(name)


class Plain(gymnasium.Env):
    """A world whose flaws are its arguments; `flaw` replaces the goal, what is seen or the success of a step."""

    def __init__(self, *, goal=True, success=True, actions=None, **flaw):
        self.goal, self.success, self.flaw = goal, success, flaw
        self.action_space = actions or gymnasium.spaces.Box(-2, 2, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.zeros(2)
        return self.state, {"goal": self.flaw.get("wanted", np.ones(2))} if self.goal else {}

    def step(self, action):
        self.state = self.state + action
        reached = self.flaw.get("reached", self.state[0] >= 3)
        return self.flaw.get("seen", self.state), 0.0, False, False, {"success": reached} if self.success else {"x": 1}


def no_goal():
    return Plain(goal=False)


def no_success():
    return Plain(success=False)


def discrete():
    return Plain(actions=gymnasium.spaces.Discrete(2))


def broken():
    raise RuntimeError("no licence")


def nobody_knows():
    return Plain(reached=np.nan)


def nobody_says():
    return Plain(reached=np.zeros(0))


def blind():
    return Plain(seen=np.array([0.0, np.nan]))


def aimless():
    return Plain(wanted=np.full(2, np.nan))


class WithHelper(Plain):
    """Starts a process of its own and writes down its number."""

    def __init__(self):
        super().__init__()
        helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("helper.pid").write_text(str(helper.pid))


def test_an_environment_of_ones_own():
    world = OwnWorld("test_own_data:Plain")
    assert (world.action_dim, world.max_episode_steps, world.task_names) == (2, 1000, ("task1",))
    observation, goal = world.reset(1, 7)
    assert observation.tolist() == [0, 0] and goal.tolist() == [1, 1]
    assert world.step(np.array([1.0, 0.5]))[0].tolist() == [2, 1]  # stretched to the box
    assert world.step(np.array([9.0, 0.0]))[1:] == (True, True)  # clipped, and there
    for name, message in [
        ("test_own_data:no_goal", "gives no goal"), ("test_own_data:no_success", "neither success nor is_success"),
        ("test_own_data:discrete", "Box"), ("test_own_data:broken", "RuntimeError: no licence"),
        ("test_own_data:absent", "no function absent"), ("no_such_module_x:f", "cannot import"),
        ("json:loads", "failed"),
        ("test_own_data:nobody_knows", r"--env test_own_data:nobody_knows: info\['success'\] is nan"),
        ("test_own_data:nobody_says", r"--env test_own_data:nobody_says: info\['success'\] is array\(\[\]"),
        ("test_own_data:blind", "--env test_own_data:blind: the observation at step 1 has nan"),
        ("test_own_data:aimless", "--env test_own_data:aimless: the goal of the episode is all NaN"),
    ]:  # fmt: skip
        with pytest.raises(CtaError, match=message):
            world = OwnWorld(name)
            world.reset(1, 0)
            world.step(np.zeros(2))


def gone(pid):
    """Whether a process has ended, or ends within a few seconds; one that nobody has waited for counts."""
    for _ in range(50):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_what_an_environment_starts_ends_with_the_worker(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from cta.evaluation import Evaluator\n"
        "pool = Evaluator('test_own_data:WithHelper', workers=1, own='unit')\n"
        "pool.about\nprint('made', flush=True)\nsys.stdin.read()\npool.close()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as parent:
        assert parent.stdout.readline() == "made\n"
        helper = int((tmp_path / "helper.pid").read_text())
        assert not Path(f"/proc/{helper}/status").read_text().count("State:\tZ")
        if how == "killed":
            parent.kill()
        parent.communicate(timeout=60)
    assert gone(helper)


def test_a_worker_whose_answer_nobody_takes_leaves_nothing(tmp_path):
    """As when the command is killed while its environments step."""
    connection, theirs = Pipe()
    words = [str(theirs.fileno()), str(os.getpid()), "test_own_data:WithHelper", "unit", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    options = {"cwd": tmp_path, "env": environment, "pass_fds": [theirs.fileno()], "start_new_session": True}
    with subprocess.Popen([sys.executable, "-m", "cta.evaluation.worker", *words], **options) as worker:
        theirs.close()
        connection.send(("describe",))
        connection.close()
        worker.wait(timeout=60)
    assert gone(int((tmp_path / "helper.pid").read_text()))


@pytest.mark.slow
def test_evaluating_elsewhere_is_refused_in_one_line(page, monkeypatch, capfd):
    folder, _ = page
    monkeypatch.chdir(folder)
    (folder / "larger.py").write_text(
        "from square import Square\nimport numpy as np\n\n\nclass Larger(Square):\n    def see(self):\n"
        "        return {key: np.append(value, 0.0) for key, value in super().see().items()}\n"
    )
    for words, message in [
        ([], "--env module:factory"),
        (["--env", "square"], "module:factory"),
        (["--env", "larger:Larger", "--episodes", "1", "--workers", "1"], "trained on (2,)"),
    ]:
        assert run(["evaluate", "run", *words]) == 1
        said = capfd.readouterr().err
        assert message in said and "Traceback" not in said
