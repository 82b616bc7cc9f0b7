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

NEAR = 8.0
BLOCK = 20_000  # rows that are searched at once
FARTHEST = 1e-2  # γ^d below this is not told apart: at γ = 0.95 that is 90 steps


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

    def steps(self, products: Float[Array, "members ..."]) -> Float[Array, "..."]:
        """d, of inner products φᵀψ; the members' longest, lest the least of many be one that a member got wrong."""
        learner = self.learner
        values = jnp.min(products, axis=0) / (learner.config.dim**0.5 if learner.config.scale == "sqrt_d" else 1.0)
        kept = jnp.clip(1 + (1 - learner.discount) * values, FARTHEST, 1.0)
        return jnp.log(kept) / jnp.log(learner.discount)

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
        trained, pool = networks["trained"], networks["pool"]
        here, ends = trained["phi"](observations), trained["psi"](goals)
        row, apart = jnp.full(len(goals), -1, jnp.int32), self.steps(jnp.sum(here * ends, axis=-1))
        for _ in range(self.levels):
            far = apart > self.near
            middle, middle_apart, middle_psi = self.middle(pool, here, ends)
            row, apart = jnp.where(far, middle, row), jnp.where(far, middle_apart, apart)
            ends = jnp.where(far[:, None], middle_psi, ends)
        return row

    def middle(self, pool: Networks, here: Array, ends: Array) -> tuple[Array, Array, Array]:
        """Of φ(s) and ψ(g), (members, slots, dim): w as a row, d(s,w), ψ(w). The blocks are searched one by one."""

        def better(best: Any, block: Any) -> tuple[Any, None]:
            first, phi, psi = block
            there = self.steps(jnp.einsum("msd,mnd->msn", here, psi))
            both = there**2 + self.steps(jnp.einsum("mnd,msd->msn", phi, ends)) ** 2
            index = jnp.argmin(both, axis=1)
            least, apart = (jnp.take_along_axis(x, index[:, None], axis=1)[:, 0] for x in (both, there))
            found = least, first + index.astype(jnp.int32), apart, psi[:, index]
            keep = least < best[0]
            return tuple(
                jnp.where(keep[:, None] if new.ndim > 2 else keep, new, old)
                for new, old in zip(found, best, strict=True)
            ), None

        slots, size = here.shape[1], pool["psi"].shape[2]
        firsts = size * jnp.arange(len(pool["psi"]), dtype=jnp.int32)
        nothing = jnp.full(slots, jnp.inf), jnp.zeros(slots, jnp.int32), jnp.zeros(slots), jnp.zeros_like(ends)
        (_, row, apart, psi), _ = jax.lax.scan(better, nothing, (firsts, pool["phi"], pool["psi"]))
        return row, apart, psi
