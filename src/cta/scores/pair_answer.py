"""What two agents came to on held-out pairs, in one sentence and in bars of text."""

from collections.abc import Mapping, Sequence

from cta.scores.schema import Score
from cta.scores.statistics import difference, seeds_to_tell, summarise

BAR = 50
"""Columns of a bar: two per cent each."""
BLOCKS, PLAIN = "█▒░", "#+."
"""Directly, by a detour, not at all."""


class PairAnswer:
    """Direct success and success of two agents, by name, over all pairs and seeds: the first minus the second.

    `interval`: of the difference in direct success, 95 %, Welch's over the seeds of both; one seed has none.
    `enough`: seeds of each at which this difference and spread would have an interval without zero.
    """

    def __init__(self, scores: Mapping[str, Sequence[Score]]):
        self.names = [*scores]
        self.direct = [summarise(rows, "direct") for rows in scores.values()]
        self.success = [summarise(rows) for rows in scores.values()]
        ours, theirs = ((one.mean, one.std, one.seeds) for one in self.direct)
        self.gap, self.interval = difference(ours, theirs)
        self.enough = seeds_to_tell(ours, theirs)
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
        low, high = self.interval
        seeds = f"{ours.seeds} seeds each" if ours.seeds == theirs.seeds else f"{ours.seeds} and {theirs.seeds} seeds"
        text += f", 95 % interval {low:+.1f} to {high:+.1f} ({seeds})"
        if self.told:
            return f"{text}."
        more = f"; with this spread it would take about {self.enough} seeds of each" if self.enough else ""
        return f"{text}, which includes zero, so these seeds do not say which is better{more}."

    def bars(self, blocks: str = BLOCKS) -> list[str]:
        """A bar for each agent, at most 80 columns wide."""
        width = max(map(len, self.names))
        lines = [f"{'':{width}}  {blocks[0]} directly  {blocks[1]} by a detour  {blocks[2]} not at all"]
        for name, direct, success in zip(self.names, self.direct, self.success, strict=True):
            done, reached = (round(BAR * one.mean / 100) for one in (direct, success))
            bar = blocks[0] * done + blocks[1] * (reached - done) + blocks[2] * (BAR - reached)
            lines.append(f"{name:{width}}  {bar}  {direct.mean:3.0f} %")
        return lines
