"""One run, from Python: train it, open it again, use what it learned."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from cta.experiment.run_dir import RunDir, default_path
from cta.experiment.trainer import Interrupted, Trainer
from cta.presets import agent_preset, run_preset
from cta.training.checkpoints import Checkpoints

__all__ = ["Interrupted", "Run", "load_policy", "resume", "run_config", "train"]


def run_config(
    agent: str, dataset: str, *, agent_settings: Mapping[str, Any] | None = None, **settings: Any
) -> RunConfig:
    """The paper's settings for this agent and dataset, with changes."""
    entry = find(agent)
    base = run_preset(RunConfig(entry.config, agent_name=entry.name, dataset=dataset))
    try:
        config = replace(agent_preset(entry.config, base.dataset_name), **(agent_settings or {}))
        return replace(base, agent=config, **settings)
    except TypeError as error:
        raise CtaError(f"unknown setting: {error}") from error


def train(
    dataset: str | TrajectoryDataset,
    *,
    agent: str = "cta",
    seeds: int | Sequence[int] = 1,
    validation: TrajectoryDataset | None = None,
    agent_settings: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **settings: Any,
) -> "Run":
    """Train an agent and return its run.

    `dataset` is a name, an npz file, or arrays (kept in the run directory, so that the run can be resumed). `seeds` is
    a count or a list. Further keywords are `RunConfig`'s fields (`steps=…`, `run_dir=…`), `agent_settings` the agent's.
    """
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    name = dataset.name if isinstance(dataset, TrajectoryDataset) else str(dataset)
    config = run_config(agent, name, agent_settings=agent_settings, seeds=chosen, **settings)
    if isinstance(dataset, TrajectoryDataset):
        config = _keep_arrays(config, dataset, validation)
    return start(config, quiet=quiet)


def _keep_arrays(config: RunConfig, train: TrajectoryDataset, validation: TrajectoryDataset | None) -> RunConfig:
    run_dir = Path(config.run_dir).expanduser() if config.run_dir else default_path(config)
    folder = run_dir / "data"
    folder.mkdir(parents=True, exist_ok=True)
    train.to_npz(folder / f"{train.name}.npz")
    if validation is not None:
        validation.to_npz(folder / f"{train.name}-val.npz")
    return replace(config, run_dir=str(run_dir), dataset=str(folder / f"{train.name}.npz"))


def start(config: RunConfig, *, quiet: bool = False) -> "Run":
    """Begin a run in a fresh directory."""
    config.check()
    run = RunDir.create(config)
    return _go(run, quiet)


def resume(path: str | Path, *, quiet: bool = False) -> "Run":
    """Continue a run from its newest checkpoint, or from the beginning if it has none."""
    return _go(RunDir.open(path), quiet)


def _go(run: RunDir, quiet: bool) -> "Run":
    enable_cache()
    with RunConsole(quiet=quiet) as console:
        console.say(f"run directory: {run.path}")
        Trainer(run, run.config(), console).train()
    return Run(run.path)


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
        return self.files.eval_log().read()

    def scores(self) -> dict[int, float]:
        """Each seed's score in [0,1]: mean over tasks, mean of the last three evaluations."""
        return seed_scores(self.evaluations())

    def steps(self) -> list[int]:
        """Steps with a checkpoint."""
        return Checkpoints(self.files.checkpoints).steps()

    def networks(self, step: int | None = None) -> tuple[int, list[Networks]]:
        """(step, the networks of each seed) of a checkpoint, by default the newest."""
        checkpoints = Checkpoints(self.files.checkpoints)
        steps = checkpoints.steps()
        if not steps:
            raise CtaError(f"{self.path} has no checkpoint yet")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise CtaError(f"{self.path} has no checkpoint at step {step}; there are {', '.join(map(str, steps))}")
        structure = jax.eval_shape(lambda key: self.agent.init(key, self.spec), jax.random.key(0))
        stacked = checkpoints.load_networks(step, structure)
        checkpoints.close()
        return step, [jax.tree.map(lambda x, i=i: np.asarray(x[i]), stacked) for i in range(len(self.config.seeds))]

    @property
    def spec(self) -> Spec:
        """The shapes of the data the run was trained on."""
        seen = self.files.provenance().get("dataset")
        shape, actions = (seen.get("observation_shape"), seen.get("action_dim")) if isinstance(seen, dict) else (0, 0)
        sizes: list[Any] = [*shape, actions] if isinstance(shape, list) and len(shape) in (1, 3) else [0]
        if not all(type(size) is int and 0 < size < 2**24 for size in sizes):
            raise CtaError(f"{self.path}/provenance.json does not say what the data looked like")
        return Spec.of(sizes[:-1], sizes[-1])

    def policy(self, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0) -> GoalPolicy:
        """The policy of a seed (default: the first) at a checkpoint (default: the newest)."""
        seeds = self.config.seeds
        if seed is not None and seed not in seeds:
            raise CtaError(f"{self.path} has no seed {seed}; there are {', '.join(map(str, seeds))}")
        _, networks = self.networks(step)
        chosen = networks[0 if seed is None else seeds.index(seed)]
        return GoalPolicy(self.agent, chosen, self.spec, name=self.config.agent_name, temperature=temperature)


def load_policy(
    run: str | Path, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0
) -> GoalPolicy:
    """The policy of a run directory: of a seed (default: the first) at a checkpoint (default: the newest)."""
    return Run(run).policy(seed=seed, step=step, temperature=temperature)
