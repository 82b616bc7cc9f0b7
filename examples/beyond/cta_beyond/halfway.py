"""Halfway by retrieval: a far goal is put together from two nearer ones, found among recorded states.

    python -m cta_beyond.replay RUN --results beyond --halfway 20000        trained weights, played in another way

    w(s,g) = arg min over rows w of d(s,w)² + d(w,g)²,  d(s,g) = log(1 + (1−γ)·min_m Ṽ_m(s,g))/log γ
    a(s,g) = π(s, g_j),  g_0 = g,  g_{i+1} = w(s, g_i) while d(s,g_i) > near

Why: d*(s,g) ≤ d*(s,w) + d*(w,g) with equality on the way (theory T1), and x² + y² is least where x + y is least and
x = y: the middle of a shortest way. Both halves lie where values are learned; of an inner product all rows are one
matrix product. On a board 20 middles of 6 presses are among 2^n boards, so data that cover boards hold some.
Prediction: on CTA's checkpoints the reach (`cta table boards`) rises by at least two presses.
Refuted if the reach does not rise: then the learned distance is no metric even where it is short.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cta.agents.base import Acted, Agent, Key, Networks, Spec
from cta.agents.conditioning import GoalConditioned
from cta.agents.dual import DualLearner
from cta.config import AgentConfig
from cta.errors import CtaError
from cta.goals import Rows, RowTable

NEAR, SHORTLIST = 8.0, 0
BLOCK = 20_000  # rows that are searched at once
FARTHEST = 1e-2  # γ^d below this is not told apart: at γ = 0.95 that is 90 steps


def steps(values: Float[Array, "members ..."], discount: float) -> Float[Array, "..."]:
    """d, of values; the members' longest, lest the least of many be one that a member got wrong."""
    kept = jnp.clip(1 + (1 - discount) * jnp.min(values, axis=0), FARTHEST, 1.0)
    return jnp.log(kept) / jnp.log(discount)


@dataclass(frozen=True)
class Halfway(Agent):
    """Weights `trained` of an agent with a dual learner that acts towards states of a `pool`."""

    config: AgentConfig
    one: GoalConditioned
    near: float = NEAR
    """Steps from which on a goal is divided."""
    levels: int = 3
    """How often at most."""
    hold: int = 5
    """Steps for which what was found is kept."""
    shortlist: int = SHORTLIST
    """So many rows are found by Ṽ, and the agent's own V judges them; 0: Ṽ decides alone."""

    def init(self, key: Key, spec: Spec) -> Networks:
        raise NotImplementedError("it is not trained")

    def draw(self, key: Key, table: RowTable) -> dict[str, Rows]:
        raise NotImplementedError("it is not trained")

    @property
    def learner(self) -> DualLearner:
        learner = self.one.goal.learner
        if not isinstance(learner, DualLearner):
            raise CtaError("only an agent with a dual learner has a distance that is an inner product")
        return learner

    def pool(self, networks: Networks, observations: np.ndarray) -> dict[str, Array]:
        """What acting reads of recorded states, in blocks of equal size; a few rows at the end may be left out."""
        blocks = -(-len(observations) // BLOCK)
        rows = jnp.asarray(observations[: len(observations) // blocks * blocks])
        parts = rows.reshape(blocks, -1, *rows.shape[1:])
        encoded = {name: jnp.stack([networks[name](part) for part in parts]) for name in ("phi", "psi")}
        return {"rows": rows, **encoded}

    def apart(self, trained: Networks, states: Array, goals: Array) -> Float[Array, " rows"]:
        """d(s,g), by V if there is a shortlist."""
        if not self.shortlist:
            return steps(self.learner.value(trained, states, goals), self.learner.discount)
        z = self.one.goal_embedding(trained, states, goals)
        return steps(trained["value"](z, states)[..., 0], self.learner.discount)

    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
        """Towards what was found; memory: (row of the pool or −1 for the goal itself, age, the agent's own)."""
        row, age, kept = memory or (jnp.zeros(len(goals), jnp.int32), jnp.zeros(len(goals), jnp.int32), None)
        new = age % self.hold == 0
        found = jax.lax.cond(jnp.any(new), lambda: self.find(networks, observations, goals), lambda: row)
        row = jnp.where(new, found, row)
        rows = networks["pool"]["rows"]
        towards = jnp.where((row < 0)[:, None], goals, rows.reshape(-1, rows.shape[-1])[row])
        acted, kept = self.one.act(networks["trained"], observations, towards, key, temperature, kept)
        return acted, (row, age + 1, kept)

    def find(self, networks: Networks, observations: Array, goals: Array) -> Int[Array, " slots"]:
        """Rows of the pool to go to, −1 where the goal is near."""
        trained, rows = networks["trained"], networks["pool"]["rows"]
        row, ends = jnp.full(len(goals), -1, jnp.int32), goals
        for _ in range(self.levels):
            far = self.apart(trained, observations, ends) > self.near
            row = jnp.where(far, self.middle(networks, observations, ends), row)
            ends = jnp.where((row < 0)[:, None], goals, rows.reshape(-1, rows.shape[-1])[row])
        return row

    def middle(self, networks: Networks, observations: Array, goals: Array) -> Int[Array, " slots"]:
        """w, a row of the pool, whose blocks are searched one by one."""
        trained, pool = networks["trained"], networks["pool"]
        here, ends, config = trained["phi"](observations), trained["psi"](goals), self.learner.config
        scale, count = config.dim**0.5 if config.scale == "sqrt_d" else 1.0, max(1, self.shortlist)

        slots, (blocks, _, size) = len(goals), pool["psi"].shape[:3]

        def better(best: Any, block: Any) -> tuple[Any, None]:
            first, phi, psi = block
            to, onward = jnp.einsum("msd,mnd->msn", here, psi), jnp.einsum("mnd,msd->msn", phi, ends)
            both = (steps(values / scale, self.learner.discount) ** 2 for values in (to, onward))
            cost, index = jax.lax.top_k(-sum(both), min(count, size))
            costs, indices = (jnp.concatenate(two, axis=1) for two in zip(best, (cost, first + index), strict=True))
            cost, index = jax.lax.top_k(costs, count)
            return (cost, jnp.take_along_axis(indices, index, axis=1)), None

        nothing = jnp.full((slots, count), -jnp.inf), jnp.zeros((slots, count), jnp.int32)
        (_, found), _ = jax.lax.scan(better, nothing, (size * jnp.arange(blocks), pool["phi"], pool["psi"]))
        w = pool["rows"].reshape(-1, goals.shape[-1])[found.reshape(-1)]
        s, g = jnp.repeat(observations, count, axis=0), jnp.repeat(goals, count, axis=0)
        both = self.apart(trained, s, w) ** 2 + self.apart(trained, w, g) ** 2
        return found[jnp.arange(slots), jnp.argmin(both.reshape(slots, count), axis=1)]
