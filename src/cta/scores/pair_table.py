"""What agents came to on held-out pairs: as a table beside the paper's, of two in a sentence and in bars of text."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from cta.scores.paper import ALL_PAIRS, paper_pairs
from cta.scores.schema import WHOLE, Score
from cta.scores.statistics import KINDS, difference, seeds_to_tell, summarise, task_scores

Rate = tuple[float, float]  # mean and standard deviation over seeds, in %
BAR = 50  # columns of a bar
BLOCKS, PLAIN = "█▒░", "#+."  # directly, by a detour, not at all


@dataclass(frozen=True)
class PairLine:
    """One agent on one kind of data: {pair: {direct, successes, lenient}}; `pairs` ends with "all"."""

    agent: str
    data: str
    seeds: int
    steps: int
    pairs: dict[str, dict[str, Rate]]

    def text(self, pair: str, kind: str, *, digits: int = 0) -> str:
        if kind not in self.pairs.get(pair, {}):
            return "–"
        mean, std = self.pairs[pair][kind]
        return f"{mean:.{digits}f}" + (f"±{std:.{digits}f}" if self.seeds > 1 else "")

    def both(self, pair: str, *, digits: int = 0) -> str:
        direct, success = (self.text(pair, kind, digits=digits) for kind in ("direct", "successes"))
        return f"{direct} ({success})" if pair in self.pairs else "–"


def pair_lines(scores: Iterable[Score], agent: str | None = None) -> list[PairLine]:
    """A line for each agent (by another name: `agent`) and condition, of a seed's last three evaluations."""
    groups: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for score in scores:
        groups[agent or score.agent, "uncut" if score.condition == WHOLE else score.condition].append(score)
    lines = []
    for (name, data), mine in groups.items():
        pairs: dict[str, dict[str, Rate]] = defaultdict(dict)
        for kind in KINDS:
            for pair, by_seed in task_scores(mine, kind).items():
                pairs[pair][kind] = fmean(by_seed.values()), pstdev(by_seed.values())
        over = [*pairs.values()]  # of which mean and ± are the means, as in the paper's table
        pairs[ALL_PAIRS] = {k: (fmean(one[k][0] for one in over), fmean(one[k][1] for one in over)) for k in KINDS}
        lines.append(PairLine(name, data, len({s.seed for s in mine}), max(s.step for s in mine), pairs))
    return lines


def paper_lines(dataset: str) -> list[PairLine]:
    """The paper's numbers for this dataset; none for worlds of our own."""
    found: dict[str, PairLine] = {}
    for score in (score for score in paper_pairs() if score.dataset == dataset):
        line = found.setdefault(score.agent, PairLine(score.agent, "paper", score.seeds, 1_000_000, {}))
        rates = {"direct": (score.direct, score.direct_std), "successes": (score.success, score.success_std)}
        line.pairs[score.pair] = rates
    return [*found.values()]


def as_table(ours: Sequence[PairLine], paper: Sequence[PairLine] = ()) -> list[list[str]]:
    """Each agent's lines together, the paper's below ours; agents of the paper alone are left out."""
    agents = dict.fromkeys(line.agent for line in ours)
    lines = [line for agent in agents for line in (*ours, *paper) if line.agent == agent]
    pairs = list(dict.fromkeys(pair for line in lines for pair in line.pairs if pair != ALL_PAIRS))
    rows = [["agent", "data", "seeds", "steps", *pairs, ALL_PAIRS, "lenient, all"]]
    for line in lines:
        numbers = [*(line.both(pair) for pair in (*pairs, ALL_PAIRS)), line.text(ALL_PAIRS, "lenient")]
        rows.append([line.agent, line.data, str(line.seeds), f"{line.steps:,}", *numbers])
    return rows


class PairAnswer:
    """Direct success and success of two agents, by name, over all pairs and seeds: the first minus the second."""

    def __init__(self, scores: Mapping[str, Sequence[Score]]):
        self.names = [*scores]
        self.direct, self.success = ([summarise(r, kind) for r in scores.values()] for kind in ("direct", "successes"))
        ours, theirs = (one[:3] for one in self.direct)
        self.gap, self.interval = difference(ours, theirs)  # in direct success; one seed has no interval
        self.enough = seeds_to_tell(ours, theirs)  # seeds of each, if this difference and spread stayed
        self.told = self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def sentence(self) -> str:
        """The difference in words, with its interval or with the seeds that it would take."""
        (first, second), (ours, theirs) = self.names, self.direct
        size = round(abs(self.gap))
        points = f"{size} point{'s' * (size > 1)} {'more' if self.gap > 0 else 'less'}" if size else "the same"
        text = f"On pairs that were never shown {first} did the task directly in {ours.mean:.0f} % of episodes and "
        text += f"{second} in {theirs.mean:.0f} %: {points}"
        if self.interval is None:
            return f"{text}, from one seed each, which does not say which is better."
        seeds = f"{ours.seeds} seeds each" if ours.seeds == theirs.seeds else f"{ours.seeds} and {theirs.seeds} seeds"
        text += ", 95 % interval {:+.1f} to {:+.1f} ({})".format(*self.interval, seeds)
        if self.told:
            return f"{text}."
        more = f"; with this spread it would take about {self.enough} seeds of each" if self.enough else ""
        return f"{text}, which includes zero, so these seeds do not say which is better{more}."

    def bars(self, blocks: str = BLOCKS) -> list[str]:
        """A bar for each agent, at most 80 columns wide."""
        width = max(map(len, self.names))
        lines = ["{:{}}  {} directly  {} by a detour  {} not at all".format("", width, *blocks)]
        for name, direct, success in zip(self.names, self.direct, self.success, strict=True):
            done, reached = (round(BAR * one.mean / 100) for one in (direct, success))
            bar = blocks[0] * done + blocks[1] * (reached - done) + blocks[2] * (BAR - reached)
            lines.append(f"{name:{width}}  {bar}  {direct.mean:3.0f} %")
        return lines
