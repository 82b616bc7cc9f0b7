"""Finding completion events, and cutting held-out pairs out of a dataset's files, with a record of what went.

Row i of a dataset stands for the transition i → i + 1, unless it is the last of its episode. Removing a run of
transitions splits an episode: the state in which the run began ends one part, that in which it ended begins the other.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cta.data import TrajectoryDataset, resolve
from cta.data.download import record_path, sha256_of
from cta.data.npz import CHUNK_BYTES, Column, NpzReader, write_npz
from cta.data.progress import progress
from cta.envs.datasets import open_dataset
from cta.errors import CtaError
from cta.io.files import write_whole
from cta.ooc.components import Layout, Rule
from cta.ooc.pairs import PRESS, HeldOut, Pair

RECORD_KEY = "ooc"
TRIES = 10_000  # draws after which a random window is given up
NO_PRESS, UNEXPLAINED = -1, -2


class Rows(NamedTuple):
    """A dataset's rows in discrete terms: `measured` (N, C), `values` (N, C) and `terminals` (N,)."""

    measured: np.ndarray
    values: np.ndarray
    terminals: np.ndarray


def read_rows(dataset: TrajectoryDataset, layout: Layout, rule: Rule) -> Rows:
    measured = layout.measure(dataset.observations, dataset.info)
    return Rows(measured, rule.values(layout, measured), dataset.terminals)


def presses(layout: Layout, values: np.ndarray) -> np.ndarray:
    """(N − 1,) the button whose pattern is the change from row t to t + 1; −1: no change, −2: more than a press."""
    flipped = values[1:] != values[:-1]
    found = np.where(flipped.any(axis=1), UNEXPLAINED, NO_PRESS)
    for button, pattern in enumerate(layout.flips):
        found[(flipped == pattern).all(axis=1)] = button
    return found


def find_events(rows: Rows, pair: Pair, layout: Layout, rule: Rule) -> np.ndarray:
    """The transitions t (rows t → t + 1 of one episode) that complete the pair's task with its context at row t."""
    if len(rows.terminals) < 2:
        return np.zeros(0, int)
    what, value = pair.event
    if what == PRESS:
        happened = presses(layout, rows.values) == value
    else:
        column = layout.index(what)
        reached = rule.reached(layout.components[column], rows.measured[:, column], value)
        happened = ~reached[:-1] & reached[1:]
    happened &= ~rows.terminals[:-1]
    for name, held in pair.context.items():
        if name != what:  # of its own component the event decides: it was not there, now it is
            happened &= rows.values[:-1, layout.index(name)] == held
    return np.flatnonzero(happened)


def find_all(dataset: TrajectoryDataset, held_out: HeldOut) -> list[np.ndarray]:
    rows = read_rows(dataset, held_out.layout, held_out.rule)
    return [find_events(rows, pair, held_out.layout, held_out.rule) for pair in held_out.pairs]


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
    """What a cut did to one file."""

    pairs: tuple[PairCount, ...]
    windows: int
    removed: int  # every transition counts once, also where windows overlap
    transitions_left: int
    episodes_left: int
    events_left: tuple[int, ...]  # none of any pair, except in the control
    unexplained: int  # steps whose change of lights no single press explains


class Cut(NamedTuple):
    """A cut that is planned: the rows of the source that remain, which of them end an episode, and the report."""

    rows: np.ndarray
    terminals: np.ndarray
    report: CutReport


def plan_cut(dataset: TrajectoryDataset, held_out: HeldOut, *, control_seed: int | Sequence[int] | None = None) -> Cut:
    """Find the events and decide which rows remain; with `control_seed` windows of the same lengths go elsewhere."""
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
    odd = int(((presses(layout, rows.values) == UNEXPLAINED) & ~dataset.terminals[:-1]).sum()) if layout.patterns else 0
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

    They become OUT/NAME.npz and OUT/NAME-val.npz, with `per_pair` OUT/pair1/NAME.npz and so on: NAME tells the world.
    """
    name, train, validation = open_dataset(source, dataset_dir=dataset_dir, info=True)
    files, out = resolve(source, dataset_dir=dataset_dir), Path(out).expanduser()
    jobs = {out / f"pair{alone.first}": alone for alone in held_out.each()} if per_pair else {out: held_out}
    splits = {"validation": validation, "train": train}
    fingerprints = {split: data.fingerprint() for split, data in splits.items() if data is not None}
    kind = {"kind": "held-out"} if control_seed is None else {"kind": "random", "seed": control_seed}
    reports: dict[Path, dict[str, CutReport]] = {}
    for folder, wanted in jobs.items():
        targets = {"train": folder / f"{name}.npz", "validation": folder / f"{name}-val.npz"}
        _check_targets(targets.values(), (files.train, files.validation))
        folder.mkdir(parents=True, exist_ok=True)
        reports[targets["train"]] = written = {}
        for number, (split, data) in enumerate(splits.items()):
            if data is None:  # an earlier cut's validation file would stand beside training data of another source
                for stale in (targets[split], record_path(targets[split])):
                    stale.unlink(missing_ok=True)
                continue
            cut = plan_cut(data, wanted, control_seed=None if control_seed is None else (control_seed, number))
            # What fixes the bytes of a cut file: its source, the pairs and the rule; no clock, no machine.
            origin = {"name": data.name, "fingerprint": fingerprints[split], "provenance": data.provenance}
            how = {**kind, "world": wanted.layout.name, "first_pair": wanted.first, **wanted.record()}
            made = {"source": origin, RECORD_KEY: how | {"report": asdict(cut.report)}}
            _write(data, cut, targets[split], {"created_by": "cta", "dataset": name, "split": split, **made})
            written[split] = cut.report
    return reports


def _write(dataset: TrajectoryDataset, cut: Cut, path: Path, record: dict[str, Any]) -> None:
    """The arrays of the rows that remain, piece by piece (images may be larger than the memory), and a sidecar."""
    arrays = {"observations": dataset.observations, "actions": dataset.actions, **dataset.info}
    record_path(path).unlink(missing_ok=True)  # an earlier cut's: it would not fit the new file
    with progress(f"writing {path.name}", total=len(arrays) * len(cut.rows), unit="rows") as advance:

        def pieces(values: np.ndarray) -> Iterator[np.ndarray]:
            size = max(1, CHUNK_BYTES * len(values) // max(1, values.nbytes))
            for start in range(0, len(cut.rows), size):
                piece = values[cut.rows[start : start + size]]
                yield piece
                advance(len(piece))

        shapes = {key: (len(cut.rows), *values.shape[1:]) for key, values in arrays.items()}
        columns = {key: Column(values.dtype, shapes[key], pieces(values)) for key, values in arrays.items()}
        columns["terminals"] = Column(cut.terminals.dtype, cut.terminals.shape, [cut.terminals])
        write_npz(path, columns, record)
    sidecar = {"sha256": sha256_of(path), **record}
    write_whole(record_path(path), json.dumps(sidecar, indent=1, ensure_ascii=False) + "\n")


def _check_targets(targets: Iterable[Path], sources: Sequence[Path]) -> None:
    """Only earlier cuts are ever replaced."""
    for path in targets:
        if path.resolve() in [source.resolve() for source in sources]:
            raise CtaError(f"{path} is what is being cut: give another --out")
        if path.exists():
            with NpzReader(path) as file:
                if RECORD_KEY not in (file.provenance() or {}):
                    raise CtaError(f"{path} exists and is not the result of a cut: give another --out, or move it")


def windows_before(events: np.ndarray, window: int, dataset: TrajectoryDataset) -> np.ndarray:
    """(N,) bool: the transitions t − K + 1 … t of all events t, none beyond the start of the event's episode."""
    gone = np.zeros(dataset.num_rows, bool)
    firsts = dataset.episode_starts[np.searchsorted(dataset.episode_starts, events, side="right") - 1]
    for event, first in zip(events.tolist(), np.maximum(firsts, events - window + 1).tolist(), strict=True):
        gone[first : event + 1] = True
    return gone


def random_windows(lengths: Sequence[int], dataset: TrajectoryDataset, *, seed: int | Sequence[int]) -> np.ndarray:
    """(N,) bool: runs of transitions of these lengths at random places, none across an episode's end or overlapping."""
    rng, gone, blocked = np.random.default_rng(seed), np.zeros(dataset.num_rows, bool), dataset.terminals.copy()
    # The longest first: the short ones fit into what they leave.
    for length in sorted(lengths, reverse=True):
        for _ in range(TRIES):
            end = int(rng.integers(length - 1, dataset.num_rows)) if length <= dataset.num_rows else -1
            run = slice(end - length + 1, end + 1)
            if end >= 0 and not blocked[run].any():
                gone[run] = blocked[run] = True
                break
        else:
            raise CtaError(f"{dataset.name}: no room for {len(lengths)} random windows of up to {max(lengths)}")
    return gone


def run_lengths(gone: np.ndarray, dataset: TrajectoryDataset) -> list[int]:
    """The lengths of the maximal runs of removed transitions; a run ends with its episode."""
    edges = np.flatnonzero(np.diff(gone & ~dataset.terminals, prepend=False, append=False))
    return (edges[1::2] - edges[::2]).tolist()


def remaining_rows(gone: np.ndarray, dataset: TrajectoryDataset) -> tuple[np.ndarray, np.ndarray]:
    """(rows that remain, whether each is the last of its episode) once these transitions are gone."""
    kept = ~gone & ~dataset.terminals
    # A row remains if the transition into it or out of it does.
    rows = np.flatnonzero(kept | np.append(False, kept[:-1]))
    if not rows.size:
        raise CtaError(f"{dataset.name}: nothing would be left: every transition lies in a removed window")
    return rows, ~kept[rows]
