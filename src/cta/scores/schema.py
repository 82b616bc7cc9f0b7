"""One row of scores, what scores belong together, and the one reader and writer of their files."""

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cta.errors import CtaError
from cta.io.csv_log import csv_text
from cta.io.files import read_content, safe_name, write_whole

WHOLE, HELD_OUT, RANDOM = "whole", "held-out", "random"
"""What an agent was trained on: everything, data without the held-out pairs, data without random windows."""
TRAINED_ON = {WHOLE: "", HELD_OUT: ", held-out pairs", RANDOM: ", random windows cut"}
"""In words, after the name of a dataset, of scores."""
DATA = {**TRAINED_ON, HELD_OUT: ", pairs cut"}  # the same of the data alone, whatever the agent was asked for
TASKS, PAIRS, PRESSES = ASKED = "tasks", "pairs", "presses"
"""What a score is of: a world's tasks, held-out pairs (pair1, …), or goals so many presses away (presses1, …)."""
CLOCK = "clock.json"
"""In a run directory: {"wall_clock_s": …}, the time of all its training processes, starting and compiling included."""


class Score(NamedTuple):
    """`successes` of `episodes` episodes of a task, by the policy of a seed at a step.

    `direct` and `lenient` count the successes of held-out pairs that were direct; ordinary tasks have none.
    """

    dataset: str
    agent: str
    settings: str
    condition: str
    seed: int
    step: int
    task: str
    episodes: int
    successes: int
    direct: int | None = None
    lenient: int | None = None

    @property
    def key(self) -> "CellKey":
        return CellKey(*self[:4])

    @property
    def asked(self) -> str:
        """One of `ASKED`."""
        return next((kind for kind in ASKED[1:] if self.task.startswith(kind.removesuffix("s"))), ASKED[0])

    def row(self) -> dict[str, Any]:
        return {name: "" if value is None else value for name, value in self._asdict().items()}


COLUMNS = Score._fields
OLD_COLUMNS = ("dataset", "agent", "seed", "step", "task", "episodes", "successes")
OLD_PAIR_COLUMNS = (*OLD_COLUMNS, "pair", "direct", "lenient")
SCORED_HOW = ("env", "temperature", "noise", "eval_seed", "mujoco")
"""Columns after the others in a run's `evaluate.csv`."""
LONGEST = 150
_LEADS_OUT = set("/\\<>")  # in no name: what a path or a page would act on


class CellKey(NamedTuple):
    """What scores belong together: one agent with one set of settings, trained on one kind of data."""

    dataset: str
    agent: str
    settings: str = ""
    condition: str = WHOLE

    @property
    def name(self) -> str:
        settings = f" ({self.settings})" if self.settings else ""
        return f"{self.agent}{settings} on {self.dataset}{TRAINED_ON[self.condition]}"

    @property
    def stem(self) -> str:
        """The name of its files, without ending; a digest tells apart what would become the same name."""
        parts = [safe_name(self.dataset), safe_name(self.agent).replace(".", "-")]
        parts += [safe_name(self.settings)] if self.settings else []
        name = ".".join(parts + ([self.condition] if self.condition != WHOLE else []))
        if len(name) > LONGEST or safe_name(self.settings or "-") != (self.settings or "unnamed"):
            name = f"{name[:LONGEST]}.{hashlib.sha256(repr(self).encode()).hexdigest()[:8]}"
        return name

    def check(self, where: str) -> "CellKey":
        """Itself, if these are names; an error that names the place if not."""
        for what, value, least, most in (
            ("the name of a dataset", self.dataset, 1, 120),
            ("the name of an agent", self.agent, 1, 120),
            ("a key of settings", self.settings, 0, 400),
        ):
            good = isinstance(value, str) and least <= len(value) <= most and value.isprintable()
            if not good or _LEADS_OUT & set(value):
                raise CtaError(f"{where}: {value!r:.60} is not {what}")
        if self.condition not in TRAINED_ON:
            raise CtaError(f"{where}: condition {self.condition!r:.60}: it is one of {', '.join(TRAINED_ON)}")
        return self


def make_score(values: Mapping[str, Any], where: str = "row") -> Score:
    """A row from text or numbers; anything that cannot be a score is an error that names the place."""
    found = {name: str(values.get(name, "")) for name in COLUMNS}
    key = CellKey(*(found[name] for name in CellKey._fields)).check(where)
    if not re.fullmatch(r"(pair|presses)?[0-9]{1,3}", found["task"]):
        raise CtaError(f"{where}: {found['task']!r:.60} is neither the number of a task nor a pair nor of presses")
    given = ["seed", "step", "episodes", "successes", *(name for name in ("direct", "lenient") if found[name])]
    for name in given:
        if not re.fullmatch(r"[0-9]{1,15}", found[name]):
            raise CtaError(f"{where}: {name} is not a whole number ({found[name]!r:.40})")
    score = Score(*key, task=found["task"], **{name: int(found[name]) for name in given})
    if score.episodes < 1 or score.successes > score.episodes:
        raise CtaError(f"{where}: {score.successes} successes in {score.episodes} episodes")
    if {score.direct is None, score.lenient is None} != {score.asked != PAIRS}:
        raise CtaError(f"{where}: pairs have direct and lenient successes, tasks have none")
    if max(score.direct or 0, score.lenient or 0) > score.successes:
        raise CtaError(f"{where}: more direct successes than successes")
    return score


def read_scores(path: Path, *, settings: str = "", condition: str | None = None, growing: bool = False) -> list[Score]:
    """All rows of a file, in this or an older layout.

    Older files do not say with which settings and on what their agent was trained: `settings` and `condition` do
    (by default data without the pairs where pairs are scored). `growing`: the log of a run, whose last line may be half
    written, and where the same policy may have been scored in several ways.
    """
    content = read_content(path)
    try:
        text = content[: content.rfind(b"\n") + 1 if growing else None].decode()
        columns, *lines = [*csv.reader(io.StringIO(text, newline=""), strict=True)] or [COLUMNS if growing else ()]
    except (UnicodeDecodeError, csv.Error) as error:
        reason = error if isinstance(error, csv.Error) else "not UTF-8 text"
        raise CtaError(f"{path}: not a CSV file ({reason})") from None
    layout = tuple(name for name in columns if name not in SCORED_HOW)
    if layout not in (COLUMNS, OLD_COLUMNS, OLD_PAIR_COLUMNS):
        raise CtaError(f"{path}: not a file of scores: the columns must be exactly {','.join(COLUMNS)}")
    usual = {"settings": settings, "condition": condition or (WHOLE if layout == OLD_COLUMNS else HELD_OUT)}
    scores: list[Score] = []
    seen: set[tuple[Any, ...]] = set()
    for number, cells in enumerate(lines, 2):
        where = f"{path}, line {number}"
        if len(cells) != len(columns):
            raise CtaError(f"{where}: not {len(columns)} columns")
        row = usual | dict(zip(columns, cells, strict=True))
        score = make_score(row | {"task": row.get("pair", row["task"])}, where)
        if score[:7] in seen and not growing:
            raise CtaError(f"{path}: seed {score.seed}, step {score.step}, task {score.task} is there twice")
        seen.add(score[:7])
        scores.append(score)
    return scores


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    """The whole file or none of it, sorted by seed, step and task."""
    write_whole(path, csv_text([COLUMNS, *([*score.row().values()] for score in sorted(scores, key=order))]))


def order(score: Score) -> tuple[Any, ...]:
    """Where a row belongs; pair10 comes after pair9."""
    return (*score[:6], ASKED.index(score.asked), int(score.task.lstrip("".join(ASKED))))
