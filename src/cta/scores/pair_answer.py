"""What two agents came to on held-out pairs, in one sentence and in bars of text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cta.scores.schema import Score
from cta.scores.statistics import Interval, Summary, difference, seeds_to_tell, summarise

BAR = 50
"""Columns of a bar: two per cent each."""
BLOCKS, PLAIN = "█▒░", "#+."
"""Directly, by a detour, not at all."""


@dataclass(frozen=True)
class PairAnswer:
    """Direct success and success of two agents over all pairs and seeds, and the difference in direct success."""

    names: tuple[str, str]
    direct: tuple[Summary, Summary]
    success: tuple[Summary, Summary]
    gap: float
    interval: Interval | None
    """95 %, Welch's over the seeds of both; one seed has none."""
    enough: int | None
    """Seeds of each at which this difference and spread would have an interval without zero."""

    @classmethod
    def of(cls, scores: Mapping[str, Sequence[Score]]) -> "PairAnswer":
        """From the scores of two agents, by name: the first minus the second."""
        first, second = scores
        direct = summarise(scores[first], "direct"), summarise(scores[second], "direct")
        success = summarise(scores[first]), summarise(scores[second])
        ours, theirs = ((one.mean, one.std, one.seeds) for one in direct)
        return cls((first, second), direct, success, *difference(ours, theirs), seeds_to_tell(ours, theirs))

    @property
    def told(self) -> bool:
        """Whether the interval is without zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def sentence(self) -> str:
        """The difference in words, with its interval or with the seeds that it would take."""
        (first, second), (ours, theirs) = self.names, self.direct
        text = f"On pairs that were never shown {first} did the task directly in {ours.mean:.0f} % of episodes and "
        text += f"{second} in {theirs.mean:.0f} %: {_points(self.gap)}"
        if self.interval is None:
            return f"{text}, from one seed each, which does not say which is better."
        low, high = self.interval
        text += f", 95 % interval {low:+.1f} to {high:+.1f} ({_seeds(ours.seeds, theirs.seeds)})"
        if self.told:
            return f"{text}."
        more = f"; with this spread it would take about {self.enough} seeds of each" if self.enough else ""
        return f"{text}, which includes zero, so these seeds do not say which is better{more}."

    def bars(self, blocks: str = BLOCKS) -> list[str]:
        """A bar for each agent, at most 80 columns wide."""
        width = max(map(len, self.names))
        key = f"{blocks[0]} directly  {blocks[1]} by a detour  {blocks[2]} not at all"
        lines = [f"{'':{width}}  {key}"]
        for name, direct, success in zip(self.names, self.direct, self.success, strict=True):
            done, reached = (round(BAR * one.mean / 100) for one in (direct, success))
            bar = blocks[0] * done + blocks[1] * (reached - done) + blocks[2] * (BAR - reached)
            lines.append(f"{name:{width}}  {bar}  {direct.mean:3.0f} %")
        return lines


def _points(gap: float) -> str:
    size = round(abs(gap))
    return f"{size} point{'s' if size > 1 else ''} {'more' if gap > 0 else 'less'}" if size else "the same"


def _seeds(ours: int, theirs: int) -> str:
    return f"{ours} seeds each" if ours == theirs else f"{ours} and {theirs} seeds"
