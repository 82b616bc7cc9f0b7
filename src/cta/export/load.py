"""Use an exported policy without the package that made it; `cta export` puts this file beside the policy.

from load import load

policy = load("folder")
action = policy(observation, goal)

It needs numpy, and jax, flatbuffers and safetensors for programs in StableHLO, onnxruntime for those in ONNX.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "cta-policy-1"
ONNX_TYPES = {"float32": "float", "uint8": "uint8", "uint32": "uint32", "int32": "int32", "bool": "bool"}


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
        _need(about.setdefault("programs", "stablehlo") in PROGRAMS, "programs of another kind")
        stored = [] if about["programs"] == "onnx" else [about["weights"]]
        for facts in (*stored, *about["functions"].values()):
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


def _inputs(name: str, about: dict[str, Any]) -> list[tuple[str, list[int], str]]:
    """What a program takes, by name, shape for a batch of one, and dtype."""
    pair = [1, *about["observation"]["shape"]], about["observation"]["dtype"]
    taken = [("observations", *pair), ("goals", *pair)]
    if name == "act":
        taken += [("temperature", [], "float32"), ("seed", [], "uint32"), ("call", [], "uint32")]
    held = about["functions"][name].get("memory", ())
    return taken + [(f"memory{i}", [1, *facts["shape"][1:]], facts["dtype"]) for i, facts in enumerate(held)]


def _wrong(name: str, reason: Any) -> ValueError:
    return ValueError(f"policy.json does not describe the program of {name} ({' '.join(str(reason).split())[:200]})")


def _stablehlo(folder: Path, about: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The programs by name, each with its weights, which fit it."""
    import jax
    import safetensors.numpy
    from jax import export

    try:
        stored = safetensors.numpy.load(_read(folder, about["weights"]))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{folder}: the weights cannot be read ({error})") from None
    weights = {name: jax.numpy.asarray(array) for name, array in stored.items()}
    programs = {}
    for name, facts in about["functions"].items():
        if missing := set(facts["weights"]) - set(weights):
            raise ValueError(f"{folder}: the weights have no {min(missing)!r}, which {name} needs")
        content = _read(folder, facts)
        try:
            program = export.deserialize(bytearray(content))
        except Exception as error:  # of almost any kind
            raise ValueError(f"{folder}/{facts['file']}: not a program ({type(error).__name__}: {error})") from None
        read = {key: weights[key] for key in facts["weights"]}
        try:
            shapes = [jax.ShapeDtypeStruct(shape, dtype) for _, shape, dtype in _inputs(name, about)]
            jax.eval_shape(program.call, read, *shapes)
        except (TypeError, ValueError) as error:
            raise _wrong(name, error) from None
        programs[name] = partial(jax.jit(program.call), read)
    return programs


def _onnx(folder: Path, about: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The programs by name. A model that wants files beside itself, or operators of others, is not loaded."""
    try:
        import onnxruntime
    except ImportError:
        raise ValueError(f"{folder}: its programs are ONNX models, which need: pip install onnxruntime") from None
    options, programs = onnxruntime.SessionOptions(), {}
    options.log_severity_level = 4  # what it would say on its own, it also raises
    for name, facts in about["functions"].items():
        content, expected = _read(folder, facts), _inputs(name, about)
        try:
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of many kinds
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{folder}/{facts['file']}: not a program ({reason})") from None
        found = [(one.name, one.type, len(one.shape), one.shape[1:]) for one in session.get_inputs()]
        if found != [(key, f"tensor({ONNX_TYPES[dtype]})", len(shape), shape[1:]) for key, shape, dtype in expected]:
            raise _wrong(name, f"it takes {found}")
        programs[name] = partial(_run, session, [key for key, _, _ in expected])
    return programs


def _run(session: Any, names: list[str], *values: Any) -> list[Any]:
    return session.run(None, dict(zip(names, map(np.asarray, values), strict=True)))


PROGRAMS = {"stablehlo": _stablehlo, "onnx": _onnx}


class ExportedPolicy:
    """The policy in a folder written by `cta export`: `policy(observation, goal)` → action; single pairs or batches.

    `bounds` are (lowest, highest) of the environment's actions; where they are not known, None, actions are in [-1,1],
    which it says unless it is to be `quiet`.
    """

    def __init__(self, folder: str | Path, *, quiet: bool = False):
        folder = Path(folder)
        self.about = _describe(folder)
        ends = [self.about["action"].get(end) for end in ("low", "high")]
        self.bounds = None if None in ends else tuple(np.asarray(end, np.float32) for end in ends)
        if self.bounds is None and not quiet:
            told = "does not state the bounds of the environment's actions: these actions are in [-1, 1]"
            print(f"notice: {folder}/policy.json {told}", file=sys.stderr)
        self._programs = PROGRAMS[self.about["programs"]](folder, self.about)
        self._memory: dict[int, list[Any]] = {}
        self._calls: dict[tuple[int, float], int] = {}

    def __call__(
        self, observation: Any, goal: Any, *, temperature: float = 0.0, first: bool = False, seed: int = 0
    ) -> np.ndarray:
        """`temperature` 0 is the mean action; `first` begins an episode (for policies that hold a subgoal)."""
        observations, goals, single = self._pairs(observation, goal)
        count = len(observations)
        if first or count not in self._memory:
            held = self.about["functions"]["act"]["memory"]
            self._memory[count] = [np.zeros([count, *facts["shape"][1:]], facts["dtype"]) for facts in held]
        call = self._calls.get((count, temperature), 0)
        self._calls[count, temperature] = call + 1
        noise = np.float32(temperature), np.uint32(seed), np.uint32(call)
        actions, *self._memory[count] = self._programs["act"](observations, goals, *noise, *self._memory[count])
        return np.asarray(actions)[0] if single else np.asarray(actions)

    def ask(self, question: str, observation: Any, goal: Any) -> np.ndarray:
        """`value`, `dual_value`, `analogy` or `subgoal` of a pair, as far as the policy has them."""
        if question == "act" or question not in self._programs:
            known = ", ".join(sorted(set(self._programs) - {"act"})) or "nothing of the kind"
            raise ValueError(f"this policy has no {question}; it has {known}")
        observations, goals, single = self._pairs(observation, goal)
        (answers,) = self._programs[question](observations, goals)
        return np.asarray(answers)[0] if single else np.asarray(answers)

    def _pairs(self, observation: Any, goal: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        facts = self.about["observation"]
        seen, wanted = (np.asarray(values, facts["dtype"]) for values in (observation, goal))
        shape = tuple(facts["shape"])
        if seen.shape != wanted.shape or seen.shape[-len(shape) :] != shape:
            raise ValueError(f"observation and goal have shapes {seen.shape} and {wanted.shape}, expected {shape}")
        return (seen[None], wanted[None], True) if seen.shape == shape else (seen, wanted, False)


load = ExportedPolicy
