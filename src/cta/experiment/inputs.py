"""What a run is trained on, and whether it is still that."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from cta.config import RunConfig
from cta.data import TrajectoryDataset, environment_name, is_path
from cta.data.dataset import hold_out
from cta.data.npz import is_mapped
from cta.data.other_formats import LEROBOT
from cta.envs.datasets import check_fits, open_dataset, simulator_notice
from cta.envs.names import DESK_DATASETS, KNOWN
from cta.errors import CtaError, RunStopped
from cta.experiment.run_dir import RunDir
from cta.io import provenance
from cta.io.files import user_path
from cta.units import Normalisation, Units

Datasets = tuple[TrajectoryDataset, TrajectoryDataset | None]
_told: set[str] = set()


def open_data(run: RunDir, config: RunConfig, *, say: Callable[[str], None], evaluates: bool) -> Datasets:
    """Training and validation data; the first time their fingerprints are noted, later they must be the same."""
    known = run.provenance()
    try:
        name, train, validation = open_run_data(run, config)
    except CtaError as error:
        if "dataset" not in known:
            raise
        raise RunStopped(f"{error}; with the data back in place, {run.resume_command} continues") from error
    if name in KNOWN:
        check_fits(train, environment_name(name))
    facts = {
        "name": name,
        "fingerprint": train.fingerprint(),
        "validation_fingerprint": None if validation is None else validation.fingerprint(),
        "episodes": train.num_episodes,
        "transitions": train.num_transitions,
        "observation_shape": list(train.observation_shape),
        "action_dim": train.action_dim,
    }
    before = known.get("dataset", {})
    for key, what in (("fingerprint", ""), ("validation_fingerprint", "the validation data of ")):
        if key in before and before[key] != facts[key]:
            change = f"{what}{config.dataset} has changed since this run began: its fingerprint is not that of the run"
            raise RunStopped(f"{change}; put the old data back, then {run.resume_command}; or begin a new run")
    if validation is None and name not in KNOWN:
        train, validation = hold_out(train, config.holdout)
        if validation is not None:
            facts["held_out_episodes"] = validation.num_episodes
            say(f"no validation file: {validation.num_episodes} of {facts['episodes']} episodes are held out")
        elif config.holdout and is_mapped(train.observations):
            say(f"no validation file, and nothing is held out of images that stay on disk: write {name}-val.npz")
    seen = Normalisation.measured(train.observations, label=name) if config.normalise_observations else None
    facts |= {"units": Units(train.bounds, seen).facts()} | ({"normalised": True} if seen else {})
    began = {"dataset": {**facts, "provenance": train.provenance}}
    began |= {"commit": provenance.commit(), "hardware": provenance.hardware()}
    began["seeding"] = "stacked" if jax.default_backend() != "cpu" else "separate"
    for text in _differences(known, {"versions": provenance.versions(), **began}):
        say(text)
        run.note("changed", text)
    run.record({key: value for key, value in began.items() if key not in known})
    if evaluates:
        tell_simulator(name, train.provenance, say)
    return train, validation


def open_run_data(run: RunDir, config: RunConfig, *, info: bool = False) -> tuple[str, *Datasets]:
    """(name, training data, validation data or None) of a run, wherever it is opened from."""
    where = _seen_from_run(run, config.dataset) if "dataset" in run.provenance() else config.dataset
    return open_dataset(where, dataset_dir=config.dataset_dir, info=info, action_bounds=config.action_bounds)


def run_units(run: RunDir, config: RunConfig) -> Units:
    """The units of a run that has opened its data, as it noted them then."""
    facts = (run.provenance().get("dataset") or {}).get("units")
    unit, where = config.dataset_name in KNOWN, f"{run.path}/provenance.json"
    return Units.of_facts(facts, *data_shapes(run), unit=unit, where=where)


def data_shapes(run: RunDir) -> tuple[list[int], int]:
    """(shape of an observation, number of actions) in the data a run was trained on."""
    seen = run.provenance().get("dataset", {})
    shape, actions = seen.get("observation_shape"), seen.get("action_dim")
    sizes: list[Any] = [*shape, actions] if isinstance(shape, list) and len(shape) in (1, 3) else [0]
    if not all(type(size) is int and 0 < size < 2**24 for size in sizes):
        raise CtaError(f"{run.path}/provenance.json does not say what the data looked like")
    return sizes[:-1], sizes[-1]


def in_units(dataset: TrajectoryDataset, units: Units) -> TrajectoryDataset:
    """A dataset as the networks see it: actions in [-1,1], observations normalised if they are to be."""
    if units.normalisation is None and dataset.bounds is None:
        return dataset
    actions = dataset.actions if dataset.bounds is None else dataset.bounds.to_unit(dataset.actions)
    return replace(dataset, observations=units.see(dataset.observations), actions=actions, bounds=None)


def tell_simulator(name: str, record: dict[str, Any] | None, say: Callable[[str], None]) -> None:
    """Say, once in a process, if scores in the simulator here are not comparable with the data of this `record`."""
    notice = simulator_notice(record) if name in KNOWN and name not in DESK_DATASETS else None
    if notice and notice not in _told:
        _told.add(notice)
        say(notice)


def _seen_from_run(run: RunDir, dataset: str) -> str:
    """A relative path means the folder the run was begun in; from elsewhere that is one above the run directory."""
    if dataset.startswith(LEROBOT):
        return LEROBOT + _seen_from_run(run, os.path.join(dataset.removeprefix(LEROBOT), ""))
    if not is_path(dataset) or user_path(dataset).is_absolute() or user_path(dataset).exists():
        return dataset
    places = [folder / dataset for folder in run.path.resolve().parents]
    return next((str(place) for place in places if place.exists()), dataset)


def _differences(known: dict, found: dict) -> list[str]:
    """What is no longer as it was when the run began, and can change a number."""

    def seen(facts: dict) -> dict:
        device = facts.get("hardware", {}).get("device")
        return {**facts.get("versions", {}), "the commit": facts.get("commit"), "the device": device}

    was, now = seen(known), seen(found)
    text = "notice: {} was {} when this run began and is {} now: from here on its numbers can differ"
    return [text.format(what, was[what], now[what]) for what in now if was.get(what) not in (None, now[what])]
