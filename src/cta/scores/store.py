"""A folder of scores: one CSV file and one record per cell. Adding is atomic, and nothing is ever counted twice."""

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from cta.errors import CtaError
from cta.io.file_lock import file_lock
from cta.io.files import check_writable, user_path
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
        return _cells(self._files(key)).get(key, CellScores(key, (), records.empty(key)))

    def notices(self) -> list[str]:
        """What a reader should know before comparing cells."""
        return records.notices(cell.record for cell in self.cells())

    def _files(self, key: CellKey | None = None) -> dict[Path, str | None]:
        """CSV files, also those of which only the record is there, with what their place says of the condition.

        With `key`: the cell's own, and those of earlier layouts that may have it.
        """
        found: dict[Path, str | None] = {}
        wanted = set() if key is None else {key.stem, CellKey(key.dataset, key.agent).stem}
        for name, condition in {**OLD_FOLDERS, "": None}.items():
            folder = self.folder / name
            stems = {path.stem for path in (*folder.glob("*.csv"), *folder.glob("*.json"))} if key is None else wanted
            for path in (folder / f"{stem}.csv" for stem in sorted(stems)):
                if path.is_file() or records.is_record(path.with_suffix(".json")):
                    found[path] = condition
        return found

    def add(self, key: CellKey, record: records.Record, rows: Iterable[Score] = (), *, replace: bool = False) -> None:
        """Add what was trained and scored in one cell.

        What is there already stays if the new rows are the same; if they differ they are refused, or with `replace`
        take the place of the old ones.
        """
        path, new = self.path(key.check("scores")), _grouped(key, rows)
        # As it will be read: JSON knows no tuples.
        record = records.empty(key) | json.loads(json.dumps({n: record.get(n, []) for n in ("training", "scoring")}))
        records.check_record(record, key.name)
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with file_lock(path):  # several scoring processes write into one folder
            cell = self.cell(key)
            if stray := path.is_file() and next((s.key for s in read_scores(path) if s.key != key), None):
                # Different names can become the same file name.
                raise CtaError(f"{path} holds scores of {stray.name}: use another results folder for {key.name}")
            if problem := records.conflicts(cell.record, record):
                if not replace:
                    raise CtaError(f"{path}: {problem}: use another results folder")
                cell = CellScores(key, (), records.empty(key))
            old = _grouped(key, cell.rows)
            for (seed, step, asked), fresh in new.items():
                if old.get((seed, step, asked), fresh) != fresh and not replace:
                    raise CtaError(
                        f"{path}: seed {seed} at step {step} is scored already, with another "
                        "result: keep one of them, or replace what is there with --replace"
                    )
            fresh_keys = [asked for asked in new if replace or asked not in old]
            # The record first: facts without rows do no harm, rows without facts would.
            write_json(
                path.with_suffix(".json"), records.merged(cell.record, record, scores=fresh_keys, replace=replace)
            )
            if old | new:
                write_scores(path, chain.from_iterable((old | new).values()))
            for former, condition in self._files(key).items():
                if former != path and [*_cells({former: condition})] == [key]:  # all of it is in the cell's own file
                    former.unlink(missing_ok=True)
                    former.with_suffix(".json").unlink(missing_ok=True)


def _cells(files: Mapping[Path, str | None]) -> dict[CellKey, CellScores]:
    rows: dict[CellKey, dict[tuple[Any, ...], Score]] = {}
    facts: dict[CellKey, records.Record] = {}
    for path, condition in files.items():
        scores, record = _read(path, condition)
        for score in scores:
            if rows.setdefault(score.key, {}).setdefault(score[:7], score) != score:
                raise CtaError(f"{path} and another file both score seed {score.seed} of {score.agent}: keep one")
        if record is not None:
            key = records.cell(record)
            known = facts.get(key, records.empty(key))
            facts[key] = records.merged(known, record, scores=records.by_score(record))
    return {
        key: CellScores(key, tuple(sorted(rows.get(key, {}).values(), key=order)), facts.get(key) or records.empty(key))
        for key in rows | facts
    }


def _read(path: Path, condition: str | None) -> tuple[list[Score], records.Record | None]:
    """A file's rows and the record beside it. Where the rows do not say the condition, the folder or record does."""
    record = records.read_record(file) if (file := path.with_suffix(".json")).is_file() else None
    condition = condition or (record or {}).get("condition")
    scores = read_scores(path, condition=condition) if path.is_file() else []
    if record is not None:
        usual = condition or (scores[0].condition if scores else WHOLE)
        record = {"settings": "", "condition": usual, **record}
        records.cell(record).check(str(file))
    return scores, record


def _grouped(key: CellKey, rows: Iterable[Score]) -> dict[tuple[int, int, str], list[Score]]:
    """By (seed, step, tasks, pairs or presses), which is scored, replaced or refused as a whole."""
    found: dict[tuple[int, int, str], list[Score]] = {}
    for row in sorted(rows, key=order):
        if row.key != key:
            raise CtaError(f"a score of {row.key.name} cannot be added to {key.name}")
        found.setdefault((row.seed, row.step, row.asked), []).append(row)
    return found
