"""An agent with its weights: something that acts."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cta.agents.base import Agent, Networks
from cta.errors import CtaError


class Policy:
    """Acts in a fixed number of episodes at once; NumPy in, NumPy out, always on the CPU.

    The CPU, because a simulator runs there and the accelerator is busy training: a policy call queued behind a block of
    updates would wait for all of them.
    """

    def __init__(
        self, agent: Agent, networks: Networks, *, temperature: float = 0.0, noise: float = 0.0, seed: int = 0
    ):
        self._device = jax.devices("cpu")[0]
        self._networks = jax.device_put(networks, self._device)
        self._key = jax.device_put(jax.random.key(seed), self._device)
        self._memory: Any = None
        self._calls = 0
        self._act = _compiled(agent, temperature, noise)

    def __call__(self, observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Actions (slots, act) for observations and goals (slots, …); `first` marks slots that begin an episode."""
        with jax.default_device(self._device):
            if self._memory is not None:
                self._memory = jax.tree.map(partial(_clear, np.asarray(first)), self._memory)
            key = jax.random.fold_in(self._key, self._calls)
            actions, self._memory = self._act(self._networks, observations, goals, key, self._memory)
        self._calls += 1
        return np.asarray(actions)


def _clear(first: np.ndarray, memory: jax.Array) -> jax.Array:
    """Memory of zeros is what a fresh episode starts with."""
    return jnp.where(first.reshape(-1, *[1] * (memory.ndim - 1)), 0, memory)


_CACHE: dict[tuple[Agent, float, float], Any] = {}


def _compiled(agent: Agent, temperature: float, noise: float) -> Any:
    """The jitted action function, one per (agent, temperature, noise): weights are arguments, so it compiles once."""
    if (agent, temperature, noise) not in _CACHE:

        def act(networks: Networks, observations: Any, goals: Any, key: Any, memory: Any) -> Any:
            act_key, noise_key = jax.random.split(key)
            actions, memory = agent.act(networks, observations, goals, act_key, temperature, memory)
            if noise:
                actions = jnp.clip(actions + noise * jax.random.normal(noise_key, actions.shape), -1.0, 1.0)
            return actions, memory

        _CACHE[agent, temperature, noise] = jax.jit(act)
    return _CACHE[agent, temperature, noise]


class GoalPolicy:
    """`policy(observation, goal)` → action; single observations (vectors, images) or batches, NumPy in, NumPy out."""

    def __init__(self, agent: Agent, networks: Networks, *, temperature: float = 0.0, seed: int = 0):
        self._make = partial(Policy, agent, networks, temperature=temperature, seed=seed)
        self._policies: dict[int, Policy] = {}

    def __call__(self, observation: np.ndarray, goal: np.ndarray, *, first: bool = False) -> np.ndarray:
        """Actions in [-1,1]. `first=True` begins a new episode (it matters only to agents that hold a subgoal)."""
        observations, goals = (_plain(np.asarray(x)) for x in (observation, goal))
        if observations.shape != goals.shape or observations.ndim not in (1, 2, 3, 4):
            raise CtaError(f"observation {observations.shape} and goal {goals.shape} must have the same shape")
        single = observations.ndim in (1, 3)
        if single:
            observations, goals = observations[None], goals[None]
        count = len(observations)
        policy = self._policies.setdefault(count, self._make())
        actions = policy(observations, goals, np.full(count, first))
        return actions[0] if single else actions


def _plain(values: np.ndarray) -> np.ndarray:
    """Images stay uint8, all else becomes float32."""
    return values if values.dtype == np.uint8 else values.astype(np.float32)
