"""The event log of an episode, and the verdict on it: success, and whether the held-out task itself was carried out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cta.data.files import write_whole
from cta.errors import CtaError
from cta.ooc.components import Layout, Value
from cta.ooc.pairs import PRESS, Pair

Change = tuple[int, Mapping[str, Value]]


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

    def line(self) -> str:
        """As a line of JSON."""
        return json.dumps(vars(self))

    @classmethod
    def of(cls, line: str, where: str) -> "EpisodeLog":
        """Back from its line."""
        try:
            values = json.loads(line)
            changes = tuple((int(t), dict(change)) for t, change in values.pop("changes"))
            return cls(**values, changes=changes)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CtaError(f"{where}: not an episode's event log ({error})") from None


@dataclass(frozen=True)
class Verdict:
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
    """One line an episode."""
    write_whole(path, "".join(f"{log.line()}\n" for log in logs))


def read_logs(path: Path) -> list[EpisodeLog]:
    """All episodes of a file."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise CtaError(f"{path}: cannot be read ({error.strerror})") from None
    return [EpisodeLog.of(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def count_rows(
    logs: Sequence[EpisodeLog], pairs: Sequence[tuple[int, Pair]], layout: Layout, common: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A row of `ooc.csv` for every pair: `common`, then what its episodes came to."""
    rows = []
    for number, pair in pairs:
        verdicts = [judge(log, pair, layout) for log in logs if log.pair == number]
        if not verdicts:
            raise CtaError(f"there is no episode of pair {number} to judge")
        counts = {key: sum(getattr(v, name) for v in verdicts) for key, name in COUNTS.items()}
        rows.append({**common, "task": number, "episodes": len(verdicts), "pair": f"pair{number}", **counts})
    return [{column: row[column] for column in COLUMNS} for row in rows]


COUNTS = {"successes": "success", "direct": "direct", "lenient": "lenient"}
COLUMNS = ("dataset", "agent", "seed", "step", "task", "episodes", "successes", "pair", "direct", "lenient")
"""Those of `eval.csv`, then the pair and how many episodes were direct successes, strictly and leniently."""
