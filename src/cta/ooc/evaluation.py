"""Asking an agent for the held-out pairs: a log of everything discrete that happens, and the verdict on it.

The verdict is success, and whether the held-out task itself was carried out.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cta.envs.names import DESK_DATASETS, is_visual
from cta.envs.protocol import Episode, Step
from cta.errors import CtaError
from cta.evaluation.evaluator import Evaluator
from cta.evaluation.rollout import MakePolicy, Progress
from cta.io.files import write_whole
from cta.ooc.components import Layout, Rule, Value
from cta.ooc.pairs import PRESS, HeldOut, Pair
from cta.ooc.trials import EPISODES, Trial, desk_task, make_trials, task_info
from cta.scores.schema import CellKey, Score

Change = tuple[int, Mapping[str, Value]]
SLOTS_PER_WORKER = 4
MID_POINTS = Rule()
"""A change is a part crossing the middle of its travel, whatever rule the data were cut by."""


@dataclass(frozen=True)
class EpisodeLog:
    """Everything discrete that happened in an episode.

    `start` has the value of every component at row 0, `changes` are (t, {component: new value}) for every step
    t → t + 1 in which one changed. `success` is the world's own flag at the last row, number `steps`. `seed` replays
    the episode.
    """

    pair: int
    episode: int
    seed: int
    start: Mapping[str, Value]
    changes: tuple[Change, ...]
    success: bool
    steps: int


class Verdict(NamedTuple):
    """success; strict direct success (nothing changed but the task, once); lenient direct success (the task's last
    completion happened in its context, whatever came before). Both direct ones imply success."""

    success: bool
    direct: bool
    lenient: bool


def judge(log: EpisodeLog, pair: Pair, layout: Layout) -> Verdict:
    """The verdict, from the log alone."""
    state = dict(log.start)
    context = {name: layout.say(name, value) for name, value in pair.context.items()}
    in_context = alone = False
    for _, change in log.changes:
        if completes(change, pair, layout):
            in_context = all(state[name] == value for name, value in context.items())
            alone = in_context and (pair.event[0] == PRESS or len(change) == 1)
        state |= change
    direct = alone and len(log.changes) == 1
    return Verdict(log.success, log.success and direct, log.success and in_context)


def completes(change: Mapping[str, Value], pair: Pair, layout: Layout) -> bool:
    """Whether a step's change is the pair's event: the press's pattern and nothing else, or the component's value."""
    what, value = pair.event
    if what == PRESS:
        return set(change) == {layout.names[light] for light in layout.patterns[value]}
    return change.get(what) == layout.say(what, value)


def write_logs(path: Path, logs: Iterable[EpisodeLog]) -> None:
    """One line of JSON per episode; compressed if the name ends in .gz (equal logs give equal files)."""
    text = "".join(f"{json.dumps(vars(log))}\n" for log in logs)
    write_whole(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text)


def read_logs(path: Path) -> list[EpisodeLog]:
    """All episodes of a file; FILE.jsonl.gz may still be FILE.jsonl, as earlier versions wrote it."""
    if path.suffix == ".gz" and not path.exists() and path.with_suffix("").exists():
        path = path.with_suffix("")
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CtaError(f"{path}: cannot be read ({error})") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            log = EpisodeLog(**json.loads(line))
            found.append(replace(log, changes=tuple((t, change) for t, change in log.changes)))
        except (ValueError, TypeError) as error:
            raise CtaError(f"{path}, line {number}: not an episode's event log ({error})") from None
    return found


def count_rows(
    logs: Sequence[EpisodeLog], pairs: Sequence[tuple[int, Pair]], layout: Layout, key: CellKey, seed: int, step: int
) -> list[Score]:
    """A score for every pair: what its episodes came to."""
    rows = []
    for number, pair in pairs:
        verdicts = [judge(log, pair, layout) for log in logs if log.pair == number]
        if not verdicts:
            raise CtaError(f"there is no episode of pair {number} to judge")
        rows.append(Score(*key, seed, step, f"pair{number}", len(verdicts), *map(sum, zip(*verdicts, strict=True))))
    return rows


class EventRecorder:
    """Watches trials being played, and writes down what changes in each."""

    def __init__(self, trials: Sequence[Trial], layout: Layout) -> None:
        self._trials = {(trial.pair, trial.episode): trial for trial in trials}
        self._layout = layout
        self._rows: dict[tuple[int, int], list[np.ndarray]] = defaultdict(list)
        self.logs: list[EpisodeLog] = []

    def __call__(self, playing: Mapping[int, Episode], step: Step) -> None:
        """Note the values after a step, and close the log of every episode that ended."""
        values = MID_POINTS.values(self._layout, self._layout.measure(step.observations, {}))
        for slot, episode in playing.items():
            key = episode.task, episode.episode
            trial, rows = self._trials[key], self._rows[key]
            rows.append(values[slot])
            if len(rows) == 1 and rows[0].tolist() != [*trial.start.values()]:
                raise CtaError(f"internal: pair {trial.pair} began with {rows[0]} instead of {dict(trial.start)}")
            if step.done[slot]:
                self.logs.append(write_log(trial, np.stack(rows), self._layout, success=bool(step.success[slot])))
                del self._rows[key]


def write_log(trial: Trial, values: np.ndarray, layout: Layout, *, success: bool) -> EpisodeLog:
    """The log of an episode from the values (T + 1, C) of its components at every row."""

    def named(row: np.ndarray, columns: np.ndarray) -> dict[str, Value]:
        return {layout.names[column]: layout.say(layout.names[column], int(row[column])) for column in columns}

    differs = values[1:] != values[:-1]
    times = np.flatnonzero(differs.any(axis=1)).tolist()
    changes = tuple((t, named(values[t + 1], np.flatnonzero(differs[t]))) for t in times)
    start = named(values[0], np.arange(len(layout.names)))
    return EpisodeLog(trial.pair, trial.episode, trial.seed, start, changes, success, len(values) - 1)


def check_can_ask(dataset_name: str) -> None:
    """Complain about a world whose observations do not tell what happened."""
    if is_visual(dataset_name):
        raise CtaError(f"{dataset_name}: events are read off state observations; images do not show them")


class PairEvaluator(Evaluator):
    """An `Evaluator` with the fixed list of trials of a dataset's held-out pairs."""

    def __init__(
        self, dataset_name: str, held_out: HeldOut, *, episodes: int = EPISODES, seed: int = 0, **options: Any
    ) -> None:
        check_can_ask(dataset_name)
        self.layout = held_out.layout
        self.trials = make_trials(held_out, episodes=episodes, seed=seed)
        super().__init__(dataset_name, slots_per_worker=SLOTS_PER_WORKER, **options)

    def ask(self, make_policy: MakePolicy, *, progress: Progress | None = None) -> list[EpisodeLog]:
        """Play all trials with a policy; the logs are sorted by pair and episode."""
        as_task = desk_task if self.dataset_name in DESK_DATASETS else task_info
        planned = [Episode(one.pair, one.seed, as_task(one, self.layout), one.episode) for one in self.trials]
        recorder = EventRecorder(self.trials, self.layout)
        self.play(make_policy, planned, watch=recorder, progress=progress)
        return sorted(recorder.logs, key=lambda log: (log.pair, log.episode))
