"""A policy on its own: weights, programs and a description, usable without this package.

The folder holds a program for each thing the policy can do (`act`, and `value`, `dual_value`, `analogy`, `subgoal`
where the agent has them; any batch size), `policy.json` (inputs, outputs, provenance) and `load.py`, a short loader.
Programs are StableHLO for CPU and CUDA, with the weights in `policy.safetensors`, or ONNX models that hold them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
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
from cta.errors import CtaError
from cta.experiment import Run, RunPolicy
from cta.experiment.weights import arrays_read
from cta.export import load as loader
from cta.io import provenance
from cta.io.files import user_path, write_whole
from cta.io.json_files import write_json
from cta.training.checkpoints import flatten, unflatten

PLATFORMS = ("cpu", "cuda")
TOLERANCE = 1e-4
"""Difference between an exported action in [-1,1] and the original one that counts as rounding, in float32.

One in a hundred may differ a hundred times as much: an agent that scales the difference of two nearly equal codes to a
fixed length scales its rounding, too, and ONNX's convolutions round otherwise than JAX's.
"""
CHECKED = 4, 250
"""Batches, and pairs in each, on which an export is compared with the run."""
Format = Literal["stablehlo", "onnx"]


def export_policy(
    run: str | Path | Run,
    out: str | Path,
    *,
    format: Format = "stablehlo",
    seed: int | None = None,
    step: int | None = None,
) -> Path:
    """Write the policy of a run's seed (default: the first not diverged) at a checkpoint (default: the newest).

    The folder `out` appears when it is complete and its actions agree with the run's.
    """
    run = run if isinstance(run, Run) else Run(run)
    out = user_path(out)
    if out.exists():
        raise CtaError(f"{out} exists already: give --out a new folder")
    if format == "onnx" and find_spec("onnx") is None:
        raise CtaError("--format onnx needs the onnx package: pip install 'cta[onnx]'")
    policy = run.policy(seed=seed, step=step)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        _write(policy, fresh, run, format)
        _check(policy, fresh, format)
        os.replace(fresh, out)
    except OSError as error:
        raise CtaError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out


def _write(policy: RunPolicy, folder: Path, run: Run, format: Format) -> None:
    def stored(file: str, content: bytes, **facts: Any) -> dict[str, Any]:
        write_whole(folder / file, content)
        return {"file": file, "sha256": hashlib.sha256(content).hexdigest(), **facts}

    make = {"stablehlo": _stablehlo, "onnx": _onnx}[format]
    programs = {name: make(policy.networks, *parts) for name, parts in _functions(policy).items()}
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


Parts = tuple[Callable[..., tuple[Any, ...]], dict[str, Any], str]
"""A function of (networks, *inputs), the shapes of its inputs by name, and the name of its first output."""


def _functions(policy: GoalPolicy) -> dict[str, Parts]:
    """`act` and whatever the agent can answer, for any batch size."""
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
    found: dict[str, Parts] = {"act": (act, dict(zip(names, [pair, pair, *scalars, *cells], strict=True)), "actions")}
    for question in QUESTIONS:
        function = answer(agent, question)
        try:
            jax.eval_shape(function, policy.networks, pair, pair)
        except NotImplementedError:
            continue
        inputs = {"observations": pair, "goals": pair}
        found[question] = (lambda n, s, g, f=function: (f(n, see(s), see(g)),), inputs, question)
    return found


def _stablehlo(networks: Networks, function: Callable[..., Any], inputs: dict[str, Any], output: str) -> dict[str, Any]:
    """A function as StableHLO of (flat weights, *inputs), of those weights that it reads."""
    shapes = flatten(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), networks))

    def of_flat(weights: dict[str, Any], *values: Any) -> Any:
        unread = {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items() if name not in weights}
        whole: Any = {**unread, **weights}
        return function(unflatten(networks, whole, "weights"), *values)

    read = sorted(arrays_read(function, networks, *map(_one, inputs.values())))
    exported = jax.export.export(jax.jit(of_flat), platforms=PLATFORMS)
    made = exported({name: shapes[name] for name in read}, *inputs.values())
    outputs = [output, *(f"memory{i}" for i in range(len(made.out_avals) - 1))]
    return {"content": bytes(made.serialize()), "weights": read, **_facts(inputs, outputs, made.out_avals)}


def _onnx(networks: Networks, function: Callable[..., Any], inputs: dict[str, Any], output: str) -> dict[str, Any]:
    """A function as an ONNX model of its inputs, which holds the weights that it reads."""
    from cta.export.onnx_model import to_onnx

    made = jax.eval_shape(function, networks, *inputs.values())
    # A name has one meaning in a model, so what is remembered has another name when it comes out.
    outputs = [output, *(f"next_memory{i}" for i in range(len(made) - 1))]
    content, read = to_onnx(function, networks, list(flatten(networks)), inputs, outputs)
    return {"content": content, "weights": read, **_facts(inputs, outputs, made)}


def _facts(inputs: dict[str, Any], outputs: list[str], made: Sequence[Any]) -> dict[str, Any]:
    return {"inputs": list(map(_fact, inputs, inputs.values())), "outputs": list(map(_fact, outputs, made))}


def _one(value: Any) -> Any:
    """The shape of a batch of one."""
    return jax.ShapeDtypeStruct([size if isinstance(size, int) else 1 for size in value.shape], value.dtype)


def _fact(name: str, value: Any) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    return {"name": name, "shape": shape, "dtype": str(value.dtype)}


def _check(policy: GoalPolicy, folder: Path, format: Format) -> None:
    """What was written acts as the run does; policy.json keeps by how much it differs."""
    about = json.loads((folder / "policy.json").read_text("utf-8"))
    about["check"] = None
    if format != "onnx" or find_spec("onnxruntime") is not None:
        gaps = _gaps(policy, folder)
        if not (np.quantile(gaps, 0.99) <= TOLERANCE and gaps.max() <= 100 * TOLERANCE):
            raise CtaError(f"the exported policy differs from the run's by {gaps.max():.2g}: the export was not kept")
        about["check"] = {"inputs": CHECKED[0] * CHECKED[1], "largest_difference": float(gaps.max())}
    write_json(folder / "policy.json", about)


def _gaps(policy: GoalPolicy, folder: Path) -> np.ndarray:
    """Between the two's actions in [-1,1], on random pairs."""
    rng, exported, gaps = np.random.default_rng(0), loader.load(folder, quiet=True), []
    shape = (2, CHECKED[1], *policy.spec.observation_shape)
    for _ in range(CHECKED[0]):
        drawn = rng.integers(0, 256, shape) if policy.spec.image_shape else policy.units.unsee(rng.normal(size=shape))
        pair = drawn.astype(_dtype(policy))
        with jax.default_device(jax.devices("cpu")[0]):
            gaps.append(np.abs(exported(*pair, first=True) - policy(*pair, first=True)))
    return np.array(gaps) if policy.bounds is None else 2 * np.array(gaps) / (policy.bounds.high - policy.bounds.low)


def _dtype(policy: GoalPolicy) -> np.dtype:
    return np.dtype(np.uint8 if policy.spec.image_shape else np.float32)
