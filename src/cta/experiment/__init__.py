"""One run, from Python: train it, open it again, use what it learned."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cta.agents import Networks, Spec, find
from cta.agents.policy import GoalPolicy
from cta.compilation import enable_cache
from cta.config import RunConfig
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.evaluation import seed_scores
from cta.experiment.console import RunConsole
from cta.experiment.health import describe, stopped_seeds
from cta.experiment.inputs import open_run_data, tell_simulator
from cta.experiment.run_dir import RunDir, default_path
from cta.experiment.trainer import Interrupted, Trainer
from cta.presets import agent_preset, fit_intervals, run_preset
from cta.training.checkpoints import Checkpoints, Damaged, healthy_seeds
from cta.training.logs import CsvLog

__all__ = ["Interrupted", "Run", "RunPolicy", "load_policy", "resume", "run_config", "train"]


def run_config(
    agent: str, dataset: str, *, agent_settings: Mapping[str, Any] | None = None, **settings: Any
) -> RunConfig:
    """The paper's settings for this agent and dataset, with changes."""
    entry = find(agent)
    base = run_preset(RunConfig(entry.config, agent_name=entry.name, dataset=dataset))
    preset = agent_preset(entry.config, base.dataset_name)
    _check_names(preset, agent_settings or {}, f"agent {entry.name}")
    _check_names(base, settings, "a run")
    return replace(base, agent=replace(preset, **(agent_settings or {})), **settings)


def _check_names(config: Any, settings: Mapping[str, Any], owner: str) -> None:
    known = [field.name for field in fields(config)]
    for name in settings:
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
            raise CtaError(f"unknown setting '{name}' of {owner}: {hint}")


def train(
    dataset: str | TrajectoryDataset | Mapping[str, Any],
    *,
    agent: str = "cta",
    seeds: int | Sequence[int] = 1,
    validation: TrajectoryDataset | None = None,
    agent_settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **settings: Any,
) -> "Run":
    """Train an agent and return its run.

    `dataset` is a name, an npz file, `minari:NAME`, or arrays: a `TrajectoryDataset`, or a dictionary with what its
    `from_arrays` takes. Arrays are kept in the run directory, so that the run can be resumed. `seeds` is a count or a
    list. Further keywords are `RunConfig`'s fields (`steps=…`, `run_dir=…`), `agent_settings` the agent's.
    """
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if isinstance(dataset, Mapping):
        dataset = _from_mapping(dataset)
    name = _file_stem(dataset) if isinstance(dataset, TrajectoryDataset) else str(dataset)
    config = fit_intervals(run_config(agent, name, agent_settings=agent_settings, seeds=chosen, **settings))
    if isinstance(dataset, TrajectoryDataset):
        config.check()  # before anything is written
        config = _keep_arrays(config, dataset, validation)
    return start(config, quiet=quiet)


def _from_mapping(arrays: Mapping[str, Any]) -> TrajectoryDataset:
    try:
        return TrajectoryDataset.from_arrays(**arrays)
    except TypeError as error:
        raise CtaError(f"these arrays make no dataset: {str(error).rpartition('() ')[2]}") from None


def _file_stem(dataset: TrajectoryDataset) -> str:
    """A dataset's name as that of a file in the run directory, whatever its owner called it."""
    return re.sub(r"[^\w.-]", "-", dataset.name).strip(".-") or "dataset"


def _keep_arrays(config: RunConfig, train: TrajectoryDataset, validation: TrajectoryDataset | None) -> RunConfig:
    run_dir = Path(config.run_dir).expanduser() if config.run_dir else default_path(config)
    RunDir(run_dir).check_free()
    folder = run_dir / "data"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CtaError(f"{folder}: cannot be written ({error.strerror})") from error
    stem = _file_stem(train)
    train.to_npz(folder / f"{stem}.npz")
    if validation is not None:
        validation.to_npz(folder / f"{stem}-val.npz")
    return replace(config, run_dir=str(run_dir), dataset=str(folder / f"{stem}.npz"))


def start(config: RunConfig, *, quiet: bool = False) -> "Run":
    """Begin a run in a fresh directory."""
    config.check()
    run = RunDir.create(config)
    return _go(run, quiet, fresh=True)


def resume(path: str | Path, *, quiet: bool = False) -> "Run":
    """Continue a run from its newest checkpoint, or from the beginning if it has none."""
    return _go(RunDir.open(path), quiet, fresh=False)


def _go(run: RunDir, quiet: bool, *, fresh: bool) -> "Run":
    """Train in a directory that nobody else writes to meanwhile. Whatever goes wrong, one line says how to go on.

    A `fresh` run that cannot even open its data leaves no run behind.
    """
    enable_cache()
    again = f"{run.resume_command} continues"
    with RunConsole(quiet=quiet) as console:
        run.acquire(console.say)
        try:
            console.say(f"run directory: {run.path}")
            Trainer(run, run.config(), console).train()
        except OSError as error:
            where = error.filename or run.path
            raise CtaError(f"{where}: {error.strerror or error}; once that is mended, {again}") from error
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            raise CtaError(f"{_device_failure(error)}, {again}") from error
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; {again}") from None
        except CtaError as error:
            if fresh and "dataset" not in run.provenance():
                run.withdraw()
                raise
            if "cta resume" in str(error):
                raise
            raise CtaError(f"{error}; once that is mended, {again}") from error
        finally:
            run.release()
    return Run(run.path)


def _device_failure(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in said:
        less = "begin a new run with a smaller --agent.batch-size or fewer --seeds"
        return f"out of memory ({said}): {less}; once more memory is free"
    return f"the device failed ({said}); once that is mended"


class RunPolicy(GoalPolicy):
    """A policy of a run that knows its `seed` and the `step` of its checkpoint."""

    def __init__(self, run: "Run", networks: Networks, *, seed: int, step: int, temperature: float = 0.0):
        super().__init__(run.agent, networks, run.spec, name=run.config.agent_name, temperature=temperature)
        self.seed = seed
        self.step = step


class Run:
    """A run directory, read."""

    def __init__(self, path: str | Path):
        self.files = RunDir.open(path)
        self.path = self.files.path
        self.config = self.files.config()
        self.agent = find(self.config.agent_name).build(self.config.agent)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.config.agent_name} on {self.config.dataset_name})"

    def evaluations(self) -> list[dict[str, str]]:
        """Rows of eval.csv."""
        return CsvLog(self.path / "eval.csv").read()

    def offline(self) -> list[dict[str, str]]:
        """Rows of offline.csv, of a run without rollouts: how well values order held-out trajectories."""
        path = self.path / "offline.csv"
        return CsvLog(path).read() if path.is_file() else []

    def scores(self) -> dict[int, float]:
        """Each seed's score in [0,1]: mean over tasks, mean of the last three evaluations. Not of stopped seeds."""
        stopped = self.stopped()
        return {seed: score for seed, score in seed_scores(self.evaluations()).items() if seed not in stopped}

    def stopped(self) -> dict[int, str]:
        """The seeds whose numbers went bad, each with a line that says when and which."""
        return {seed: describe(seed, reason) for seed, reason in stopped_seeds(self.files).items()}

    def steps(self) -> list[int]:
        """Steps with a checkpoint."""
        return Checkpoints(self.files.checkpoints).steps()

    def networks(self, step: int | None = None) -> tuple[int, list[Networks]]:
        """(step, the networks of each seed) of a checkpoint, by default the newest that is whole."""
        checkpoints = Checkpoints(self.files.checkpoints)
        steps = checkpoints.steps()
        if not steps:
            raise CtaError(f"{self.path} has no checkpoint yet")
        if step is not None and step not in steps:
            raise CtaError(f"{self.path} has no checkpoint at step {step}; there are {', '.join(map(str, steps))}")
        structure = jax.eval_shape(lambda key: self.agent.init(key, self.spec), jax.random.key(0))
        for candidate in reversed(steps) if step is None else [step]:
            try:
                stacked = checkpoints.load_networks(candidate, structure)
            except Damaged as error:
                if step is not None or candidate == steps[0]:
                    raise
                print(f"{error}; using an older one", file=sys.stderr)
                continue
            seeds = range(len(self.config.seeds))
            return candidate, [jax.tree.map(lambda x, i=i: np.asarray(x[i]), stacked) for i in seeds]
        raise AssertionError("the oldest checkpoint is returned or raises")

    def good_seeds(self, step: int) -> list[int]:
        """The seeds whose numbers were good at a checkpoint."""
        healthy = healthy_seeds(self.files.checkpoints / str(step))
        return [seed for i, seed in enumerate(self.config.seeds) if healthy is None or healthy[i]]

    def _require_good(self, seed: int, step: int) -> None:
        if seed not in self.good_seeds(step):
            good = [s for s in self.steps() if seed in self.good_seeds(s)]
            other = f"; it was well at step {good[-1]}" if good else ""
            why = self.stopped().get(seed, f"seed {seed} diverged")
            raise CtaError(f"{self.path}: no policy of seed {seed} at step {step}: {why}{other}")

    @property
    def spec(self) -> Spec:
        """The shapes of the data the run was trained on."""
        seen = self.files.provenance().get("dataset")
        shape, actions = (seen.get("observation_shape"), seen.get("action_dim")) if isinstance(seen, dict) else (0, 0)
        sizes: list[Any] = [*shape, actions] if isinstance(shape, list) and len(shape) in (1, 3) else [0]
        if not all(type(size) is int and 0 < size < 2**24 for size in sizes):
            raise CtaError(f"{self.path}/provenance.json does not say what the data looked like")
        return Spec.of(sizes[:-1], sizes[-1])

    def open_data(self, *, info: bool = False) -> tuple[str, TrajectoryDataset, TrajectoryDataset | None]:
        """(name, training data, validation data or None) the run was trained on, from wherever one stands."""
        return open_run_data(self.files, self.config, info=info)

    def tell_simulator(self) -> None:
        """A line, once, if the simulator here is not comparable with that of the data; for whatever rolls out."""
        seen = self.files.provenance().get("dataset")
        if isinstance(seen, dict) and isinstance(made := seen.get("provenance"), dict | None):
            tell_simulator(self.config.dataset_name, made, partial(print, file=sys.stderr))

    def policy(self, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0) -> RunPolicy:
        """The policy of a seed (default: the first that is well) at a checkpoint (default: the newest)."""
        seeds = self.config.seeds
        if seed is not None and seed not in seeds:
            raise CtaError(f"{self.path} has no seed {seed}; there are {', '.join(map(str, seeds))}")
        step, networks = self.networks(step)
        seed = next(iter(self.good_seeds(step)), seeds[0]) if seed is None else seed
        self._require_good(seed, step)
        chosen = networks[seeds.index(seed)]
        return RunPolicy(self, chosen, seed=seed, step=step, temperature=temperature)


def load_policy(
    run: str | Path, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0
) -> RunPolicy:
    """The policy of a run: of a seed (default: the first that is well) at a checkpoint (default: the newest)."""
    return Run(run).policy(seed=seed, step=step, temperature=temperature)
