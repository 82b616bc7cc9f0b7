"""Cutting held-out pairs out of a dataset's files, with a record of what went."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cta.data import TrajectoryDataset
from cta.data.download import record_path, sha256_of
from cta.data.files import resolve, write_whole
from cta.data.npz import CHUNK_BYTES, Column, NpzReader, write_npz
from cta.data.progress import Advance, progress
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.ooc.events import UNEXPLAINED, Rows, find_events, presses, read_rows
from cta.ooc.pairs_file import HeldOut
from cta.ooc.surgery import random_windows, remaining_rows, run_lengths, windows_before

RECORD_KEY = "ooc"


@dataclass(frozen=True)
class PairCount:
    """One pair in one file: completion events, K·events, and how many transitions their windows really hold."""

    number: int
    name: str
    events: int
    nominal: int
    removed: int


@dataclass(frozen=True)
class CutReport:
    """What a cut did to one file.

    `removed` counts every transition once, also where windows of several pairs overlap. `left` are the events of the
    pairs that are still in the result: none, except in the control, whose windows lie at random places. `unexplained`
    counts steps whose change of lights no single press explains.
    """

    pairs: tuple[PairCount, ...]
    windows: int
    removed: int
    transitions: int
    episodes: int
    left: tuple[int, ...]
    unexplained: int

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "pairs": [vars(pair) for pair in self.pairs],
            "windows": self.windows,
            "removed": self.removed,
            "transitions_left": self.transitions,
            "episodes_left": self.episodes,
            "events_left": list(self.left),
            "unexplained": self.unexplained,
        }


@dataclass(frozen=True)
class Cut:
    """A cut that is planned: the rows of the source that remain, which of them end an episode, and the report."""

    rows: np.ndarray
    terminals: np.ndarray
    report: CutReport


def plan_cut(dataset: TrajectoryDataset, held_out: HeldOut, *, control_seed: int | Sequence[int] | None = None) -> Cut:
    """Find the events and decide which rows remain.

    With `control_seed` the same number of windows of the same lengths goes, at random places.
    """
    layout, rule = held_out.layout, held_out.rule
    rows = read_rows(dataset, layout, rule)
    gone, counts = np.zeros(dataset.num_rows, bool), []
    for number, pair in held_out.numbered():
        events = find_events(rows, pair, layout, rule)
        mine = windows_before(events, pair.window, dataset)
        counts.append(PairCount(number, pair.name, len(events), pair.window * len(events), int(mine.sum())))
        gone |= mine
    lengths = run_lengths(gone, dataset)
    if control_seed is not None:
        gone = random_windows(lengths, dataset, seed=control_seed)
    kept, terminals = remaining_rows(gone, dataset)
    after = Rows(rows.measured[kept], rows.values[kept], terminals)
    left = tuple(len(find_events(after, pair, layout, rule)) for pair in held_out.pairs)
    if control_seed is None and any(left):
        raise CtaError(f"internal: {sum(left)} events of {dataset.name} survived their own removal")
    inside = ~dataset.terminals[:-1]
    odd = int(((presses(layout, rows.values) == UNEXPLAINED) & inside).sum()) if layout.patterns else 0
    episodes = int(terminals.sum())
    report = CutReport(tuple(counts), len(lengths), int(gone.sum()), len(kept) - episodes, episodes, left, odd)
    return Cut(kept, terminals, report)


def cut_files(
    source: str | Path,
    out: str | Path,
    held_out: HeldOut,
    *,
    per_pair: bool = False,
    control_seed: int | None = None,
    dataset_dir: str | Path | None = None,
) -> dict[Path, dict[str, CutReport]]:
    """Cut NAME or FILE and its validation file; {training file: {"train": report, "validation": report}}.

    The results go to OUT/NAME.npz and OUT/NAME-val.npz, with `per_pair` to OUT/pair1/NAME.npz and so on: the names of
    the source, so that whoever opens them finds the world and its settings.
    """
    name, train, validation = open_dataset(source, dataset_dir=dataset_dir, info=True)
    files = resolve(source, dataset_dir=dataset_dir)
    jobs = {Path(out).expanduser(): held_out}
    if per_pair:
        folder = Path(out).expanduser()
        jobs = {folder / f"pair{alone.first}": alone for alone in held_out.each()}
    splits = {"validation": validation, "train": train}
    fingerprints = {split: data.fingerprint() for split, data in splits.items() if data is not None}
    reports: dict[Path, dict[str, CutReport]] = {}
    for folder, wanted in jobs.items():
        targets = {"train": folder / f"{name}.npz", "validation": folder / f"{name}-val.npz"}
        _check_target(targets, (files.train, files.validation))
        _make_folder(folder)
        reports[targets["train"]] = written = {}
        for number, (split, data) in enumerate(splits.items()):
            if data is None:
                _remove(targets[split])
                continue
            cut = plan_cut(data, wanted, control_seed=None if control_seed is None else (control_seed, number))
            origin = {"name": data.name, "fingerprint": fingerprints[split], "provenance": data.provenance}
            record = _record(cut, wanted, name=name, split=split, source=origin, control_seed=control_seed)
            _write(data, cut, targets[split], record)
            written[split] = cut.report
    return reports


def _record(
    cut: Cut, held_out: HeldOut, *, name: str, split: str, source: dict[str, Any], control_seed: int | None
) -> dict[str, Any]:
    """What fixes the bytes of a cut file: its source, the pairs and the rule; no clock, no machine."""
    kind = {"kind": "held-out"} if control_seed is None else {"kind": "random", "seed": control_seed}
    pairs = {"first_pair": held_out.first, **held_out.record()}
    made = {**kind, "world": held_out.layout.name, **pairs, "report": cut.report.record()}
    return {"created_by": "cta", "dataset": name, "split": split, "source": source, RECORD_KEY: made}


def _write(dataset: TrajectoryDataset, cut: Cut, path: Path, record: dict[str, Any]) -> None:
    """The arrays of the rows that remain, piece by piece (images may be larger than the memory), and a sidecar."""
    arrays = {"observations": dataset.observations, "actions": dataset.actions, **dataset.info}
    record_path(path).unlink(missing_ok=True)  # an earlier cut's: it would not fit the new file
    with progress(f"writing {path.name}", total=len(arrays) * len(cut.rows), unit="rows") as advance:
        columns = {
            key: Column(values.dtype, (len(cut.rows), *values.shape[1:]), _pieces(values, cut.rows, advance))
            for key, values in arrays.items()
        }
        columns["terminals"] = Column(cut.terminals.dtype, cut.terminals.shape, [cut.terminals])
        write_npz(path, columns, record)
    sidecar = {"sha256": sha256_of(path), **record}
    write_whole(record_path(path), json.dumps(sidecar, indent=1, ensure_ascii=False) + "\n")


def _pieces(values: np.ndarray, rows: np.ndarray, advance: Advance) -> Iterator[np.ndarray]:
    size = max(1, CHUNK_BYTES * len(values) // max(1, values.nbytes))
    for start in range(0, len(rows), size):
        piece = values[rows[start : start + size]]
        yield piece
        advance(len(piece))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CtaError(f"cannot make {folder}: {error.strerror or error}") from None


def _check_target(targets: dict[str, Path], sources: Sequence[Path]) -> None:
    """Only earlier cuts are ever replaced."""
    for path in targets.values():
        if path.resolve() in [source.resolve() for source in sources]:
            raise CtaError(f"{path} is what is being cut: give another --out")
        if path.exists() and cut_record(path) is None:
            raise CtaError(f"{path} exists and is not the result of a cut: give another --out, or move it")


def _remove(path: Path) -> None:
    """An earlier cut's validation file would stand beside training data of another source."""
    for stale in (path, record_path(path)):
        stale.unlink(missing_ok=True)


def cut_record(path: Path) -> dict[str, Any] | None:
    """What was cut out of a file, if it is the result of a cut."""
    with NpzReader(path) as file:
        return (file.provenance() or {}).get(RECORD_KEY)
