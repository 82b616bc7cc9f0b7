"""Use an exported policy with JAX, NumPy and safetensors alone; `cta export` puts this file beside the policy.

from load import load

policy = load("folder")
action = policy(observation, goal)
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from safetensors.numpy import load_file


class ExportedPolicy:
    """`policy(observation, goal)` → action in [-1,1]; single pairs or batches, NumPy in, NumPy out."""

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        self.about = json.loads((folder / "policy.json").read_text())
        weights = {name: jax.numpy.asarray(array) for name, array in load_file(folder / "policy.safetensors").items()}
        self._programs, self._weights = {}, {}
        for name, facts in self.about["functions"].items():
            program = export.deserialize(bytearray((folder / facts["file"]).read_bytes()))
            self._programs[name] = jax.jit(program.call)
            self._weights[name] = {key: weights[key] for key in facts["weights"]}
        self._memory: dict[int, list[Any]] = {}
        self._calls: dict[tuple[int, float], int] = {}

    def __call__(
        self, observation: Any, goal: Any, *, temperature: float = 0.0, first: bool = False, seed: int = 0
    ) -> np.ndarray:
        """`temperature` 0 is the mean action; `first` begins an episode (for policies that hold a subgoal)."""
        observations, goals, single = self._pairs(observation, goal)
        count = len(observations)
        shapes = self.about["functions"]["act"]["memory"]
        if first or count not in self._memory:
            self._memory[count] = [np.zeros([count, *facts["shape"][1:]], facts["dtype"]) for facts in shapes]
        call = self._calls.get((count, temperature), 0)
        self._calls[count, temperature] = call + 1
        noise = np.float32(temperature), np.uint32(seed), np.uint32(call)
        actions, *memory = self._run("act", observations, goals, *noise, *self._memory[count])
        self._memory[count] = memory
        return np.asarray(actions)[0] if single else np.asarray(actions)

    def ask(self, question: str, observation: Any, goal: Any) -> np.ndarray:
        """`value`, `dual_value`, `analogy` or `subgoal` of a pair, as far as the policy has them."""
        if question == "act" or question not in self._programs:
            known = ", ".join(sorted(set(self._programs) - {"act"})) or "nothing of the kind"
            raise ValueError(f"this policy has no {question}; it has {known}")
        observations, goals, single = self._pairs(observation, goal)
        (answers,) = self._run(question, observations, goals)
        return np.asarray(answers)[0] if single else np.asarray(answers)

    def _run(self, name: str, *inputs: Any) -> Any:
        return self._programs[name](self._weights[name], *inputs)

    def _pairs(self, observation: Any, goal: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        facts = self.about["observation"]
        pair = [np.asarray(values, facts["dtype"]) for values in (observation, goal)]
        shape = tuple(facts["shape"])
        if pair[0].shape != pair[1].shape or pair[0].shape[-len(shape) :] != shape:
            raise ValueError(f"observation and goal have shapes {pair[0].shape} and {pair[1].shape}, expected {shape}")
        single = pair[0].shape == shape
        return (pair[0][None], pair[1][None], True) if single else (pair[0], pair[1], False)


def load(folder: str | Path) -> ExportedPolicy:
    """The policy in a folder written by `cta export`."""
    return ExportedPolicy(folder)
