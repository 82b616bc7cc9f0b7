"""The analogy map of a run: pairs, their analogies in two dimensions, what they mean, and how far neighbours agree."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cta import provenance
from cta.agents import Spec
from cta.analysis import embedding, figures, purity, queries, representations
from cta.analysis.neighbours import METRICS, among, nearest, neighbour_groups
from cta.analysis.paint import open_painter
from cta.analysis.pairs import DESK_STEPS_APART, STEPS_APART, Pairs, draw_pairs
from cta.analysis.semantics import Labels, Semantics, read
from cta.analysis.states import Schematic, schematic
from cta.compilation import enable_cache
from cta.data import TrajectoryDataset
from cta.data.files import write_whole
from cta.data.progress import progress
from cta.envs.datasets import open_dataset
from cta.envs.desk import find_world
from cta.errors import CtaError
from cta.experiment import Run

FORMAT = 1
FRAMES, MOST_FRAMES = 120, 300
Say = Callable[[str], None]


@dataclass(frozen=True)
class MapOptions:
    """What to map; `None` leaves the choice to the run and its world."""

    pairs: int = 20_000
    apart: tuple[int, int] | None = None
    seed: int | None = None
    step: int | None = None
    split: str = "validation"
    data: str | None = None
    queries: tuple[str, ...] = ()
    frames: int = FRAMES
    perplexity: float = 30.0
    iterations: int = 500
    draw_seed: int = 0
    """Seed of the pairs, the map and the queries."""


@dataclass(frozen=True)
class Subject:
    """The rows that are mapped."""

    name: str
    split: str
    data: TrajectoryDataset
    pairs: Pairs
    semantics: Semantics
    schematic: Schematic
    tasks: Labels
    contexts: Labels


def make_map(run: Run, options: MapOptions, out: Path, *, say: Say = print) -> dict[str, Any]:
    """Map a run and write everything to `out`; returns what map.json holds."""
    if not 0 <= options.frames <= MOST_FRAMES:
        raise CtaError(f"--frames: 0 to {MOST_FRAMES} points, not {options.frames}")
    embedding.check(options.perplexity, options.iterations)
    mapped = representations.mapped(run.agent)
    subject = open_subject(run, options)
    pairs = subject.pairs
    if len(pairs) < options.pairs:
        say(f"{subject.data.name} has {len(pairs):,} pairs of this kind: all of them are mapped")
    # What was asked for is looked up before anything slow.
    chosen = run.policy(seed=options.seed, step=options.step)
    asked = queries.choose(
        options.queries, subject.name, pairs, subject.tasks, subject.semantics, seed=options.draw_seed
    )
    enable_cache()
    step, networks = run.networks(chosen.step)
    say(f"{len(pairs):,} pairs of the {subject.split} split, step {step:,}")
    good = run.good_seeds(step)
    learned = {
        seed: representations.represent(run.agent, weights, subject.data, pairs)
        for seed, weights in zip(run.config.seeds, networks, strict=True)
        if seed in good
    }

    groups, count = neighbour_groups(pairs.episodes)
    labelled = purity.Labelled(
        subject.tasks, subject.contexts.codes, groups, purity.choose_queries(subject.tasks), count
    )
    rows = _purity_rows(run, subject, learned, labelled, step)
    points = learned[chosen.seed][mapped]
    settings = embedding.tsne_settings(
        len(pairs), perplexity=options.perplexity, iterations=options.iterations, seed=options.draw_seed
    )
    say(f"placing them by t-SNE, {options.iterations} iterations")
    places = embedding.tsne(points, settings)
    near = {metric: nearest(points, [groups], metric=metric, count=count)[0] for metric in METRICS}
    frames = _pictures(out, subject, near, asked, options.frames, title=f"{mapped}, {run.config.agent_name}", say=say)
    title = f"{mapped} of {run.config.agent_name} on {subject.name}, step {step:,}, {len(pairs):,} pairs"
    figures.draw_map(out / "map.png", places, subject.tasks, asked, title=title)
    contents = {
        "format": FORMAT,
        "dataset": subject.name,
        "agent": run.config.agent_name,
        "seed": chosen.seed,
        "step": step,
        "pairs": len(pairs),
        "representation": mapped,
        "among": among(pairs.episodes),
        "method": settings,
        "purity": purity.table(rows) if rows else [],
        "purity_by_task": purity.task_table(rows, mapped),
        "provenance": _provenance(run, subject, options),
        "queries": asked,
        "frames": frames,
        **_columns(subject, places, near),
    }
    write_whole(out / "map.json", json.dumps(contents, ensure_ascii=False, separators=(",", ":")) + "\n")
    if rows:
        _write_purity(out, rows, contents)
    return contents


def open_subject(run: Run, options: MapOptions) -> Subject:
    """The validation split of the run's data (or what was asked for), with pairs drawn from it."""
    where = options.data or run.config.dataset
    if options.data is None:
        name, train, validation = run.open_data(info=True)
    else:
        name, train, validation = open_dataset(options.data, dataset_dir=run.config.dataset_dir, info=True)
    if options.split == "validation" and validation is None:
        raise CtaError(f"{where} has no validation file beside it; --split train maps the training data")
    data = train if options.split == "train" or validation is None else validation
    shape = run.files.provenance().get("dataset", {}).get("observation_shape")
    if shape is not None and tuple(shape) != data.observation_shape:
        raise CtaError(f"{where} has observations of shape {data.observation_shape}, the run was trained on {shape}")
    apart = options.apart or (DESK_STEPS_APART if find_world(name) else STEPS_APART)
    first = queries.asked_rows(options.queries)
    pairs = draw_pairs(data, options.pairs, apart=apart, seed=options.draw_seed, first=first)
    meaning = read(name, data)
    tasks, contexts = meaning.tasks(pairs.states, pairs.goals), meaning.contexts(pairs.states)
    return Subject(name, options.split, data, pairs, meaning, schematic(name, data), tasks, contexts)


def _purity_rows(
    run: Run, subject: Subject, learned: dict[int, dict[str, np.ndarray]], labelled: purity.Labelled, step: int
) -> list[dict[str, Any]]:
    """Rows for every seed that is well, trained and untrained, and for the difference of observations, once."""
    if not len(labelled.queries):
        return []
    data = subject.data
    spec = Spec.of(data.observation_shape, data.action_dim)
    difference = representations.difference(data, subject.pairs)
    common = {"dataset": subject.name, "agent": run.config.agent_name, "step": step}
    jobs: list[tuple[int, dict[tuple[str, str], np.ndarray]]] = []
    for index, (seed, trained) in enumerate(learned.items()):
        fresh = representations.untrained(run.agent, spec, seed)
        before = representations.represent(run.agent, fresh, data, subject.pairs)
        mine = {(representations.DIFFERENCE, "none"): difference} if index == 0 else {}
        mine |= {(name, "trained"): points for name, points in trained.items()}
        mine |= {(name, "untrained"): points for name, points in before.items()}
        jobs.append((seed, mine))
    rows: list[dict[str, Any]] = []
    with progress("neighbour purity", total=sum(len(mine) for _, mine in jobs), unit="representations") as advance:
        for seed, mine in jobs:
            for key, points in mine.items():
                rows += [
                    {**common, "seed": seed, **row} for row in purity.measure_all({key: points}, labelled, shuffle=seed)
                ]
                advance(1)
    return rows


def _pictures(
    out: Path,
    subject: Subject,
    near: dict[Any, np.ndarray],
    asked: Sequence[dict[str, Any]],
    most: int,
    *,
    title: str,
    say: Say,
) -> dict[str, dict[str, str]]:
    """Frames of the queries and their neighbours, nearest first, and the figures made of them."""
    order = [query["point"] for query in asked]
    for rank in range(next(iter(near.values())).shape[1]):
        order += [int(neighbours[query["point"], rank]) for neighbours in near.values() for query in asked]
    wanted = list(dict.fromkeys(order))[:most]
    if not wanted:
        return {}
    pictures: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    with open_painter(subject.name, subject.data, subject.schematic) as painter:
        if painter.note:
            say(painter.note)
        with progress(f"{painter.kind} pictures", total=2 * len(wanted), unit="pictures") as advance:
            for point in wanted:
                rows = (int(subject.pairs.states[point]), int(subject.pairs.goals[point]))
                pictures[point] = (painter.paint(rows[0]), painter.paint(rows[1]))
                advance(2)
        kind = painter.kind
    for metric, neighbours in near.items():
        words = f"nearest analogies by {metric} ({title}): state and goal; green: same task as the query on the left"
        path = out / f"neighbours-{metric}.png"
        figures.draw_neighbours(path, asked, neighbours, pictures, subject.tasks, title=words)
    # Whoever shows the map draws schematics from its numbers; only true pictures are worth a file.
    return {} if kind == "schematic" else _write_frames(out, pictures, "jpg" if kind == "rendered" else "png")


def _write_frames(out: Path, pictures: dict[int, tuple[np.ndarray, np.ndarray]], suffix: str) -> dict[str, dict]:
    from PIL import Image

    frames = {}
    for point, pair in pictures.items():
        names = {}
        for which, image in zip(("state", "goal"), pair, strict=True):
            names[which] = f"frames/{point}-{which}.{suffix}"
            buffer = io.BytesIO()
            options = {"quality": 88} if suffix == "jpg" else {"optimize": True}
            Image.fromarray(image).save(buffer, {"jpg": "JPEG", "png": "PNG"}[suffix], **options)
            write_whole(out / names[which], buffer.getvalue())
        frames[str(point)] = names
    return frames


def _columns(subject: Subject, places: np.ndarray, near: dict[Any, np.ndarray]) -> dict[str, Any]:
    """The long columns of map.json, rounded to what a page can show."""
    pairs, drawn = subject.pairs, subject.schematic

    def short(rows: np.ndarray) -> list[list[float]]:
        # Whole numbers, as bits and lights are, are written without a point.
        numbers = np.round(drawn.numbers[rows].astype(np.float64), 3).tolist()
        return [[int(value) if value == int(value) else value for value in row] for row in numbers]

    return {
        "tasks": list(subject.tasks.names),
        "contexts": list(subject.contexts.names),
        "x": np.round(places[:, 0], 2).tolist(),
        "y": np.round(places[:, 1], 2).tolist(),
        "task": subject.tasks.codes.tolist(),
        "context": subject.contexts.codes.tolist(),
        "rows": {"state": pairs.states.tolist(), "goal": pairs.goals.tolist()},
        "neighbours": {metric: rows.tolist() for metric, rows in near.items()},
        "schematic": {
            "kind": drawn.kind,
            "meaning": list(drawn.meaning),
            "state": short(pairs.states),
            "goal": short(pairs.goals),
        },
    }


def _provenance(run: Run, subject: Subject, options: MapOptions) -> dict[str, Any]:
    packages = (*provenance.PACKAGES, "openTSNE", "scikit-learn", "matplotlib")
    trained = run.files.provenance()
    return {
        "command": provenance.command(),
        "options": asdict(options),
        "split": subject.split,
        "data": {"fingerprint": subject.data.fingerprint(), "made": subject.data.provenance},
        "run": {key: trained.get(key) for key in ("command", "commit", "versions", "hardware", "dataset", "finished")},
        "commit": provenance.commit(),
        "versions": provenance.versions(packages),
        "hardware": provenance.hardware(),
    }


def _write_purity(out: Path, rows: Sequence[dict[str, Any]], contents: dict[str, Any]) -> None:
    import csv

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(out / "purity.csv", text.getvalue())
    kept = ("dataset", "agent", "step", "pairs", "representation", "purity", "purity_by_task", "provenance")
    record = {name: contents[name] for name in kept}
    write_whole(out / "purity.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")
