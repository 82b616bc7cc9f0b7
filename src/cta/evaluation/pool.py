"""Worker processes as vector worlds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cta.envs.protocol import Episode, Step
from cta.evaluation.handle import Worker


class Pool:
    """Up to `workers` processes for one environment, started when first used."""

    def __init__(
        self,
        env_name: str,
        *,
        workers: int,
        limit: int | None = None,
        timeout: float = 60.0,
        retries: int = 3,
        give_way: bool = False,
    ) -> None:
        self.env_name = env_name
        self.size = workers
        self._options: dict[str, Any] = {
            "limit": limit,
            "timeout": timeout,
            "allowed": retries,
            "give_way": give_way,
        }
        self._workers: dict[int, Worker] = {}
        self._retired = 0
        self._last = ""
        self._description: tuple[tuple[str, ...], int, int] | None = None

    @property
    def retries(self) -> int:
        """How many times a worker had to be replaced."""
        return self._retired + sum(worker.retries for worker in self._workers.values())

    @property
    def last_failure(self) -> str:
        """Why a worker was last replaced."""
        return next((worker.last_failure for worker in self._workers.values() if worker.last_failure), self._last)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers.values()]

    def worker(self, index: int) -> Worker:
        if index not in self._workers:
            self._workers[index] = Worker(self.env_name, **self._options)
        return self._workers[index]

    def describe(self) -> tuple[tuple[str, ...], int, int]:
        """(task names, episode limit, action size) of the environment."""
        description = self._description
        if description is None:
            self.worker(0).submit("describe")
            description = self._description = self.worker(0).result()
        assert description is not None
        return description

    def worlds(self, *, groups: int, slots: int) -> list["PoolWorld"]:
        """`groups` vector worlds of `slots` slots each, spread over all workers, for a new evaluation."""
        # All are started before the first is waited for.
        for worker in [self.worker(index) for index in range(min(self.size, slots))]:
            worker.forgive()
        return [PoolWorld(self, group=group, groups=groups, slots=slots) for group in range(groups)]

    def close(self) -> None:
        """End all workers. Also safe in the middle of anything."""
        while self._workers:
            _, worker = self._workers.popitem()
            worker.close()
            self._retired += worker.retries
            self._last = worker.last_failure or self._last


class PoolWorld:
    """One group of slots of a pool: slot k lives in worker k mod workers, so that every worker serves every group."""

    def __init__(self, pool: Pool, *, group: int, groups: int, slots: int) -> None:
        self.slots = slots
        self._workers = [pool.worker(index) for index in range(min(pool.size, slots))]
        self._place = [(k % pool.size, k // pool.size * groups + group) for k in range(slots)]
        self.task_names, self.max_episode_steps, self.action_dim = pool.describe()
        self._active = np.zeros(slots, bool)
        self._asked: dict[int, list[int]] = {}
        self._observations: np.ndarray | None = None
        self._goals: np.ndarray | None = None

    def send(self, actions: np.ndarray, start: Mapping[int, Episode]) -> None:
        """Begin one round: slots in `start` begin that episode, the others step if their episode is still running."""
        self._active[list(start)] = True
        self._asked = {}
        for k in np.flatnonzero(self._active).tolist():
            self._asked.setdefault(self._place[k][0], []).append(k)
        actions = np.asarray(actions, np.float32)
        for worker, asked in self._asked.items():
            begun = {self._place[k][1]: start[k] for k in asked if k in start}
            steps = actions[[k for k in asked if k not in start]]
            self._workers[worker].submit("round", [self._place[k][1] for k in asked], begun, steps)

    def receive(self) -> Step:
        """Finish the round begun by `send`. A slot whose episode is over keeps its last observation, and stays done."""
        success, done = np.zeros(self.slots, bool), ~self._active
        for worker, slots in self._asked.items():
            observations, goals, reached, finished = self._workers[worker].result()
            if self._observations is None or self._goals is None:
                shape = (self.slots, *observations.shape[1:])
                self._observations, self._goals = (np.zeros(shape, observations.dtype) for _ in range(2))
            self._observations[slots] = observations
            for k in slots if goals else ():
                if self._place[k][1] in goals:
                    self._goals[k] = goals[self._place[k][1]]
            success[slots], done[slots] = np.frombuffer(reached, bool), np.frombuffer(finished, bool)
        self._asked = {}
        self._active &= ~done
        if self._observations is None or self._goals is None:
            raise RuntimeError("receive before the first episode began")
        return Step(self._observations.copy(), self._goals.copy(), success, done)

    def close(self) -> None:
        """The pool owns the processes."""
