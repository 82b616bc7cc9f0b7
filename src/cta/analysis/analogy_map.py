"""The analogy map of a run: pairs, their analogies in two dimensions, what they mean, and how far neighbours agree."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cta.agents import Spec
from cta.analysis import figures, purity, queries, representations
from cta.analysis.map_options import MapOptions
from cta.analysis.paint import open_painter
from cta.analysis.purity import METRICS, Metric, among, nearest, neighbour_groups
from cta.analysis.queries import DESK_STEPS_APART, STEPS_APART, Pairs, draw_pairs
from cta.analysis.semantics import Labels, Schematic, Semantics, read, schematic
from cta.compilation import enable_cache
from cta.data import TrajectoryDataset
from cta.data.progress import progress
from cta.envs.datasets import open_dataset
from cta.envs.desk import find_world
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.inputs import in_units
from cta.io import provenance
from cta.io.csv_log import csv_text
from cta.io.files import write_whole
from cta.io.json_files import write_json
from cta.validation import check_bounds

FORMAT = 1
MOST_PATH_NUMBERS = 600_000
"""Steps between states and goals are written where they are not more numbers than this."""
Say = Callable[[str], None]
Points = dict[str, np.ndarray]
"""{representation: (N, dim)}"""


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
    check_bounds(options)
    mapped = representations.mapped(run.agent)
    subject = open_subject(run, options)
    pairs, tasks = subject.pairs, subject.tasks
    if len(pairs) < options.pairs:
        say(f"{subject.data.name} has {len(pairs):,} pairs of this kind: all of them are mapped")
    # What was asked for is looked up before anything slow.
    chosen = run.policy(seed=options.seed, step=options.step)
    asked = queries.choose(options.query, subject.name, pairs, tasks, subject.semantics, seed=options.draw_seed)
    learned = _represented(run, subject, chosen.step, say)
    groups, count = neighbour_groups(pairs.episodes)
    labelled = purity.Labelled(tasks, subject.contexts.codes, groups, purity.choose_queries(tasks), count)
    rows = _purity_rows(run, subject, learned, labelled, chosen.step)
    points = learned[chosen.seed][mapped]
    placing = {"perplexity": options.perplexity, "iterations": options.iterations, "seed": options.draw_seed}
    settings = representations.tsne_settings(len(pairs), **placing)
    places = representations.tsne(points, settings)
    near: dict[Metric, np.ndarray] = {}
    elsewhere: dict[Metric, np.ndarray] = {}
    with progress("nearest analogies", total=len(METRICS), unit="metrics") as advance:
        for metric in METRICS:
            near[metric], elsewhere[metric] = nearest(
                points, [groups, subject.contexts.codes], metric=metric, count=count
            )
            advance(1)
    agent = run.config.agent_name
    frames = _pictures(out, subject, near, asked, options, title=f"{mapped}, {agent}", say=say)
    title = f"{mapped} of {agent} on {subject.name}, step {chosen.step:,}, {len(pairs):,} pairs"
    figures.draw_map(out / f"map.{options.format}", places, tasks, asked, title=title)
    contents = {
        "format": FORMAT,
        "dataset": subject.name,
        "agent": agent,
        "seed": chosen.seed,
        "step": chosen.step,
        "pairs": len(pairs),
        "representation": mapped,
        "among": among(pairs.episodes),
        "method": settings,
        "purity": purity.table(rows) if rows else [],
        "purity_by_task": purity.task_table(rows, mapped),
        "provenance": _provenance(run, subject, options),
        "queries": asked,
        "frames": frames,
        **_columns(subject, places, near, elsewhere),
    }
    write_whole(out / "map.json", json.dumps(contents, ensure_ascii=False, separators=(",", ":")) + "\n")
    if rows:
        write_whole(
            out / "purity.csv", csv_text([list(rows[0]), *([str(value) for value in row.values()] for row in rows)])
        )
        kept = ("dataset", "agent", "step", "pairs", "representation", "purity", "purity_by_task", "provenance")
        write_json(out / "purity.json", {name: contents[name] for name in kept})
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
    apart = options.steps_apart or (DESK_STEPS_APART if find_world(name) else STEPS_APART)
    first = queries.asked_rows(options.query)
    pairs = draw_pairs(data, options.pairs, apart=apart, seed=options.draw_seed, first=first)
    meaning = read(name, data)
    tasks, contexts = meaning.tasks(pairs.states, pairs.goals), meaning.contexts(pairs.states)
    return Subject(name, options.split, data, pairs, meaning, schematic(name, data), tasks, contexts)


def _represented(run: Run, subject: Subject, step: int, say: Say) -> dict[int, Points]:
    """What each seed that did not diverge makes of the pairs."""
    enable_cache()
    networks = dict(zip(run.config.seeds, run.networks(step)[1], strict=True))
    say(f"{len(subject.pairs):,} pairs of the {subject.split} split, step {step:,}")
    good, found, seen = run.good_seeds(step), {}, in_units(subject.data, run.units)
    with progress("representations", total=len(good), unit="seeds") as advance:
        for seed in (seed for seed in networks if seed in good):
            found[seed] = representations.represent(run.agent, networks[seed], seen, subject.pairs)
            advance(1)
    return found


def _purity_rows(
    run: Run, subject: Subject, learned: dict[int, Points], labelled: purity.Labelled, step: int
) -> list[dict[str, Any]]:
    """Rows for every seed that did not diverge, trained and untrained, and for the difference of observations, once."""
    if not len(labelled.queries):
        return []
    data, pairs = subject.data, subject.pairs
    spec = Spec.of(data.observation_shape, data.action_dim)
    jobs: list[tuple[int, str, str, np.ndarray]] = []
    for seed, trained in learned.items():
        fresh = representations.untrained(run.agent, spec, seed)
        untrained = representations.represent(run.agent, fresh, in_units(data, run.units), pairs)
        if not jobs:
            jobs.append((seed, representations.DIFFERENCE, "none", representations.difference(data, pairs)))
        jobs += [(seed, name, "trained", points) for name, points in trained.items()]
        jobs += [(seed, name, "untrained", points) for name, points in untrained.items()]
    common = {"dataset": subject.name, "agent": run.config.agent_name, "step": step}
    rows: list[dict[str, Any]] = []
    with progress("neighbour purity", total=len(jobs), unit="representations") as advance:
        for seed, name, network, points in jobs:
            about = {**common, "seed": seed, "representation": name, "network": network}
            found = [row for metric in METRICS for row in purity.measure(points, labelled, metric=metric, shuffle=seed)]
            rows += [{**about, **row, "neighbours": labelled.count} for row in found]
            advance(1)
    return rows


def _pictures(
    out: Path,
    subject: Subject,
    near: dict[Metric, np.ndarray],
    asked: Sequence[dict[str, Any]],
    options: MapOptions,
    *,
    title: str,
    say: Say,
) -> dict[str, dict[str, str]]:
    """Frames of the queries and their neighbours, nearest first, and the figures made of them."""
    points = [query["point"] for query in asked]
    ranks = np.stack([rows[points] for rows in near.values()])  # (metric, query, rank)
    wanted = list(dict.fromkeys([*points, *ranks.transpose(2, 0, 1).ravel().tolist()]))[: options.frames]
    if not wanted:
        return {}
    pictures: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    try:
        with (
            open_painter(subject.name, subject.data) as (paint, kind),
            progress(f"{kind} pictures", total=2 * len(wanted), unit="pictures") as advance,
        ):
            for point in wanted:
                pictures[point] = paint(int(subject.pairs.states[point])), paint(int(subject.pairs.goals[point]))
                advance(2)
    except CtaError as problem:
        say(f"no pictures of neighbours: {problem}")
        return {}
    for metric, neighbours in near.items():
        words = f"nearest analogies by {metric} ({title}): state and goal; green: same task as the query on the left"
        path = out / f"neighbours-{metric}.{options.format}"
        figures.draw_neighbours(path, asked, neighbours, pictures, subject.tasks, title=words)
    return _write_frames(out, pictures, "jpg" if kind == "rendered" else "png")


def _write_frames(out: Path, pictures: dict[int, tuple[np.ndarray, np.ndarray]], suffix: str) -> dict[str, dict]:
    from PIL import Image

    frames = {}
    for point, pair in pictures.items():
        frames[str(point)] = {which: f"frames/{point}-{which}.{suffix}" for which in ("state", "goal")}
        for name, image in zip(frames[str(point)].values(), pair, strict=True):
            buffer = io.BytesIO()
            options = {"format": "JPEG", "quality": 88} if suffix == "jpg" else {"format": "PNG", "optimize": True}
            Image.fromarray(image).save(buffer, **options)
            write_whole(out / name, buffer.getvalue())
    return frames


def _columns(
    subject: Subject, places: np.ndarray, near: dict[Any, np.ndarray], elsewhere: dict[Any, np.ndarray]
) -> dict[str, Any]:
    """The long columns of map.json, rounded to what a page can show."""
    pairs, drawn = subject.pairs, subject.schematic
    # The rows from each state to its goal, all together and in order.
    path = np.unique(np.concatenate([pairs.states, pairs.goals, *map(np.arange, pairs.states, pairs.goals)]))
    state, goal = (np.searchsorted(path, rows).tolist() for rows in (pairs.states, pairs.goals))

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
        "neighbours": {metric: found.tolist() for metric, found in near.items()},
        # The nearest pairs that start from another context.
        "neighbours_elsewhere": {metric: found.tolist() for metric, found in elsewhere.items()},
        "path": {"numbers": short(path), "state": state, "goal": goal}
        if len(path) * len(drawn.meaning) <= MOST_PATH_NUMBERS
        else None,
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
