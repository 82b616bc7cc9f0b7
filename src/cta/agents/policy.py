"""An agent with its weights: something that acts."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cta.agents.base import Agent, Networks, Spec
from cta.errors import CtaError
from cta.units import UNKNOWN, Units


class Policy:
    """Acts in a fixed number of episodes at once; NumPy in, NumPy out, always on the CPU.

    The CPU, because a simulator runs there and the accelerator is busy training: a policy call queued behind a block of
    updates would wait for all of them.
    """

    def __init__(
        self,
        agent: Agent,
        networks: Networks,
        units: Units = UNKNOWN,
        *,
        temperature: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
    ):
        self._units = units
        self._device = jax.devices("cpu")[0]
        self._networks = jax.device_put(networks, self._device)
        self._key = jax.device_put(jax.random.key(seed), self._device)
        self._memory: Any = None
        self._calls = 0
        self._act = _compiled(agent, temperature, noise)

    def __call__(self, observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Actions (slots, act) for observations and goals (slots, …); `first` marks slots that begin an episode."""
        see = self._units.see
        seen = (see(np.asarray(observations)), see(np.asarray(goals)), np.asarray(first))
        with jax.default_device(self._device):
            actions, self._memory = self._act(self._networks, *seen, self._key, np.uint32(self._calls), self._memory)
        self._calls += 1
        return self._units.act(np.asarray(actions))


def _clear(first: Any, memory: jax.Array) -> jax.Array:
    """Memory of zeros is what a fresh episode starts with."""
    return jnp.where(first.reshape(-1, *[1] * (memory.ndim - 1)), 0, memory)


@lru_cache(maxsize=64)
def _compiled(agent: Agent, temperature: float, noise: float) -> Any:
    """The jitted action function, one per (agent, temperature, noise): weights are arguments, so it compiles once."""

    def act(networks: Networks, observations: Any, goals: Any, first: Any, key: Any, call: Any, memory: Any) -> Any:
        memory = jax.tree.map(partial(_clear, first), memory)
        act_key, noise_key = jax.random.split(jax.random.fold_in(key, call))
        actions, memory = agent.act(networks, observations, goals, act_key, temperature, memory)
        if noise:
            actions = jnp.clip(actions + noise * jax.random.normal(noise_key, actions.shape), -1.0, 1.0)
        return actions, memory

    return jax.jit(act)


class GoalPolicy:
    """`policy(observation, goal)` → action; single observations (vectors, images) or batches, NumPy in, NumPy out.

    `value`, `dual_value`, `analogy` and `subgoal` answer about pairs in the same way, for agents that know them.
    Actions lie between the environment's `bounds`; where these are None, not known, in [-1,1].
    """

    def __init__(
        self,
        agent: Agent,
        networks: Networks,
        spec: Spec,
        units: Units = UNKNOWN,
        *,
        name: str = "",
        temperature: float = 0.0,
        seed: int = 0,
    ):
        self.agent = agent
        self.networks: Networks = jax.device_put(networks, jax.devices("cpu")[0])
        self.spec = spec
        self.units = units
        self.bounds = self.units.bounds
        self.name = name or type(agent).__name__
        self.temperature = temperature
        self._seed = seed
        self._policies: dict[tuple[int, float], Policy] = {}

    def __repr__(self) -> str:
        seen, count = self.spec.observation_shape, self.spec.action_dim
        scale = "in [-1, 1], their bounds are not known" if self.bounds is None else "between known bounds"
        return f"GoalPolicy({self.name}: observations {seen}, {count} actions {scale})"

    def __call__(
        self, observation: Any, goal: Any, *, temperature: float | None = None, first: bool = False
    ) -> np.ndarray:
        """Actions: (act,) for one pair, (batch, act) for a batch.

        `temperature` 0 is the mean action, 1 the policy's own spread; by default the policy's. `first=True` begins a
        new episode, which matters only to agents that hold a subgoal.
        """
        heat = self.temperature if temperature is None else float(temperature)
        if not 0 <= heat < float("inf"):
            raise CtaError(f"temperature must be a number from 0 on, not {heat}")
        observations, goals, single = self._pairs(observation, goal)
        slot = len(observations), heat
        if slot not in self._policies:
            self._policies[slot] = Policy(self.agent, self.networks, self.units, temperature=heat, seed=self._seed)
        actions = self._policies[slot](observations, goals, np.full(len(observations), first))
        return actions[0] if single else actions

    def value(self, observation: Any, goal: Any) -> np.ndarray:
        """V(s,g), higher is nearer: a number for one pair, (batch,) for a batch."""
        return self._answer("value", observation, goal)

    def dual_value(self, observation: Any, goal: Any) -> np.ndarray:
        """φ(s)ᵀψ(g) of the dual representation, shaped like `value`."""
        return self._answer("dual_value", observation, goal)

    def analogy(self, observation: Any, goal: Any) -> np.ndarray:
        """What has to change, α(s,g): (dim,) for one pair, (batch, dim) for a batch."""
        return self._answer("analogy", observation, goal)

    def subgoal(self, observation: Any, goal: Any) -> np.ndarray:
        """The code of the next subgoal, the mean of the high policy, shaped like `analogy`."""
        return self._answer("subgoal", observation, goal)

    def _answer(self, question: str, observation: Any, goal: Any) -> np.ndarray:
        observations, goals, single = self._pairs(observation, goal)
        device = jax.devices("cpu")[0]
        try:
            with jax.default_device(device):
                pair = self.units.see(observations), self.units.see(goals)
                answers = np.asarray(answer(self.agent, question)(self.networks, *pair))
        except NotImplementedError as error:
            raise CtaError(f"no {question} from this policy: the agent '{self.name}' {error}") from None
        return answers[0] if single else answers

    def _pairs(self, observation: Any, goal: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        """Both as batches of one length, and whether they were single."""
        observations, goals = self._plain("observation", observation), self._plain("goal", goal)
        if observations.shape != goals.shape:
            raise CtaError(f"observation {observations.shape} and goal {goals.shape} must have the same shape")
        single = observations.shape == self.spec.observation_shape
        return (observations[None], goals[None], True) if single else (observations, goals, False)

    def _plain(self, what: str, values: Any) -> np.ndarray:
        """Images stay uint8, all else becomes float32."""
        shape, kind = self.spec.observation_shape, "uint8 images" if self.spec.image_shape else "real numbers"
        try:
            array = np.asarray(values)
        except ValueError:
            raise CtaError(f"{what} is not a rectangular array") from None
        if array.dtype.kind not in "iufb" or (self.spec.image_shape and array.dtype != np.uint8):
            raise CtaError(f"{what} has dtype {array.dtype}; this policy takes {kind}")
        if array.shape != shape and (array.shape[1:] != shape or not len(array)):
            raise CtaError(f"{what} has shape {array.shape}; this policy takes {shape}, or a batch of them")
        if self.spec.image_shape:
            return array
        with np.errstate(over="ignore"):  # what overflows is reported below
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise CtaError(f"{what} holds a value that is not a finite number")
        return array


QUESTIONS = ("value", "dual_value", "analogy", "subgoal")
"""What can be asked about a pair beside the action; no agent knows all of them by duty."""


@lru_cache(maxsize=64)
def answer(agent: Agent, question: str) -> Any:
    """`value`, `dual_value`, `analogy` or `subgoal` of an agent as a compiled function of (networks, s, g)."""
    if question == "subgoal":
        return jax.jit(lambda networks, s, g: agent.subgoal(networks, s, g, jax.random.key(0), 0.0))
    return jax.jit(getattr(agent, question))
