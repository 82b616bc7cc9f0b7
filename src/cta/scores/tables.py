"""Ours beside the paper's: tables of text, as Markdown, LaTeX, CSV or on a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from cta.agents import REGISTRY
from cta.config import AgentConfig, flat_settings, settings_key, to_dict
from cta.envs.names import KNOWN, family
from cta.errors import CtaError, did_you_mean
from cta.io.csv_log import csv_text
from cta.io.text_tables import pipe_table, print_table, print_text
from cta.presets import agent_preset
from cta.scores.pair_table import pair_lines
from cta.scores.paper import ALL_PAIRS, AVERAGE, OOC, CellScores, paper_pairs, paper_scores, short_list, short_steps
from cta.scores.schema import HELD_OUT, PAIRS, PRESSES, TASKS, WHOLE, CellKey
from cta.scores.statistics import Interval, difference, summarise, task_scores
from cta.scores.store import Scores, by_score, by_seed, notices

Line = tuple[str, ...]
MORE = ("95% CI", "seed numbers", "steps", "episodes", "data")
COLUMNS = ("dataset", "agent", "paper", "ours", "difference (95%)", "seeds", "IQM", *MORE)
OOC_COLUMNS = ("dataset", "pair", "agent", "paper", "ours", "seeds", "lenient", *MORE)
PRESS_COLUMNS = ("dataset", "presses", "agent", "success, %", "95% CI", "seeds", *MORE[1:])
BOARDS = "boards"
BOARD_COLUMNS = ("dataset", "agent", "tasks, %", "beside cta (95%)", "by presses, %", "reach", "seeds", *MORE)
HALF = 50.0  # success in %, from which a number of presses is within an agent's reach
SHOWN = 6  # columns for readers; the others are in CSV files
NONE = "–"
NOTHING = "No results yet.\n"
TEX = str.maketrans(
    {"\\": "\\textbackslash{}", "±": "$\\pm$", "–": "--", "×": "$\\times$"} | {c: f"\\{c}" for c in "%&_#"}
)


@dataclass
class Table:
    """Header, lines of text, and notes to stand below."""

    title: str
    columns: Line
    lines: list[Line]
    notes: Line = ()
    drop: tuple[int, ...] = (4, 5)  # what a narrow terminal does without, the first of them first

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
    parts = [part for cell in scores.cells() for part in cell.parts() if part.rows]
    if name == BOARDS:
        return _board_table(parts, selection)
    parts = [part for part in parts if part.asked == {OOC: PAIRS, PRESSES: PRESSES}.get(name, TASKS)]
    if name != PRESSES:
        parts = [part for part in parts if not part.key.settings]
        lines = (*paper_pairs(), *(part.key for part in parts)) if name == OOC else paper_scores(name)
        for flag, wanted in (("agent", selection.agents), ("dataset", selection.datasets)):
            known = sorted({getattr(line, flag) for line in lines})
            for word in sorted(wanted.difference(known)):
                hint = did_you_mean(word, known, f"it has {', '.join(known)}")
                raise CtaError(f"--{flag}s {word}: not in the table {name}: {hint}")
    parts = [part for part in parts if selection.wants(part.key.dataset, part.key.agent)]
    if name in (OOC, PRESSES):
        return _pair_table(parts, selection) if name == OOC else _press_table(parts)
    return _score_table(name, [part for part in parts if part.key.condition == WHOLE], selection)


def _score_table(name: str, parts: Sequence[CellScores], selection: Selection) -> Table:
    """One of the paper's tables of success rates, a line for each dataset and agent."""
    cells = {(cell.key.dataset, cell.key.agent): cell for cell in parts}
    lines: list[Line] = []
    shown: list[CellScores] = []
    printed = paper_scores(name)
    for score in printed:
        head = (score.dataset, score.agent, score.text)
        if not selection.wants(score.dataset, score.agent):
            continue
        if score.dataset == AVERAGE:
            lines += _averages(name, score.agent, score.text, cells)
        elif cell := cells.get((score.dataset, score.agent)):
            shown.append(cell)
            found = summarise(cell.counted())
            gap, interval = difference(found[:3], (score.mean, score.std or 0, score.seeds))
            ours = (str(found), f"{gap:+.1f}{_span(interval, '+')}" if interval else "", _seeds(cell, name))
            lines.append((*head, *ours, f"{found.iqm:.1f}", *_more(cell, found.interval)))
        else:
            lines.append(head)
    notes = [
        f"paper: {printed[0].seeds} seeds, the published data, {'500k' if name == 'pixel' else '1M'} steps",
        "both: mean ± standard deviation over seeds of the mean of the last three evaluations, 50 episodes per task; "
        "the interval of the difference is Welch's, over the seeds of both",
    ]
    kept = [line for line in lines if len(line) > 3 or not selection.ours]
    return Table(f"{name}: success, %", COLUMNS, kept, (*notes, *_notes(shown)))


def _span(interval: Interval | None, sign: str = "") -> str:
    """[1.0, 2.0], perhaps with signs; nothing of one seed, which has no interval."""
    return f" [{interval[0]:{sign}.1f}, {interval[1]:{sign}.1f}]" if interval else ""


def _more(cell: CellScores, interval: Interval | None) -> Line:
    counted = cell.counted()
    return (
        _span(interval).strip(),
        short_list(sorted({row.seed for row in counted})),
        ", ".join(short_steps(step) for step in sorted({row.step for row in counted})),
        ", ".join(map(str, sorted({row.episodes for row in counted}))),
        "; ".join(_origins(cell)),
    )


def _seeds(cell: CellScores, table: str) -> str:
    """Seeds that have everything, of how many the paper has; what else there is, is in part."""
    whole = len(cell.whole_seeds())
    return f"{whole} of {cell.wanted_seeds(table)}" + ("" if whole else f", {len(cell.seeds)} in part")


def _averages(name: str, agent: str, paper: str, cells: Mapping[tuple[str, str], CellScores]) -> list[Line]:
    """The mean over a table's datasets, where we have all of them."""
    groups = {AVERAGE: [one.dataset for one in paper_scores(name) if one.agent == agent]}
    groups[AVERAGE].remove(AVERAGE)
    if name == "noisy":  # what the paper prints below its five datasets fits the mean over all eight
        groups[f"{AVERAGE} of all eight"] = [dataset for dataset in KNOWN if dataset.endswith("-noisy-v0")]
    lines: list[Line] = []
    for label, datasets in groups.items():
        found = [cells[dataset, agent] for dataset in datasets if (dataset, agent) in cells]
        if len(found) == len(datasets):
            mean = fmean(summarise(cell.counted()).mean for cell in found)
            least = min(found, key=lambda cell: len(cell.whole_seeds()))
            lines.append((label, agent, paper, f"{mean:.1f}", "", _seeds(least, name)))
        elif label == AVERAGE:
            lines.append((label, agent, paper))
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
    for cell in (cell for cell in cells if cell.key not in known):
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


def _board_table(cells: Sequence[CellScores], selection: Selection) -> Table:
    """Agents on boards of lights beside CTA of their size: a line for each, of tasks and of random goals by presses."""
    parts = {(c.key.dataset, agent_words(c.key), c.asked): c for c in cells if c.key.condition == WHOLE}
    lines: list[Line] = []
    for key in dict.fromkeys(cell.key for cell in parts.values()):
        if family(key.dataset) not in ("lights", "puzzle") or not selection.wants(key.dataset, key.agent):
            continue
        mean = beside = by_presses = reach = NONE
        more: Line = ()
        if tasks := parts.get((key.dataset, agent_words(key), TASKS)):
            ours = summarise(tasks.counted())
            mean, more = str(ours), (str(ours.seeds), *_more(tasks, ours.interval))
            cta = parts.get((key.dataset, "cta (small)" if _changes(key)[0] else "cta", TASKS))
            if cta and cta is not tasks:
                gap, interval = difference(ours[:3], summarise(cta.counted())[:3])
                beside = f"{gap:+.1f}{_span(interval, '+')}"
        if presses := parts.get((key.dataset, agent_words(key), PRESSES)):
            counted = presses.counted()
            means = [fmean(by_seed.values()) for by_seed in task_scores(counted).values()]
            within = next((number for number, rate in enumerate(means) if rate < HALF), len(means))
            by_presses, reach = str(summarise(counted)), str(within)
        lines.append((key.dataset, agent_words(key), mean, beside, by_presses, reach, *more))
    notes = (
        "mean ± standard deviation over seeds; beside cta: the difference of the tasks, with Welch's interval",
        f"reach: up to so many presses every number of them has at least {HALF:.0f}% success",
    )
    return Table("boards: success, %", BOARD_COLUMNS, lines, notes)


def _preset(key: CellKey, *, small: bool = False) -> AgentConfig | None:
    """The paper's settings for this dataset; None of agents that nobody knows here."""
    entry = REGISTRY.get(key.agent)
    return entry and agent_preset(entry.config, key.dataset, small=small)


def _changes(key: CellKey) -> tuple[str, list[str]]:
    """What `--size small` changes, if its settings have all of that, and what else they change."""
    known = key if key.agent in REGISTRY else key._replace(agent="cta")  # an agent that is not installed here
    usual, small = _preset(known), _preset(known, small=True)
    shared = settings_key(small, usual) if usual and small else ""
    changes = key.settings.split(";") if key.settings else []
    rest = [change for change in changes if change not in shared.split(";")]
    return (shared, rest) if len(rest) + len(shared.split(";")) == len(changes) else ("", changes)


def agent_words(key: CellKey) -> str:
    """The agent, and how its settings differ from the preset's; those of `--size small` in one word."""
    shared, rest = _changes(key)
    words = ["small"] * bool(shared) + rest
    return key.agent + (f" ({';'.join(words)})" if words else "")


def _origins(cell: CellScores) -> list[str]:
    """Where the data came from, one text for each origin."""
    found, spec = set(), KNOWN.get(cell.key.dataset)
    for facts in by_seed(cell.record).values():
        made = (facts.get("data") or {}).get("provenance")
        if not made:
            found.add("published")
            continue
        made = (made.get("source") or {}).get("provenance") or made if "ooc" in made else made
        size, simulator = (made.get("episodes"), made.get("episode_steps")), (made.get("versions") or {}).get("mujoco")
        text = f"generated, seed {made.get('seed')}"
        text += ", {} × {}".format(*size) if spec and size != (spec.episodes, spec.episode_steps) else ""
        found.add(text + (f", MuJoCo {simulator}" if simulator else ""))
    return sorted(found) or [NONE]


def _notes(cells: Sequence[CellScores]) -> list[str]:
    """What a reader must know of our cells: data, what is missing, changed settings, rounded weights."""
    notes = [f"our data: {' or '.join(sorted({text for cell in cells for text in _origins(cell)}))}"] if cells else []
    for cell in cells:
        if not cell.whole_seeds():
            notes.append(f"no result yet: {cell.key.name}, missing {cell.missing()}")
        # Settings that are not the paper's for this dataset, though the cell does not say so.
        if preset := _preset(cell.key):
            usual = flat_settings(to_dict(preset))
            used = [flat_settings(facts.get("settings") or {}) for facts in by_seed(cell.record).values()]
            if changed := sorted({name for one in used for name in one if one[name] != usual.get(name)}):
                notes.append(f"{cell.key.name}: settings differ from the paper's ({', '.join(changed)})")
        rounded = sorted({facts.get("weights", "float32") for facts, _ in by_score(cell.record).values()} - {"float32"})
        if rounded:
            notes.append(f"{cell.key.name}: scored with weights rounded to {', '.join(rounded)}")
    return [*notes, *notices(cell.record for cell in cells)]


def markdown(table: Table) -> str:
    if not table.lines:
        return NOTHING
    notes = "".join(f"\n{note}." for note in table.notes)
    return pipe_table(_shown(table)) + "\n" + notes + ("\n" if notes else "")


def latex(table: Table) -> str:
    """A booktabs table; needs \\usepackage{booktabs}."""
    header, *lines = [" & ".join(word.translate(TEX) for word in row) + " \\\\" for row in _shown(table)]
    begin = [f"\\begin{{tabular}}{{{'l' * SHOWN}}}", "\\toprule", header, "\\midrule"]
    return "\n".join([*begin, *lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _shown(table: Table) -> list[tuple[str, ...]]:
    return [row[:SHOWN] for row in (table.columns, *table.lines)]


def show(table: Table) -> None:
    if not table.lines:
        print(NOTHING, end="")
        return
    print_table(_shown(table), left=3, drop=table.drop, title=table.title)
    for note in table.notes:
        print_text(note)


FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": lambda table: csv_text([table.columns, *table.lines]),  # all columns, and no notes for readers
}
