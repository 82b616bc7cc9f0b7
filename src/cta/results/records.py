"""The record beside a result file: who trained each seed, on which data, and who scored each step.

    {"dataset": …, "agent": …,
     "training": [{"seeds": [0, 1], "steps": …, "command": …, "commit": …, "versions": …, "hardware": …, "data": …,
                   "settings": …, "wall_clock_s": …, "seed_steps_per_s": …}, …],
     "scoring": [{"scored": [[seed, step, seconds], …], "episodes": …, "weights": …, "command": …, …}, …]}

Seeds may be trained in several slots and on several machines: facts that agree are one entry, others have their own.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cta.errors import CtaError

CLOCK = "clock.json"
"""In a run directory: {"wall_clock_s": …}, the time of all its training processes, starting and compiling included."""
Facts = dict[str, Any]
Record = dict[str, Any]


def empty(dataset: str, agent: str) -> Record:
    """A record that knows nothing yet."""
    return {"dataset": dataset, "agent": agent, "training": [], "scoring": []}


def read_record(path: Path, dataset: str, agent: str) -> Record:
    """The record in a file; an empty one if there is no file."""
    if not path.exists():
        return empty(dataset, agent)
    try:
        record = json.loads(path.read_text())
        same = (record["dataset"], record["agent"]) == (dataset, agent)
        lists = all(isinstance(record[name], list) for name in ("training", "scoring"))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CtaError(f"{path}: not a record of results ({error})") from error
    if not same or not lists:
        raise CtaError(f"{path}: not the record of {agent} on {dataset}")
    return record


def by_seed(record: Mapping[str, Any]) -> dict[int, Facts]:
    """{seed: facts of its training}."""
    return {seed: _without(entry, "seeds") for entry in record["training"] for seed in entry["seeds"]}


def by_score(record: Mapping[str, Any]) -> dict[tuple[int, int], tuple[Facts, float]]:
    """{(seed, step): (facts of its scoring, seconds)}."""
    return {
        (seed, step): (_without(entry, "scored"), seconds)
        for entry in record["scoring"]
        for seed, step, seconds in entry["scored"]
    }


def merged(old: Record, new: Record, *, scores: Iterable[tuple[int, int]], replace: bool) -> Record:
    """`old` with what `new` knows of training, and of the scoring of `scores`.

    Of a seed that both know, the longer training wins (with `replace`, the new one): a record is written at the first
    checkpoint of a run and again at its end.
    """
    training, fresh = by_seed(old), by_seed(new)
    for seed, facts in fresh.items():
        if replace or seed not in training or facts.get("steps", 0) >= training[seed].get("steps", 0):
            training[seed] = facts
    scoring, scored = by_score(old), by_score(new)
    scoring |= {key: scored[key] for key in scores if key in scored}
    return {
        "dataset": old["dataset"],
        "agent": old["agent"],
        "training": _grouped({(seed,): facts for seed, facts in training.items()}, "seeds"),
        "scoring": _grouped({(*key, seconds): facts for key, (facts, seconds) in scoring.items()}, "scored"),
    }


def _grouped(facts: Mapping[tuple, Facts], name: str) -> list[Facts]:
    """Keys with equal facts as one entry, with the keys under `name`."""
    groups: dict[str, tuple[list[Any], Facts]] = {}
    for key in sorted(facts):
        members, _ = groups.setdefault(json.dumps(facts[key], sort_keys=True), ([], facts[key]))
        members.append(key[0] if len(key) == 1 else list(key))
    return [{name: members, **entry} for members, entry in groups.values()]


def conflicts(old: Record, new: Record) -> str | None:
    """Why two records cannot be of one cell: other settings of the agent."""
    mine = {json.dumps(f["settings"], sort_keys=True) for f in by_seed(old).values() if "settings" in f}
    theirs = {json.dumps(f["settings"], sort_keys=True) for f in by_seed(new).values() if "settings" in f}
    if len(mine | theirs) <= 1:
        return None
    first, second = (_flat(json.loads(text)) for text in sorted(mine | theirs)[:2])
    name = next(n for n in sorted({*first, *second}) if first.get(n) != second.get(n))
    return f"trained with other settings ({name}: {first.get(name)} and {second.get(name)})"


def notices(records: Iterable[Record]) -> list[str]:
    """What a reader should know before comparing: the same data request with another fingerprint, other simulators."""
    prints: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        for facts in by_seed(record).values():
            data = facts.get("data") or {}
            origin = data.get("provenance") or {}
            request = origin.get("command") or ("cta ooc cut" if "ooc" in origin else "published files")
            where = (facts.get("hardware") or {}).get("cpu", "an unknown machine")
            if "fingerprint" in data:
                prints.setdefault((record["dataset"], request), {}).setdefault(data["fingerprint"], where)
    return [
        f"{dataset}: `{request}` gave different data on different machines: "
        + ", ".join(f"{fingerprint[:12]} ({where})" for fingerprint, where in sorted(found.items()))
        for (dataset, request), found in sorted(prints.items())
        if len(found) > 1
    ]


def _without(entry: Mapping[str, Any], name: str) -> Facts:
    return {key: value for key, value in entry.items() if key != name}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
