"""What an agent makes of a pair (difference of the observations, ψ(g), analogy, its code η), and t-SNE of that."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from cta.agents import Agent, Networks, Spec
from cta.agents.conditioning import GoalConditioned
from cta.agents.dual import DualLearner
from cta.analysis import MapOptions
from cta.analysis.pairs import Pairs
from cta.data import TrajectoryDataset
from cta.data.progress import progress
from cta.errors import CtaError, need_extra
from cta.io import provenance

BATCH = 1024
POOLED = 16  # side to which images are averaged before they are subtracted from each other
DIFFERENCE = "g − s"
EXAGGERATED = 0.25  # share of the iterations with exaggerated attraction, in which clusters form
REPORTED = 5  # iterations between two reports of progress

Function = Callable[[Networks, Any, Any], Any]  # (networks, states, goals) → a representation of the pairs


def functions(agent: Agent) -> dict[str, Function]:
    if not isinstance(agent, GoalConditioned) or not agent.goal.names:
        raise CtaError(
            f"{type(agent).__name__} learns no representation of state–goal pairs to map; "
            "use an agent with one: cta, cta-gcb, hiql, hiql-dual, hiql-analogy, gcivl-dual, gcivl-analogy, …"
        )
    goal, learner = agent.goal, agent.goal.learner
    found: dict[str, Function] = {}
    if isinstance(learner, DualLearner):
        found["ψ(g)"] = lambda networks, states, goals: learner.represent(networks, goals)
        found["α∨"] = learner.analogy
    elif learner is not None:
        if learner.config.use == "psi":
            found["ψ(g)"] = lambda networks, states, goals: networks["state"](goals)
        found["α(GCB)"] = learner.analogy
    if goal.eta.use:
        inside = {"raw": "ρ(s,g)", "dual": "η(ψ(g))", "analogy": "η(α∨)", "gcb": "η(α(GCB))"}
        found[inside[goal.kind]] = goal.goal_embedding
    return found


def mapped(agent: Agent) -> str:
    """The representation whose map is drawn: the analogy if there is one, else the code."""
    found = list(functions(agent))
    return next((name for name in found if name.startswith("α")), found[-1])


def untrained(agent: Agent, spec: Spec, seed: int) -> Networks:
    """Networks as they are before the first step, for comparison."""
    assert isinstance(agent, GoalConditioned)
    return jax.jit(lambda key: agent.goal.init(key, spec))(jax.random.key(seed))


def represent(agent: Agent, networks: Networks, data: TrajectoryDataset, pairs: Pairs) -> dict[str, np.ndarray]:
    """{name: (N, dim) float32} of all representations."""
    found = functions(agent)

    @jax.jit
    def of(networks: Networks, states: Any, goals: Any) -> dict[str, Any]:
        return {name: function(networks, states, goals) for name, function in found.items()}

    parts = [jax.tree.map(np.asarray, of(networks, *batch)) for batch in _batches(data, pairs)]
    return {name: np.concatenate([part[name] for part in parts])[: len(pairs)] for name in found}


def difference(data: TrajectoryDataset, pairs: Pairs) -> np.ndarray:
    """g − s itself, (N, dim); of images averaged to 16 × 16, or as they are where they are smaller."""
    blocks = [_plain(goals) - _plain(states) for states, goals in _batches(data, pairs)]
    return np.concatenate(blocks)[: len(pairs)]


def _plain(observations: np.ndarray) -> np.ndarray:
    """Rows of numbers; of images the averages of blocks, 16 along each side, as equal as its length allows."""
    plain = np.asarray(observations, np.float32)
    for axis in (1, 2) if plain.ndim > 2 else ():
        side = plain.shape[axis]
        blocks = min(POOLED, side)
        edges = side * np.arange(blocks + 1) // blocks
        lengths = np.diff(edges).astype(np.float32).reshape(-1, *[1] * (plain.ndim - axis - 1))
        plain = np.add.reduceat(plain, edges[:-1], axis=axis) / lengths
    return plain.reshape(len(plain), -1)


def _batches(data: TrajectoryDataset, pairs: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(states, goals) in batches of one size, so that one program serves them all; the last is filled up."""
    size = min(BATCH, len(pairs))
    for begin in range(0, len(pairs), size):
        rows = np.arange(begin, begin + size) % len(pairs)
        yield tuple(np.asarray(data.observations[index[rows]]) for index in (pairs.states, pairs.goals))  # type: ignore[misc]


def tsne_settings(points: int, options: MapOptions) -> dict[str, Any]:
    """What fixes a map, as plain data."""
    if points < 5:
        raise CtaError(f"a map needs at least 5 pairs, not {points}")
    return {
        "name": "t-SNE",
        "library": "openTSNE",
        "version": provenance.versions(("openTSNE",))["openTSNE"],
        "metric": "euclidean",
        "perplexity": min(options.perplexity, (points - 1) / 3),
        "iterations": options.iterations,
        "exaggerated_iterations": int(EXAGGERATED * options.iterations),
        "exaggeration": 12,
        "initialization": "pca",
        "repulsion": "fft",
        "seed": options.draw_seed,
    }


def tsne(points: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """(N, d) → (N, 2)."""
    # Threads that wait busily cost a shared machine twice; read when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    need_extra("report", "openTSNE", "the map")
    import openTSNE
    from openTSNE import affinity, initialization

    points = np.asarray(points, np.float32)
    common = {"n_jobs": min(4, os.cpu_count() or 1), "random_state": settings["seed"]}
    # Trees and approximate searches pay only for many points; exact neighbours are the same on every machine.
    near = {"perplexity": settings["perplexity"], "metric": settings["metric"], "method": "exact"}
    early, iterations = settings["exaggerated_iterations"], settings["iterations"]
    with progress("t-SNE", total=iterations, unit="iterations") as advance:
        reports = {"callbacks": lambda *_: advance(REPORTED), "callbacks_every_iters": REPORTED}
        start = initialization.pca(points, random_state=settings["seed"])
        affinities = affinity.PerplexityBasedNN(points, **near, **common)
        common["negative_gradient_method"] = settings["repulsion"]
        places: Any = openTSNE.TSNEEmbedding(start, affinities, **common)
        places = places.optimize(early, exaggeration=settings["exaggeration"], momentum=0.5, **reports)
        return np.asarray(places.optimize(iterations - early, momentum=0.8, **reports))
