"""The record beside a result file: who trained each seed, on which data, and who scored each step.

    {"dataset": …, "agent": …, "settings": …, "condition": …,
     "training": [{"seeds": [0, 1], "steps": …, "command": …, "commit": …, "versions": …, "hardware": …, "data": …,
                   "settings": …, "wall_clock_s": …, "seed_steps_per_s": …}, …],
     "scoring": [{"scored": [[seed, step, seconds], …], "episodes": …, "weights": …, "command": …, …}, …]}

Seeds may be trained in several slots and on several machines: facts that agree are one entry, others have their own.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cta.config import flat_settings
from cta.errors import CtaError
from cta.io.json_files import check_shape, read_json
from cta.io.shapes import SCORING, TRAINING, check_data
from cta.scores.schema import ASKED, WHOLE, CellKey

CLOCK = "clock.json"
"""In a run directory: {"wall_clock_s": …}, the time of all its training processes, starting and compiling included."""
TASKS, PAIRS, PRESSES = ASKED
"""What a scoring asked for."""
FIELDS = {"dataset", "agent", "training", "scoring"}
Facts = dict[str, Any]
Record = dict[str, Any]


def empty(key: CellKey) -> Record:
    """A record that knows nothing yet."""
    return {**key._asdict(), "training": [], "scoring": []}


def is_record(path: Path) -> bool:
    """Whether a JSON file is a record of scores, and not something else in the same folder."""
    try:
        return set(read_json(path)) >= FIELDS
    except CtaError:
        return False


def read_record(path: Path) -> Record:
    """The record in a file; older ones say neither settings nor condition."""
    record = read_json(path)
    if not set(record) >= FIELDS:
        raise CtaError(f"{path}: not a record of scores")
    if isinstance(record["scoring"], dict):
        record = _of_study(record, path)
    return check_record(record, str(path))


def check_record(record: Record, where: str) -> Record:
    """Itself, if its facts are what facts look like; an error that names the place if not."""
    check_shape(record, {"training!": [TRAINING | {"seeds!": [int]}], "scoring!": [SCORING]}, where)
    for entry in record["training"]:
        check_data(entry.get("data"), where)
    for entry in record["scoring"]:
        if not all(len(item) == 3 and type(item[0]) is type(item[1]) is int for item in entry["scored"]):
            raise CtaError(f"{where}: scored is a list of seed, step and seconds")
        if entry.get("asked", TASKS) not in ASKED:
            raise CtaError(f"{where}: asked is one of {', '.join(ASKED)}, not {entry['asked']!r:.40}")
    return record


def _of_study(record: Record, path: Path) -> Record:
    """The record of an earlier `cta ooc study`, which had facts by folder, and (step, seed)."""
    try:
        training = [{**entry, "data": entry.get("dataset")} for entry in record["training"]]
        entries = [{**entry, "asked": PAIRS} for found in record["scoring"].values() for entry in found]
        for entry in entries:
            entry["scored"] = [[seed, step, seconds] for step, seed, seconds in entry["scored"]]
        condition = {"uncut": WHOLE}.get(str(record["condition"]), record["condition"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CtaError(f"{path}: not a record of scores ({type(error).__name__}: {error})") from None
    return {**record, "condition": condition, "training": training, "scoring": entries}


def cell(record: Mapping[str, Any]) -> CellKey:
    return CellKey(*(record[name] for name in CellKey._fields))


def by_seed(record: Mapping[str, Any]) -> dict[int, Facts]:
    """{seed: facts of its training}."""
    return {seed: _without(entry, "seeds") for entry in record["training"] for seed in entry["seeds"]}


def by_score(record: Mapping[str, Any]) -> dict[tuple[int, int, str], tuple[Facts, float]]:
    """{(seed, step, tasks or pairs): (facts of its scoring, seconds)}."""
    usual = TASKS if record["condition"] == WHOLE else PAIRS
    return {
        (seed, step, entry.get("asked", usual)): (_without(entry, "scored"), seconds)
        for entry in record["scoring"]
        for seed, step, seconds in entry["scored"]
    }


def merged(old: Record, new: Record, *, scores: Iterable[tuple[int, int, str]], replace: bool = False) -> Record:
    """`old` with what `new` knows of training, and of the scoring of `scores`.

    Of a seed that both know, the longer training wins (with `replace`, the new one): a record is written at the first
    checkpoint of a run and again at its end.
    """
    training, scored = by_seed(old), by_score(new)
    for seed, facts in by_seed(new).items():
        if replace or facts.get("steps", 0) >= training.get(seed, {}).get("steps", 0):
            training[seed] = facts
    scoring = by_score(old) | {key: scored[key] for key in scores if key in scored}
    timed = {(*key[:2], seconds, key[2]): facts for key, (facts, seconds) in scoring.items()}
    return {
        **cell(old)._asdict(),
        "training": _grouped({(seed,): facts for seed, facts in training.items()}, "seeds"),
        "scoring": _grouped(timed, "scored"),
    }


def _grouped(facts: Mapping[tuple, Facts], name: str) -> list[Facts]:
    """Keys with equal facts as one entry, with the keys under `name`."""
    groups: dict[str, Facts] = {}
    for key in sorted(facts):
        entry = groups.setdefault(json.dumps(facts[key], sort_keys=True), {name: [], **facts[key]})
        entry[name].append(key[0] if len(key) == 1 else list(key[:3]))
    return [*groups.values()]


def conflicts(old: Record, new: Record) -> str | None:
    """Why two records cannot be of one cell: other settings of the agent. What only one of them names is no conflict:
    another version knew fewer settings.
    """
    used = [facts.get("settings") for record in (old, new) for facts in by_seed(record).values()]
    first, *others = [flat_settings(settings) for settings in used if settings] or [{}]
    for second in others:
        for name in sorted(first.keys() & second.keys()):
            if first[name] != second[name]:
                return f"trained with other settings ({name}: {first[name]} and {second[name]})"
    return None


def notices(records: Iterable[Record]) -> list[str]:
    """What a reader should know before comparing: the same data request with another fingerprint, other simulators."""
    prints: dict[tuple[str, str, str], dict[str, str]] = {}
    for record in records:
        for facts in by_seed(record).values():
            where = str((facts.get("hardware") or {}).get("cpu", "an unknown machine"))
            cut = facts.get("data") or {}
            source = (cut.get("provenance") or {}).get("source") or {}
            # A cut is to blame only if the same source gave different data.
            for data, made_of in ((source, ""), (cut, str(source.get("fingerprint")))):
                origin = data.get("provenance") or {}
                request = str(origin.get("command") or ("cta ooc cut" if "ooc" in origin else "published files"))
                if data.get("fingerprint"):
                    found = prints.setdefault((record["dataset"], request, made_of), {})
                    found.setdefault(str(data["fingerprint"]), where)
    return [
        f"{dataset}: `{request}` gave different data on different machines: "
        + ", ".join(f"{fingerprint[:12]} ({where})" for fingerprint, where in sorted(found.items()))
        for (dataset, request, _), found in sorted(prints.items())
        if len(found) > 1
    ]


def _without(entry: Mapping[str, Any], name: str) -> Facts:
    return {key: value for key, value in entry.items() if key != name}
