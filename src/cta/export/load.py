"""Use an exported policy with JAX, NumPy and safetensors alone; `cta export` puts this file beside the policy.

from load import load

policy = load("folder")
action = policy(observation, goal)
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from jax import export

FORMAT = "cta-policy-1"


def _describe(folder: Path) -> dict[str, Any]:
    """What policy.json says, as far as it is needed here, each fact of its kind."""
    where = folder / "policy.json"
    try:
        about = json.loads(where.read_text("utf-8"))
        _need(about["format"] == FORMAT, f"its format is not {FORMAT}")
        shape, dtype = about["observation"]["shape"], about["observation"]["dtype"]
        _need(dtype in ("float32", "uint8"), "an observation of another dtype")
        _need(len(shape) in (1, 3) and _are_sizes(shape), "observations of no shape")
        for end in (about["action"].get(end) or [] for end in ("low", "high")):
            _need(all(type(value) in (int, float) for value in end), "bounds of actions that are no numbers")
        for facts in (about["weights"], *about["functions"].values()):
            named = isinstance(facts["file"], str) and isinstance(facts["sha256"], str)
            _need(named, "a file without a name or checksum")
        for facts in about["functions"].values():
            _need(all(isinstance(name, str) for name in facts["weights"]), "weights without names")
        for facts in about["functions"]["act"]["memory"]:
            _need(_are_sizes(facts["shape"][1:]), "memory of no shape")
            _need(facts["dtype"] in ("float32", "int32", "uint32", "bool"), "memory of another dtype")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{where}: not the description of a policy ({type(error).__name__}: {error})") from None
    return about


def _need(good: bool, complaint: str) -> None:
    if not good:
        raise ValueError(complaint)


def _are_sizes(shape: Any) -> bool:
    return all(type(size) is int and 0 < size < 2**24 for size in shape)


def _read(folder: Path, facts: dict[str, Any]) -> bytes:
    """A file of the folder, which must be the one that policy.json describes."""
    if "\0" in facts["file"] or (path := (folder / facts["file"]).resolve()).parent != folder.resolve():
        raise ValueError(f"{folder}/policy.json names {facts['file']!r}, which is not in the folder")
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise ValueError(f"{path}: damaged: it is not the file that policy.json describes")
    return content


class ExportedPolicy:
    """`policy(observation, goal)` → action; single pairs or batches, NumPy in, NumPy out.

    `bounds` are (lowest, highest) of the environment's actions; where they are not known, None, actions are in [-1,1].
    """

    def __init__(self, folder: str | Path, *, quiet: bool = False):
        folder = Path(folder)
        self.about = _describe(folder)
        ends = [self.about["action"].get(end) for end in ("low", "high")]
        self.bounds = None if None in ends else tuple(np.asarray(end, np.float32) for end in ends)
        if self.bounds is None and not quiet:
            told = "does not state the bounds of the environment's actions: these actions are in [-1, 1]"
            print(f"notice: {folder}/policy.json {told}", file=sys.stderr)
        try:
            stored = safetensors.numpy.load(_read(folder, self.about["weights"]))
        except safetensors.SafetensorError as error:
            raise ValueError(f"{folder}: the weights cannot be read ({error})") from None
        weights = {name: jax.numpy.asarray(array) for name, array in stored.items()}
        self._programs, self._weights = {}, {}
        for name, facts in self.about["functions"].items():
            if missing := set(facts["weights"]) - set(weights):
                raise ValueError(f"{folder}: the weights have no {min(missing)!r}, which {name} needs")
            content = _read(folder, facts)
            try:
                program = export.deserialize(bytearray(content))
            except Exception as error:  # of almost any kind
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(f"{folder}/{facts['file']}: not a program ({reason})") from None
            self._weights[name] = {key: weights[key] for key in facts["weights"]}
            self._programs[name] = jax.jit(program.call)
            self._check(name, program)
        self._memory: dict[int, list[Any]] = {}
        self._calls: dict[tuple[int, float], int] = {}

    def _check(self, name: str, program: Any) -> None:
        """The program takes these weights and such observations."""
        pair = jax.ShapeDtypeStruct((1, *self.about["observation"]["shape"]), self.about["observation"]["dtype"])
        scalars = [jax.ShapeDtypeStruct((), kind) for kind in ("float32", "uint32", "uint32")] if name == "act" else []
        shapes = self.about["functions"][name].get("memory", ())
        held = [jax.ShapeDtypeStruct((1, *facts["shape"][1:]), facts["dtype"]) for facts in shapes]
        try:
            jax.eval_shape(program.call, self._weights[name], pair, pair, *scalars, *held)
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"policy.json does not describe the program of {name} ({reason})") from None

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
        inputs = self._weights["act"], observations, goals, *noise, *self._memory[count]
        actions, *self._memory[count] = self._programs["act"](*inputs)
        return np.asarray(actions)[0] if single else np.asarray(actions)

    def ask(self, question: str, observation: Any, goal: Any) -> np.ndarray:
        """`value`, `dual_value`, `analogy` or `subgoal` of a pair, as far as the policy has them."""
        if question == "act" or question not in self._programs:
            known = ", ".join(sorted(set(self._programs) - {"act"})) or "nothing of the kind"
            raise ValueError(f"this policy has no {question}; it has {known}")
        observations, goals, single = self._pairs(observation, goal)
        (answers,) = self._programs[question](self._weights[question], observations, goals)
        return np.asarray(answers)[0] if single else np.asarray(answers)

    def _pairs(self, observation: Any, goal: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        facts = self.about["observation"]
        pair = [np.asarray(values, facts["dtype"]) for values in (observation, goal)]
        shape = tuple(facts["shape"])
        if pair[0].shape != pair[1].shape or pair[0].shape[-len(shape) :] != shape:
            raise ValueError(f"observation and goal have shapes {pair[0].shape} and {pair[1].shape}, expected {shape}")
        single = pair[0].shape == shape
        return (pair[0][None], pair[1][None], True) if single else (pair[0], pair[1], False)


def load(folder: str | Path, *, quiet: bool = False) -> ExportedPolicy:
    """The policy in a folder written by `cta export`; `quiet` about bounds of actions that are not known."""
    return ExportedPolicy(folder, quiet=quiet)
