"""A folder of scores: one CSV file and one record per cell. Adding is atomic, and nothing is ever counted twice."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.file_lock import file_lock
from cta.io.files import user_path
from cta.io.json_files import write_json
from cta.scores import records
from cta.scores.protocol import CellScores, short_steps
from cta.scores.schema import HELD_OUT, RANDOM, WHOLE, CellKey, Score, order, read_scores, write_scores

DEFAULT = Path("results")
OLD_FOLDERS = {
    f"{above}{name}": condition
    for name, condition in (("held-out", HELD_OUT), ("random", RANDOM), ("uncut", WHOLE))
    for above in ("", "ooc/", "results/")
} | {"ooc": HELD_OUT}
"""Where earlier versions put scores of held-out pairs, by what the agent was trained on."""
Asked = tuple[int, int, str]
"""(seed, step, tasks, pairs or presses): what is scored, replaced or refused as a whole."""


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
        files = [(path, condition) for folder, condition in self._folders() for path in _files(folder)]
        return [cell for _, cell in sorted(_cells(files).items())]

    def cell(self, key: CellKey) -> CellScores:
        """One cell, perhaps empty."""
        found = _cells([*self._former(key).items(), *([(self.path(key), None)] if _is_there(self.path(key)) else [])])
        return found.get(key, CellScores(key, (), records.empty(key)))

    def _folders(self) -> list[tuple[Path, str | None]]:
        return [(self.folder, None), *((self.folder / name, condition) for name, condition in OLD_FOLDERS.items())]

    def _former(self, key: CellKey) -> dict[Path, str | None]:
        """Files of earlier layouts that may have this cell, with what their place says of the condition."""
        stem = CellKey(key.dataset, key.agent).stem
        places = {folder / f"{stem}.csv": condition for folder, condition in self._folders()}
        return {p: c for p, c in places.items() if not key.settings and p != self.path(key) and _is_there(p)}

    def add(self, key: CellKey, record: records.Record, rows: Iterable[Score] = (), *, replace: bool = False) -> None:
        """Add what was trained and scored in one cell.

        What is there already stays if the new rows are the same; if they differ they are refused, or with `replace`
        take the place of the old ones.
        """
        path, new = self.path(key.check("scores")), _grouped(key, rows)
        # As it will be read: JSON knows no tuples.
        record = records.empty(key) | json.loads(json.dumps({n: record.get(n, []) for n in ("training", "scoring")}))
        records.check_record(record, key.name)
        with self._alone(path):
            cell = self.cell(key)
            self._check_home(path, key)
            problem = records.conflicts(cell.record, record)
            if problem and not replace:
                raise CtaError(f"{path}: {problem}: use another results folder")
            old = {} if problem else _grouped(key, cell.rows)
            for (seed, step, asked), fresh in new.items():
                known = old.get((seed, step, asked), fresh)
                if known != fresh and not replace:
                    raise CtaError(
                        f"{path}: seed {seed} at step {step} is scored already, with another "
                        "result: keep one of them, or replace what is there with --replace"
                    )
            fresh_keys = [asked for asked in new if replace or asked not in old]
            base = records.empty(key) if problem else cell.record
            # The record first: facts without rows do no harm, rows without facts would.
            write_json(path.with_suffix(".json"), records.merged(base, record, scores=fresh_keys, replace=replace))
            if old | new:
                write_scores(path, [row for part in (old | new).values() for row in part])
            for former, condition in self._former(key).items():
                _leave(former, condition, key)

    def _check_home(self, path: Path, key: CellKey) -> None:
        """Different names can become the same file name."""
        stray = next((score for score in read_scores(path) if score.key != key), None) if path.is_file() else None
        if stray is not None:
            raise CtaError(f"{path} holds scores of {stray.key.name}: use another results folder for {key.name}")

    def notices(self) -> list[str]:
        """What a reader should know before comparing cells."""
        return records.notices(cell.record for cell in self.cells())

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Several scoring processes write into one folder."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(file_lock(path))
            except OSError as error:
                raise CtaError(f"{self.folder}: cannot write scores here ({error.strerror})") from error
            yield


def _files(folder: Path) -> list[Path]:
    """The CSV files of a folder, also those of which only the record is there."""
    alone = [path for path in folder.glob("*.json") if not _is_there(path, ".csv") and records.is_record(path)]
    return sorted([*folder.glob("*.csv"), *(path.with_suffix(".csv") for path in alone)])


def _is_there(path: Path, *endings: str) -> bool:
    return any(path.with_suffix(ending).is_file() for ending in endings or (".csv", ".json"))


def _cells(files: Iterable[tuple[Path, str | None]]) -> dict[CellKey, CellScores]:
    rows: dict[CellKey, dict[tuple[Any, ...], Score]] = {}
    facts: dict[CellKey, records.Record] = {}
    for path, condition in files:
        scores, record = _read(path, condition)
        for score in scores:
            if rows.setdefault(score.key, {}).setdefault(score[:7], score) != score:
                raise CtaError(f"{path} and another file both score seed {score.seed} of {score.agent}: keep one")
        if record is not None:
            key = records.cell(record)
            known = facts.get(key, records.empty(key))
            facts[key] = records.merged(known, record, scores=records.by_score(record), replace=False)
    return {
        key: CellScores(key, tuple(sorted(rows.get(key, {}).values(), key=order)), facts.get(key) or records.empty(key))
        for key in rows | facts
    }


def _read(path: Path, condition: str | None) -> tuple[list[Score], records.Record | None]:
    """A file's rows and the record beside it. Where the rows do not say the condition, the folder or record does."""
    record = records.read_record(path.with_suffix(".json")) if _is_there(path, ".json") else None
    condition = condition or (record or {}).get("condition")
    scores = read_scores(path, condition=condition) if _is_there(path, ".csv") else []
    if record is not None:
        usual = {"settings": "", "condition": condition or (scores[0].condition if scores else WHOLE)}
        record = {**usual, **record}
        records.cell(record).check(str(path.with_suffix(".json")))
    return scores, record


def _leave(path: Path, condition: str | None, key: CellKey) -> None:
    """Take a cell out of a file of an earlier layout, now that all of it is in the file of its own."""
    scores, record = _read(path, condition)
    others = [score for score in scores if score.key != key]
    if others and others != scores:
        write_scores(path, others)
    elif scores and not others:
        path.unlink()
    if record is not None and records.cell(record) == key:
        path.with_suffix(".json").unlink(missing_ok=True)


def _grouped(key: CellKey, rows: Iterable[Score]) -> dict[Asked, list[Score]]:
    found: dict[Asked, list[Score]] = {}
    for row in sorted(rows, key=order):
        if row.key != key:
            raise CtaError(f"a score of {row.key.name} cannot be added to {key.name}")
        found.setdefault((row.seed, row.step, row.asked), []).append(row)
    return found
