"""The candidates of docs/beyond.md: each keeps the agents' contract, does what its equations say, and can be scored."""

import csv
import math
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ttest_ind

import test_agents_contract as contract
from cta.agents import REGISTRY
from cta.cli import run
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.fast import kernels
from cta.goals import RowTable
from cta.grid.plan import read_plan
from cta.scores.store import Scores
from cta.training.fast import _refusal
from cta.training.learner import Learner, spec_of, to_device
from cta.training.seeds import SeedGroup
from test_fast import SPEC, check, losses_and_gradients, small
from tiny_agents import batch_of, tiny, with_targets

ROOT = Path(__file__).parents[1]
NAMES = ("best-of", "composed", "distance", "effect", "far", "horizon", "regular", "stitched", "transitive", "turned")
NAMES = tuple(f"beyond-{name}" for name in NAMES)
pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(autouse=True)
def beyond(monkeypatch):
    """The package, whether or not it is installed; gone again afterwards if it is not."""
    there = "cta_beyond" in sys.modules
    monkeypatch.syspath_prepend(ROOT / "examples" / "beyond")
    import cta_beyond

    yield cta_beyond
    if not there:
        for name in [name for name in sys.modules if name.startswith("cta_beyond")]:
            del sys.modules[name]
        for name in NAMES:
            REGISTRY.pop(name, None)
        contract.observe.cache_clear()


def test_these_are_all_of_them():
    assert tuple(sorted(name for name in REGISTRY if name.startswith("beyond-"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_contract(name):
    contract.test_gradient_routing(name)
    contract.test_losses_and_gradients_are_finite_scalars_that_add_up(name)
    contract.test_targets_get_no_gradient_and_move_by_tau(name)
    contract.test_acting_is_bounded_and_deterministic_at_temperature_zero(name)
    contract.test_the_ends_of_the_ranges_are_allowed(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_switch_changes_something_or_is_refused(name):
    contract.test_every_switch_changes_something_or_is_refused(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_their_losses_take_fused_networks(name):
    assert _refusal(small(name), SPEC) is None


def test_fused_networks_have_the_same_losses_and_gradients(monkeypatch):
    """Of a network that no agent of the paper has; test_fast_agents.py has the agents."""
    agent = small("beyond-best-of", flow_hidden=(32,))
    monkeypatch.setattr(kernels, "_tanh", jnp.tanh)
    with jax.default_matmul_precision("highest"):
        check(losses_and_gradients(agent, jnp.float32), 2e-4, 1e-5, 1e-4)


# Worlds in which the right values are known: stubs stand for networks.


class Line:
    """States and goals are numbers on a line, one step a unit: d*(s,g) = |g − s|, and ζ(s,g) is g − s."""

    def __init__(self, discount):
        self.discount = discount

    def value(self, z, s):
        """V of the displacement, twice."""
        v = -(1 - self.discount ** jnp.abs(z[..., :1])) / (1 - self.discount)
        return jnp.stack([v, v])

    def networks(self):
        same = lambda x: x  # noqa: E731
        known = {"psi": lambda x: x[None], "eta": same, "value": self.value}
        return known | {"high": lambda z, s: jnp.zeros_like(z), "low": lambda z, s: jnp.zeros((len(s), 3))}


def column(*numbers):
    return jnp.asarray(numbers, jnp.float32)[:, None]


def exact(name, discount=0.9, **changes):
    """A candidate and a line whose value is exact."""
    return tiny(name, discount=discount, **changes), Line(discount).networks()


def test_best_of_follows_a_known_flow_and_takes_the_best():
    agent, batch = tiny("beyond-best-of", proposals=4), batch_of()
    networks, targets = with_targets(agent)
    y = agent.reached(networks, batch)
    straight = networks | {"proposal": lambda at, time, s: (jnp.tile(y, (len(at) // 8, 1)) - at) / (1 - time)}
    assert agent.flow_loss(straight, batch, jax.random.key(0))[0] < 1e-6
    one = replace(agent, config=replace(agent.config, proposals=1))
    s, goals = batch["observations"], batch["value_goals"]
    np.testing.assert_allclose(one.subgoal(straight, s, goals, jax.random.key(0), 0.0), y, atol=1e-5)

    def judged(agent):
        z, chosen = agent.goal_embedding(networks, s, goals), agent.subgoal(networks, s, goals, jax.random.key(0), 0.0)
        return networks["high_critic"](z, s, chosen)[..., 0].mean(axis=0)

    assert (judged(agent) >= judged(one) - 1e-6).all() and (judged(agent) > judged(one) + 1e-6).any()
    # The critic's target is the value k steps on.
    known = networks | {"high_critic": lambda z, s, y: jnp.zeros((2, 8, 1))}
    w, fade = batch["low_actor_goals"], agent.config.discount**agent.config.subgoal_steps
    ahead = targets["value"](agent.goal_embedding(networks, w, goals), w)[..., 0].mean(axis=0)
    wanted = -(1 - fade) / (1 - agent.config.discount) + fade * ahead
    np.testing.assert_allclose(agent.critic_loss(known, targets, batch)[0], 2 * (wanted**2).mean(), rtol=1e-5)


def test_composed_goals_are_sums_of_two_trajectories():
    agent, networks = exact("beyond-composed", composed=2.0)
    batch = {"observations": column(0, 5), "next_observations": column(1, 6), "high_actor_targets": column(3, 8)}
    batch |= {"high_actor_goals": column(4, 10), "value_goals": column(0, 5)}
    batch |= {"rewards": jnp.zeros(2), "masks": jnp.zeros(2)}
    np.testing.assert_array_equal(agent.rest(networks, batch), column(5, 4))
    # Both rows go on in the direction they began: the value of the sum is exact, and no data's goal is wrong either.
    loss, logged = agent.value_loss(networks, networks, batch)
    np.testing.assert_allclose(loss, 0, atol=1e-8)
    back = batch | {"next_observations": column(-1, 4)}
    wrong, logged = agent.value_loss(networks, networks, back)
    assert logged["value/composed_loss"] > 0.1
    np.testing.assert_allclose(wrong, 2.0 * logged["value/composed_loss"], rtol=1e-5)
    # What is gained by w on the way to the sum: three steps nearer.
    _, logged = agent.high_loss(networks, batch)
    v = lambda d: -(1 - 0.9**d) / 0.1  # noqa: E731
    np.testing.assert_allclose(logged["composed/adv"], np.mean([v(5) - v(8), v(4) - v(7)]), rtol=1e-5)


def test_distance_is_the_inner_product():
    networks = {"phi": lambda s: s[None], "psi": lambda g: g[None]}
    agent = tiny("beyond-distance", dual_discount=0.95)
    d = np.asarray([3.0, 40.0])
    products = column(*np.log(np.expm1(d))) * agent.config.dual.dim**0.5
    v = agent.dual_value(networks, jnp.ones((2, 1)), products)
    np.testing.assert_allclose(v, -(1 - 0.95**d) / 0.05, rtol=1e-5)
    far = tiny("beyond-far")
    assert far.goal.learner.discount == 0.999 and far.config.discount == 0.9
    np.testing.assert_allclose(far.dual_value(networks, jnp.ones((2, 1)), products), products[:, 0] / 2)


TABLE = RowTable(jnp.arange(40), jnp.where(jnp.arange(41) < 20, 19, 39))
"""Two episodes of rows 0 … 20 and 20 … 40, near enough."""


def test_effect_counts_what_the_arm_feels():
    """A low policy that feels the sign of a subgoal alone: a proposal beside the mark costs nothing here."""
    agent, networks = exact("beyond-effect", effect=2.0)
    networks |= {"low": jax.tree_util.Partial(lambda z, s: jnp.sign(z)), "high": lambda z, s: z / 4}
    batch = {"observations": column(0, 0), "high_actor_targets": column(2, -2), "high_actor_goals": column(8, 4)}
    loss, logged = agent.high_loss(networks, batch)
    plain = super(type(agent), agent).high_loss(networks, batch)[0]
    v = lambda d: -(1 - 0.9**d) / 0.1  # noqa: E731
    weights = np.minimum(np.exp(agent.config.high_alpha * np.array([v(6) - v(8), v(6) - v(4)])), agent.config.awr_clip)
    np.testing.assert_allclose(logged["effect/apart"], (0 + 4) / 2)
    np.testing.assert_allclose(loss - plain, 2.0 * np.mean(weights * [0, 4 / 2]), rtol=1e-5)


def test_horizon_looks_n_steps_ahead_before_the_goal_and_the_end():
    agent = tiny("beyond-horizon", value_steps=4, batch_size=400)
    rows = jax.tree.map(np.asarray, agent.draw(jax.random.key(0), TABLE))
    here, goal, ahead = rows["observations"], rows["value_goals"], rows["ahead_observations"]
    within = (goal >= here) & (goal < here + 4)
    late = here + 4 > np.asarray(TABLE.goal_limits)[here] + 1
    np.testing.assert_array_equal(ahead - here, np.where(within | late, 1, 4))
    assert within.any() and late.any() and (goal == here + 4).any()
    # On a line the n-step target is as exact as that of a step.
    agent, networks = exact("beyond-horizon", value_steps=4)
    batch = {"observations": column(0, 0, 0), "next_observations": column(1, 1, 1), "value_goals": column(9, 3, 0)}
    batch |= {"ahead_observations": column(4, 1, 1), "rewards": column(-1, -1, 0)[:, 0], "masks": column(1, 1, 0)[:, 0]}
    loss, logged = agent.value_loss(networks, networks, batch)
    np.testing.assert_allclose(loss, 0, atol=1e-8)
    np.testing.assert_allclose(logged["value/far"], 1 / 3)
    # The weights of the high policy do not change with the unit of the value.
    batch |= {"high_actor_targets": column(2, 3, 4), "high_actor_goals": column(9, 9, 9)}
    tenfold = networks | {"value": lambda z, s: 10 * networks["value"](z, s)}
    losses = [agent.high_loss(n, batch)[0] for n in (networks, tenfold)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_regular_decays_kernels_and_hides_goals():
    batch, key = batch_of(), jax.random.key(0)
    networks, targets = with_targets(tiny("beyond-regular"))

    def high(**changes):
        agent = tiny("beyond-regular", **changes)
        return jax.grad(lambda n: agent.terms(n, targets, batch, key)["high"][0])(networks)["high"]

    none, some = high(high_decay=0.0), high(high_decay=0.5)
    pulled = jax.tree.map(lambda a, b: a - b, some, none)
    flat = jax.tree_util.tree_leaves_with_path(pulled)
    for (path, pull), weight in zip(flat, jax.tree.leaves(networks["high"]), strict=True):
        np.testing.assert_allclose(pull, 0.5 * weight if path[-1].name == "kernel" else 0, atol=1e-3)
    plain = tiny("cta").high_loss(networks, batch)[0]
    almost, half = (
        tiny("beyond-regular", high_decay=0.0, high_dropout=p).terms(networks, targets, batch, key)["high"][0]
        for p in (1e-9, 0.5)
    )
    np.testing.assert_allclose(almost, plain, rtol=1e-5)
    assert abs(half - plain) > 1e-3


def test_transitive_values_add_up(beyond):
    v = lambda d: -(1 - 0.9**d) / 0.1  # noqa: E731
    np.testing.assert_allclose(beyond.transitive.through(v(3.0), v(11.0), 0.9), v(14.0), rtol=1e-6)
    agent = tiny("beyond-transitive", batch_size=400)
    rows = jax.tree.map(np.asarray, agent.draw(jax.random.key(0), TABLE))
    here, goal, middle = rows["observations"], rows["value_goals"], rows["middles"]
    same = (goal > here) & (goal <= np.asarray(TABLE.goal_limits)[here])
    assert (here <= middle)[same].all() and (middle <= goal)[same].all() and 0 < np.mean(same) < 1
    np.testing.assert_array_equal(middle[~same], rows["low_actor_goals"][~same])
    # On a line a row between is exact, one beyond is a detour, which is a lower bound.
    agent, networks = exact("beyond-transitive", transitive=2.0)
    batch = {"observations": column(0, 0), "next_observations": column(1, 1), "value_goals": column(9, 0)}
    batch |= {"rewards": column(-1, 0)[:, 0], "masks": column(1, 0)[:, 0]}
    on, beside = (agent.value_loss(networks, networks, batch | {"middles": column(x, 5)}) for x in (4, -3))
    np.testing.assert_allclose(on[0], 0, atol=1e-8)
    detour = 0.1 * (v(3 + 12) - v(9)) ** 2  # 1 − κ, mean over two rows, sum over two members
    np.testing.assert_allclose(beside[0], 2.0 * detour, rtol=1e-4)


def test_stitched_values_go_by_a_third_state(monkeypatch):
    """On a line a row between is exact; of detours the shortest counts, as a lower bound."""
    agent, networks = exact("beyond-stitched", stitched=2.0)
    batch = {"observations": column(0, 0), "next_observations": column(1, 1), "value_goals": column(9, 9)}
    batch |= {"rewards": column(-1, -1)[:, 0], "masks": column(1, 1)[:, 0]}

    def loss(*ways):
        monkeypatch.setattr(type(agent), "between", lambda *_: jnp.stack([column(*ways)] * 2))
        return agent.value_loss(networks, networks, batch)[0]

    np.testing.assert_allclose([loss(4, 12), loss(-3, 5)], 0, atol=1e-8)
    v = lambda d: -(1 - 0.9**d) / 0.1  # noqa: E731
    # 1 − κ, a mean over two rows, the sum over two members; the second way is shorter.
    np.testing.assert_allclose(loss(-3, 11), 2.0 * 2 * 0.1 * (v(11 + 2) - v(9)) ** 2, rtol=1e-4)


def test_stitched_ways_are_the_middles():
    agent, gamma = tiny("beyond-stitched", discount=0.9, stitched_shortlist=2), 0.9
    table = -(1 - gamma ** np.abs(np.arange(21)[:, None] - np.arange(21))) / (1 - gamma)
    networks = {
        "phi": lambda s: jnp.stack([jnp.asarray(table, jnp.float32)[s[:, 0].astype(int)]] * 2),
        "psi": lambda s: agent.config.dual.dim**0.5 * jnp.stack([jnp.eye(21)[s[:, 0].astype(int)]] * 2),
    }
    batch = {"observations": column(0, 20, 3), "value_goals": column(7, 16, 3)}
    batch |= {"low_actor_goals": column(9, 8, 12), "high_actor_goals": column(18, 2, 1)}
    # A state's goal is that of the row before it: 0 → 3, 20 → 7, 3 → 16.
    found = np.sort(agent.between(networks, batch)[..., 0], axis=1)
    assert found.astype(int).tolist() == [[1, 2], [12, 16], [8, 9]]


def test_turned_rows_go_back_and_cost_the_same():
    agent = tiny("beyond-turned", batch_size=400)
    rows = jax.tree.map(np.asarray, agent.draw(jax.random.key(0), TABLE))
    first, last = rows["observations"], rows["back_observations"]
    assert (last >= first).all() and (last // 20 == first // 20).all()
    np.testing.assert_array_equal(rows["back_next"], np.maximum(last - 1, first))
    np.testing.assert_array_equal(rows["back_targets"], np.maximum(last - 3, first))
    kinds = [np.mean(rows["back_goals"] == other) for other in (first, last)]
    assert kinds[0] > 0.4 and kinds[1] > 0.15
    agent, networks = exact("beyond-turned")
    batch = {"observations": column(0, 0), "next_observations": column(1, 1), "value_goals": column(5, 0)}
    batch |= {"rewards": column(-1, 0)[:, 0], "masks": column(1, 0)[:, 0]}
    batch |= {"back_observations": column(4, 4), "back_next": column(3, 3), "back_goals": column(0, 4)}
    loss, _ = agent.value_loss(networks, networks, batch)
    np.testing.assert_allclose(loss, 0, atol=1e-8)
    assert agent.value_loss(networks, networks, batch | {"back_next": column(5, 3)})[0] > 0.1


# From a board to a score.

LIGHTS = "lights-2x3-play-v0"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    assert run(["data", "generate", LIGHTS, "--episodes", "10", "--episode-steps", "60", "--out", str(folder)]) == 0
    return str(folder / f"{LIGHTS}.npz")


SMALL = ["--agent.batch-size", "8", "--agent.hidden", "8", "--agent.dual.hidden", "8", "--agent.dual.dim", "4"]
SMALL += ["--agent.eta.hidden", "8", "--agent.eta.dim", "4", "--agent.trunk.hidden", "8", "--agent.trunk.backbone", "8"]
SMALL += ["--agent.trunk.features", "4", "--agent.trunk.rank", "2", "--eval-interval", "0", "--log-interval", "10"]


@pytest.mark.parametrize("name", ["beyond-horizon", "beyond-transitive", "beyond-turned"])
def test_trains_on_a_tiny_board(name, data):
    """Twenty steps on rows of their own: all that a term trains has moved, and nothing has exploded."""
    _, train, _ = open_dataset(data)
    agent = tiny(name)
    group = SeedGroup(Learner(agent, spec_of(train), block=20), [0], to_device(train))
    before = group.networks()[0]
    group.run(20)
    (metrics,) = group.read_metrics(20)
    assert all(np.isfinite(value) for value in metrics.values())
    after = group.networks()[0]
    moved = contract.moved(jax.tree.map(lambda a, b: a - b, after, before))
    assert moved == set(before) == set().union(*agent.routes().values())


def test_trains_resumes_and_is_scored(data, tmp_path, capsys):
    name = "beyond-best-of"
    where, folder = str(tmp_path / "run"), str(tmp_path / "results")
    words = ["--dataset", data, "--agent", name, "--seeds", "2", "--run-dir", where, *SMALL]
    assert run(["train", *words, "--steps", "10"]) == 0
    assert run(["resume", where, "--steps", "20"]) == 0
    assert run(["evaluate", where, "--ask", "presses", "--episodes", "2", "--results", folder]) == 0
    (cell,) = Scores(folder).cells()
    assert cell.key.agent == name and {row.step for row in cell.rows} == {20} and len(cell.rows) == 2 * 3
    assert run(["presses", "order", where, "--pairs", "4"]) == 0
    assert f"{name} on {LIGHTS}, step 20" in capsys.readouterr().out


def test_weights_played_in_another_way(data, tmp_path, capsys):
    from cta_beyond.replay import main

    where, folder = str(tmp_path / "run"), str(tmp_path / "results")
    words = ["--dataset", data, "--agent", "beyond-best-of", "--seeds", "3", "--run-dir", where, *SMALL]
    assert run(["train", *words, "--steps", "2"]) == 0
    asked = [where, "--results", folder, "--episodes", "2"]
    for said in ("3 scored into", "0 scored into"):
        assert main([*asked, "proposals=1"]) == 0
        assert said in capsys.readouterr().out
    assert main([*asked, "--together", "--ask", "presses"]) == 0
    cells = {cell.key.settings.rpartition(";")[2]: cell for cell in Scores(folder).cells()}
    assert set(cells) == {"proposals=1", "together=2"}
    assert {row.task for row in cells["together=2"].rows} == {"presses1", "presses2", "presses3"}
    assert main([*asked, "--halfway", "50", "--shortlist", "3"]) == 0
    assert any(cell.key.settings.endswith("halfway=50;shortlist=3") for cell in Scores(folder).cells())
    assert main([*asked, "--ways", "50", "--near", "4", "--shortlist", "3"]) == 0
    assert any("ways=50;near=4;shortlist=3" in cell.key.settings for cell in Scores(folder).cells())
    assert main([*asked, "--ways", "50", "--halfway", "50"]) == main([*asked, "--near", "4"]) == 1
    assert main([*asked, "discount=1"]) == 1
    assert "training reads it" in capsys.readouterr().err


def test_together_is_the_mean_of_the_others():
    from cta_beyond.replay import Together

    agent, batch = tiny("cta"), batch_of()
    one, two = with_targets(agent)[0], with_targets(agent, key=2)[0]
    asked = batch["observations"], batch["value_goals"], jax.random.key(0), 0.0
    both, kept = Together(agent.config, agent).act({"0": one, "1": two}, *asked)
    means = [agent.act(networks, *asked)[0] for networks in (one, two)]
    np.testing.assert_allclose(both, (means[0] + means[1]) / 2, rtol=1e-5)
    again, _ = Together(agent.config, agent).act({"0": one, "1": two}, *asked, kept)
    np.testing.assert_allclose(again, both)


def test_halfway_finds_the_middle_of_the_way(monkeypatch):
    from cta_beyond import halfway

    one, states, gamma = tiny("cta"), np.random.default_rng(0).permutation(21), 0.9
    table = -(1 - gamma ** np.abs(np.arange(21)[:, None] - np.arange(21))) / (1 - gamma)
    scale = one.config.dual.dim**0.5
    networks = {
        "phi": lambda s: jnp.stack([scale * jnp.asarray(table, jnp.float32)[s[:, 0].astype(int)]] * 2),
        "psi": lambda s: jnp.stack([jnp.eye(21)[s[:, 0].astype(int)]] * 2),
    }
    one = replace(one, config=replace(one.config, discount=gamma))
    agent = halfway.Halfway(one.config, one, near=2.5, levels=3)
    s, goals = column(0, 0, 0, 20, 3), column(16, 6, 2, 4, 3)
    for block in (21, 7):
        monkeypatch.setattr(halfway, "BLOCK", block)
        pool = agent.pool(networks, states[:, None].astype(np.float32))
        assert pool["psi"].shape[:2] == (21 // block, 2)
        row = agent.find({"trained": networks, "pool": pool}, s, goals)
        assert (row < 0).tolist() == [False, False, True, False, True]  # near goals are left as they are
        found = np.where(row < 0, -1, states[row])
        assert found.tolist() == [2, found[1], -1, 18, -1] and found[1] in (1, 2)
    one_wrong, both = (halfway.steps(jnp.asarray([[-5.0], [other]]), gamma) for other in (-1.0, -5.0))
    assert one_wrong.tolist() == both.tolist()


def test_a_shortlist_is_judged_by_the_value(monkeypatch):
    """Inner products that know nothing, and a value that knows the line."""
    from cta_beyond import halfway

    one, networks = exact("cta")
    networks |= {"phi": lambda s: 0 * s[None]}
    monkeypatch.setattr(halfway, "BLOCK", 7)
    agent = halfway.Halfway(one.config, one, near=2.5, shortlist=21)
    states = np.random.default_rng(0).permutation(21).astype(np.float32)
    known = {"trained": networks, "pool": agent.pool(networks, states[:, None])}
    assert states[agent.middle(known, column(0, 4), column(16, 20))].tolist() == [8, 12]
    row = agent.find(known, column(0, 0), column(16, 2))
    assert states[row[0]] == 2 and row[1] == -1


def test_what_was_found_is_kept_for_some_steps(monkeypatch):
    from cta_beyond import halfway

    one, networks = exact("cta")
    networks |= {"phi": lambda s: 0 * s[None]}
    monkeypatch.setattr(type(one), "act", lambda self, networks, s, goals, *rest: (goals, None))
    agent = halfway.Halfway(one.config, one, near=2.5, levels=1, hold=2, shortlist=21)
    known = {"trained": networks, "pool": agent.pool(networks, np.arange(21, dtype=np.float32)[:, None])}
    memory, towards = None, []
    for at in (0, 4, 4, 15):
        goal, memory = agent.act(known, column(at), column(16), jax.random.key(0), 0.0, memory)
        towards.append(float(goal[0, 0]))
    assert towards == [8, 8, 10, 10]  # the middles of 0 and 16 and of 4 and 16, each for two steps


def test_ways_are_made_of_short_hops(monkeypatch):
    """On a line whose distances beyond three steps are all learned as four: no sum of them is right, hops are."""
    from cta_beyond import ways

    one, gamma = tiny("cta"), 0.9
    one, scale = replace(one, config=replace(one.config, discount=gamma)), one.config.dual.dim**0.5
    states = np.random.default_rng(0).permutation(21)
    far = np.abs(np.arange(21)[:, None] - np.arange(21))
    table = -(1 - gamma ** np.where(far > 3, 4, far)) / (1 - gamma)
    networks = {
        "phi": lambda s: jnp.stack([scale * jnp.asarray(table, jnp.float32)[s[:, 0].astype(int)]] * 2),
        "psi": lambda s: jnp.stack([jnp.eye(21)[s[:, 0].astype(int)]] * 2),
    }
    monkeypatch.setattr(type(one), "act", lambda self, networks, s, goals, *rest: (goals, None))
    agent = ways.Ways(one.config, one, near=3.5, hold=2, neighbours=7)
    known = {"trained": networks, "pool": agent.pool(networks, states[:, None].astype(np.float32))}
    h = np.asarray(agent.remaining(known, column(20)[0]))
    hops = np.ceil((20 - states) / 3)
    np.testing.assert_allclose(h[states != 20], (20 - states + 2 * hops)[states != 20], rtol=1e-4)
    # From 1 six full hops and one short one, in any order, lead to 20; from 17 on the goal itself is near.
    memory, towards = None, []
    for at in (2, 2, 5, 16, 18, 18):
        goal, memory = agent.act(known, column(at, 20), column(20, 11), jax.random.key(0), 0.0, memory)
        towards.append(goal[:, 0].tolist())
    assert towards == [[5, 17], [5, 17], [8, 17], [8, 17], [20, 17], [20, 17]]
    lost = replace(agent, near=0.5)
    pool = lost.pool(networks, states[:, None].astype(np.float32))
    assert lost.first({"trained": networks, "pool": pool}, column(2), column(20), jnp.full((1, 21), jnp.inf)) == -1


def test_halfway_wants_a_dual_learner():
    from cta_beyond.halfway import Halfway

    one = tiny("hiql")
    with pytest.raises(CtaError, match="dual learner"):
        _ = Halfway(one.config, one).learner


def test_the_plan():
    """CTA beside every candidate, on both boards, asked for tasks and presses with equal steps."""
    plan = read_plan(ROOT / "plans" / "beyond.toml")
    boards = {"lights-4x4-play-v0": (30_000, 7), "lights-4x5-play-v0": (220_000, 20)}
    assert {cell.seeds for cell in plan.cells} == {(0, 1, 2, 3)} and {cell.data.seed for cell in plan.cells} == {0}
    for dataset, (steps, presses) in boards.items():
        mine = [cell for cell in plan.cells if cell.dataset == dataset]
        agents = {"cta", "hiql", "hiql-dual", "hiql-analogy", *NAMES}
        for ask, count in (("tasks", 5), ("presses", presses)):
            assert {cell.agent for cell in mine if cell.ask == ask} == agents
            assert {len(cell.tasks) for cell in mine if cell.ask == ask} == {count}
        assert {cell.steps for cell in mine} == {steps}
    assert len(plan.only(datasets=["lights-4x4-play-v0"]).cells) == 30
    assert {name for name in plan.rates if name.startswith("beyond-")} == {*NAMES}
    small = read_plan(ROOT / "examples" / "beyond" / "small.toml")
    assert {cell.agent for cell in small.cells} == {"cta", *NAMES}


def plain(text):
    """Words alone: without marks, and line ends as spaces."""
    return " ".join(re.sub(r"[.:](?=\s)", "", text.replace("**", "")).lower().split())


def test_the_page_says_what_the_files_say(beyond):
    """Idea, prediction and what refutes it, word for word, and whether there is a result."""
    from cta_beyond import halfway, replay, ways

    page = (ROOT / "docs" / "beyond.md").read_text()
    for module in (*(getattr(beyond, name) for name in beyond.__all__), halfway, replay, ways):
        doc = module.__doc__
        equations = re.findall(r"(?:^    .+\n)+", doc, re.M)
        assert equations and equations[-1] in page and len(equations[-1].splitlines()) == 2
        told = doc[doc.index(equations[-1]) + len(equations[-1]) :]
        assert "Prediction:" in told and "Refuted if" in told and plain(told) in plain(page)
    records = ROOT / "docs" / "measurements"
    measured = {name for name in NAMES if [*records.glob(f"beyond-4x4-small*/*.{name}.*.csv")]}
    assert measured == {*NAMES}  # and three ways to play CTA's weights
    assert "**Result:** not measured yet" not in page and page.count("\n**Result") == 12


def test_what_is_said_of_stitched_values_is_in_their_records():
    folder = ROOT / "docs" / "measurements" / "beyond-4x4-small-again"
    text = " ".join(
        (ROOT / "docs" / "beyond.md").read_text().split("### Values stitched")[1].split("\n### ")[0].split()
    )
    seeds, order = {}, {}
    for cell in Scores(folder).cells():
        if "actor_p_randomgoal" in cell.key.settings:
            rates = defaultdict(list)
            for row in cell.rows:
                if row.task.isdigit():
                    rates[row.seed].append(100 * row.successes / row.episodes)
            seeds[cell.key.agent] = [fmean(found) for found in rates.values()]
    for agent, name in (("beyond-stitched", "beyond-stitched"), ("cta", "cta-random-goals")):
        with (folder / "order" / f"{name}.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["measure"] == "value_order"]
        steps = fmean(float(row["step_order"]) for row in rows if row["presses"] == "4")
        order[agent] = f"{steps:.2f}", f"{-fmean(float(row['mean']) for row in rows if row['presses'] == '7'):.1f}"
    ours, other = seeds["beyond-stitched"], seeds["cta"]
    interval = ttest_ind(ours, other, equal_var=False).confidence_interval(0.95)
    gap = fmean(ours) - fmean(other)
    assert f"a difference of −{-gap:.1f} points, interval −{-interval.low:.1f} to {interval.high:.1f}" in text
    (mine, far), (ctas, ctas_far) = order["beyond-stitched"], order["cta"]
    assert f"of 4 and 3 presses is {mine}, CTA's {ctas}," in text and f"−{far} on average, CTA −{ctas_far})" in text


def test_what_is_said_of_the_larger_board_is_in_its_records():
    folder = ROOT / "docs" / "measurements" / "beyond-4x5-small"
    text = " ".join(
        (ROOT / "docs" / "beyond.md").read_text().split("### The larger board")[1].split("\n## ")[0].split()
    )
    order = defaultdict(list)
    with (folder / "order" / "cta.csv").open() as file:
        for row in csv.DictReader(file):
            if row["measure"] == "value_order":
                order[int(row["presses"])].append((float(row["step_order"] or 0), float(row["mean"])))
    of_steps = {presses: f"{fmean(step for step, _ in seeds):.2f}" for presses, seeds in order.items()}
    assert f"presses: {', '.join(of_steps[n] for n in range(1, 5))})" in text
    assert f"at five hardly ({of_steps[5]}), at six not at all ({of_steps[6]})" in text
    means = {presses: fmean(mean for _, mean in seeds) for presses, seeds in order.items()}
    far = [means[presses] for presses in range(5, 11)]
    assert f"between −{-max(far):.1f} and −{-min(far):.1f}, which stands for" in text
    assert f"for {math.log(1 + (1 - 0.95) * fmean(far)) / math.log(0.95):.0f} steps" in text
    assert f"to −{-means[20]:.1f}." in text and all(means[presses] < min(far) for presses in range(15, 21))
    asked = {(c.key.agent, c.key.settings): c.rows for c in Scores(folder).cells() if "halfway" not in c.key.settings}
    curves = {
        agent: {n: [100 * r.successes / r.episodes for r in rows if r.task == f"presses{n}"] for n in range(1, 7)}
        for (agent, _), rows in asked.items()
    }
    apart = {}
    for one, other in (("cta", "hiql-dual"), ("hiql-analogy", "hiql"), ("cta", "hiql-analogy")):
        for n in range(1, 7):
            test = ttest_ind(curves[one][n], curves[other][n], equal_var=False).confidence_interval(0.95)
            if not test.low <= 0 <= test.high:
                gap = fmean(curves[one][n]) - fmean(curves[other][n])
                apart[one, other, n] = f"{gap:.1f}", f"{test.low:.1f} to {test.high:.1f}"
    assert set(apart) == {*(("cta", "hiql-dual", n) for n in range(1, 5)), ("hiql-analogy", "hiql", 2)}
    assert "({} points at two presses, {})".format(*apart["cta", "hiql-dual", 2]) in text
    assert "at two presses ({}, {})".format(*apart["hiql-analogy", "hiql", 2]) in text
    tasks = {}  # by whether they were played halfway, and by seed
    for cell in Scores(folder).cells():
        for row in cell.rows:
            if cell.key.agent == "cta" and row.task.isdigit():
                rates = tasks.setdefault("halfway" in cell.key.settings, {}).setdefault(row.seed, [])
                rates.append(100 * row.successes / row.episodes)
    plain, halfway = ({seed: fmean(rates) for seed, rates in tasks[played].items()} for played in (False, True))
    gains = [f"{halfway[seed] - plain[seed]:.1f}" for seed in range(4)]
    assert f"by {', '.join(gains[:3])} and {gains[3]} points, to {fmean(halfway.values()):.1f} %" in text


def test_the_spectrum_of_a_board():
    """γ^d on a board of full rank: level k of the spectrum has C(n,k) dimensions (docs: 210 and 20 of 4x5)."""

    def dimensions(gamma, lights=20, steps=6):
        r = (1 - gamma**steps) / (1 + gamma**steps)
        sizes = [math.comb(lights, k) for k in range(1, lights + 1)]
        energy = np.cumsum([size * r ** (2 * k) for k, size in enumerate(sizes, 1)])
        return sum(sizes[: 1 + int(np.searchsorted(energy, 0.95 * energy[-1]))])

    assert dimensions(0.95) == 210 and dimensions(0.999) == 20
    # The formula itself, on a board small enough to write down.
    bits = np.array([[int(c) for c in f"{i:04b}"] for i in range(16)])
    table = 0.8 ** (bits[:, None] != bits[None]).sum(axis=-1)
    wanted = sorted((1.8 ** (4 - k) * 0.2**k for k in range(5) for _ in range(math.comb(4, k))), reverse=True)
    np.testing.assert_allclose(np.linalg.svd(table)[1], wanted)
