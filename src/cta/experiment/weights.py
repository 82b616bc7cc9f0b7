"""What can be scored, one seed at one step; and files of weights that can act and no more: what `agent.act` reads.

Everything needed to score them on another machine travels inside: dataset, agent, settings, shapes, facts of training.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
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
from cta.experiment.run_dir import cell_key, cut_of
from cta.io.json_files import TRAINING, check_data, check_shape, parse_json
from cta.ooc.components import find_layout
from cta.ooc.pairs import HeldOut, held_out_of, parse_held_out
from cta.scores.schema import PAIRS, CellKey
from cta.scores.store import DEFAULT
from cta.training.checkpoints import flatten
from cta.units import Units
from cta.validation import LARGEST

Precision = Literal["float32", "float16", "bfloat16"]
DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FORMAT = "cta-weights-1"
SUFFIX = ".safetensors"
WEIGHTS = "weights"  # the folder of a results folder whose files are to be scored into it; others are policies to keep
MOST_COLUMNS = 2**24
MOST_PAIRS = 1000
RULES = ("pair", "thresholds", "event_thresholds")  # what a record of a cut says of its pairs
SHAPE = {"format!": str, "dataset!": str, "agent!": str, "settings!": dict, "seed!": int, "steps!": [int]}
SHAPE |= {"observation_shape!": [int], "action_dim!": int, "precision!": str, "training!": TRAINING}
"""Of what a file says of itself."""


@dataclass(frozen=True)
class Candidate:
    """One seed at one step that can be scored. `home`: the results folder it is scored into."""

    key: CellKey
    agent: Agent
    seed: int
    step: int
    precision: str
    training: dict[str, Any]
    load: Callable[[], Networks]
    spec: Spec
    units: Units
    home: Path = DEFAULT

    @property
    def label(self) -> str:
        return f"{self.key.name}, seed {self.seed}, step {self.step:,}"

    def held_out(self, ask: str | None = None, pairs: str | Path | None = None) -> HeldOut | None:
        """The pairs (of a file `pairs`; by default those cut out of its data) that it is asked for; None: tasks."""
        cut = cut_of(self.training.get("data") or {})
        asked = ask == PAIRS or pairs is not None or (ask is None and cut is not None)
        return held_out_pairs(self.key.dataset, cut, pairs) if asked else None


def held_out_pairs(dataset: str, cut: dict[str, Any] | None, pairs: str | Path | None = None) -> HeldOut:
    """The pairs of a file, or those that were cut out, or those that come with the dataset's world."""
    layout = find_layout(dataset)
    if pairs is not None or cut is None:
        return held_out_of(layout, pairs)
    kept = {key: cut[key] for key in RULES if key in cut}
    found = parse_held_out(kept, layout=layout, where=f"the record of {dataset}")
    first = cut.get("first_pair", 1)
    if not 0 < first + len(found.pairs) <= MOST_PAIRS or first < 1:
        raise CtaError(f"the record of {dataset}: first_pair cannot be {first}")
    return HeldOut(layout, found.pairs, found.rule, first)


def network_shapes(agent: Agent, spec: Spec) -> Networks:
    return jax.eval_shape(lambda key: agent.init(key, spec), jax.random.key(0))


def arrays_read(function: Callable[..., Any], networks: Networks, *inputs: Any) -> set[str]:
    """Names of the arrays that `function(networks, *inputs)` reads, found by tracing it; all shapes are numbers."""
    traced, names = export.export(jax.jit(function), platforms=["cpu"])(networks, *inputs), list(flatten(networks))
    return {names[index] for index in traced.module_kept_var_idx if index < len(names)}


@cache
def read_by_act(agent: Agent, spec: Spec) -> set[str]:
    """Names of the arrays that `agent.act` reads at any temperature."""
    dtype, key = np.float32 if spec.image_shape is None else np.uint8, jax.random.key(0)
    pair = [jax.ShapeDtypeStruct((1, *spec.observation_shape), dtype)] * 2
    return arrays_read(lambda n, s, g: agent.act(n, s, g, key, 1.0)[0], network_shapes(agent, spec), *pair)


def pack(item: Candidate, precision: Precision = "float32") -> bytes:
    """The content of a file: the arrays that acting reads, in 16 bits rounded and half as large."""
    needed = read_by_act(item.agent, item.spec)
    tensors = {
        f"{item.step}/{name}": np.ascontiguousarray(np.asarray(leaf).astype(DTYPES[precision]))
        for name, leaf in flatten(item.load()).items()
        if name in needed
    }
    if not all(np.isfinite(tensor.astype(np.float32)).all() for tensor in tensors.values()):
        raise CtaError(f"{item.label}: a weight is not a finite {precision}")
    facts = {
        "format": FORMAT,
        "dataset": item.key.dataset,
        "agent": item.key.agent,
        "settings": to_dict(item.agent.config),
        "seed": item.seed,
        "steps": [item.step],
        "observation_shape": list(item.spec.observation_shape),
        "action_dim": item.spec.action_dim,
        "units": item.units.facts(),
        "precision": precision,
        "training": item.training,
    }
    return save(tensors, metadata={"cta": json.dumps(facts)})


def open_weights(path: Path) -> list[Candidate]:
    """What a file holds, step by step; the arrays are read when asked for."""
    facts = _facts(path)
    entry = find_stored(facts["agent"], path)
    config = from_dict(type(entry.config), facts["settings"], f"{path}: settings")
    try:
        config.check()
    except CtaError as error:
        raise CtaError(f"{path}: settings: {error}") from None
    training = {name: value for name, value in facts["training"].items() if name != "seeds"}
    check_data(training.get("data"), str(path))
    data = training.get("data") or {}
    key = cell_key(facts["dataset"], entry.name, config, data).check(str(path))
    spec = Spec.of(facts["observation_shape"], facts["action_dim"])
    unit = facts["dataset"] in KNOWN
    units = Units.of_facts(facts.get("units"), spec.observation_shape, spec.action_dim, unit=unit, where=str(path))
    folder = path.expanduser().absolute().parent
    home = folder.parent if folder.name == WEIGHTS else path.expanduser().absolute().with_suffix("")
    # Earlier versions kept what belongs to held-out pairs in a folder `ooc` of the results.
    if home.name == "ooc" and cut_of(data) is not None:
        home = home.parent
    agent, how = entry.build(config), (facts["precision"], training)
    return [
        Candidate(key, agent, facts["seed"], step, *how, partial(_networks, path, agent, spec, step), spec, units, home)
        for step in sorted(set(facts["steps"]))
    ]


def _networks(path: Path, agent: Agent, spec: Spec, step: int) -> Networks:
    """Networks in float32 in which everything that acting does not read is NaN: nobody may use it unawares."""
    structure, needed = network_shapes(agent, spec), read_by_act(agent, spec)
    with safe_open(path, framework="np") as file:
        stored = set(file.keys())
        leaves = []
        for name, leaf in flatten(structure).items():
            key = f"{step}/{name}"
            if key in stored:
                array, where = file.get_tensor(key), f"{path}: '{key}'"
                if array.shape != leaf.shape or array.dtype not in DTYPES.values():
                    found = f"has shape {array.shape} of {array.dtype}"
                    raise CtaError(f"{where} {found}, this agent's is {leaf.shape} of floats")
                if not np.isfinite(array := array.astype(np.float32)).all():
                    raise CtaError(f"{where} has values that are not finite: the file is damaged")
                leaves.append(array)
            elif name in needed:
                raise CtaError(f"{path}: '{key}' is missing; was the file written by another version?")
            else:
                leaves.append(np.broadcast_to(np.float32(np.nan), leaf.shape))
    return jax.tree.unflatten(jax.tree.structure(structure), leaves)


def _facts(path: Path) -> dict[str, Any]:
    """What a file says of itself, each fact of its kind."""
    if not path.is_file():  # a pipe or a device would be read without end
        raise CtaError(f"{path}: no such file")
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {})["cta"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CtaError(f"{path}: not a file of weights written by cta ({error})") from error
    facts = parse_json(text, str(path))
    if isinstance(agent := facts.get("agent"), str):
        find_stored(agent, path)  # the first thing to know, if it is a stranger's code
    check_shape(facts, SHAPE, str(path))
    if facts["format"] != FORMAT:
        raise CtaError(f"{path}: written in the format {facts['format']}, this version reads {FORMAT}")
    sizes = [*facts["observation_shape"], facts["action_dim"]]
    if len(sizes) not in (2, 4) or not all(0 < size < MOST_COLUMNS for size in sizes):
        raise CtaError(f"{path}: observation_shape and action_dim {sizes!r:.60} are no shapes of data")
    if not 0 <= facts["seed"] < 2**32 or not all(0 <= step <= LARGEST for step in facts["steps"]):
        raise CtaError(f"{path}: seed and steps are numbers from 0 on")
    if facts["precision"] not in DTYPES:
        raise CtaError(f"{path}: precision is one of {', '.join(DTYPES)}, not {facts['precision']!r:.40}")
    return facts
