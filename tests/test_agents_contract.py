"""What every registered agent promises, checked for all of them alike."""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cta.agents import REGISTRY, find, paper_names
from cta.agents.policy import Policy
from cta.config import ActorConfig
from cta.envs.desk_play import generate_play
from cta.errors import CtaError
from cta.goals import RowTable, gather
from cta.training.checkpoints import Checkpoints, flatten
from cta.training.learner import Learner, TrainState, loss_names, spec_of, to_device
from cta.training.seeds import SeedGroup
from tiny_agents import SPEC, batch_of, tiny, with_targets

DUAL = {"dual": {"phi", "psi", "critic"}}
GCIVL = {"value": {"value"}, "actor": {"actor"}}
GCIQL = GCIVL | {"q": {"q"}}
CRL = {"critic": {"critic_phi", "critic_psi"}, "actor": {"actor"}}
LEVELS = {"value": {"value", "eta"}, "low": {"low"}, "high": {"high"}}
QRL = {
    "value": {"phi", "quasimetric", "log_lambda"},
    "dynamics": {"phi", "quasimetric", "dynamics"},
    "actor": {"actor"},
}
ROUTES = {
    "gcbc": {"actor": {"actor"}},
    "gcivl": GCIVL,
    "gciql": GCIQL,
    "qrl": QRL,
    "crl": CRL,
    "hiql": LEVELS,
    "crl-dual": CRL | DUAL,
    "gcivl-dual": GCIVL | DUAL,
    "gciql-dual": GCIQL | DUAL,
    "hiql-dual": LEVELS | DUAL,
    "hiql-analogy": LEVELS | DUAL,
    "gcivl-analogy": GCIVL | DUAL | {"value": {"value", "eta"}},
    "cta": LEVELS | DUAL,
    "cta-gcb": LEVELS | {"gcb": {"pair", "state"}},
}
"""Which networks each term of the loss may move, and must, in the paper's agents."""
VARIANTS = {
    "gciql awr": ("gciql", {"actor_loss": "awr"}),
    "gciql-dual ddpgbc": ("gciql-dual", {"actor_loss": "ddpgbc"}),
    "qrl awr": ("qrl", {"actor_loss": "awr"}),
    "qrl mrn": ("qrl", {"quasimetric_type": "mrn"}),
    "crl awr": ("crl", {"actor_loss": "awr"}),
    "crl floor": ("crl", {"logit_floor": -13.8}),
    "crl-dual awr": ("crl-dual", {"actor_loss": "awr"}),
    "hiql low trains rho": ("hiql", {"policy_rep_grad_stop": False}),
    "hiql-dual state": ("hiql-dual", {"subgoal_repr_type": "dual_state"}),
    "hiql-dual eta frozen": ("hiql-dual", {"value_rep_grad_stop": True}),
    "hiql-dual low trains eta": ("hiql-dual", {"policy_rep_grad_stop": False}),
    "cta plain high": ("cta", {"bilinear_high_actor": False}),
    "gciql analogy": ("gciql", {"conditioning": "analogy", "networks": "bilinear"}),
}
"""Switches that change the routing or the networks."""


pytestmark = pytest.mark.usefixtures("quick_compilation")


@cache
def observe(case):
    """Everything an agent does to one batch, in one program."""
    name, changes = VARIANTS.get(case, (case, {}))
    agent = tiny(name, **changes)
    batch = batch_of(agent=agent)
    learner = Learner(agent, SPEC, block=1)

    networks, targets = with_targets(agent)
    key = jax.random.key(4)
    terms = jax.eval_shape(lambda n, t: agent.terms(n, t, batch, key), networks, targets)
    order = sorted(terms)
    metrics = {name for _, logged in terms.values() for name in logged}

    def program(networks, targets):
        def losses(networks, targets):
            terms = agent.terms(networks, targets, batch, key)
            return jnp.stack([terms[term][0] for term in order])

        values, pull = jax.vjp(losses, networks, targets)
        rows = jax.vmap(pull)(jnp.eye(len(order)))  # the backward pass once, for all terms
        grads = {term: jax.tree.map(lambda x, i=i: x[i], rows) for i, term in enumerate(order)}
        optimizer = {name: learner._adam.init(network) for name, network in networks.items()}
        sums = dict.fromkeys([*metrics, "total_loss"], jnp.zeros(()))
        bad = jnp.zeros(len(loss_names(sums)), jnp.int32)
        start = TrainState(networks, targets, optimizer, jnp.zeros((), jnp.int32), sums, bad)
        after = learner.update(start, batch, key)

        def act(key, temperature):
            return agent.act(networks, batch["observations"], batch["actor_goals"], jax.random.key(key), temperature)[0]

        return {
            "losses": dict(zip(order, values, strict=True)),
            "grads": {term: pair[0] for term, pair in grads.items()},
            "target_grads": {term: pair[1] for term, pair in grads.items()},
            "metrics": after.sums,
            "after": after.targets,
            "acts": {"mean": act(0, 0.0), "again": act(1, 0.0), "noisy": act(0, 1.0)},
        }

    seen = jax.device_get(jax.jit(program)(networks, targets))
    return agent, seen | {"networks": networks, "targets": targets}


def moved(grads):
    return {name for name, tree in grads.items() if any(np.any(leaf) for leaf in jax.tree.leaves(tree))}


def test_the_papers_agents_declare_the_papers_routes_and_targets():
    assert {name: find(name).build(find(name).config).routes() for name in ROUTES} == ROUTES
    assert {name: set(find(name).build(find(name).config).targets()) for name in TARGETS} == TARGETS
    assert set(ROUTES) == set(TARGETS) == set(paper_names().values())


@pytest.mark.parametrize("case", [*REGISTRY, *VARIANTS])
def test_gradient_routing(case):
    """Every term trains the networks that the agent declares, and no other; no network is left out."""
    agent, seen = observe(case)
    assert {term: moved(grads) for term, grads in seen["grads"].items()} == agent.routes()
    assert set().union(*agent.routes().values()) == {
        name for name, tree in seen["networks"].items() if jax.tree.leaves(tree)
    } - ({"eta"} if case == "hiql-dual eta frozen" else set())


@pytest.mark.parametrize("case", [*REGISTRY, *VARIANTS])
def test_losses_and_gradients_are_finite_scalars_that_add_up(case):
    _, seen = observe(case)
    assert all(value.shape == () for value in [*seen["losses"].values(), *seen["metrics"].values()])
    finite = jax.tree.map(lambda x: bool(np.all(np.isfinite(x))), [seen["losses"], seen["metrics"], seen["grads"]])
    assert all(jax.tree.leaves(finite))
    np.testing.assert_allclose(seen["metrics"]["total_loss"], sum(seen["losses"].values()), rtol=1e-5)


@pytest.mark.parametrize("case", [*REGISTRY, *VARIANTS])
def test_targets_get_no_gradient_and_move_by_tau(case):
    agent, seen = observe(case)
    assert all(moved(grads) == set() for grads in seen["target_grads"].values())
    tau = agent.config.tau
    # Towards the weights from before the step.
    for name in agent.targets():
        parts = [jax.tree.leaves(seen[part][name]) for part in ("targets", "networks", "after")]
        for target, online, after in zip(*parts, strict=True):
            np.testing.assert_allclose(after, tau * online + (1 - tau) * target, rtol=1e-5, atol=1e-7)
    assert set(agent.targets()) == set(seen["after"])


TARGETS = {
    "gcbc": set(), "gcivl": {"value"}, "gciql": {"q"}, "qrl": set(), "crl": set(), "hiql": {"value"},
    "crl-dual": {"critic"}, "gcivl-dual": {"value", "critic"}, "gciql-dual": {"q", "critic"},
    "hiql-dual": {"value", "critic"}, "hiql-analogy": {"value", "critic"}, "gcivl-analogy": {"value", "critic"},
    "cta": {"value", "critic"}, "cta-gcb": {"value"},
}  # fmt: skip


@pytest.mark.parametrize("case", [*REGISTRY, *VARIANTS])
def test_acting_is_bounded_and_deterministic_at_temperature_zero(case):
    _, seen = observe(case)
    acts = seen["acts"]
    assert all(a.shape == (8, SPEC.action_dim) and np.abs(a).max() <= 1 for a in acts.values())
    np.testing.assert_array_equal(acts["mean"], acts["again"])
    assert not np.allclose(acts["mean"], acts["noisy"])


@pytest.mark.parametrize("name", REGISTRY)
def test_no_jit_equals_jit(name):
    agent, seen = observe(name)
    plain, _ = agent.loss(seen["networks"], seen["targets"], batch_of(agent=agent), jax.random.key(4))
    np.testing.assert_allclose(plain, seen["metrics"]["total_loss"], rtol=2e-5)


TRAIN, _ = generate_play("desk", episodes=3, validation_episodes=1, episode_steps=20, seed=0)
DATA_SPEC = spec_of(TRAIN)


@pytest.mark.parametrize("name", REGISTRY)
def test_seed_of_many_equals_seed_alone_and_survives_saving(name, tmp_path):
    learner = Learner(tiny(name), DATA_SPEC, block=2)
    many = SeedGroup(learner, [0, 3], to_device(TRAIN))
    alone = SeedGroup(learner, [3], to_device(TRAIN))
    fresh = alone.networks()[0]
    many.run(2)
    alone.run(2)
    both, single = flatten(many.snapshot()), flatten(alone.snapshot())
    for leaf, value in single.items():
        np.testing.assert_array_equal(both[leaf][1], value[0], err_msg=leaf)
    trained = alone.networks()[0]
    assert moved(jax.tree.map(lambda a, b: a - b, trained, fresh)) == set().union(*tiny(name).routes().values())

    store = Checkpoints(tmp_path, create=True)
    store.save(alone.snapshot())
    store.wait()
    loaded = store.load_networks(2, alone.structure.networks)
    store.close()
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: np.asarray(x)[0], loaded), trained)
    policy = Policy(learner.agent, trained)
    rows = TRAIN.observations[:2]
    assert policy(rows, rows[::-1], np.ones(2, bool)).shape == (2, DATA_SPEC.action_dim)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_batch_has_the_fields_the_loss_reads(name):
    """`draw` names fields that exist, all of the batch's length, and the value goals of each agent are its own."""
    agent = tiny(name)
    data = to_device(TRAIN)
    rows = agent.draw(jax.random.key(0), data.table)
    batch = gather(data.observations, data.actions, rows)
    assert all(len(value) == agent.config.batch_size for value in batch.values())
    low, high = {"low_actor_goals", "high_actor_goals", "high_actor_targets"}, {"actor_goals"}
    if name not in ROUTES:
        return
    goals = low if "low" in ROUTES[name] else high
    goals |= {"contrastive_goals"} if "crl" in name else set()
    goals |= {"value_goals"} if name not in ("gcbc", "crl") else set()
    assert {field for field in rows if field not in ("observations", "next_observations")} == goals


def changed(config, path, value):
    name, _, rest = path.partition(".")
    return replace(config, **{name: changed(getattr(config, name), rest, value) if rest else value})


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("cta", "actor_std", 0.0), ("cta", "actor_std", -1.0), ("cta", "dual.pretrain_steps", -1),
        ("cta", "expectile", 1.5), ("cta", "expectile", 0.0), ("cta", "dual.expectile", 1), ("cta", "p_aug", 2.0),
        ("cta", "p_aug", -0.1), ("cta", "low_alpha", -3.0), ("cta", "awr_clip", 0.0), ("cta", "trunk.backbone", ()),
        ("cta", "subgoal_steps", 0), ("cta", "lr", 0.0), ("cta", "tau", 0.0), ("cta", "tau", 1.1),
        ("cta", "discount", 1.0), ("cta", "discount", 1 - 1e-9), ("gciql", "alpha", -1.0), ("gciql", "expectile", 1.0),
        ("qrl", "eps", -0.1), ("crl", "value_p_trajgoal", 1.5), ("gcbc", "actor_std", 0),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(name, path, value):
    flag = f"--agent.{path.replace('_', '-')}"
    with pytest.raises(CtaError, match=f"^{flag} must [^\n]*$"):
        changed(find(name).config, path, value).check()


@pytest.mark.parametrize("name", REGISTRY)
def test_the_ends_of_the_ranges_are_allowed(name):
    config = find(name).config
    ends = {"p_aug": 1.0, "tau": 1.0, "dual.pretrain_steps": 0, "alpha": 0.0, "low_alpha": 0, "awr_clip": float("inf")}
    for path, value in ends.items():
        if hasattr(config, path.partition(".")[0]):
            config = changed(config, path, value)
    config.check()


def switches(config, where=""):
    """Every switch and every choice by its path, with each other value it can have."""
    hints = get_type_hints(type(config))
    for entry in fields(config):
        value, path = getattr(config, entry.name), where + entry.name
        if is_dataclass(value):
            yield from switches(value, f"{path}.")
        elif isinstance(value, bool):
            yield path, not value
        elif get_origin(hints[entry.name]) is Literal:
            yield from ((path, other) for other in get_args(hints[entry.name]) if other != value)


def idle(config, path):
    """Whether a setting is said to be read by other agents only, in the description of its class or its own."""
    goal, form = getattr(config, "conditioning", "raw"), getattr(config, "networks", "mlp")
    block = path.partition(".")[0]
    return (
        (block == "dual" and goal not in ("dual", "analogy"))
        or (block == "gcb" and goal != "gcb")
        or (block == "trunk" and form != "bilinear")
        or (path == "actor_layer_norm" and form == "bilinear")
        or (path == "policy_rep_grad_stop" and not config.eta.use)
        or (path == "value_geom_sample" and config.value_p_trajgoal == 0)
        or (type(config) is ActorConfig and path in ("layer_norm", "value_geom_sample"))
    )


def behaviour(agent):
    """What an agent draws, its loss and gradients on one batch, and how it acts."""
    networks, targets = with_targets(agent)
    batch, key = batch_of(agent=agent), jax.random.key(4)
    (loss, _), grads = jax.value_and_grad(agent.loss, has_aux=True)(networks, targets, batch, key)
    acts, _ = agent.act(networks, batch["observations"], batch["actor_goals"], key, 0.0)
    rows = agent.draw(key, RowTable(jnp.arange(50), jnp.full(51, 49)))
    return {"rows": rows, "loss": loss, "grads": grads, "acts": acts}


def sizes(agent):
    """The shapes of an agent's networks."""
    return jax.tree.map(jnp.shape, jax.eval_shape(lambda key: agent.init(key, SPEC), jax.random.key(0)))


def resized(one, two):
    """Whether the same networks have other sizes, which is effect enough and spares a computation."""
    return set(one) == set(two) and one != two


def same(one, two):
    shapes = [jax.tree.map(jnp.shape, seen) for seen in (one, two)]
    return shapes[0] == shapes[1] and all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    )


WITH_ETA = [("gciql-dual", True), ("gcivl", True), ("cta", False)]


@pytest.mark.parametrize(("name", "eta"), [*((name, None) for name in REGISTRY), *WITH_ETA])
def test_every_switch_changes_something_or_is_refused(name, eta):
    """What can be asked for is done: no switch is silently ignored, no network left as it was drawn."""
    agent = tiny(name)
    if eta is not None:
        agent = replace(agent, config=changed(agent.config, "eta.use", eta))
    agent.config.check()
    before, own = behaviour(agent), sizes(agent)
    for path, value in switches(agent.config):
        other = find(name).build(changed(agent.config, path, value))
        try:
            other.config.check()
            found = sizes(other)
        except CtaError as error:
            assert f"--agent.{path.replace('_', '-')}" in str(error) and "\n" not in str(error)
            continue
        if idle(agent.config, path) or resized(own, found):
            continue
        after = behaviour(other)
        assert not same(before, after), f"{path} = {value} has no effect"
        frozen = {"eta"} if path == "value_rep_grad_stop" else set()
        trained = {name for name, network in after["grads"].items() if jax.tree.leaves(network)}
        assert moved(after["grads"]) == trained - frozen, f"{path} = {value} leaves a network untrained"
