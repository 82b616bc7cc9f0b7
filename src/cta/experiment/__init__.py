"""One run, from Python: train it, open it again, use what it learned."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cta.agents import Networks, Spec, find
from cta.agents.policy import GoalPolicy
from cta.compilation import enable_cache
from cta.config import RunConfig, with_settings
from cta.data import TrajectoryDataset
from cta.errors import CtaError, RunStopped, need_extra
from cta.experiment.console import RunConsole
from cta.experiment.inputs import data_shapes, open_run_data, run_units, tell_simulator
from cta.experiment.run_dir import RunDir, run_path
from cta.experiment.scoring import describe
from cta.experiment.trainer import Interrupted, Trainer
from cta.experiment.weights import SUFFIX, Candidate, network_shapes, open_weights
from cta.io.csv_log import CsvLog
from cta.io.files import safe_name, user_path, write_errors
from cta.presets import agent_preset, run_preset, with_actor_loss
from cta.scores.schema import CellKey, Score, read_scores
from cta.scores.statistics import seed_scores
from cta.training.checkpoints import Checkpoints, Damaged, healthy_seeds
from cta.training.seeds import split_seeds
from cta.units import Units

__all__ = ["Interrupted", "Run", "RunPolicy", "load_policy", "resume", "run_config", "train"]


def run_config(
    agent: str, dataset: str, *, agent_settings: Mapping[str, Any] | None = None, **settings: Any
) -> RunConfig:
    """The paper's settings for this agent and dataset, with changes; some defaults follow what is changed."""
    entry = find(agent)
    base = RunConfig(entry.config, agent_name=entry.name, dataset=dataset)
    base = run_preset(with_settings(base, settings, "a run"), given=settings)
    changes = dict(agent_settings or {})
    usual = with_actor_loss(entry.config, changes.get("actor_loss"))
    preset = agent_preset(usual, base.dataset_name, small=base.size == "small")
    return replace(base, agent=with_settings(preset, changes, f"agent {entry.name}"))


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

    `dataset` is a name, an npz file, `minari:NAME`, `lerobot:DIR`, or arrays: a `TrajectoryDataset`, or a dictionary
    with what its `from_arrays` takes. Arrays are kept in the run directory, so that the run can be resumed. `seeds`
    is a count or a list. Further keywords are `RunConfig`'s fields (`steps=…`), `agent_settings` the agent's.
    """
    chosen = tuple(seeds) if isinstance(seeds, Iterable) else tuple(range(seeds))
    if isinstance(dataset, Mapping):
        try:
            dataset = TrajectoryDataset.from_arrays(**dataset)
        except TypeError as error:
            raise CtaError(f"these arrays make no dataset: {str(error).rpartition('() ')[2]}") from None
    name = safe_name(dataset.name) if isinstance(dataset, TrajectoryDataset) else str(dataset)
    config = run_config(agent, name, agent_settings=agent_settings, seeds=chosen, **settings)
    if isinstance(dataset, TrajectoryDataset):
        config.check()  # before anything is written
        run_dir = run_path(config)
        RunDir(run_dir).check_free()
        file = run_dir / "data" / f"{name}.npz"
        with write_errors(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
        dataset.to_npz(file)
        if validation is not None:
            validation.to_npz(file.with_name(f"{name}-val.npz"))
        config = replace(config, run_dir=str(run_dir), dataset=str(file))
    return start(config, quiet=quiet)


def start(config: RunConfig, *, quiet: bool = False) -> "Run":
    """Begin a run in a fresh directory."""
    config.check()
    if config.wandb:
        need_extra("wandb", "wandb", "--wandb")  # before anything is written or compiled
    return _go(RunDir.create(config), quiet, fresh=True)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    agent: str | None = None,
    unverified: bool = False,
    quiet: bool = False,
) -> "Run":
    """Continue a run from its newest checkpoint, or from the beginning if it has none.

    With `steps` it ends there, instead of where its config says: the result is that of a run begun with so many.
    `agent` must be given if the run's agent is code of one's own (`module:Class`), `unverified` if its checkpoints are
    so old that they have no checksums.
    """
    return _go(RunDir.open(path, agent=agent, unverified=unverified), quiet, fresh=False, steps=steps)


def _go(run: RunDir, quiet: bool, *, fresh: bool, steps: int | None = None) -> "Run":
    """Train in a directory that nobody else writes to meanwhile, and leave in it how that ended."""
    enable_cache()
    with RunConsole(quiet=quiet) as console:
        run.acquire(console.say)
        try:
            console.say(f"run directory: {run.path}")
            if steps is not None:
                run.set_steps(steps)
            trainer = Trainer(run, run.config(), console)
            run.set_status("running")
            try:
                with _explained(run):
                    trainer.train()
            except Interrupted as stop:
                run.set_status("interrupted", step=trainer.step, reason=str(stop))
                raise
            except CtaError as error:
                if fresh and not isinstance(error, RunStopped) and "dataset" not in run.provenance():
                    run.withdraw()  # it could not even open its data
                else:
                    run.set_status("failed", step=trainer.step, reason=str(error))
                raise
            run.set_status("finished", step=trainer.step)
        finally:
            run.release()
    return Run(run.path, unverified=run.unverified)


@contextlib.contextmanager
def _explained(run: RunDir) -> Iterator[None]:
    """Whatever goes wrong, one line says how to continue."""
    again = f"{run.resume_command} continues"
    try:
        yield
    except OSError as error:
        where = error.filename or run.path
        raise RunStopped(f"{where}: {error.strerror or error}; once that is fixed, {again}") from error
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        said = " ".join(str(error).split())[:200]
        if isinstance(error, MemoryError) or getattr(error, "error_code_string", "") == "RESOURCE_EXHAUSTED":
            less = "begin a new run with a smaller --agent.batch-size or fewer --seeds"
            raise RunStopped(f"out of memory ({said}): {less}; once more memory is free, {again}") from error
        raise RunStopped(f"the device failed ({said}); once that is fixed, {again}") from error
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; {again}") from None
    except RunStopped:
        raise
    except CtaError as error:
        # Of a run that has not begun there is nothing to continue.
        raise CtaError(f"{error}; once that is fixed, {again}" if "dataset" in run.provenance() else error) from error


class RunPolicy(GoalPolicy):
    """A policy of a run, or of a file of weights, that knows its `seed` and the `step` of its checkpoint."""

    def __init__(self, *parts: Any, name: str, seed: int, step: int, temperature: float = 0.0):
        super().__init__(*parts, name=name, temperature=temperature)
        self.seed, self.step = seed, step

    def _answer(self, question: str, observation: Any, goal: Any) -> np.ndarray:
        answers = super()._answer(question, observation, goal)
        if np.isnan(answers).any():  # of networks that a file of weights leaves out
            raise CtaError(f"no {question} from this policy: its file holds only what acting reads; open its run")
        return answers


class Run:
    """A run directory, read."""

    def __init__(self, path: str | Path, *, agent: str | None = None, unverified: bool = False):
        """`agent` must be given if the agent is code of one's own, `unverified` if checkpoints have no checksums."""
        self.files = RunDir.open(path, agent=agent, unverified=unverified)
        self.path = self.files.path
        self.config = self.files.config()
        self.agent = find(self.config.agent_name).build(self.config.agent)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.config.agent_name} on {self.config.dataset_name})"

    def evaluations(self, name: str = "eval.csv") -> list[Score]:
        """Rows of eval.csv, or of another of its files of scores."""
        path, key = self.path / name, self.cell
        return read_scores(path, settings=key.settings, condition=key.condition, growing=True) if path.exists() else []

    @property
    def cell(self) -> CellKey:
        return self.files.cell(self.config)

    def offline(self) -> list[dict[str, str]]:
        """Rows of offline.csv, of a run without rollouts: how well values order held-out trajectories."""
        return CsvLog(self.path / "offline.csv").read()

    def scores(self) -> dict[int, float]:
        """Each seed's score in [0,1]: mean over tasks, mean of the last three evaluations. Not of stopped seeds."""
        stopped = self.stopped()
        return {seed: score / 100 for seed, score in seed_scores(self.evaluations()).items() if seed not in stopped}

    def stopped(self) -> dict[int, str]:
        """The seeds that diverged (NaN or inf), each with a line that says when and which."""
        record = self.files.provenance().get("stopped", {})
        try:
            return {int(seed): describe(int(seed), reason) for seed, reason in record.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            where = f"{self.path}/provenance.json"
            raise CtaError(f"{where}: 'stopped' is not a list of seeds with step and loss") from error

    def steps(self) -> list[int]:
        """Steps with a checkpoint."""
        return Checkpoints(self.files.checkpoints).steps()

    def networks(self, step: int | None = None) -> tuple[int, list[Networks]]:
        """(step, the networks of each seed) of a checkpoint, by default the newest that is whole."""
        checkpoints = Checkpoints(self.files.checkpoints, config=self.config, unverified=self.files.unverified)
        steps = stored_steps(self, [] if step is None else [step])
        steps, structure = steps if step is None else [step], network_shapes(self.agent, self.spec)
        while True:
            try:
                return steps[-1], split_seeds(checkpoints.load_networks(steps[-1], structure))
            except Damaged as error:
                if not steps[:-1]:
                    raise
                print(f"{error}; using an older one", file=sys.stderr)
                steps.pop()

    def good_seeds(self, step: int) -> list[int]:
        """The seeds whose numbers were good at a checkpoint."""
        healthy = healthy_seeds(self.files.checkpoints / str(step))
        return [seed for i, seed in enumerate(self.config.seeds) if healthy is None or healthy[i : i + 1] == [True]]

    @property
    def spec(self) -> Spec:
        """The shapes of the data the run was trained on."""
        return Spec.of(*data_shapes(self.files))

    @property
    def units(self) -> Units:
        """The units of the environment that the data come from."""
        return run_units(self.files, self.config)

    def open_data(self, *, info: bool = False) -> tuple[str, TrajectoryDataset, TrajectoryDataset | None]:
        """(name, training data, validation data or None) the run was trained on, from wherever one stands."""
        return open_run_data(self.files, self.config, info=info)

    def tell_simulator(self) -> None:
        """A line, once, if the simulator here is not comparable with that of the data; for whatever rolls out."""
        if "dataset" in (known := self.files.provenance()):
            say = partial(print, file=sys.stderr)
            tell_simulator(self.config.dataset_name, known["dataset"].get("provenance"), say)

    def policy(self, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0) -> RunPolicy:
        """The policy of a seed (default: the first not diverged) at a checkpoint (default: the newest)."""
        seeds = self.config.seeds
        if seed is not None and seed not in seeds:
            raise CtaError(f"{self.path} has no seed {seed}; there are {', '.join(map(str, seeds))}")
        step, networks = self.networks(step)
        seed = next(iter(self.good_seeds(step)), seeds[0]) if seed is None else seed
        if seed not in self.good_seeds(step):
            good = [s for s in self.steps() if seed in self.good_seeds(s)]
            other = f"; its last good checkpoint is at step {good[-1]}" if good else ""
            why = self.stopped().get(seed, f"seed {seed} diverged")
            raise CtaError(f"{self.path}: no policy of seed {seed} at step {step}: {why}{other}")
        parts = self.agent, networks[seeds.index(seed)], self.spec, self.units
        return RunPolicy(*parts, name=self.config.agent_name, seed=seed, step=step, temperature=temperature)


def stored_steps(run: Run, wanted: Sequence[int] = ()) -> list[int]:
    """Steps with a checkpoint: there must be one, and one at each of those wanted."""
    steps = run.steps()
    if not steps:
        raise CtaError(f"{run.path} has no checkpoint yet")
    for step in wanted:
        if step not in steps:
            raise CtaError(f"{run.path} has no checkpoint at step {step}; there are {', '.join(map(str, steps))}")
    return steps


def load_policy(
    run: str | Path, *, seed: int | None = None, step: int | None = None, temperature: float = 0.0
) -> RunPolicy:
    """A policy of a run, chosen as in `Run.policy`, or that of a file of weights, NAME.safetensors."""
    if str(run).endswith(SUFFIX):
        held = open_weights(user_path(run))
        found = [item for item in held if seed in (None, item.seed) and step in (None, item.step)]
        if not found:
            raise CtaError(f"{run} holds {', '.join(item.label for item in held)}, and no other policy")
        return candidate_policy(found[-1], temperature=temperature)
    return Run(run).policy(seed=seed, step=step, temperature=temperature)


def candidate_policy(item: Candidate, *, temperature: float = 0.0) -> RunPolicy:
    """What can be scored, as something that acts."""
    parts = item.agent, item.load(), item.spec, item.units
    return RunPolicy(*parts, name=item.key.agent, seed=item.seed, step=item.step, temperature=temperature)
