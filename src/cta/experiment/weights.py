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

from cta.agents import Agent, Networks, Spec, find_stored
from cta.config import from_dict, to_dict
from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.io.json_files import check_shape, parse_json
from cta.io.shapes import TRAINING, check_data
from cta.training.checkpoints import flatten
from cta.units import Units
from cta.validation import LARGEST

Precision = Literal["float32", "float16", "bfloat16"]
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FORMAT = "cta-weights-1"
MOST_COLUMNS = 2**24
SHAPE = {"format!": str, "dataset!": str, "agent!": str, "settings!": dict, "seed!": int, "steps!": [int]}
SHAPE |= {"observation_shape!": [int], "action_dim!": int, "precision!": str, "training!": TRAINING}
"""Of what a file says of itself."""


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
    units: Units

    def networks(self, step: int) -> Networks:
        """Networks in float32 in which everything that acting does not read is zero."""
        structure = network_shapes(self.agent, self.spec)
        needed = read_by_act(self.agent, self.spec)
        with safe_open(self.path, framework="np") as file:
            stored = set(file.keys())
            leaves = []
            for name, leaf in flatten(structure).items():
                key = f"{step}/{name}"
                if key in stored:
                    leaves.append(_fitted(file.get_tensor(key), leaf.shape, f"{self.path}: '{key}'"))
                elif name in needed:
                    raise CtaError(f"{self.path}: '{key}' is missing; was the file written by another version?")
                else:
                    leaves.append(np.broadcast_to(np.float32(0), leaf.shape))
        return jax.tree.unflatten(jax.tree.structure(structure), leaves)


def _fitted(array: np.ndarray, shape: tuple[int, ...], where: str) -> np.ndarray:
    if array.shape != shape or array.dtype not in DTYPES.values():
        raise CtaError(f"{where} has shape {array.shape} of {array.dtype}, this agent's is {shape} of floats")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise CtaError(f"{where} has values that are not finite: the file is damaged")
    return array


def network_shapes(agent: Agent, spec: Spec) -> Networks:
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
    units: Units,
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
        "units": units.facts(),
        "precision": precision,
        "training": dict(training),
    }
    return save(tensors, metadata={"cta": json.dumps(facts)})


def open_weights(path: str | Path) -> Weights:
    """What a file holds; the arrays are read when asked for."""
    path = Path(path)
    facts = _facts(path)
    if facts["format"] != FORMAT:
        raise CtaError(f"{path}: written in the format {facts['format']}, this version reads {FORMAT}")
    entry = find_stored(facts["agent"], path)
    config = from_dict(type(entry.config), facts["settings"], f"{path}: settings")
    try:
        config.check()
    except CtaError as error:
        raise CtaError(f"{path}: settings: {error}") from None
    shape, sizes = facts["observation_shape"], [*facts["observation_shape"], facts["action_dim"]]
    if len(shape) not in (1, 3) or not all(0 < size < MOST_COLUMNS for size in sizes):
        raise CtaError(f"{path}: observation_shape and action_dim {sizes!r:.60} are no shapes of data")
    if not 0 <= facts["seed"] < 2**32 or not all(0 <= step <= LARGEST for step in facts["steps"]):
        raise CtaError(f"{path}: seed and steps are numbers from 0 on")
    if facts["precision"] not in DTYPES:
        raise CtaError(f"{path}: precision is one of {', '.join(DTYPES)}, not {facts['precision']!r:.40}")
    training = {name: value for name, value in facts["training"].items() if name != "seeds"}
    check_data(training.get("data"), str(path))
    steps, spec = tuple(sorted(set(facts["steps"]))), Spec.of(shape, facts["action_dim"])
    unit = facts["dataset"] in KNOWN
    units = Units.of_facts(facts.get("units"), shape, spec.action_dim, unit=unit, where=str(path))
    built, seed = entry.build(config), facts["seed"]
    return Weights(path, facts["dataset"], entry.name, built, seed, steps, facts["precision"], training, spec, units)


def _facts(path: Path) -> dict[str, Any]:
    """What a file says of itself, each fact of its kind."""
    if not path.is_file():  # a pipe or a device would be read without end
        raise CtaError(f"{path}: no such file")
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {})["cta"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CtaError(f"{path}: not a file of weights written by `cta reproduce` ({error})") from error
    facts = parse_json(text, str(path))
    if isinstance(agent := facts.get("agent"), str):
        find_stored(agent, path)  # the first thing to know, if it is a stranger's code
    check_shape(facts, SHAPE, str(path))
    return facts
