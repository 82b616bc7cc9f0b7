"""A policy on its own: weights, programs and a description, usable without this package.

The folder holds `policy.safetensors` (the weights), a StableHLO program for each thing the policy can do (`act`, and
`value`, `dual_value`, `analogy`, `subgoal` where the agent has them; any batch size, on CPU and CUDA), `policy.json`
(inputs, outputs, provenance) and `load.py`, a short loader.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
"""Largest difference between an exported action in [-1,1] and the original one that counts as rounding, in float32."""


def export_policy(run: str | Path | Run, out: str | Path, *, seed: int | None = None, step: int | None = None) -> Path:
    """Write the policy of a run's seed (default: the first not diverged) at a checkpoint (default: the newest).

    The folder `out` appears when it is complete and its actions agree with the run's.
    """
    run = run if isinstance(run, Run) else Run(run)
    out = user_path(out)
    if out.exists():
        raise CtaError(f"{out} exists already: give --out a new folder")
    policy = run.policy(seed=seed, step=step)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        _write(policy, fresh, run)
        _check(policy, fresh)
        os.replace(fresh, out)
    except OSError as error:
        raise CtaError(f"{out}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out


def _write(policy: RunPolicy, folder: Path, run: Run) -> None:
    arrays, programs = flatten(policy.networks), _programs(policy)
    needed = sorted({name for program in programs.values() for name in program["weights"]})
    weights = save({name: np.asarray(arrays[name], order="C") for name in needed})

    def stored(file: str, content: bytes, **facts: Any) -> dict[str, Any]:
        write_whole(folder / file, content)
        return {"file": file, "sha256": hashlib.sha256(content).hexdigest(), **facts}

    functions = {name: stored(f"{name}.stablehlo", **program) for name, program in programs.items()}
    functions["act"]["memory"] = functions["act"]["outputs"][1:]
    low, high = (None, None) if policy.bounds is None else map(np.ndarray.tolist, policy.bounds)
    observed = {"shape": list(policy.spec.observation_shape), "dtype": str(_dtype(policy))}
    about = {
        "format": loader.FORMAT,
        "observation": observed,
        "goal": {**observed, "meaning": "an observation of the state to reach"},
        "action": {"shape": [policy.spec.action_dim], "dtype": "float32", "low": low, "high": high},
        "batch": "a leading axis of any size, called b below",
        "platforms": list(PLATFORMS),
        "weights": stored("policy.safetensors", weights, parameters=sum(arrays[name].size for name in needed)),
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


def _programs(policy: GoalPolicy) -> dict[str, dict[str, Any]]:
    """`act` and whatever the agent can answer, each as a program for any batch size."""
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
    programs = {"act": _program(policy.networks, act, names, [pair, pair, *scalars, *cells], "actions")}
    for question in QUESTIONS:
        function = answer(agent, question)
        try:
            jax.eval_shape(function, policy.networks, pair, pair)
        except NotImplementedError:
            continue
        programs[question] = _program(
            policy.networks, lambda n, s, g, f=function: (f(n, see(s), see(g)),), names[:2], [pair, pair], question
        )
    return programs


def _program(
    networks: Networks, function: Callable[..., Any], names: list[str], inputs: list[Any], output: str
) -> dict[str, Any]:
    """`function(networks, *inputs)` as StableHLO of (flat weights, *inputs), of those weights that it reads."""
    shapes = flatten(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), networks))

    def of_flat(weights: dict[str, Any], *values: Any) -> Any:
        unread = {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items() if name not in weights}
        whole: Any = {**unread, **weights}
        return function(unflatten(networks, whole, "weights"), *values)

    read = sorted(arrays_read(function, networks, *map(_one, inputs)))
    made = jax.export.export(jax.jit(of_flat), platforms=PLATFORMS)({name: shapes[name] for name in read}, *inputs)
    outputs = [output, *(f"memory{i}" for i in range(len(made.out_avals) - 1))]
    return {
        "content": bytes(made.serialize()),
        "weights": read,
        "inputs": list(map(_facts, names, inputs)),
        "outputs": list(map(_facts, outputs, made.out_avals)),
    }


def _one(value: Any) -> Any:
    """The shape of a batch of one."""
    return jax.ShapeDtypeStruct([size if isinstance(size, int) else 1 for size in value.shape], value.dtype)


def _facts(name: str, value: Any) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    return {"name": name, "shape": shape, "dtype": str(value.dtype)}


def _check(policy: GoalPolicy, folder: Path) -> None:
    """What was written acts as the run does."""
    rng = np.random.default_rng(0)
    shape = (32, *policy.spec.observation_shape)
    drawn = rng.integers(0, 256, (2, *shape)) if policy.spec.image_shape else rng.standard_normal((2, *shape))
    pair = drawn.astype(_dtype(policy))
    with jax.default_device(jax.devices("cpu")[0]):
        gaps = np.abs(loader.load(folder, quiet=True)(*pair, first=True) - policy(*pair, first=True))
    gap = (gaps if policy.bounds is None else 2 * gaps / (policy.bounds.high - policy.bounds.low)).max()
    if not gap <= TOLERANCE:
        raise CtaError(f"the exported policy differs from the run's by {gap:.2g}: the export was not kept")


def _dtype(policy: GoalPolicy) -> np.dtype:
    return np.dtype(np.uint8 if policy.spec.image_shape else np.float32)
