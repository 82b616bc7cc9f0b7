"""A folder of scores: one CSV file and one record per cell. Adding is atomic, and nothing is ever counted twice.

A record says who trained each seed, on which data, and who scored each step:

    {"dataset": …, "agent": …, "settings": …, "condition": …,
     "training": [{"seeds": [0, 1], "steps": …, "command": …, "commit": …, "versions": …, "hardware": …, "data": …,
                   "settings": …, "wall_clock_s": …, "seed_steps_per_s": …}, …],
     "scoring": [{"scored": [[seed, step, seconds], …], "episodes": …, "weights": …, "command": …, …}, …]}

Seeds may be trained in several slots and on several machines: facts that agree are one entry, others have their own.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from cta.config import flat_settings
from cta.errors import CtaError
from cta.io.files import check_writable, file_lock, user_path
from cta.io.json_files import SCORING, TRAINING, check_data, check_shape, read_json, write_json
from cta.scores.paper import CellScores, short_steps
from cta.scores.schema import ASKED, HELD_OUT, PAIRS, RANDOM, WHOLE, CellKey, Score, order, read_scores, write_scores

DEFAULT = Path("results")
OLD_FOLDERS = {
    f"{above}{name}": condition
    for name, condition in (("held-out", HELD_OUT), ("random", RANDOM), ("uncut", WHOLE))
    for above in ("", "ooc/", "results/")
} | {"ooc": HELD_OUT}
"""Where earlier versions put scores of held-out pairs, by what the agent was trained on."""
FIELDS = {"dataset", "agent", "training", "scoring"}  # of every record
Facts = dict[str, Any]  # a record, or an entry of one


class Scores:
    """`FOLDER/STEM.csv` and `.json` for each cell. Folders of earlier versions are read as well."""

    def __init__(self, folder: str | Path = DEFAULT):
        self.folder = user_path(folder)

    def existing(self) -> "Scores":
        """Itself, if the folder is there: a mistyped name is no empty folder."""
        if not self.folder.is_dir():
            raise CtaError(f"{self.folder}: no such folder")
        return self

    def path(self, key: CellKey) -> Path:
        """The CSV file of a cell; its record has the ending .json."""
        return self.folder / f"{key.stem}.csv"

    def weights_file(self, key: CellKey, seed: int, step: int) -> Path:
        """Where weights that are to be scored elsewhere are kept."""
        return self.folder / "weights" / f"{key.stem}.seed{seed}.{short_steps(step)}.safetensors"

    def events_file(self, key: CellKey, seed: int, step: int) -> Path:
        """Where the event logs of held-out pairs are kept, from which direct and lenient can be counted again."""
        return self.folder / "events" / f"{key.stem}.seed{seed}.{short_steps(step)}.jsonl.gz"

    def cells(self) -> list[CellScores]:
        """Every cell in the folder, in order of its key."""
        return [cell for _, cell in sorted(_cells(self._files()).items())]

    def cell(self, key: CellKey) -> CellScores:
        """One cell, perhaps empty."""
        return _cells(self._files(key)).get(key, CellScores(key, (), empty(key)))

    def notices(self) -> list[str]:
        """What a reader should know before comparing cells."""
        return notices(cell.record for cell in self.cells())

    def _files(self, key: CellKey | None = None) -> dict[Path, str | None]:
        """{CSV file, perhaps only its record: condition by its place}, all or those that may have the cell of `key`."""
        found: dict[Path, str | None] = {}
        wanted = set() if key is None else {key.stem, CellKey(key.dataset, key.agent).stem}
        for name, condition in {**OLD_FOLDERS, "": None}.items():
            folder = self.folder / name
            stems = {path.stem for path in (*folder.glob("*.csv"), *folder.glob("*.json"))} if key is None else wanted
            for path in (folder / f"{stem}.csv" for stem in sorted(stems)):
                if path.is_file() or is_record(path.with_suffix(".json")):
                    found[path] = condition
        return found

    def add(self, key: CellKey, record: Facts, rows: Iterable[Score] = (), *, replace: bool = False) -> None:
        """Add what was trained and scored in one cell. Rows other than those there are refused, or `replace` them."""
        path, new = self.path(key.check("scores")), _evaluations(key, rows)
        # As it will be read: JSON knows no tuples.
        record = empty(key) | json.loads(json.dumps({n: record.get(n, []) for n in ("training", "scoring")}))
        check_record(record, key.name)
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with file_lock(path):  # several scoring processes write into one folder
            cell = self.cell(key)
            if stray := path.is_file() and next((s.key for s in read_scores(path) if s.key != key), None):
                # Different names can become the same file name.
                raise CtaError(f"{path} holds scores of {stray.name}: use another results folder for {key.name}")
            if problem := conflicts(cell.record, record):
                if not replace:
                    raise CtaError(f"{path}: {problem}: use another results folder")
                cell = CellScores(key, (), empty(key))
            old = _evaluations(key, cell.rows)
            for which, scores in () if replace else new.items():
                if old.get(which, scores) != scores:
                    there = f"{path}: seed {which[0]} at step {which[1]} is scored already, with another result"
                    raise CtaError(f"{there}: keep one of them, or replace what is there with --replace")
            fresh = [asked for asked in new if replace or asked not in old]
            # The record first: facts without rows do no harm, rows without facts would.
            write_json(path.with_suffix(".json"), merged(cell.record, record, fresh, replace=replace))
            if old | new:
                write_scores(path, chain.from_iterable((old | new).values()))
            for former, condition in self._files(key).items():
                if former != path and [*_cells({former: condition})] == [key]:  # all of it is in the cell's own file
                    former.unlink(missing_ok=True)
                    former.with_suffix(".json").unlink(missing_ok=True)


def _cells(files: Mapping[Path, str | None]) -> dict[CellKey, CellScores]:
    """What files and the records beside them hold. Where rows do not say the condition, the folder or record does."""
    rows: dict[CellKey, dict[tuple[Any, ...], Score]] = {}
    facts: dict[CellKey, Facts] = {}
    for path, condition in files.items():
        record = read_record(file) if (file := path.with_suffix(".json")).is_file() else {}
        condition = condition or record.get("condition")
        scores = read_scores(path, condition=condition) if path.is_file() else []
        for score in scores:
            if rows.setdefault(score.key, {}).setdefault(score[:7], score) != score:
                raise CtaError(f"{path} and another file both score seed {score.seed} of {score.agent}: keep one")
        if record:
            usual = condition or (scores[0].condition if scores else WHOLE)
            record = {"settings": "", "condition": usual, **record}
            key = CellKey(*(record[name] for name in CellKey._fields)).check(str(file))
            facts[key] = merged(facts.get(key, empty(key)), record)
    return {
        key: CellScores(key, tuple(sorted(rows.get(key, {}).values(), key=order)), facts.get(key, empty(key)))
        for key in rows | facts
    }


def _evaluations(key: CellKey, rows: Iterable[Score]) -> dict[tuple[int, int, str], list[Score]]:
    """By (seed, step, tasks, pairs or presses), which is scored, replaced or refused as a whole."""
    found: dict[tuple[int, int, str], list[Score]] = {}
    for row in sorted(rows, key=order):
        if row.key != key:
            raise CtaError(f"a score of {row.key.name} cannot be added to {key.name}")
        found.setdefault((row.seed, row.step, row.asked), []).append(row)
    return found


def empty(key: CellKey) -> Facts:
    """A record that knows nothing yet."""
    return {**key._asdict(), "training": [], "scoring": []}


def is_record(path: Path) -> bool:
    """Whether a JSON file is a record of scores, and not something else in the same folder."""
    try:
        return set(read_json(path)) >= FIELDS
    except CtaError:
        return False


def read_record(path: Path) -> Facts:
    """The record in a file; older ones say neither settings nor condition."""
    record = read_json(path)
    if not set(record) >= FIELDS:
        raise CtaError(f"{path}: not a record of scores")
    if isinstance(record["scoring"], dict):
        record = _of_study(record, path)
    return check_record(record, str(path))


def check_record(record: Facts, where: str) -> Facts:
    """Itself, if its facts look like facts."""
    check_shape(record, {"training!": [TRAINING | {"seeds!": [int]}], "scoring!": [SCORING]}, where)
    for entry in record["training"]:
        check_data(entry.get("data"), where)
    for entry in record["scoring"]:
        if not all(len(item) == 3 and type(item[0]) is type(item[1]) is int for item in entry["scored"]):
            raise CtaError(f"{where}: scored is a list of seed, step and seconds")
        if entry.get("asked", PAIRS) not in ASKED:
            raise CtaError(f"{where}: asked is one of {', '.join(ASKED)}, not {entry['asked']!r:.40}")
    return record


def _of_study(record: Facts, path: Path) -> Facts:
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


def by_seed(record: Facts) -> dict[int, Facts]:
    """{seed: facts of its training}."""
    return {seed: _without(entry, "seeds") for entry in record["training"] for seed in entry["seeds"]}


def by_score(record: Facts) -> dict[tuple[int, int, str], tuple[Facts, float]]:
    """{(seed, step, tasks or pairs): (facts of its scoring, seconds)}."""
    usual = ASKED[0] if record["condition"] == WHOLE else PAIRS
    return {
        (seed, step, entry.get("asked", usual)): (_without(entry, "scored"), seconds)
        for entry in record["scoring"]
        for seed, step, seconds in entry["scored"]
    }


def merged(
    old: Facts, new: Facts, scores: Collection[tuple[int, int, str]] | None = None, *, replace: bool = False
) -> Facts:
    """`old` with what `new` knows of training, and of the scoring of `scores` (by default of all)."""
    training = by_seed(old)
    # The longer training wins: a record is written at the first checkpoint of a run and again at its end.
    for seed, facts in by_seed(new).items():
        if replace or facts.get("steps", 0) >= training.get(seed, {}).get("steps", 0):
            training[seed] = facts
    scoring = by_score(old) | {key: one for key, one in by_score(new).items() if scores is None or key in scores}
    timed = sorted(([*key[:2], seconds], key[2], facts) for key, (facts, seconds) in scoring.items())
    return {
        **{name: old[name] for name in CellKey._fields},
        "training": _grouped(sorted(training.items()), "seeds"),
        "scoring": _grouped(((key, facts) for key, _, facts in timed), "scored"),
    }


def _grouped(found: Iterable[tuple[Any, Facts]], name: str) -> list[Facts]:
    """Keys with equal facts as one entry, with the keys under `name`."""
    groups: dict[str, Facts] = {}
    for key, facts in found:
        groups.setdefault(json.dumps(facts, sort_keys=True), {name: [], **facts})[name].append(key)
    return [*groups.values()]


def conflicts(old: Facts, new: Facts) -> str | None:
    """Why two records cannot be of one cell: other settings of the agent."""
    used = [facts.get("settings") for record in (old, new) for facts in by_seed(record).values()]
    first, *others = [flat_settings(settings) for settings in used if settings] or [{}]
    for second in others:
        for name in sorted(first.keys() & second.keys()):  # another version knew fewer settings
            if first[name] != second[name]:
                return f"trained with other settings ({name}: {first[name]} and {second[name]})"
    return None


def notices(records: Iterable[Facts]) -> list[str]:
    """What a reader should know before comparing: the same data request with another fingerprint, other simulators."""
    prints: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
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
                    prints[record["dataset"], request, made_of].setdefault(str(data["fingerprint"]), where)
    return [
        f"{dataset}: `{request}` gave different data on different machines: "
        + ", ".join(f"{fingerprint[:12]} ({where})" for fingerprint, where in sorted(found.items()))
        for (dataset, request, _), found in sorted(prints.items())
        if len(found) > 1
    ]


def _without(entry: Facts, name: str) -> Facts:
    return {key: value for key, value in entry.items() if key != name}
