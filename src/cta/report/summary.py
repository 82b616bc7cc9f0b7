"""How a page begins: the question, the answer that the numbers allow, and what the world is. No more than they say."""

from collections.abc import Sequence
from typing import Any

from cta.envs.names import family
from cta.report.runs import RunRecord
from cta.scores.paper import ALL_PAIRS
from cta.scores.statistics import difference, seeds_to_tell

NEW_CONTEXT = "Can an agent do a known task in a context it never saw it in?"
LIGHTS = "presses the buttons of a board of lights; a press switches its own light and those beside it."
WORLDS = {
    "desk": "A gripper slides a drawer, a window and a tray, and presses buttons that lock and unlock the first two.",
    "lights": f"A gripper {LIGHTS}",
    "puzzle": f"A robot arm {LIGHTS}",
    "scene": "A robot arm moves a cube, a drawer and a window, and presses two buttons that lock and unlock them.",
    "cube": "A robot arm picks up cubes on a table and puts them down elsewhere.",
    "pointmaze": "A point moves through a maze.",
    "antmaze": "A four-legged robot walks through a maze.",
    "humanoidmaze": "A humanoid robot walks through a maze.",
}
"""What happens in a world, by the first word of its datasets."""


def title(series: Sequence[dict[str, Any]]) -> str:
    """cta and hiql on desk-play-v0."""
    agents, datasets = (list(dict.fromkeys(one[name] for one in series)) for name in ("agent", "data"))
    who = _and(agents) if len(agents) <= 4 else f"{len(agents)} agents"
    where = _and(datasets) if len(datasets) <= 3 else f"{len(datasets)} datasets"
    return f"{who} on {where}"


def opening(
    runs: Sequence[RunRecord], series: Sequence[dict[str, Any]], studies: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The question, the answer on each dataset, how much was done, and what the world is."""
    asked = [one for one in series if one["pairs"]]
    answers = []
    for dataset in dict.fromkeys(one["data"] for one in series):
        mine = [one for one in series if one["data"] == dataset]
        found = {one["label"]: one["pairs"][ALL_PAIRS]["direct"] for one in mine if one["pairs"]}
        if not asked:
            found = {one["label"]: one["success"] for one in mine if one["success"]}
        if found:
            several = len({one["data"] for one in (asked or series)}) > 1
            where = f"On {dataset}, " if several else "Asked for what was cut out, " if asked else ""
            unequal = len({one["steps"] for one in mine}) > 1
            more = " They were trained for different numbers of steps." if unequal else ""
            answers.append(where + verdict(found, asked=bool(asked)) + more)
    question = "How often is the goal reached?" if answers else "What was trained?"
    return {
        "question": NEW_CONTEXT if asked else question,
        "answer": answers,
        "done": _done(series),
        "world": _worlds(runs, studies),
    }


def verdict(scored: dict[str, dict[str, Any]], *, asked: bool = False) -> str:
    """The agents of one dataset from best to worst, and whether the numbers tell the best two apart.

    `asked`: for held-out pairs, where success counts if it is direct.
    """
    ranked = sorted(scored.items(), key=lambda one: -one[1]["mean"])
    (best, first), rest = ranked[0], ranked[1:]
    numbers = [f"{best} {'does it directly' if asked else 'reaches the goal'} in {first['mean']:.0f} % of episodes"]
    numbers += [f"{label} in {one['mean']:.0f} %" for label, one in rest[:3]]
    text = f"{', '.join(numbers)}{f', and {len(rest) - 3} more below' if len(rest) > 3 else ''}."
    if not rest:
        return text if len(first["seeds"]) > 1 else f"{text} One seed says little about the next."
    second = rest[0][1]
    gap, interval = difference(_numbers(first), _numbers(second))
    if interval is None:
        return f"{text} With a single seed the difference may be chance: this does not rank them."
    which = "difference" if len(rest) == 1 else "difference between the first two"
    seeds = _range({len(first["seeds"]), len(second["seeds"])}, "seed")
    told = "is more than chance" if interval[0] > 0 else "may be chance"
    low, high = (f"{end:.0f}".replace("-", "−") for end in interval)
    enough = seeds_to_tell(_numbers(first), _numbers(second)) if interval[0] <= 0 else None
    more = f"; about {enough} would tell" if enough else ""
    return f"{text} The {which}, {gap:.0f} points, {told} (95% interval {low} to {high}, {seeds} each{more})."


def _done(series: Sequence[dict[str, Any]]) -> str:
    """lights-3x3-play-v0, pairs cut · 3 seeds · 6,000 steps · 50 episodes per pair"""
    datasets = list(dict.fromkeys(one["data"] for one in series))
    episodes = {count for one in series for count in (one["pair_episodes"] or one["episodes"])}
    per = "pair" if any(one["pairs"] for one in series) else "task"
    parts = [datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"]
    parts += [_range({len(one["seeds"]) for one in series}, "seed"), _range({one["steps"] for one in series}, "step")]
    parts.append(f"{_range(episodes, 'episode')} per {per}" if episodes else "nothing was scored yet")
    return " · ".join(parts)


def _range(values: set[int], word: str) -> str:
    low, high = min(values), max(values)
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} {word}{'' if high == 1 else 's'}"


def _worlds(runs: Sequence[RunRecord], studies: Sequence[dict[str, Any]]) -> list[str]:
    """For each dataset a sentence on its world and one on what was held out."""
    held = {study["dataset"]: study["held_out"] for study in studies}
    lines = []
    for run in {run.dataset: run for run in runs}.values():
        unknown = f"The agents learned from {run.dataset}, trajectories recorded elsewhere."
        scored = len({row.task for row in run.rows})
        rest = f"Nothing was held out; scored are the world's {scored} tasks." if scored else ""
        lines.append(f"{WORLDS.get(family(run.dataset), unknown)} {held.get(run.dataset, rest)}".strip())
    return lines


def _numbers(one: dict[str, Any]) -> tuple[float, float, int]:
    return one["mean"], one["std"], len(one["seeds"])


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
