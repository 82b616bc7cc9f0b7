"""Asking an agent for the held-out pairs: a fixed, seeded list of trials, a log of what happens, the verdict on it.

A start has the pair's context, a goal differs from it by the pair's task alone. What the context leaves open is either
forced (a drawer that is to be opened must be unlocked), drawn (the cube's place, other lights), or goes through all
combinations in turn, by the bits of the episode's number.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from cta.ooc.components import DRAWER_TRAVEL, WINDOW_TRAVEL, Layout, Rule, Value
from cta.ooc.pairs import PRESS, HeldOut, Pair
from cta.scores.schema import CellKey, Score

EPISODES, MOST_EPISODES = 50, 1_000_000
TABLE_LOW, TABLE_HIGH = (0.3, -0.07), (0.45, 0.18)  # where the cube lies on the table: OGBench's own bounds
CUBE_ON_TABLE, CUBE_IN_DRAWER = 0.02, 0.066
DRAWER_MIDDLE = {0: (0.33, -0.356), 1: (0.33, -0.24)}  # where a cube lies in the shut and in the open drawer
Place = tuple[float, ...]
SLOTS_PER_WORKER = 4
MID_POINTS = Rule()  # a change is a part crossing the middle of its travel, whatever rule the data were cut by


@dataclass(frozen=True)
class Trial:
    """One episode: its pair and number, the seed of its noise, all components at start and goal, places of the cube."""

    pair: int
    episode: int
    seed: int
    start: Mapping[str, int]
    goal: Mapping[str, int]
    cube: tuple[Place, Place] | None = None


def make_trials(held_out: HeldOut, *, episodes: int = EPISODES, seed: int = 0) -> list[Trial]:
    """The list: `episodes` for every pair, the same for every method, seed and evaluation."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise CtaError(f"an evaluation needs at least one episode per pair and at most {MOST_EPISODES}, not {episodes}")
    if seed < 0:
        raise CtaError(f"the seed of starts and goals is 0 or more, not {seed}")
    layout, trials = held_out.layout, []
    for number, pair in held_out.numbered():
        fixed = _fixed(pair, layout, number)
        for episode in range(episodes):
            rng = np.random.default_rng((seed, number, episode))
            start = _start(fixed, layout, rng, episode)
            what, value = pair.event
            pressed = layout.patterns[value] if what == PRESS else ()
            flipped = {layout.names[light]: 1 - start[layout.names[light]] for light in pressed}
            goal = {**start, **(flipped or {what: value})}
            cube = _cube(start, goal, rng) if layout.name == "scene" else None
            trials.append(Trial(number, episode, int(rng.integers(2**32)), start, goal, cube))
    return trials


def _fixed(pair: Pair, layout: Layout, number: int) -> dict[str, int]:
    """What every start of a pair has in common; complains about a task that cannot be done in its context."""
    what, value = pair.event
    fixed = dict(pair.context)
    if what == PRESS:
        return fixed
    fixed[what] = 1 - value
    for name, needed in layout.needs.get(what, {}).items():
        if fixed.setdefault(name, needed) != needed:
            said, wanted = layout.say(name, fixed[name]), layout.say(name, needed)
            raise CtaError(
                f"pair {number} cannot be asked for: its context has {name} {said}, but {what} moves only with {wanted}"
            )
    return fixed


def _start(fixed: Mapping[str, int], layout: Layout, rng: np.random.Generator, episode: int) -> dict[str, int]:
    free = [name for name in layout.names if name not in fixed]
    if layout.patterns:
        drawn = dict(zip(free, rng.integers(0, 2, len(free)).tolist(), strict=True))
    else:
        free = [name for name in free if name != "cube"]  # it lies on the table
        drawn = {"cube": 0} if "cube" in layout.names else {}
        drawn |= {name: episode >> place & 1 for place, name in enumerate(free)}
    start = {**drawn, **fixed}
    return {name: start[name] for name in layout.names}


def _cube(start: Mapping[str, int], goal: Mapping[str, int], rng: np.random.Generator) -> tuple[Place, Place]:
    def place(state: Mapping[str, int]) -> Place:
        if state["cube"]:
            return (*DRAWER_MIDDLE[state["drawer"]], CUBE_IN_DRAWER)
        return (*rng.uniform(TABLE_LOW, TABLE_HIGH).tolist(), CUBE_ON_TABLE)

    first = place(start)
    if start["cube"] != goal["cube"]:
        return first, place(goal)
    # It stays where it is, or rides in the drawer.
    ride = DRAWER_TRAVEL * (goal["drawer"] - start["drawer"]) if start["cube"] else 0.0
    return first, (first[0], first[1] + ride, first[2])


def task_info(trial: Trial, layout: Layout) -> dict[str, Any]:
    name = f"pair{trial.pair}_episode{trial.episode}"
    if trial.cube is None:
        states = [np.array([state[key] for key in layout.names]) for state in (trial.start, trial.goal)]
        return {"task_name": name, "init_button_states": states[0], "goal_button_states": states[1]}

    def scene(state: Mapping[str, int], cube: tuple[float, ...]) -> dict[str, Any]:
        return {
            "block_xyzs": np.array([cube]),
            "button_states": np.array([state["drawer_lock"], state["window_lock"]]),
            "drawer_pos": -DRAWER_TRAVEL * state["drawer"],
            "window_pos": WINDOW_TRAVEL * state["window"],
        }

    return {"task_name": name, "init": scene(trial.start, trial.cube[0]), "goal": scene(trial.goal, trial.cube[1])}


def desk_task(trial: Trial, layout: Layout) -> Any:
    """The trial as a `DeskTask` of an embedded world."""
    from cta.envs.desk import DeskTask  # JAX

    parts = [c.name for c in layout.components if c.travel is not None]
    bits = [c.name for c in layout.components if c.travel is None]
    sides = [tuple(state[key] for key in keys) for state in (trial.start, trial.goal) for keys in (parts, bits)]
    return DeskTask(f"pair{trial.pair}_episode{trial.episode}", *sides)


@dataclass(frozen=True)
class EpisodeLog:
    """Everything discrete that happened in an episode, which `seed` replays."""

    pair: int
    episode: int
    seed: int
    start: Mapping[str, Value]  # of every component at row 0
    changes: tuple[tuple[int, Mapping[str, Value]], ...]  # (t, {component: new value}) of the steps t → t + 1 with any
    success: bool  # the world's own flag at the last row
    steps: int  # the number of the last row


class Verdict(NamedTuple):
    """success, and direct success, strict and lenient; both direct ones imply success."""

    success: bool
    direct: bool  # nothing changed but the task, once
    lenient: bool  # the task's last completion happened in its context, whatever came before


def judge(log: EpisodeLog, pair: Pair, layout: Layout) -> Verdict:
    in_context = alone = False
    for _, change, held in follow(log, pair, layout):
        if held is not None:
            in_context, alone = held, held and (pair.event[0] == PRESS or len(change) == 1)
    direct = alone and len(log.changes) == 1
    return Verdict(log.success, log.success and direct, log.success and in_context)


def follow(log: EpisodeLog, pair: Pair, layout: Layout) -> Iterator[tuple[int, Mapping[str, Value], bool | None]]:
    """(t, change, whether the pair's context held if the change is the pair's event, else None) of every change."""
    what, value = pair.event
    # The event is the press's pattern and nothing else, or the component's value.
    pattern = {layout.names[light] for light in layout.patterns[value]} if what == PRESS else set()
    context = {name: layout.say(name, held) for name, held in pair.context.items()}
    state = dict(log.start)
    for t, change in log.changes:
        completed = set(change) == pattern if what == PRESS else change.get(what) == layout.say(what, value)
        yield t, change, all(state[name] == held for name, held in context.items()) if completed else None
        state |= change


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
