"""The analogy map of a run: pairs, their analogies in two dimensions, what they mean, and how far neighbours agree."""

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cta.analysis import MapOptions, figures, representations
from cta.analysis import pairs as state_goal
from cta.analysis.figures import Pictures, Queries, open_painter
from cta.analysis.pairs import DESK_STEPS_APART, METRICS, STEPS_APART, Labelled, Metric, nearest
from cta.analysis.semantics import read, schematic
from cta.compilation import enable_cache
from cta.data.progress import progress
from cta.envs.datasets import open_dataset
from cta.envs.desk import find_world
from cta.errors import CtaError
from cta.experiment import Run
from cta.experiment.candidates import candidates
from cta.experiment.inputs import in_units
from cta.io import provenance
from cta.io.csv_log import csv_text
from cta.io.files import write_whole
from cta.io.json_files import write_json
from cta.validation import check_bounds

FORMAT = 1
MOST_PATH_NUMBERS = 600_000  # steps between states and goals are written where they are not more numbers than this
RUN_FACTS = ("command", "commit", "versions", "hardware", "dataset", "finished")
Points = dict[str, np.ndarray]  # {representation: (N, dim)}


def make_map(
    source: Run | Path, options: MapOptions, out: Path, *, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Map a run, or a file of weights, and write everything to `out`; returns what map.json holds."""
    check_bounds(options)
    subject = Subject(source, options)
    pairs, tasks, chosen = subject.pairs, subject.tasks, subject.chosen
    mapped = representations.mapped(chosen.agent)
    if len(pairs) < options.pairs:
        say(f"{subject.data.name} has {len(pairs):,} pairs of this kind: all of them are mapped")
    # What was asked for is looked up before anything slow.
    asked = state_goal.choose(options.query, subject.name, pairs, tasks, subject.semantics, seed=options.draw_seed)
    say(f"{len(pairs):,} pairs of the {options.split} split, step {chosen.step:,}")
    enable_cache()
    learned = dict[int, Points]()
    with progress("representations", total=len(subject.items), unit="seeds") as advance:
        for item in subject.items:
            learned[item.seed] = representations.represent(item.agent, item.load(), subject.seen, pairs)
            advance(1)
    (groups, count), contexts = state_goal.neighbour_groups(pairs.episodes), subject.contexts.codes
    labelled = Labelled(tasks, contexts, groups, state_goal.choose_queries(tasks), count)
    rows = subject.purity_rows(learned, labelled, chosen.step)
    points, settings = learned[chosen.seed][mapped], representations.tsne_settings(len(pairs), options)
    places = representations.tsne(points, settings)
    near, elsewhere = dict[Metric, np.ndarray](), dict[Metric, np.ndarray]()
    with progress("nearest analogies", total=len(METRICS), unit="metrics") as advance:
        for metric in METRICS:
            near[metric], elsewhere[metric] = nearest(points, [groups, contexts], metric=metric, count=count)
            advance(1)
    agent = chosen.key.agent
    try:
        frames = subject.pictures(out, near, asked, title=f"{mapped}, {agent}")
    except CtaError as problem:
        say(f"no pictures of neighbours: {problem}")
        frames = {}
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
        "among": state_goal.among(pairs.episodes),
        "method": settings,
        "purity": state_goal.purity_table(rows) if rows else [],
        "purity_by_task": state_goal.purity_by_task(rows, mapped),
        "provenance": {
            **provenance.record((*provenance.PACKAGES, "openTSNE", "scikit-learn", "matplotlib")),
            "options": asdict(options),
            "split": options.split,
            "data": {"fingerprint": subject.data.fingerprint(), "made": subject.data.provenance},
            "run": {key: subject.facts.get(key) for key in RUN_FACTS},
        },
        "queries": asked,
        "frames": frames,
        **subject.columns(places, near, elsewhere),
    }
    write_whole(out / "map.json", json.dumps(contents, ensure_ascii=False, separators=(",", ":")) + "\n")
    if rows:
        write_whole(out / "purity.csv", csv_text([list(rows[0]), *([*row.values()] for row in rows)]))
        kept = ("dataset", "agent", "step", "pairs", "representation", "purity", "purity_by_task", "provenance")
        write_json(out / "purity.json", {name: contents[name] for name in kept})
    return contents


class Subject:
    """The rows that are mapped: the validation split of the run's data (or what was asked for), pairs drawn from it."""

    def __init__(self, source: Run | Path, options: MapOptions) -> None:
        found = [*candidates(source, "" if options.step is None else str(options.step))]
        self.options, self.items = options, [item for item in found if item.step == found[-1].step]
        chosen = next((item for item in self.items if options.seed in (None, item.seed)), None)
        if chosen is None:
            wanted = "seed that did not diverge" if options.seed is None else f"seed {options.seed}"
            raise CtaError(f"{source} has no {wanted}; there are {[item.seed for item in self.items]}")
        self.chosen = chosen
        run, where = source if isinstance(source, Run) else None, options.data or chosen.key.dataset
        self.facts = run.files.provenance() if run else chosen.training
        own = run.open_data(info=True) if run and not options.data else None
        self.name, train, validation = own or open_dataset(where, dataset_dir=run and run.config.dataset_dir, info=True)
        if options.split == "validation" and validation is None:
            raise CtaError(f"{where} has no validation file beside it; --split train maps the training data")
        self.data = data = train if options.split == "train" or validation is None else validation
        if (shape := chosen.spec.observation_shape) != data.observation_shape:
            found = data.observation_shape
            raise CtaError(f"{where} has observations of shape {found}, the run was trained on {list(shape)}")
        apart = options.steps_apart or (DESK_STEPS_APART if find_world(self.name) else STEPS_APART)
        first = state_goal.asked_rows(options.query)
        self.pairs = state_goal.draw_pairs(data, options.pairs, apart=apart, seed=options.draw_seed, first=first)
        self.semantics, self.schematic = read(self.name, data), schematic(self.name, data)
        self.tasks = self.semantics.tasks(self.pairs.states, self.pairs.goals)
        self.contexts = self.semantics.contexts(self.pairs.states)
        self.seen = in_units(data, chosen.units)

    def purity_rows(self, learned: dict[int, Points], labelled: Labelled, step: int) -> list[dict[str, Any]]:
        """Rows for every seed, trained and untrained, and for the difference of observations, once."""
        if not len(labelled.queries):
            return []
        data, pairs, agent, spec = self.data, self.pairs, self.chosen.agent, self.chosen.spec
        first, raw = next(iter(learned)), representations.difference(data, pairs)
        jobs = [(first, representations.DIFFERENCE, "none", raw)]
        for seed, trained in learned.items():
            untrained = representations.represent(agent, representations.untrained(agent, spec, seed), self.seen, pairs)
            jobs += [(seed, name, "trained", points) for name, points in trained.items()]
            jobs += [(seed, name, "untrained", points) for name, points in untrained.items()]
        common = {"dataset": self.name, "agent": self.chosen.key.agent, "step": step}
        rows: list[dict[str, Any]] = []
        with progress("neighbour purity", total=len(jobs), unit="representations") as advance:
            for seed, name, network, points in jobs:
                about = {**common, "seed": seed, "representation": name, "network": network}
                for metric in METRICS:
                    found = state_goal.measure(points, labelled, metric=metric, shuffle=seed)
                    rows += [{**about, **row, "neighbours": labelled.count} for row in found]
                advance(1)
        return rows

    def pictures(self, out: Path, near: dict[Metric, np.ndarray], asked: Queries, *, title: str) -> dict[str, dict]:
        """Frames of the queries and their neighbours, nearest first, and the figures made of them."""
        from PIL import Image

        points = [query["point"] for query in asked]
        ranks = np.stack([rows[points] for rows in near.values()])  # (metric, query, rank)
        wanted = list(dict.fromkeys([*points, *ranks.transpose(2, 0, 1).ravel().tolist()]))[: self.options.frames]
        if not wanted:
            return {}
        pictures: Pictures = {}
        with (
            open_painter(self.name, self.data) as (paint, kind),
            progress(f"{kind} pictures", total=2 * len(wanted), unit="pictures") as advance,
        ):
            for point in wanted:
                pictures[point] = paint(int(self.pairs.states[point])), paint(int(self.pairs.goals[point]))
                advance(2)
        key = "state and goal; green: same task as the query on the left"
        for metric, neighbours in near.items():
            path, words = out / f"neighbours-{metric}.{self.options.format}", f"nearest analogies by {metric} ({title})"
            figures.draw_neighbours(path, asked, neighbours, pictures, self.tasks, title=f"{words}: {key}")
        how = {"format": "JPEG", "quality": 88} if kind == "rendered" else {"format": "PNG", "optimize": True}
        frames, suffix = {}, "jpg" if kind == "rendered" else "png"
        for point, pair in pictures.items():
            frames[str(point)] = {which: f"frames/{point}-{which}.{suffix}" for which in ("state", "goal")}
            for name, image in zip(frames[str(point)].values(), pair, strict=True):
                buffer = io.BytesIO()
                Image.fromarray(image).save(buffer, **how)
                write_whole(out / name, buffer.getvalue())
        return frames

    def columns(self, places: np.ndarray, near: dict[Any, np.ndarray], elsewhere: dict[Any, np.ndarray]) -> dict:
        """The long columns of map.json, rounded to what a page can show."""
        pairs, drawn = self.pairs, self.schematic
        # The rows from each state to its goal, all together and in order.
        path = np.unique(np.concatenate([pairs.states, pairs.goals, *map(np.arange, pairs.states, pairs.goals)]))
        state, goal = (np.searchsorted(path, rows).tolist() for rows in (pairs.states, pairs.goals))

        def short(rows: np.ndarray) -> list[list[float]]:
            # Whole numbers, as bits and lights are, are written without a point.
            numbers = np.round(drawn.numbers[rows].astype(np.float64), 3).tolist()
            return [[int(value) if value == int(value) else value for value in row] for row in numbers]

        played = len(path) * len(drawn.meaning) <= MOST_PATH_NUMBERS
        ends = {"state": short(pairs.states), "goal": short(pairs.goals)}
        return {
            "tasks": list(self.tasks.names),
            "contexts": list(self.contexts.names),
            "x": np.round(places[:, 0], 2).tolist(),
            "y": np.round(places[:, 1], 2).tolist(),
            "task": self.tasks.codes.tolist(),
            "context": self.contexts.codes.tolist(),
            "rows": {"state": pairs.states.tolist(), "goal": pairs.goals.tolist()},
            "neighbours": {metric: found.tolist() for metric, found in near.items()},
            # The nearest pairs that start from another context.
            "neighbours_elsewhere": {metric: found.tolist() for metric, found in elsewhere.items()},
            "path": {"numbers": short(path), "state": state, "goal": goal} if played else None,
            "schematic": {"kind": drawn.kind, "meaning": list(drawn.meaning), **ends},
        }
