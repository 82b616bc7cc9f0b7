"""`offline.csv`: what is measured of a run that has no world to roll out in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cta.agents import Agent, Networks
from cta.config import RunConfig
from cta.data import TrajectoryDataset
from cta.evaluation.offline import MEASURES, trajectory_order
from cta.experiment.run_dir import RunDir
from cta.training.logs import CsvLog, whole_number

COLUMNS = ("dataset", "agent", "seed", "step", "episodes", *MEASURES)


class OfflineBook:
    """Measures the order of held-out trajectories at the steps where other runs are evaluated."""

    def __init__(self, run: RunDir, config: RunConfig, agent: Agent, held_out: TrajectoryDataset):
        self._log = CsvLog(run.path / "offline.csv", COLUMNS)
        self._config = config
        self._agent = agent
        self._held_out = held_out

    def trim(self, upto: int) -> None:
        """Drop the rows a resumed run writes again."""
        self._log.keep(lambda row: whole_number(row, "step", self._log.path) <= upto)

    def measure(self, step: int, networks: Sequence[Networks], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """Measure and write the rows of one step, for those `seeds` of the run; `networks` are those of all seeds."""
        rows = []
        for seed, weights in zip(self._config.seeds, networks, strict=True):
            orders = trajectory_order(self._agent, weights, self._held_out) if seed in seeds else {}
            if not orders:
                continue
            common = {
                "dataset": self._config.dataset_name,
                "agent": self._config.agent_name,
                "seed": seed,
                "step": step,
            }
            count = {"episodes": len(next(iter(orders.values())))}
            rows.append({**common, **count, **{name: float(np.mean(values)) for name, values in orders.items()}})
        self._log.append(rows)
        return rows
