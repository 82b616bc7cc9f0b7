"""Ours beside the paper's. A table is text and numbers; `formats` prints it."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import get_close_matches
from statistics import fmean
from typing import Any

from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.results.pairs import PairCell, read_pairs
from cta.results.paper import ALL_PAIRS, AVERAGE, PaperPair, PaperScore, paper_pairs, paper_scores
from cta.results.protocol import Cell, short_list, short_steps, task_matrix
from cta.results.records import by_score, by_seed, notices
from cta.results.rows import Row
from cta.results.statistics import Summary, difference_interval, summarise
from cta.results.store import Results

INCOMPLETE = "incomplete"
COLUMNS = (
    "dataset", "agent", "paper", "ours", "95% CI", "ours − paper (95% CI)", "IQM (95% CI)", "seeds", "steps",
    "episodes", "data", "state",
)  # fmt: skip
OOC_COLUMNS = (
    "dataset", "pair", "agent", "paper direct (success)", "ours direct (success)", "95% CI of direct", "lenient",
    "seeds", "steps", "episodes", "data", "state",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Header, lines of text, and notes to stand below."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """Which lines: everything the paper has, or only some agents or datasets, or only what we have."""

    agents: frozenset[str] = field(default_factory=frozenset)
    datasets: frozenset[str] = field(default_factory=frozenset)
    ours: bool = False
    intervals: bool = True

    def wants(self, dataset: str, agent: str) -> bool:
        return (not self.agents or agent in self.agents) and (not self.datasets or dataset in self.datasets)


def score_table(name: str, results: Results, selection: Selection) -> Table:
    """One of the paper's tables of success rates, a line for each dataset and agent."""
    cells = {(cell.dataset, cell.agent): cell for cell in results.cells() if cell.rows}
    lines = []
    shown: list[Cell] = []
    for score in paper_scores(name):
        if not selection.wants(score.dataset, score.agent):
            continue
        if score.dataset == AVERAGE:
            lines += _average_lines(name, score, cells, selection)
            continue
        cell = cells.get((score.dataset, score.agent))
        if cell is None:
            if not selection.ours:
                lines.append(_line(score, None, selection))
            continue
        shown.append(cell)
        lines.append(_line(score, cell, selection))
    seeds = sorted({score.seeds for score in paper_scores(name)})
    notes = [
        f"paper: {' or '.join(map(str, seeds))} seeds, the published data, "
        f"{'500k' if name == 'pixel' else '1M'} steps, mean ± standard deviation over seeds of the mean of the last "
        "three evaluations, 50 episodes a task",
        "ours: the same over our seeds; intervals are 95% stratified bootstraps over seeds, IQM the interquartile mean "
        "over seeds and tasks; the interval of the difference is Welch's, over the seeds of both",
    ]
    return Table(f"{name}: success, %", COLUMNS, tuple(lines), (*notes, *_notes(shown)))


def _paper(score: PaperScore) -> str:
    return f"{score.mean:g}" + ("" if score.std is None else f" ± {score.std:g}")


def _difference(summary: Summary, seeds: int, score: PaperScore) -> str:
    """Ours − the paper's, where both have a spread."""
    if score.std is None or seeds < 2:
        return ""
    ours, theirs = (summary.mean, summary.std, seeds), (score.mean, score.std, score.seeds)
    gap, low, high = difference_interval(ours, theirs)
    return f"{gap:+.1f} [{low:+.1f}, {high:+.1f}]"


def _line(score: PaperScore, cell: Cell | None, selection: Selection) -> tuple[str, ...]:
    if cell is None:
        return (score.dataset, score.agent, _paper(score), *["–"] * (len(COLUMNS) - 3))
    counted = cell.counted()
    seeds, _, rates = task_matrix(counted)
    summary = summarise(rates, intervals=selection.intervals)
    return (
        score.dataset,
        score.agent,
        _paper(score),
        mean_text(summary, len(seeds)),
        interval_text(summary.mean_interval),
        _difference(summary, len(seeds), score),
        f"{summary.iqm:.1f} {interval_text(summary.iqm_interval, brackets='()')}".strip(),
        f"{len(seeds)} ({short_list(seeds)})",
        _steps_text(counted),
        _episodes_text(counted),
        "; ".join(data_texts(cell)),
        "complete" if cell.complete else INCOMPLETE,
    )


def _average_lines(
    name: str, score: PaperScore, cells: Mapping[tuple[str, str], Cell], selection: Selection
) -> list[tuple[str, ...]]:
    """The mean over a table's datasets, where we have all of them.

    What the paper prints below its five noisy datasets fits the mean over all eight, so these have a line too.
    """
    lines = []
    shown = [s.dataset for s in paper_scores(name) if s.agent == score.agent and s.dataset != AVERAGE]
    groups = {AVERAGE: shown}
    if name == "noisy":
        groups[f"{AVERAGE} of all eight"] = [dataset for dataset in KNOWN if dataset.endswith("-noisy-v0")]
    for label, datasets in groups.items():
        found = [cells[dataset, score.agent] for dataset in datasets if (dataset, score.agent) in cells]
        ours = ["–"] * (len(COLUMNS) - 3)
        if len(found) == len(datasets):
            means = [summarise(task_matrix(cell.counted())[2], intervals=False).mean for cell in found]
            state = "complete" if all(cell.complete for cell in found) else INCOMPLETE
            ours = [f"{fmean(means):.1f}", *[""] * (len(COLUMNS) - 5), state]
        elif selection.ours or label != AVERAGE:
            continue
        lines.append((label, score.agent, _paper(score), *ours))
    return lines


def mean_text(summary: Summary, seeds: int) -> str:
    """Mean ± deviation; one seed has no deviation."""
    return f"{summary.mean:.1f}" + (f" ± {summary.std:.1f}" if seeds > 1 else "")


def interval_text(interval: tuple[float, float] | None, brackets: str = "[]") -> str:
    return "" if interval is None else f"{brackets[0]}{interval[0]:.1f}, {interval[1]:.1f}{brackets[1]}"


def _steps_text(rows: Sequence[Row]) -> str:
    return ", ".join(short_steps(step) for step in sorted({row.step for row in rows}))


def _episodes_text(rows: Sequence[Row]) -> str:
    return ", ".join(map(str, sorted({row.episodes for row in rows})))


def data_texts(cell: Cell) -> list[str]:
    """Where the data came from, one text for each origin."""
    return sorted({_origin(cell.dataset, facts.get("data") or {}) for facts in by_seed(cell.record).values()}) or ["–"]


def _origin(dataset: str, data: dict[str, Any]) -> str:
    record = data.get("provenance")
    if not record:
        return "published"
    text = f"generated, seed {record.get('seed')}"
    spec = KNOWN.get(dataset)
    if spec and (record.get("episodes"), record.get("episode_steps")) != (spec.episodes, spec.episode_steps):
        text += f", {record.get('episodes')} × {record.get('episode_steps')}"
    simulator = record.get("versions", {}).get("mujoco")
    return text + (f", MuJoCo {simulator}" if simulator else "")


def _notes(cells: Sequence[Cell]) -> list[str]:
    """What a reader must know of our cells: changed settings, rounded weights, differing data."""
    notes = []
    for cell in cells:
        if not cell.complete:
            notes.append(f"{INCOMPLETE}, no result yet: {cell.agent} on {cell.dataset}, {cell.missing()}")
        changed = changed_settings(cell)
        if changed:
            notes.append(f"{cell.agent} on {cell.dataset}: settings differ from the paper's ({', '.join(changed)})")
        rounded = sorted({facts["weights"] for facts, _ in by_score(cell.record).values()} - {"float32"})
        if rounded:
            notes.append(f"{cell.agent} on {cell.dataset}: scored with weights rounded to {', '.join(rounded)}")
    return [*notes, *notices(cell.record for cell in cells)]


def changed_settings(cell: Cell) -> list[str]:
    """Names of agent settings that are not the paper's for this dataset."""
    from cta.agents import find  # JAX
    from cta.config import to_dict
    from cta.presets import agent_preset

    used = [facts["settings"] for facts in by_seed(cell.record).values() if "settings" in facts]
    if not used or ":" in cell.agent:
        return []
    preset = json.loads(json.dumps(to_dict(agent_preset(find(cell.agent).config, cell.dataset))))
    return sorted({name for settings in used for name in settings if settings[name] != preset.get(name)})


def ooc_table(results: Results, selection: Selection) -> Table:
    """Held-out pairs: direct success (success), for every pair and over all of them."""
    ours = read_pairs(results.folder / "ooc")
    lines, known = [], set()
    for score in paper_pairs():
        if not selection.wants(score.dataset, score.agent):
            continue
        found = [cell for cell in ours if (cell.dataset, cell.agent) == (score.dataset, score.agent)]
        known |= {(cell.dataset, cell.agent) for cell in found}
        for cell in found:
            lines.append(_ooc_line(score.dataset, score.pair, score.agent, _paper_pair(score), cell, selection))
        if not found and not selection.ours:
            blank = ["–"] * (len(OOC_COLUMNS) - 4)
            lines.append((score.dataset, score.pair, score.agent, _paper_pair(score), *blank))
    for cell in ours:
        if (cell.dataset, cell.agent) not in known and selection.wants(cell.dataset, cell.agent):
            for pair in (*cell.pairs, ALL_PAIRS):
                lines.append(_ooc_line(cell.dataset, pair, cell.agent, "–", cell, selection))
    notes = (
        "paper: 4 seeds; over all pairs the paper prints means over the pairs of means and deviations, and so do we",
        "ours: strict direct success, means over the last three evaluations; lenient accepts detours before the task",
    )
    return Table("ooc: direct success (success), %", OOC_COLUMNS, tuple(lines), notes)


def _paper_pair(score: PaperPair) -> str:
    return f"{score.direct:g} ± {score.direct_std:g} ({score.success:g} ± {score.success_std:g})"


def _ooc_line(dataset: str, pair: str, agent: str, paper: str, cell: PairCell, selection: Selection) -> tuple[str, ...]:
    pairs = cell.pairs if pair == ALL_PAIRS else (pair,)
    if not set(pairs) & set(cell.pairs):
        return (dataset, pair, agent, paper, *["–"] * (len(OOC_COLUMNS) - 4))
    counted = cell.counted()
    seeds, texts = sorted({row.seed for row in counted}), []
    for kind in ("direct", "successes", "lenient"):
        mean, spread = cell.mean_and_spread(pair, kind)
        texts.append(f"{mean:.1f}" + (f" ± {spread:.1f}" if len(seeds) > 1 else ""))
    found = [cell.rates(p, "direct") for p in pairs]
    matrix = [[rates[seed] for rates in found] for seed in seeds if all(seed in rates for rates in found)]
    interval = summarise(matrix, intervals=selection.intervals).mean_interval if matrix else None
    return (
        dataset, pair, agent, paper, f"{texts[0]} ({texts[1]})", interval_text(interval), texts[2],
        f"{len(seeds)} ({short_list(seeds)})", _steps_text(counted), _episodes_text(counted), cell.condition,
        "complete" if cell.complete else INCOMPLETE,
    )  # fmt: skip


def build(name: str, results: Results, selection: Selection) -> Table:
    """The table of this name; an agent or dataset that it cannot have is an error."""
    lines = [*paper_pairs(), *read_pairs(results.folder / "ooc")] if name == "ooc" else paper_scores(name)
    _known("--agents", selection.agents, {line.agent for line in lines}, name)
    _known("--datasets", selection.datasets, {line.dataset for line in lines}, name)
    return ooc_table(results, selection) if name == "ooc" else score_table(name, results, selection)


def _known(flag: str, wanted: Iterable[str], known: Set[str], table: str) -> None:
    """Refuse names that the table has not, with the nearest ones: `scene` is near to all that have it in their name."""
    for word in sorted(set(wanted) - known):
        near = sorted(name for name in known if word in name)[:3] or get_close_matches(word, sorted(known), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(sorted(known))}"
        raise CtaError(f"{flag} {word}: not in the table {table}: {hint}")


__all__ = ["COLUMNS", "OOC_COLUMNS", "Selection", "Table", "build"]
