"""Weights that can act and no more: what `agent.act` reads, of one seed at some steps, in one safetensors file.

Everything needed to use them travels inside: dataset, agent, its settings, shapes of the data, and the facts of the
training that the record of the results will hold. A file can be scored on any machine with the simulator.
"""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import ml_dtypes
import numpy as np
from jax import export
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cta.agents import Agent, Networks, Spec, find
from cta.config import from_dict, to_dict
from cta.errors import CtaError
from cta.training.checkpoints import flatten

Precision = Literal["float32", "float16", "bfloat16"]
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FORMAT = "cta-weights-1"


@dataclass(frozen=True)
class Weights:
    """One seed's policy at some steps, as read from a file."""

    path: Path
    dataset: str
    agent_name: str
    agent: Agent
    seed: int
    steps: tuple[int, ...]
    precision: str
    training: dict[str, Any]
    spec: Spec

    def networks(self, step: int) -> Networks:
        """Networks in float32 in which everything that acting does not read is zero."""
        structure = network_shapes(self.agent, self.spec)
        needed = read_by_act(self.agent, self.spec)
        with safe_open(self.path, framework="np") as file:
            stored = set(file.keys())
            leaves = []
            for name, leaf in flatten(structure).items():
                key = f"{step}/{name}"
                if name in needed and key not in stored:
                    raise CtaError(f"{self.path}: '{key}' is missing; was the file written by another version?")
                array = file.get_tensor(key) if key in stored else np.zeros(1, np.float32)
                leaves.append(_fitted(array, leaf.shape, f"{self.path}: '{key}'", stored=key in stored))
        return jax.tree.unflatten(jax.tree.structure(structure), leaves)


def _fitted(array: np.ndarray, shape: tuple[int, ...], where: str, *, stored: bool) -> np.ndarray:
    if not stored:
        return np.broadcast_to(np.float32(0), shape)
    if array.shape != shape:
        raise CtaError(f"{where} has shape {array.shape}, this agent's is {shape}")
    return array.astype(np.float32)


def network_shapes(agent: Agent, spec: Spec) -> Networks:
    """The agent's networks as shapes."""
    return jax.eval_shape(lambda key: agent.init(key, spec), jax.random.key(0))


def read_by_act(agent: Agent, spec: Spec) -> set[str]:
    """Names of the arrays that `agent.act` reads at any temperature, found by tracing it."""
    shapes = network_shapes(agent, spec)
    dtype = np.float32 if spec.image_shape is None else np.uint8
    observations = jax.ShapeDtypeStruct((1, *spec.observation_shape), dtype)

    def act(networks: Networks, observations: Any, goals: Any) -> Any:
        return agent.act(networks, observations, goals, jax.random.key(0), 1.0)[0]

    traced = export.export(jax.jit(act), platforms=["cpu"])(shapes, observations, observations)
    names = list(flatten(shapes))
    return {names[index] for index in traced.module_kept_var_idx if index < len(names)}


def pack(
    networks: Mapping[int, Networks],
    *,
    dataset: str,
    agent_name: str,
    agent: Agent,
    seed: int,
    spec: Spec,
    training: Mapping[str, Any],
    needed: Set[str],
    precision: Precision = "float32",
) -> bytes:
    """The file's content for `networks` by step: the arrays `needed`, in 16 bits rounded and half as large."""
    dtype = DTYPES[precision]
    tensors = {
        f"{step}/{name}": np.ascontiguousarray(np.asarray(leaf).astype(dtype))
        for step, tree in networks.items()
        for name, leaf in flatten(tree).items()
        if name in needed
    }
    if not all(np.isfinite(tensor.astype(np.float32)).all() for tensor in tensors.values()):
        raise CtaError(f"{agent_name} on {dataset}, seed {seed}: a weight is not a finite {precision}")
    facts = {
        "format": FORMAT,
        "dataset": dataset,
        "agent": agent_name,
        "settings": to_dict(agent.config),
        "seed": seed,
        "steps": sorted(networks),
        "observation_shape": list(spec.observation_shape),
        "action_dim": spec.action_dim,
        "precision": precision,
        "training": dict(training),
    }
    return save(tensors, metadata={"cta": json.dumps(facts)})


def open_weights(path: str | Path) -> Weights:
    """What a file holds; the arrays are read when asked for."""
    path = Path(path)
    try:
        with safe_open(path, framework="np") as file:
            facts = json.loads((file.metadata() or {})["cta"])
        if facts["format"] != FORMAT:
            raise CtaError(f"{path}: written in the format {facts['format']}, this version reads {FORMAT}")
        _check_code(facts["agent"], path)
        entry = find(facts["agent"])
        config = from_dict(type(entry.config), facts["settings"], f"{path}: settings")
        return Weights(
            path,
            facts["dataset"],
            entry.name,
            entry.build(config),
            int(facts["seed"]),
            tuple(int(step) for step in facts["steps"]),
            facts["precision"],
            facts["training"],
            Spec.of(facts["observation_shape"], facts["action_dim"]),
        )
    except FileNotFoundError:
        raise CtaError(f"{path}: no such file") from None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CtaError(f"{path}: not a file of weights written by `cta reproduce` ({error})") from error


def _check_code(agent_name: str, path: Path) -> None:
    """As of runs (`RunDir.config`): files from a stranger must not bring the code that opens them."""
    folder = path.resolve().parent
    home = folder.parent if folder.name == "weights" else folder
    if ":" in agent_name and Path.cwd().resolve().is_relative_to(home):
        why = "is code, which is not looked for beside weights; go to another folder"
        raise CtaError(f"{path}: agent {agent_name} {why}")
