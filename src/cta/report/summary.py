"""What the numbers say, in sentences, and no more than they say."""

from collections.abc import Sequence
from typing import Any

ENOUGH_SEEDS = 2


def title(series: Sequence[dict[str, Any]]) -> str:
    """cta and hiql on desk-play-v0."""
    agents = list(dict.fromkeys(one["agent"] for one in series))
    datasets = list(dict.fromkeys(one["data"] for one in series))
    many = len(agents) > 4
    where = _and(datasets) if len(datasets) <= 3 else f"{len(datasets)} datasets"
    return f"{f'{len(agents)} agents' if many else _and(agents)} on {where}"


def summary(series: Sequence[dict[str, Any]]) -> list[str]:
    """A line on what was done, and a verdict for each dataset on which something was scored."""
    lines = [_done(series)]
    for dataset in dict.fromkeys(one["data"] for one in series):
        scored = [one for one in series if one["data"] == dataset and one["mean"] is not None]
        if scored:
            lines.append(verdict(scored))
    return lines


def _done(series: Sequence[dict[str, Any]]) -> str:
    def range_of(values: Sequence[int], word: str) -> str:
        low, high = min(values), max(values)
        number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return f"{number} {word}{'' if high == 1 else 's'}"

    what = "Each was" if len(series) > 1 else "It was"
    seeds = range_of([len(one["seeds"]) for one in series], "seed")
    steps = range_of([one["steps"] for one in series], "step")
    episodes = sorted({count for one in series for count in one["episodes"]})
    scored = f" and scored on {range_of(episodes, 'episode')} a task" if episodes else "; nothing was scored yet"
    return f"{what} trained for {steps} with {seeds}{scored}."


def verdict(scored: Sequence[dict[str, Any]]) -> str:
    """Scores of one dataset from best to worst, and whether the numbers tell the best two apart."""
    ranked = sorted(scored, key=lambda one: -one["mean"])
    where = f"On {ranked[0]['data']}"
    numbers = _and([f"{one['label']} {_score(one)}" for one in ranked[:4]])
    more = f" (and {len(ranked) - 4} more below)" if len(ranked) > 4 else ""
    text = f"{where}, success in %: {numbers}{more}."
    if len(ranked) < 2:
        return text if len(ranked[0]["seeds"]) >= ENOUGH_SEEDS else f"{text} One seed says little about the next."
    best, second = ranked[:2]
    if len({one["steps"] for one in ranked}) > 1:
        text += " They were trained for different numbers of steps."
    if best["interval"] is None or second["interval"] is None:
        return f"{text} With a single seed a difference may be chance: these numbers do not rank the methods."
    (low, high), (second_low, second_high) = best["interval"], second["interval"]
    apart = low > second_high
    relation = "do not overlap" if apart else "overlap: these numbers do not tell the two apart"
    return (
        f"{text} The 95% intervals of the IQM of the first two, {low:.1f} to {high:.1f} and "
        f"{second_low:.1f} to {second_high:.1f}, {relation}."
    )


def _score(one: dict[str, Any]) -> str:
    return f"{one['mean']:.1f} ± {one['std']:.1f}" if len(one["scores"]) > 1 else f"{one['mean']:.1f}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
