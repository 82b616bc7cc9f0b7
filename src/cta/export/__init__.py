"""A policy on its own: weights, programs and a description, usable without this package.

The folder holds a program for each thing the policy can do (`act`, and `value`, `dual_value`, `analogy`, `subgoal`
where the agent has them; any batch size), `policy.json` (inputs, outputs, provenance) and `load.py`, a short loader.
Programs are StableHLO for CPU and CUDA, with the weights in `policy.safetensors`, or ONNX models that hold them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from cta.agents import Networks
from cta.agents.policy import QUESTIONS, GoalPolicy, answer
from cta.config import to_dict
from cta.errors import CtaError, need_extra
from cta.experiment import Run, RunPolicy
from cta.experiment.weights import arrays_read
from cta.export import load as loader
from cta.io import provenance
from cta.io.files import user_path, write_errors, write_whole
from cta.io.json_files import write_json
from cta.training.checkpoints import flatten, unflatten

PLATFORMS = ("cpu", "cuda")
TOLERANCE = 1e-4
"""Difference between an exported action in [-1,1] and the original one that counts as rounding, in float32. One in a
hundred may differ a hundred times as much: an agent that scales the difference of two nearly equal codes to a fixed
length scales its rounding, too, and ONNX's convolutions round otherwise than JAX's."""
CHECKED = 4, 250  # batches, and pairs in each, on which an export is compared with the run
Format = Literal["stablehlo", "onnx"]


def export_policy(
    run: str | Path | Run,
    out: str | Path,
    *,
    format: Format = "stablehlo",
    seed: int | None = None,
    step: int | None = None,
) -> Path:
    """The policy of a run's seed (default: the first not diverged) at a checkpoint (default: the newest), checked."""
    run = run if isinstance(run, Run) else Run(run)
    out = user_path(out)
    if out.exists():
        raise CtaError(f"{out} exists already: give --out a new folder")
    if format == "onnx":
        need_extra("onnx", "onnx", "--format onnx")
    policy = run.policy(seed=seed, step=step)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with write_errors(out):
            fresh.parent.mkdir(parents=True, exist_ok=True)
            _write(policy, fresh, run, format)
            _check(policy, fresh, format)
            os.replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out


def _write(policy: RunPolicy, folder: Path, run: Run, format: Format) -> None:
    def stored(file: str, content: bytes, **facts: Any) -> dict[str, Any]:
        write_whole(folder / file, content)
        return {"file": file, "sha256": hashlib.sha256(content).hexdigest(), **facts}

    programs = {name: _program(policy.networks, format, *parts) for name, parts in _functions(policy).items()}
    functions = {name: stored(f"{name}.{format}", **program) for name, program in programs.items()}
    functions["act"]["memory"] = functions["act"]["outputs"][1:]
    arrays = flatten(policy.networks)
    needed = sorted({name for program in programs.values() for name in program["weights"]})
    held: dict[str, Any] = {"parameters": sum(arrays[name].size for name in needed)}
    if format == "stablehlo":
        content = save({name: np.asarray(arrays[name], order="C") for name in needed})
        held = {"platforms": list(PLATFORMS), "weights": stored("policy.safetensors", content, **held)}
    low, high = (None, None) if policy.bounds is None else map(np.ndarray.tolist, policy.bounds)
    observed = {"shape": list(policy.spec.observation_shape), "dtype": str(_dtype(policy))}
    about = {
        "format": loader.FORMAT,
        "programs": format,
        "observation": observed,
        "goal": {**observed, "meaning": "an observation of the state to reach"},
        "action": {"shape": [policy.spec.action_dim], "dtype": "float32", "low": low, "high": high},
        "batch": "a leading axis of any size, called b below",
        **held,
        "functions": functions,
        "provenance": {
            "run": run.path.name,
            "agent": run.config.agent_name,
            "dataset": run.config.dataset_name,
            "seed": policy.seed,
            "step": policy.step,
            "exported_with": provenance.versions(),
            "training": run.files.provenance(),
            "config": to_dict(run.config),
        },
    }
    write_json(folder / "policy.json", about)
    write_whole(folder / "load.py", Path(str(loader.__file__)).read_bytes())


def _functions(policy: GoalPolicy) -> dict[str, tuple[Callable[..., tuple], dict[str, Any], str]]:
    """`act` and what the agent can answer: functions of (networks, *inputs), shapes of inputs, name of first output."""
    agent, see = policy.agent, policy.units.see
    (batch,) = jax.export.symbolic_shape("b")
    pair = jax.ShapeDtypeStruct((batch, *policy.spec.observation_shape), _dtype(policy))
    scalars = [jax.ShapeDtypeStruct((), kind) for kind in (jnp.float32, jnp.uint32, jnp.uint32)]

    key = jax.random.key(0)
    first = jax.eval_shape(lambda n, s, g: agent.act(n, s, g, key, 0.0)[1], policy.networks, pair, pair)
    cells, shape_of_memory = jax.tree.flatten(first)

    def act(networks: Networks, observations: Any, goals: Any, temperature: Any, seed: Any, call: Any, *held: Any):
        # The same stream as GoalPolicy's.
        key, _ = jax.random.split(jax.random.fold_in(jax.random.key(seed), call))
        before = jax.tree.unflatten(shape_of_memory, held) if held else None
        actions, after = agent.act(networks, see(observations), see(goals), key, temperature, before)
        return (policy.units.act(actions), *jax.tree.leaves(after))

    names = ["observations", "goals", "temperature", "seed", "call", *(f"memory{i}" for i in range(len(cells)))]
    found: dict[str, Any] = {"act": (act, dict(zip(names, [pair, pair, *scalars, *cells], strict=True)), "actions")}
    for question in QUESTIONS:
        function = answer(agent, question)
        try:
            jax.eval_shape(function, policy.networks, pair, pair)
        except NotImplementedError:
            continue
        inputs = {"observations": pair, "goals": pair}
        found[question] = (lambda n, s, g, f=function: (f(n, see(s), see(g)),), inputs, question)
    return found


def _program(
    networks: Networks, format: Format, function: Callable[..., Any], inputs: dict[str, Any], output: str
) -> dict[str, Any]:
    """The program of a function, with what is to be known about it."""
    made = jax.eval_shape(function, networks, *inputs.values())
    # A name has one meaning in an ONNX model, so what is remembered has another name when it comes out.
    memory = "next_memory" if format == "onnx" else "memory"
    outputs = [output, *(f"{memory}{i}" for i in range(len(made) - 1))]
    if format == "onnx":
        from cta.export.onnx_model import to_onnx

        content, read = to_onnx(function, networks, list(flatten(networks)), inputs, outputs)
    else:
        content, read = _to_stablehlo(function, networks, list(inputs.values()))

    def fact(name: str, value: Any) -> dict[str, Any]:
        shape = [size if isinstance(size, int) else str(size) for size in value.shape]
        return {"name": name, "shape": shape, "dtype": str(value.dtype)}

    facts = {"inputs": list(map(fact, inputs, inputs.values())), "outputs": list(map(fact, outputs, made))}
    return {"content": content, "weights": read, **facts}


def _to_stablehlo(function: Callable[..., Any], networks: Networks, inputs: list[Any]) -> tuple[bytes, list[str]]:
    """A function of (flat weights, *inputs), and the names of those weights that it reads."""
    shapes = flatten(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), networks))

    def of_flat(weights: dict[str, Any], *values: Any) -> Any:
        whole: Any = {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()} | weights
        return function(unflatten(networks, whole, "weights"), *values)

    single = [jax.ShapeDtypeStruct([n if isinstance(n, int) else 1 for n in x.shape], x.dtype) for x in inputs]
    read = sorted(arrays_read(function, networks, *single))
    made = jax.export.export(jax.jit(of_flat), platforms=PLATFORMS)({name: shapes[name] for name in read}, *inputs)
    return bytes(made.serialize()), read


def _check(policy: GoalPolicy, folder: Path, format: Format) -> None:
    """What was written acts as the run does, on random pairs; policy.json keeps by how much it differs."""
    about = json.loads((folder / "policy.json").read_text("utf-8")) | {"check": None}
    if format != "onnx" or find_spec("onnxruntime") is not None:
        rng, exported, found = np.random.default_rng(0), loader.load(folder, quiet=True), []
        shape = (2, CHECKED[1], *policy.spec.observation_shape)
        for _ in range(CHECKED[0]):
            images = policy.spec.image_shape
            drawn = rng.integers(0, 256, shape) if images else policy.units.unsee(rng.normal(size=shape))
            pair = drawn.astype(_dtype(policy))
            with jax.default_device(jax.devices("cpu")[0]):
                found.append(np.abs(exported(*pair, first=True) - policy(*pair, first=True)))
        half = 1 if policy.bounds is None else (policy.bounds.high - policy.bounds.low) / 2
        gaps = np.array(found) / half
        if not (np.quantile(gaps, 0.99) <= TOLERANCE and gaps.max() <= 100 * TOLERANCE):
            raise CtaError(f"the exported policy differs from the run's by {gaps.max():.2g}: the export was not kept")
        about["check"] = {"inputs": CHECKED[0] * CHECKED[1], "largest_difference": float(gaps.max())}
    write_json(folder / "policy.json", about)


def _dtype(policy: GoalPolicy) -> np.dtype:
    return np.dtype(np.uint8 if policy.spec.image_shape else np.float32)
