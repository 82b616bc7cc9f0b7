"""Ways over recorded states: a far goal is reached by short hops, and no long distance is believed.

    python -m cta_beyond.replay RUN --results beyond --ways 20000 --near 15     trained weights, played in another way

    h(x) = min over neighbours y of x of d(x,y) + c + h(y),  h(x) ≤ d(x,g) + c;  y is a neighbour where d(x,y) ≤ near
    a(s,g) = π(s, w),  w = arg min over rows near s of d(s,w) + c + h(w);  w = g where d(s,g) ≤ near

Why: d*(s,g) is the least sum of short steps on the way (theory T1), and short distances are those that were learned
well: CTA's values have the right order up to three presses. The cost c of a hop keeps hops long.
Prediction: on CTA's checkpoints of lights-4x4 the reach rises by two presses, and the mean by presses is at least 5
points above halfway's with the same rows.
Refuted if the reach does not rise: then short distances are wrong so often that shortest sums are made of them.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cta.agents.base import Acted, Key, Networks
from cta_beyond.halfway import Halfway, steps

HOP = 2.0
SWEEPS = 100  # of h at most; each takes a hop
PART = 500  # rows whose neighbours are found at once


@dataclass(frozen=True)
class Ways(Halfway):
    """Weights `trained` that act towards the first state of a shortest way over a `pool` of them."""

    hop: float = HOP
    """c, in steps."""
    neighbours: int = 64
    """At most so many rows are near one."""

    def pool(self, networks: Networks, observations: np.ndarray) -> dict[str, Array]:
        pool = super().pool(networks, observations)
        rows = pool["rows"].reshape(-1, pool["rows"].shape[-1])
        pool = {"rows": rows} | {name: jnp.concatenate([*pool[name]], axis=1) for name in ("phi", "psi")}
        near = jax.jit(lambda states: self.onward({"trained": networks, "pool": pool}, states))
        parts = [near(rows[i : i + PART]) for i in range(0, len(rows), PART)]
        cost, index = (jnp.concatenate(part) for part in zip(*parts, strict=True))
        return pool | {"cost": cost, "next": index}

    def onward(self, networks: Networks, states: Array) -> tuple[Float[Array, "slots near"], Int[Array, "slots near"]]:
        """What it costs to go to rows near each state, infinite where they are not near, and which these are."""
        here = networks["trained"]["phi"](states)
        return self.judged(networks, jnp.einsum("msd,mnd->msn", here, networks["pool"]["psi"]), states, toward=True)

    def judged(self, networks: Networks, products: Array, ends: Array, *, toward: bool) -> tuple[Array, Array]:
        """The rows nearest by φᵀψ, and the cost of a hop between these and `ends`."""
        pool, config = networks["pool"], self.learner.config
        scale = config.dim**0.5 if config.scale == "sqrt_d" else 1.0
        d = steps(products / scale, self.learner.discount)
        far, index = jax.lax.top_k(-d, min(self.neighbours, d.shape[1]))
        if self.shortlist:  # V judges
            rows, mine = pool["rows"][index.reshape(-1)], jnp.repeat(ends, index.shape[1], axis=0)
            far = -self.apart(networks["trained"], *((mine, rows) if toward else (rows, mine))).reshape(index.shape)
        return jnp.where(-far <= self.near, self.hop - far, jnp.inf), index

    def remaining(self, networks: Networks, goal: Array) -> Float[Array, " rows"]:
        """h, by sweeps over all rows until nothing changes."""
        pool = networks["pool"]
        products = jnp.einsum("mnd,msd->msn", pool["phi"], networks["trained"]["psi"](goal[None]))
        cost, index = self.judged(networks, products, goal[None], toward=False)
        start = jnp.full(len(pool["rows"]), jnp.inf).at[index[0]].min(cost[0])

        def sweep(carried: tuple[Array, Bool[Array, ""], Array]) -> tuple[Array, Bool[Array, ""], Array]:
            h, _, count = carried
            new = jnp.minimum(h, jnp.min(pool["cost"] + h[pool["next"]], axis=1))
            return new, jnp.any(new < h), count + 1

        going = lambda carried: carried[1] & (carried[2] < SWEEPS)  # noqa: E731
        return jax.lax.while_loop(going, sweep, (start, jnp.asarray(True), jnp.asarray(0)))[0]

    def act(
        self, networks: Networks, observations: Array, goals: Array, key: Key, temperature: float, memory: Any = None
    ) -> Acted:
        """Towards what was found; memory: (h, row or −1 for the goal itself, age, the agent's own)."""
        slots, rows = len(goals), networks["pool"]["rows"]
        blank = jnp.zeros((slots, len(rows))), jnp.zeros(slots, jnp.int32), jnp.zeros(slots, jnp.int32), None
        h, row, age, kept = memory or blank

        def of_slot(slot: tuple[Array, ...]) -> Array:
            goal, before, fresh = slot
            return jax.lax.cond(fresh, lambda: self.remaining(networks, goal), lambda: before)

        h = jax.lax.map(of_slot, (goals, h, age == 0))
        row = jnp.where(age % self.hold == 0, self.first(networks, observations, goals, h), row)
        towards = jnp.where((row < 0)[:, None], goals, rows[row])
        acted, kept = self.one.act(networks["trained"], observations, towards, key, temperature, kept)
        return acted, (h, row, age + 1, kept)

    def first(self, networks: Networks, observations: Array, goals: Array, h: Array) -> Int[Array, " slots"]:
        """Rows of the pool to go to; −1 where the goal is near, or no way leads to it."""
        cost, index = self.onward(networks, observations)
        whole = cost + jnp.take_along_axis(h, index, axis=1)
        best = jnp.argmin(whole, axis=1)[:, None]
        direct = self.apart(networks["trained"], observations, goals) <= self.near
        lost = jnp.isinf(jnp.take_along_axis(whole, best, axis=1)[:, 0])
        return jnp.where(direct | lost, -1, jnp.take_along_axis(index, best, axis=1)[:, 0])
