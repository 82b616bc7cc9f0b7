"""What a study came to, beside the paper: direct success (success) for every pair."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from cta.evaluation.episodes import LAST_EVALUATIONS
from cta.results.paper import ALL_PAIRS, paper_pairs

ALL = ALL_PAIRS
RATES = ("direct", "successes", "lenient")


@dataclass(frozen=True)
class Rate:
    """Percent: mean and standard deviation over seeds."""

    mean: float
    std: float

    def text(self, *, several: bool) -> str:
        return f"{self.mean:.0f}±{self.std:.0f}" if several else f"{self.mean:.0f}"


@dataclass(frozen=True)
class Line:
    """One agent on one kind of data: {pair: {direct, successes, lenient}}; `pairs` ends with "all"."""

    agent: str
    data: str
    seeds: int
    steps: int | None
    pairs: Mapping[str, Mapping[str, Rate]]

    def cells(self) -> list[str]:
        """direct (success) for every pair, and the lenient rate over all."""
        several = self.seeds > 1
        texts = [
            f"{rates['direct'].text(several=several)} ({rates['successes'].text(several=several)})"
            for rates in self.pairs.values()
        ]
        lenient = self.pairs[ALL].get("lenient")
        return [*texts, lenient.text(several=several) if lenient else "–"]


def summarise(rows: Iterable[Mapping[str, Any]], *, data: str) -> list[Line]:
    """A line for each agent in rows of `ooc.csv`: a seed's rate is the mean of its last three evaluations.

    Over all pairs, mean and ± are the means over the pairs, as in the paper's table.
    """
    rates: dict[str, dict[tuple[str, int, str], list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for kind in RATES:
            rate = 100 * int(row[kind]) / int(row["episodes"])
            rates[row["agent"]][row["pair"], int(row["seed"]), kind].append((int(row["step"]), rate))
    return [_line(agent, data, found) for agent, found in rates.items()]


def _line(agent: str, data: str, found: Mapping[tuple[str, int, str], list[tuple[int, float]]]) -> Line:
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (pair, _, kind), curve in found.items():
        scores[pair][kind].append(fmean(rate for _, rate in sorted(curve)[-LAST_EVALUATIONS:]))
    pairs = {
        pair: {kind: Rate(fmean(values), pstdev(values)) for kind, values in kinds.items()}
        for pair, kinds in sorted(scores.items(), key=lambda item: int(item[0].removeprefix("pair")))
    }
    seeds = len({seed for _, seed, _ in found})
    steps = max(step for curve in found.values() for step, _ in curve)
    return Line(agent, data, seeds, steps, _with_all(pairs))


def _with_all(pairs: dict[str, dict[str, Rate]]) -> dict[str, dict[str, Rate]]:
    kinds = next(iter(pairs.values()))
    together = {
        kind: Rate(
            fmean(rates[kind].mean for rates in pairs.values()), fmean(rates[kind].std for rates in pairs.values())
        )
        for kind in kinds
    }
    return {**pairs, ALL: together}


def paper_lines(dataset: str) -> list[Line]:
    """The paper's numbers for this dataset; none for worlds of our own."""
    found: dict[str, dict[str, dict[str, Rate]]] = defaultdict(dict)
    seeds = 0
    for score in paper_pairs():
        if score.dataset == dataset:
            direct, success = Rate(score.direct, score.direct_std), Rate(score.success, score.success_std)
            found[score.agent][score.pair] = {"direct": direct, "successes": success}
            seeds = score.seeds
    return [Line(agent, "paper", seeds, 1_000_000, pairs) for agent, pairs in found.items()]


def merge(ours: Sequence[Line], paper: Sequence[Line]) -> list[Line]:
    """Each agent's lines together, the paper's below ours; agents of the paper alone are left out."""
    agents = dict.fromkeys(line.agent for line in ours)
    return [line for agent in agents for line in (*ours, *paper) if line.agent == agent]


def as_table(lines: Sequence[Line]) -> list[list[str]]:
    """Header and rows of text."""
    pairs = list(dict.fromkeys(pair for line in lines for pair in line.pairs if pair != ALL))
    header = ["agent", "data", "seeds", "steps", *pairs, ALL, "lenient, all"]
    rows = []
    for line in lines:
        cells = dict(zip([*line.pairs, "lenient"], line.cells(), strict=True))
        steps = "–" if line.steps is None else f"{line.steps:,}"
        numbers = [cells.get(pair, "–") for pair in (*pairs, ALL, "lenient")]
        rows.append([line.agent, line.data, str(line.seeds), steps, *numbers])
    return [header, *rows]


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A Markdown table of `as_table`."""
    header, *rows = table
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))
