"""Ours beside the paper's. A table is text; `formats` prints it."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from statistics import fmean
from typing import Any

from cta.agents import REGISTRY
from cta.config import AgentConfig, flat_settings, settings_key, to_dict
from cta.envs.names import KNOWN, family
from cta.errors import CtaError
from cta.presets import agent_preset
from cta.scores.pair_table import pair_lines
from cta.scores.paper import ALL_PAIRS, AVERAGE, OOC, PaperScore, paper_pairs, paper_scores
from cta.scores.protocol import CellScores, short_list, short_steps
from cta.scores.records import PAIRS, PRESSES, TASKS, by_score, by_seed, notices
from cta.scores.schema import HELD_OUT, WHOLE, CellKey
from cta.scores.statistics import Interval, Summary, difference, summarise, task_scores
from cta.scores.store import Scores

Line = tuple[str, ...]
MORE = ("95% CI", "seed numbers", "steps", "episodes", "data")
COLUMNS = ("dataset", "agent", "paper", "ours", "difference (95%)", "seeds", "IQM", *MORE)
OOC_COLUMNS = ("dataset", "pair", "agent", "paper", "ours", "seeds", "lenient", *MORE)
PRESS_COLUMNS = ("dataset", "presses", "agent", "success, %", "95% CI", "seeds", *MORE[1:])
BOARDS = "boards"
BOARD_COLUMNS = ("dataset", "agent", "tasks, %", "beside cta (95%)", "by presses, %", "reach", "seeds", *MORE)
HALF = 50.0
"""Success in %, from which a number of presses is within an agent's reach."""
SHOWN = 6
"""Columns for readers; the others are in CSV files."""
NONE = "–"


@dataclass
class Table:
    """Header, lines of text, and notes to stand below."""

    title: str
    columns: Line
    lines: list[Line]
    notes: Line = ()
    drop: tuple[int, ...] = (4, 5)
    """Columns that a narrow terminal does without, the first of them first."""

    def __post_init__(self) -> None:
        """What a line does not say of the last columns is not known."""
        self.lines = [(*line, *[NONE] * (len(self.columns) - len(line))) for line in self.lines]


@dataclass(frozen=True)
class Selection:
    """Which lines: everything the paper has, or only some agents or datasets, or only what we have."""

    agents: frozenset[str] = frozenset()
    datasets: frozenset[str] = frozenset()
    ours: bool = False

    def wants(self, dataset: str, agent: str) -> bool:
        return (not self.agents or agent in self.agents) and (not self.datasets or dataset in self.datasets)


def build(name: str, scores: Scores, selection: Selection) -> Table:
    """The table of this name; an agent or dataset that it cannot have is an error."""
    if name == BOARDS:
        return _board_table(scores, selection)
    asked = {OOC: PAIRS}.get(name, PRESSES if name == PRESSES else TASKS)
    parts = [part for cell in scores.cells() for part in cell.parts() if part.rows and part.asked == asked]
    if name != PRESSES:
        parts = [part for part in parts if not part.key.settings]
        lines = (*paper_pairs(), *(part.key for part in parts)) if name == OOC else paper_scores(name)
        _known("--agents", selection.agents, {line.agent for line in lines}, name)
        _known("--datasets", selection.datasets, {line.dataset for line in lines}, name)
    parts = [part for part in parts if selection.wants(part.key.dataset, part.key.agent)]
    if name in (OOC, PRESSES):
        return _pair_table(parts, selection) if name == OOC else _press_table(parts)
    return _score_table(name, [part for part in parts if part.key.condition == WHOLE], selection)


def _known(flag: str, wanted: Iterable[str], known: Set[str], table: str) -> None:
    """Refuse names that the table has not, with the nearest ones: `scene` is near to all that have it in their name."""
    for word in sorted(set(wanted) - known):
        near = sorted(name for name in known if word in name)[:3] or get_close_matches(word, sorted(known), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(sorted(known))}"
        raise CtaError(f"{flag} {word}: not in the table {table}: {hint}")


def _score_table(name: str, parts: Sequence[CellScores], selection: Selection) -> Table:
    """One of the paper's tables of success rates, a line for each dataset and agent."""
    cells = {(cell.key.dataset, cell.key.agent): cell for cell in parts}
    lines: list[Line] = []
    shown: list[CellScores] = []
    printed = paper_scores(name)
    for score in printed:
        if not selection.wants(score.dataset, score.agent):
            continue
        if score.dataset == AVERAGE:
            datasets = [s.dataset for s in printed if s.agent == score.agent and s.dataset != AVERAGE]
            lines += _averages(name, score, datasets, cells)
        elif cell := cells.get((score.dataset, score.agent)):
            shown.append(cell)
            lines.append(_line(name, score, cell))
        else:
            lines.append((score.dataset, score.agent, score.text))
    notes = [
        f"paper: {printed[0].seeds} seeds, the published data, {'500k' if name == 'pixel' else '1M'} steps",
        "both: mean ± standard deviation over seeds of the mean of the last three evaluations, 50 episodes per task; "
        "the interval of the difference is Welch's, over the seeds of both",
    ]
    kept = [line for line in lines if len(line) > 3 or not selection.ours]
    return Table(f"{name}: success, %", COLUMNS, kept, (*notes, *_notes(shown)))


def _line(table: str, score: PaperScore, cell: CellScores) -> Line:
    found = summarise(cell.counted())
    gap, interval = difference((found.mean, found.std, found.seeds), (score.mean, score.std or 0, score.seeds))
    between = "" if interval is None or score.std is None else f"{gap:+.1f} [{interval[0]:+.1f}, {interval[1]:+.1f}]"
    head = (score.dataset, score.agent, score.text, str(found), between, _seeds(cell, table), f"{found.iqm:.1f}")
    return (*head, *_more(cell, found.interval))


def _more(cell: CellScores, interval: Interval | None) -> Line:
    counted = cell.counted()
    return (
        f"[{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "",
        short_list(sorted({row.seed for row in counted})),
        ", ".join(short_steps(step) for step in sorted({row.step for row in counted})),
        ", ".join(map(str, sorted({row.episodes for row in counted}))),
        "; ".join(_origins(cell)),
    )


def _seeds(cell: CellScores, table: str) -> str:
    """Seeds that have everything, of how many the paper has; what else there is, is in part."""
    whole = len(cell.whole_seeds())
    return f"{whole} of {cell.wanted_seeds(table)}" + ("" if whole else f", {len(cell.seeds)} in part")


def _averages(
    name: str, score: PaperScore, shown: Sequence[str], cells: Mapping[tuple[str, str], CellScores]
) -> list[Line]:
    """The mean over a table's datasets, where we have all of them.

    What the paper prints below its five noisy datasets fits the mean over all eight, so these have a line too.
    """
    groups = {AVERAGE: shown}
    if name == "noisy":
        groups[f"{AVERAGE} of all eight"] = [dataset for dataset in KNOWN if dataset.endswith("-noisy-v0")]
    lines: list[Line] = []
    for label, datasets in groups.items():
        found = [cells[dataset, score.agent] for dataset in datasets if (dataset, score.agent) in cells]
        if len(found) == len(datasets):
            mean = fmean(summarise(cell.counted()).mean for cell in found)
            least = min(found, key=lambda cell: len(cell.whole_seeds()))
            lines.append((label, score.agent, score.text, f"{mean:.1f}", "", _seeds(least, name)))
        elif label == AVERAGE:
            lines.append((label, score.agent, score.text))
    return lines


def _pair_table(cells: Sequence[CellScores], selection: Selection) -> Table:
    """Held-out pairs: direct success (success), for every pair and over all of them."""
    lines: list[Line] = []
    known = set()
    for score in paper_pairs():
        found = [cell for cell in cells if (cell.key.dataset, cell.key.agent) == (score.dataset, score.agent)]
        known |= {cell.key for cell in found}
        lines += [_pair_line(cell, score.pair, score.text) for cell in found]
        if not found and not selection.ours and selection.wants(score.dataset, score.agent):
            lines.append((score.dataset, score.pair, score.agent, score.text))
    for cell in cells:
        if cell.key not in known:
            lines += [_pair_line(cell, pair, NONE) for pair in (*task_scores(cell.rows), ALL_PAIRS)]
    notes = (
        "paper: 4 seeds; over all pairs the paper prints means over the pairs of means and deviations, and so do we",
        "ours: strict direct success, means over the last three evaluations",
    )
    return Table("ooc: direct success (success), %", OOC_COLUMNS, lines, (*notes, *_notes(cells)), (5, 3))


def _pair_line(cell: CellScores, pair: str, paper: str) -> Line:
    key, counted = cell.key, cell.counted()
    trained = key.agent if key.condition == HELD_OUT else f"{key.agent} ({key.condition})"
    (ours,) = pair_lines(counted)
    if pair not in ours.pairs:
        return key.dataset, pair, trained, paper
    interval = summarise([row for row in counted if pair in (row.task, ALL_PAIRS)], "direct").interval
    numbers = (ours.both(pair, digits=1), _seeds(cell, OOC), ours.text(pair, "lenient", digits=1))
    return (key.dataset, pair, trained, paper, *numbers, *_more(cell, interval))


def _press_table(cells: Sequence[CellScores]) -> Table:
    """Success against the least number of presses, a line for each number and agent. The paper has no such table."""
    lines: list[Line] = []
    for cell in cells:
        counted = cell.counted()
        for task in task_scores(counted):
            found = summarise([row for row in counted if row.task == task])
            interval, *more = _more(cell, found.interval)
            words = (cell.key.dataset, task.removeprefix(PRESSES), agent_words(cell.key), str(found), interval)
            lines.append((*words, str(found.seeds), *more))
    lines.sort(key=lambda line: (line[0], int(line[1])))
    notes = ("ours: mean ± standard deviation over seeds, random starts and goals, the same for all agents",)
    return Table("presses: success by the least number of presses, %", PRESS_COLUMNS, lines, notes)


def _board_table(scores: Scores, selection: Selection) -> Table:
    """Agents on boards of lights beside CTA: a line for each, of its tasks and of random goals by presses."""
    found: dict[CellKey, dict[str, CellScores]] = {}
    for cell in scores.cells():
        if family(cell.key.dataset) in ("lights", "puzzle") and cell.key.condition == WHOLE:
            found[cell.key] = {part.asked: part for part in cell.parts() if part.rows}
    lines: list[Line] = []
    for key, parts in found.items():
        if not parts or not selection.wants(key.dataset, key.agent):
            continue
        cta = found.get(CellKey(key.dataset, "cta"), {}).get(TASKS)
        tasks, presses = parts.get(TASKS), parts.get(PRESSES)
        mean = beside = by_presses = reach = NONE
        more: Line = ()
        if tasks:
            ours = summarise(tasks.counted())
            mean, more = str(ours), (str(ours.seeds), *_more(tasks, ours.interval))
            if cta and cta is not tasks:
                beside = _gap(ours, summarise(cta.counted()))
        if presses:
            by_presses, reach = str(summarise(presses.counted())), str(_reach(presses))
        lines.append((key.dataset, agent_words(key), mean, beside, by_presses, reach, *more))
    notes = (
        "mean ± standard deviation over seeds; beside cta: the difference of the tasks, with Welch's interval",
        f"reach: up to so many presses every number of them has at least {HALF:.0f}% success",
    )
    return Table("boards: success, %", BOARD_COLUMNS, lines, notes)


def _gap(ours: Summary, theirs: Summary) -> str:
    gap, interval = difference(*((one.mean, one.std, one.seeds) for one in (ours, theirs)))
    return f"{gap:+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")


def _reach(presses: CellScores) -> int:
    means = [fmean(by_seed.values()) for by_seed in task_scores(presses.counted()).values()]
    return next((number for number, mean in enumerate(means) if mean < HALF), len(means))


def _preset(key: CellKey, *, small: bool = False) -> AgentConfig | None:
    """The paper's settings for this dataset; None of agents that nobody knows here."""
    entry = REGISTRY.get(key.agent)
    return entry and agent_preset(entry.config, key.dataset, small=small)


def agent_words(key: CellKey) -> str:
    """The agent, and how its settings differ from the preset's; those of `--size small` in one word."""
    usual, small = (_preset(key, small=small) for small in (False, True))
    words = "small" if usual and small and key.settings == settings_key(small, usual) else key.settings
    return key.agent + (f" ({words})" if key.settings else "")


def _origins(cell: CellScores) -> list[str]:
    """Where the data came from, one text for each origin."""
    found = {_origin(cell.key.dataset, facts.get("data") or {}) for facts in by_seed(cell.record).values()}
    return sorted(found) or [NONE]


def _origin(dataset: str, data: dict[str, Any]) -> str:
    record = data.get("provenance")
    if not record:
        return "published"
    record = (record.get("source") or {}).get("provenance") or record if "ooc" in record else record
    text = f"generated, seed {record.get('seed')}"
    spec = KNOWN.get(dataset)
    if spec and (record.get("episodes"), record.get("episode_steps")) != (spec.episodes, spec.episode_steps):
        text += f", {record.get('episodes')} × {record.get('episode_steps')}"
    simulator = (record.get("versions") or {}).get("mujoco")
    return text + (f", MuJoCo {simulator}" if simulator else "")


def _notes(cells: Sequence[CellScores]) -> list[str]:
    """What a reader must know of our cells: data, what is missing, changed settings, rounded weights."""
    notes = [f"our data: {' or '.join(sorted({text for cell in cells for text in _origins(cell)}))}"] if cells else []
    for cell in cells:
        if not cell.whole_seeds():
            notes.append(f"no result yet: {cell.name}, missing {cell.missing()}")
        if changed := _changed_settings(cell):
            notes.append(f"{cell.name}: settings differ from the paper's ({', '.join(changed)})")
        rounded = sorted({facts.get("weights", "float32") for facts, _ in by_score(cell.record).values()} - {"float32"})
        if rounded:
            notes.append(f"{cell.name}: scored with weights rounded to {', '.join(rounded)}")
    return [*notes, *notices(cell.record for cell in cells)]


def _changed_settings(cell: CellScores) -> list[str]:
    """Names of agent settings that are not the paper's for this dataset, though the cell does not say so."""
    if (preset := _preset(cell.key)) is None:
        return []
    usual = flat_settings(to_dict(preset))
    used = [flat_settings(facts.get("settings") or {}) for facts in by_seed(cell.record).values()]
    return sorted({name for settings in used for name in settings if settings[name] != usual.get(name)})
