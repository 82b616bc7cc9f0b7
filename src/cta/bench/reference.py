"""The plain per-step loop, which everything is measured against: NumPy draws a batch, one jitted update takes it."""

from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np

from cta.agents import Agent
from cta.bench.cases import Case
from cta.bench.clock import interleave
from cta.bench.plain import PlainUpdate
from cta.bench.products import count_products, time_products
from cta.bench.train import BLOCK, least_steps, rates
from cta.config import TwoLevelConfig
from cta.data import TrajectoryDataset
from cta.goals import GoalMix, RowTable, actor_mix, gather, value_mix
from cta.training.learner import seed_keys, spec_of
from cta.training.seeds import SeedGroup
from cta.training.source import open_source


class NumpySampler:
    """Batches of an agent, drawn and gathered on the host."""

    def __init__(self, dataset: TrajectoryDataset, agent: Agent, seed: int = 0):
        self.dataset, self.config = dataset, agent.config
        self.rng = np.random.default_rng(seed)
        table = RowTable(np.zeros(1, np.int32), np.zeros(1, np.int32))  # pyright: ignore[reportArgumentType]
        self.fields = jax.eval_shape(agent.draw, jax.random.key(0), table)

    def anywhere(self) -> np.ndarray:
        rows = self.dataset.valid_rows
        return rows[self.rng.integers(len(rows), size=self.config.batch_size)]

    def later(self, rows: np.ndarray, *, geometric: bool) -> np.ndarray:
        end = self.dataset.goal_limits[rows]
        if geometric:
            return np.minimum(rows + self.rng.geometric(1 - self.config.discount, size=len(rows)), end)
        near = np.minimum(rows + 1, end)
        return np.round(near + (end - near) * self.rng.random(len(rows))).astype(rows.dtype)

    def mixed(self, rows: np.ndarray, mix: GoalMix) -> np.ndarray:
        p_later = mix.trajectory / max(1 - mix.current, 1e-12)
        later = self.later(rows, geometric=mix.geometric)
        goals = np.where(self.rng.random(len(rows)) < p_later, later, self.anywhere())
        return np.where(self.rng.random(len(rows)) < mix.current, rows, goals)

    def rows(self) -> dict[str, np.ndarray]:
        c, rows = self.config, self.anywhere()
        found = {"observations": rows, "next_observations": rows + 1}
        if not isinstance(c, TwoLevelConfig):
            goals = {"actor_goals": actor_mix(c)}
            return found | {
                name: self.mixed(rows, goals.get(name, value_mix(c))) for name in self.fields if name not in found
            }
        low = np.minimum(rows + c.subgoal_steps, self.dataset.goal_limits[rows])
        far = self.later(rows, geometric=c.actor_geom_sample)
        at_random = self.rng.random(len(rows)) < c.actor_p_randomgoal
        return {
            **found,
            "value_goals": self.mixed(rows, value_mix(c)),
            "low_actor_goals": low,
            "high_actor_goals": np.where(at_random, self.anywhere(), far),
            "high_actor_targets": np.where(at_random, low, np.minimum(rows + c.subgoal_steps, far)),
        }

    def batch(self) -> dict[str, Any]:
        rows: Any = self.rows()
        return gather(self.dataset.observations, self.dataset.actions, rows)  # pyright: ignore[reportArgumentType]


class PlainLoop:
    """One seed of an agent, a step at a time."""

    def __init__(self, agent: Agent, dataset: TrajectoryDataset, seed: int = 0):
        self.sampler = NumpySampler(dataset, agent, seed)
        self.keys = seed_keys(seed)
        self.update = PlainUpdate(agent)
        self.state = self.update.init(jax.jit(lambda key: agent.init(key, spec_of(dataset)))(self.keys.init))
        self.step = 0
        self.program = (
            jax.jit(self.update, donate_argnums=0).lower(self.state, self.sampler.batch(), self.keys.loss).compile()
        )

    def run(self, count: int) -> None:
        """Take `count` steps and wait for them."""
        loss = None
        for _ in range(count):
            key = jax.random.fold_in(self.keys.loss, self.step)
            self.state, loss = self.program(self.state, self.sampler.batch(), key)
            self.step += 1
        jax.block_until_ready((self.state, loss))


def measure_reference(case: Case, dataset: TrajectoryDataset) -> list[dict[str, Any]]:
    """Entries `reference` (the plain loop alone, one seed) and `speed-up` (this case over it, measured in turns)."""
    agent = case.build()
    loop = PlainLoop(agent, dataset)
    group = SeedGroup(case.learner(dataset, block=BLOCK), range(case.seeds), open_source(dataset))
    turns = interleave(group.run, loop.run, seconds=case.seconds, largest=BLOCK, least=least_steps())
    facts = case.facts()
    middle = sorted((theirs for _, theirs in turns), key=lambda span: span.cpu_ms_per_step)[len(turns) // 2]
    reference = {"what": "reference", **facts, "seeds": 1, **rates(middle, 1)}
    if jax.default_backend() == "cpu":
        reference |= _products(loop, median(span.cpu_ms_per_step for _, span in turns))

    def ratio(of: Callable[[Any, Any], float]) -> float:
        return round(median(of(ours, theirs) for ours, theirs in turns), 3)

    speed_up = {
        "what": "speed-up",
        **facts,
        "turns": len(turns),
        "cpu_ms_per_seed_step": round(median(ours.cpu_ms_per_step for ours, _ in turns) / case.seeds, 2),
        "reference_cpu_ms_per_step": round(median(theirs.cpu_ms_per_step for _, theirs in turns), 2),
        "cpu_time_ratio": ratio(lambda ours, theirs: case.seeds * theirs.cpu_ms_per_step / ours.cpu_ms_per_step),
        "single_run_ratio": ratio(lambda ours, theirs: ours.steps_per_s / theirs.steps_per_s),
        "throughput_ratio": ratio(lambda ours, theirs: case.seeds * ours.steps_per_s / theirs.steps_per_s),
    }
    return [reference, speed_up]


def _products(loop: PlainLoop, cpu_ms: float) -> dict[str, Any]:
    """The loop's own matrix products: number, arithmetic, processor time alone, and the loop's time over that."""
    products = count_products(loop.program.as_text() or "")
    alone = 1e3 * time_products(products)
    return {
        "products": sum(products.values()),
        "product_gflop": round(sum(n * p.flop for p, n in products.items()) / 1e9, 2),
        "products_cpu_ms": round(alone, 2),
        "cpu_over_products": round(cpu_ms / alone, 2),
    }
