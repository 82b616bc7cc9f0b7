"""The agents' losses against the same numbers worked out in NumPy from what the networks put out."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import Spec, find
from cta.config import EtaConfig, GcbConfig
from cta.fast import kernels, two_level
from cta.fast.modules import shapes
from cta.goals import RowTable
from test_fast import SPEC as FUSED_SPEC
from test_fast import losses_and_gradients, relative_error
from test_fast import small as fused_size
from tiny_agents import SPEC, batch_of, tiny, with_targets

DISCOUNT = 0.9
"""Of the tiny agents."""


pytestmark = pytest.mark.usefixtures("quick_compilation")


def seen(name, **changes):
    """A tiny agent with random networks, targets unlike them, a batch, and the terms of its loss on it."""
    agent, batch = tiny(name, **changes), batch_of()
    networks, targets = with_targets(agent)
    terms = agent.terms(networks, targets, batch, jax.random.key(4))
    metrics = {key: value for _, logged in terms.values() for key, value in logged.items()}
    return SimpleNamespace(
        agent=agent, networks=networks, targets=targets, metrics=metrics, **batch,
        losses={key: loss for key, (loss, _) in terms.items()},
    )  # fmt: skip


def numbers(x):
    return np.asarray(x, np.float64)


def agree(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def mixed(x):
    """Both sides of zero, or a sign would not show."""
    return np.min(x) < 0 < np.max(x)


def log_prob(mean, label):
    mean, label = numbers(mean), numbers(label)
    return -0.5 * np.sum((label - mean) ** 2, axis=-1) - 0.5 * mean.shape[-1] * np.log(2 * np.pi)


def awr(adv, logs, alpha):
    return -np.mean(np.minimum(np.exp(alpha * adv), 100) * logs)


def ddpgbc(q, logs, alpha):
    return -np.mean(q) / (np.mean(np.abs(q)) + 1e-6) - alpha * np.mean(logs)


def expectile(adv, diff, kappa):
    return np.where(adv >= 0, kappa, 1 - kappa) * diff**2


def softplus(x):
    return np.log1p(np.exp(x))


def psi(n, x):
    """The dual representation: the mean of the members."""
    return jnp.mean(n["psi"](x), axis=0)


CODES = {
    "raw": lambda n, s, g: g,
    "dual": lambda n, s, g: psi(n, g),
    "analogy": lambda n, s, g: psi(n, g) - psi(n, s),
    "eta of both": lambda n, s, g: n["eta"](s, g),
    "eta of dual": lambda n, s, g: n["eta"](psi(n, g)),
    "eta of state and dual": lambda n, s, g: n["eta"](s, psi(n, g)),
    "eta of analogy": lambda n, s, g: n["eta"](psi(n, g) - psi(n, s)),
    "eta of states": lambda n, s, g: n["eta"](n["state"](g) - n["state"](s)),
    "eta of pair": lambda n, s, g: n["eta"](n["pair"](s, g)),
}
"""What may stand for "reach g from s"."""


def dual_loss(x):
    """Of the inner product and its critic, with ι 0.7: members averaged, critics added up."""
    goals, inputs = x.value_goals, (x.observations, x.value_goals, x.actions)

    def value(states):
        products = np.sum(numbers(x.networks["phi"](states)) * numbers(x.networks["psi"](goals)), axis=-1)
        return products / np.sqrt(x.agent.config.dual.dim)

    delta = np.min(numbers(x.targets["critic"](*inputs)[..., 0]), axis=0) - value(x.observations)
    y = numbers(x.rewards) + DISCOUNT * numbers(x.masks) * value(x.next_observations)
    q = numbers(x.networks["critic"](*inputs)[..., 0])
    critic = np.mean([np.sum((q - member) ** 2, axis=0) for member in y])
    return np.mean(expectile(delta, delta, 0.7)) + critic


@pytest.mark.parametrize("actor_loss", ["awr", "ddpgbc"])
@pytest.mark.parametrize(("name", "kind"), [("gciql", "raw"), ("gciql-dual", "dual")])
def test_gciql(name, kind, actor_loss):
    """The lowest target critic judges the value, both critics learn from it, and the policy trusts the lower one."""
    x = seen(name, actor_loss=actor_loss, alpha=0.5)
    n, s, z = x.networks, x.observations, CODES[kind](x.networks, x.observations, x.value_goals)

    def value(code, states):
        return numbers(n["value"](code, states))[0, :, 0]

    delta = np.min(numbers(x.targets["q"](z, s, x.actions))[..., 0], axis=0) - value(z, s)
    assert mixed(delta)
    agree(x.losses["value"], np.mean(expectile(delta, delta, 0.9)))

    y = numbers(x.rewards) + DISCOUNT * numbers(x.masks) * value(z, x.next_observations)
    agree(x.losses["q"], np.mean(np.sum((numbers(n["q"](z, s, x.actions))[..., 0] - y) ** 2, axis=0)))

    z = CODES[kind](n, s, x.actor_goals)
    mean = n["actor"](z, s)
    taken = x.actions if actor_loss == "awr" else jnp.clip(mean, -1, 1)
    q = np.min(numbers(n["q"](z, s, taken))[..., 0], axis=0)
    if actor_loss == "awr":
        agree(x.metrics["actor/adv"], np.mean(q - value(z, s)))
        agree(x.losses["actor"], awr(q - value(z, s), log_prob(mean, x.actions), 0.5))
    else:
        agree(x.metrics["actor/q_mean"], np.mean(q))
        agree(x.losses["actor"], ddpgbc(q, log_prob(mean, x.actions), 0.5))


@pytest.mark.parametrize("actor_loss", ["awr", "ddpgbc"])
@pytest.mark.parametrize(("name", "kind"), [("crl", "raw"), ("crl-dual", "dual")])
def test_crl(name, kind, actor_loss):
    """Logits over √d of all pairs; the policy trusts the lower member; the value has one, and no action."""
    x = seen(name, actor_loss=actor_loss, alpha=0.5)
    n, s = x.networks, x.observations

    def logits(net, goals, *inputs):
        phi, psi = numbers(n[f"{net}_phi"](*inputs)), numbers(n[f"{net}_psi"](CODES[kind](n, s, goals)))
        return np.einsum("mid,mjd->mij", phi, psi) / np.sqrt(x.agent.config.latent_dim)

    def contrast(found):
        return np.mean(softplus(found) - np.eye(found.shape[-1]) * found)

    def own(found):
        return np.min(np.diagonal(found, axis1=1, axis2=2), axis=0)

    critic = logits("critic", x.contrastive_goals, s, x.actions)
    assert len(critic) == 2
    agree(x.losses["critic"], contrast(critic))
    if name == "crl-dual":
        agree(x.losses["dual"], dual_loss(x))
    mean = n["actor"](CODES[kind](n, s, x.actor_goals), s)
    if actor_loss == "awr":
        value = logits("value", x.contrastive_goals, s)
        assert len(value) == 1
        agree(x.losses["value"], contrast(value))
        adv = own(logits("critic", x.actor_goals, s, x.actions)) - own(logits("value", x.actor_goals, s))
        agree(x.metrics["actor/adv"], np.mean(adv))
        agree(x.losses["actor"], awr(adv, log_prob(mean, x.actions), 0.5))
    else:
        q = own(logits("critic", x.actor_goals, s, jnp.clip(mean, -1, 1)))
        agree(x.metrics["actor/q_mean"], np.mean(q))
        agree(x.losses["actor"], ddpgbc(q, log_prob(mean, x.actions), 0.5))
        floor = float(np.median(q))
        floored = seen(name, actor_loss=actor_loss, logit_floor=floor)
        agree(floored.metrics["actor/q_mean"], np.mean(np.maximum(q, floor)))


@pytest.mark.parametrize("actor_loss", ["awr", "ddpgbc"])
def test_qrl(actor_loss):
    """Distances run from the state to the goal, from a step's start to its end, and both ways in the dynamics."""
    x = seen("qrl", actor_loss=actor_loss, alpha=0.5)
    n = x.networks
    s, after, far_goals, goals = (
        n["phi"](o) for o in (x.observations, x.next_observations, x.value_goals, x.actor_goals)
    )

    def d(start, end):
        return numbers(n["quasimetric"](start, end))

    def imagined(actions):
        return s + n["dynamics"](s, actions)

    far, step = d(s, far_goals), d(s, after)
    weight, rho = np.exp(numbers(n["log_lambda"])), np.mean(np.maximum(step - 1, 0) ** 2)
    assert rho > 0
    agree(x.metrics["value/distance"], np.mean(far))
    agree(x.metrics["value/step_excess"], rho)
    push = np.mean(100 * softplus(5 - far / 100))
    np.testing.assert_allclose(x.losses["value"], push + weight * rho + weight * (0.05 - rho), rtol=1e-6)

    guess = imagined(x.actions)
    agree(x.losses["dynamics"], 0.5 * np.mean(d(after, guess) + d(guess, after)))

    mean = n["actor"](x.actor_goals, x.observations)
    if actor_loss == "awr":
        adv = d(s, goals) - d(after, goals)
        agree(x.metrics["actor/adv"], np.mean(adv))
        agree(x.losses["actor"], awr(adv, log_prob(mean, x.actions), 0.5))
    else:
        q = -d(imagined(jnp.clip(mean, -1, 1)), goals)
        agree(x.metrics["actor/q_mean"], np.mean(q))
        agree(x.losses["actor"], ddpgbc(q, log_prob(mean, x.actions), 0.5))


def values(x, kind, network, states, goals):
    return numbers(network(CODES[kind](x.networks, states, goals), states))[..., 0]


def advantage(x, kind, later, goals):
    """How much better `later` is than the state, by the mean of the members."""
    v = x.networks["value"]
    ahead, here = values(x, kind, v, later, goals), values(x, kind, v, x.observations, goals)
    return np.mean(ahead, axis=0) - np.mean(here, axis=0)


def implicit_value_loss(x, kind, kappa):
    s, s_next, g = x.observations, x.next_observations, x.value_goals
    here, ahead = (values(x, kind, x.targets["value"], states, g) for states in (s, s_next))
    r, c = numbers(x.rewards), numbers(x.masks)
    adv = r + DISCOUNT * c * np.min(ahead, axis=0) - np.mean(here, axis=0)
    diff = r + DISCOUNT * c * ahead - values(x, kind, x.networks["value"], s, g)
    return np.sum(np.mean(expectile(adv, diff, kappa), axis=-1))


@pytest.mark.parametrize(
    ("name", "kind", "changes"),
    [
        ("gcivl", "raw", {}),
        ("gcivl-dual", "dual", {}),
        ("gcivl-analogy", "eta of analogy", {}),
        ("gcivl-analogy", "analogy", {"eta": EtaConfig(use=False)}),
    ],
)
def test_gcivl(name, kind, changes):
    """The policy follows the actions after which the value is higher; without η the analogy itself is read."""
    x = seen(name, alpha=0.5, **changes)
    s, goals = x.observations, x.actor_goals
    assert ("eta" in x.networks) == kind.startswith("eta")
    agree(x.losses["value"], implicit_value_loss(x, kind, 0.9))
    adv, mean = (
        advantage(x, kind, x.next_observations, goals),
        x.networks["actor"](CODES[kind](x.networks, s, goals), s),
    )
    agree(x.metrics["actor/adv"], np.mean(adv))
    agree(x.losses["actor"], awr(adv, log_prob(mean, x.actions), 0.5))
    if kind != "raw":
        agree(x.losses["dual"], dual_loss(x))
    acts, _ = x.agent.act(x.networks, s, goals, jax.random.key(0), 0.0)
    agree(acts, np.clip(mean, -1, 1))


@pytest.mark.parametrize(
    ("name", "kind", "changes"),
    [
        ("hiql", "eta of both", {}),
        ("hiql-dual", "eta of dual", {}),
        ("hiql-dual", "eta of state and dual", {"subgoal_repr_type": "dual_state"}),
        ("hiql-analogy", "eta of analogy", {}),
        ("cta", "eta of analogy", {"bilinear_high_actor": False}),
        ("cta-gcb", "eta of states", {}),
        ("cta-gcb", "eta of pair", {"gcb": GcbConfig((8,), 4, use="pair")}),
    ],
)
def test_two_levels(name, kind, changes):
    """Both policies follow what the value rises after; the high one's labels are codes seen from the state."""
    x = seen(name, low_alpha=0.5, high_alpha=0.7, **changes)
    n, s, goals = x.networks, x.observations, x.high_actor_goals
    agree(x.losses["value"], implicit_value_loss(x, kind, 0.7))

    adv, z = advantage(x, kind, x.next_observations, x.low_actor_goals), CODES[kind](n, s, x.low_actor_goals)
    agree(x.losses["low"], awr(adv, log_prob(n["low"](z, s), x.actions), 0.5))

    adv, label = advantage(x, kind, x.high_actor_targets, goals), CODES[kind](n, s, x.high_actor_targets)
    plain = name == "hiql" or "bilinear_high_actor" in changes
    condition = goals if plain else CODES[kind](n, s, goals)
    agree(x.losses["high"], awr(adv, log_prob(n["high"](condition, s), label), 0.7))


@pytest.mark.parametrize("use", ["psi", "pair"])
@pytest.mark.parametrize(("reward_distance", "apart"), [("huber", 0.5), ("abs", 1.0)])
def test_bisimulation(use, reward_distance, apart):
    """Of two rows, one of which has reached its goal, a permutation compares each with itself or with the other."""
    agent = tiny("cta-gcb", gcb=GcbConfig((8,), 4, reward_distance, use))
    networks, targets = with_targets(agent)
    batch = {key: value[:2] for key, value in batch_of().items()}
    s, s_next, g = (batch[key] for key in ("observations", "next_observations", "value_goals"))
    assert sorted(batch["rewards"]) == [-1, 0]
    keys = [jax.random.key(i, impl="threefry2x32") for i in range(6)]
    found = [agent.goal.terms(networks, targets, batch, key)["gcb"] for key in keys]

    pairs, after = numbers(networks["pair"](s, g)), numbers(networks["pair"](s_next, g))
    gap = np.sum(np.abs(pairs[0] - pairs[1])) - apart - DISCOUNT * np.sqrt(np.sum((after[0] - after[1]) ** 2))
    losses = [metrics["gcb/pair_loss"] for _, metrics in found]
    agree(max(losses), gap**2)
    agree(min(losses), 0.0)
    assert all(np.isclose(loss, 0, atol=1e-5) or np.isclose(loss, gap**2, rtol=1e-4) for loss in losses)

    followed = 0.0
    if use == "psi":
        analogy = numbers(networks["state"](g)) - numbers(networks["state"](s))
        agree(agent.analogy(networks, s, g), analogy)
        wanted = pairs - numbers(networks["pair"](g, g))
        followed = np.mean(np.sum((wanted - analogy) ** 2, axis=-1))
        agree(found[0][1]["gcb/state_loss"], followed)
    else:
        assert "state" not in networks
        agree(agent.analogy(networks, s, g), pairs)
    for loss, metrics in found:
        agree(loss, numbers(metrics["gcb/pair_loss"]) + followed)


EPISODE, ROWS = 500, 4000
TABLE = RowTable(
    jnp.asarray([row for row in range(2 * EPISODE) if row % EPISODE < EPISODE - 1]),
    jnp.asarray([EPISODE * (row // EPISODE + 1) - 2 for row in range(2 * EPISODE)]),
)
"""Two episodes."""


def offsets(name, field):
    """How far after its row a goal lies, and which goals are of the row's own episode."""
    rows = tiny(name, batch_size=ROWS).draw(jax.random.key(5), TABLE)
    row, goal = (np.asarray(rows[key]) for key in ("observations", field))
    last = np.asarray(TABLE.goal_limits)[row]
    return np.where(row == last, 1, goal - row), row // EPISODE == goal // EPISODE


@pytest.mark.parametrize("name", ["crl", "crl-dual"])
def test_contrastive_goals_are_later_rows_at_geometric_distance(name):
    ahead, own = offsets(name, "contrastive_goals")
    assert np.all(ahead >= 1) and np.all(own)
    assert 8 < np.mean(ahead) < 11  # 1/(1 − γ), a little less near the end


@pytest.mark.parametrize("name", ["crl", "crl-dual", "qrl", "gciql"])
def test_actor_goals_are_later_rows_at_any_distance(name):
    ahead, own = offsets(name, "actor_goals")
    assert np.all(ahead >= 1) and np.all(own)
    assert EPISODE / 5 < np.mean(ahead) < EPISODE / 3


def test_the_representation_of_contrastive_agents_has_value_goals_of_its_own():
    """One fifth the row itself, one half later and near, the rest any row, whatever the contrastive goal is."""
    ahead, own = offsets("crl-dual", "value_goals")
    assert abs(np.mean(ahead == 0) - 0.2) < 0.03
    assert abs(np.mean(~own) - 0.3 / 2) < 0.03
    assert abs(np.mean(own & (ahead >= 1) & (ahead <= 50)) - 0.5) < 0.04
    contrastive, _ = offsets("crl-dual", "contrastive_goals")
    assert np.mean(ahead == contrastive) < 0.1


def test_value_goals_of_qrl_are_random():
    ahead, own = offsets("qrl", "value_goals")
    assert abs(np.mean(own) - 0.5) < 0.03
    assert abs(np.mean(ahead[own] > 0) - 0.5) < 0.04
    assert np.mean(ahead == 0) < 0.01


def heads(network):
    """The last kernels of a network, one for each member."""
    if hasattr(network, "members"):
        return [kernel for member in network.members for kernel in heads(member)]
    if hasattr(network, "mlp"):
        return heads(network.mlp)
    return [(network.head if hasattr(network, "head") else network.layers[-1]).kernel]


@pytest.mark.parametrize(
    ("name", "small", "ordinary"),
    [
        ("gcbc", {"actor"}, set()),
        ("gcivl", {"actor"}, {"value"}),
        ("gcivl-analogy", {"actor", "value"}, {"eta", "phi", "psi", "critic"}),
        ("gciql", {"actor"}, {"value", "q"}),
        ("crl", {"actor"}, {"critic_phi", "critic_psi"}),
        ("qrl", {"actor"}, {"phi", "dynamics"}),
        ("hiql", {"low", "high"}, {"value", "eta"}),
        ("cta", {"low", "high", "value"}, {"eta", "phi", "psi", "critic"}),
        ("cta plain high", {"high"}, set()),
        ("cta-gcb", {"value"}, {"pair", "state"}),
    ],
)
def test_policies_and_bilinear_values_start_near_zero(name, small, ordinary):
    """Their last layer starts with a tenth of the others' range."""
    agent = tiny("cta", bilinear_high_actor=False) if name == "cta plain high" else tiny(name)
    networks = agent.init(jax.random.key(0), SPEC)
    for names, low, high in ((small, 0.05, 0.1), (ordinary, 0.5, 1.0)):
        for kernel in (kernel for key in names for kernel in heads(networks[key])):
            limit = np.sqrt(6 / sum(kernel.shape))
            assert low * limit < np.abs(kernel).max() <= high * limit * (1 + 1e-6)


def test_the_plain_high_policy_has_the_backbones_sizes_and_no_norms():
    agent = find("cta").build(replace(find("cta").config, bilinear_high_actor=False))
    high = jax.eval_shape(lambda key: agent.init(key, Spec(40, 5)), jax.random.key(0))["high"]
    assert [layer.kernel.shape for layer in high.layers] == [(80, 128), (128, 128), (128, 32)]
    assert not high.norms


@pytest.mark.parametrize("name", ["gcbc", "gciql", "cta"])
def test_actions_spread_by_temperature_times_sigma(name):
    agent = tiny(name, actor_std=0.2)
    networks = jax.tree.map(jnp.zeros_like, with_targets(agent)[0])
    seen = jnp.zeros((2000, SPEC.observation_dim))
    acts, _ = agent.act(networks, seen, seen, jax.random.key(0), 0.5)
    assert abs(np.std(acts) - 0.1) < 0.004
    assert abs(np.mean(acts)) < 0.005


def nested(config, changes):
    """A config with some settings changed; of a group of settings a part may be given."""
    new = {k: replace(getattr(config, k), **v) if isinstance(v, dict) else v for k, v in changes.items()}
    return replace(config, **new)


ONE_LAYER = {
    "hidden": (8,), "dual": {"hidden": (8,), "dim": 8}, "eta": {"hidden": (8,), "dim": 8},
    "trunk": {"hidden": (8,), "features": 8, "backbone": (8,)},
}  # fmt: skip
"""As little to compile as the kernels take."""


@pytest.mark.skipif(not kernels.interpreted(), reason="a GPU's tanh is less exact than these tolerances")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("hiql-analogy", {"actor_std": 0.5, "dual": {"scale": "none"}, "value_ensemble": 1}),
        ("cta", {"layer_norm": False, "eta": {"normalise": False}, "dual": {"ensemble": 1}}),
    ],
)
def test_switches_mean_the_same_in_fused_kernels(name, changes):
    agent = find(name).build(nested(nested(fused_size(name).config, ONE_LAYER), changes))
    assert two_level.supports(agent, shapes(agent, FUSED_SPEC))
    with jax.default_matmul_precision("highest"):
        ((_, metrics), gradients), ((_, merged), merged_gradients) = losses_and_gradients(agent, jnp.float32)
    assert metrics.keys() == merged.keys()
    for key in metrics:
        np.testing.assert_allclose(merged[key], metrics[key], rtol=2e-4, atol=1e-5, err_msg=key)
    for key in gradients:
        assert relative_error(merged_gradients[key], gradients[key]) < 1e-4, key
