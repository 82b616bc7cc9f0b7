"""Held-out pairs: what was cut, one pair drawn, and how often the agents did the pairs, directly or at all."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cta.envs.names import DESK_DATASETS
from cta.errors import CtaError
from cta.experiment.weights import held_out_pairs
from cta.ooc.components import Layout
from cta.ooc.evaluation import EpisodeLog, completes
from cta.ooc.pairs import PRESS, HeldOut, Pair
from cta.ooc.trials import Trial, make_trials
from cta.report.page import table
from cta.report.runs import RunRecord
from cta.scores.pair_table import PairLine, as_table, merge, pair_lines, paper_lines

KINDS = {"held-out": "pairs cut", "random": "random windows cut", "uncut": "nothing cut", "paper": "paper"}
NOTE = (
    "Each cell: [[direct]] success (success), in %. Means of the last three scored checkpoints, or of as many as were "
    "scored; ± one standard deviation over seeds, over all pairs the mean of the pairs' ±."
)


def studies(runs: Sequence[RunRecord], series: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per dataset on which held-out pairs were cut or asked for."""
    found = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        mine = [run for run in runs if run.dataset == dataset]
        lines: list[PairLine] = []
        for one in (one for one in series if one["dataset"] == dataset):
            lines += pair_lines((row for number in one["runs"] for row in runs[number].pair_rows), one["label"])
        cut = next((run.cut for run in mine if run.cut), None)
        if not lines and not cut:
            continue
        try:
            held_out = held_out_pairs(dataset, cut)
        except CtaError:  # a world of one's own
            held_out = None
        names = pair_names(held_out)
        found.append(
            {
                "dataset": dataset,
                "names": names,
                "held_out": _sentence(cut, held_out, names),
                "drawn": _drawn(dataset, held_out) if held_out else None,
                "cut": _cut_table(cut, held_out, names) if cut and held_out else None,
                "table": _table(lines, dataset, names) if lines else None,
                "notes": [NOTE],
            }
        )
    return found


def pair_names(held_out: HeldOut | None) -> dict[str, str]:
    """{"pair1": "open the drawer"}; what has the same name twice is told apart by its number."""
    pairs = list(held_out.numbered()) if held_out else []
    count = Counter(pair.name for _, pair in pairs)
    return {f"pair{n}": pair.name if count[pair.name] == 1 else f"{pair.name} ({n})" for n, pair in pairs}


def context_words(pair: Pair, layout: Layout) -> str:
    """lights 1, 3 on and 4 off; or: the window closed and unlocked. What the event itself says is left out."""
    context = {name: value for name, value in pair.context.items() if name != pair.event[0]}
    if layout.patterns:
        lit = sorted((layout.index(name), value) for name, value in context.items())
        by_value = {value: [str(light) for light, found in lit if found == value] for value in (1, 0)}
        parts = [f"{', '.join(names)} {'on' if value else 'off'}" for value, names in by_value.items() if names]
        return f"light{'s' if len(context) > 1 else ''} {' and '.join(parts)}"
    things: dict[str, list[str]] = defaultdict(list)
    for name, value in context.items():
        things[name.removesuffix("_lock")].append(str(layout.say(name, value)))
    return ", ".join(f"the {thing} {' and '.join(said)}" for thing, said in things.items())


def events(log: EpisodeLog, pair: Pair, layout: Layout) -> list[list[Any]]:
    """[step, what changed, kind] in order; kind: "task" in its context, "elsewhere" the task in another, "aside"."""
    state, found = dict(log.start), []
    context = {name: layout.say(name, value) for name, value in pair.context.items()}
    for t, change in log.changes:
        held = all(state[name] == value for name, value in context.items())
        kind = ("task" if held else "elsewhere") if completes(change, pair, layout) else "aside"
        found.append([t + 1, _change_words(change, layout), kind])
        state |= change
    return found


def _change_words(change: Mapping[str, Any], layout: Layout) -> str:
    for button, lights in enumerate(layout.patterns):
        if set(change) == {layout.names[light] for light in lights}:
            return f"press {button}"
    return ", ".join(f"{name.removesuffix('_lock')} {value}" for name, value in change.items())


def _sentence(cut: dict[str, Any] | None, held_out: HeldOut | None, names: dict[str, str]) -> str:
    """What was held out, in a sentence."""
    report = (cut or {}).get("report") or {}
    gone, left = (int(report.get(name, 0)) for name in ("removed", "transitions_left"))
    share = f" ({gone:,} of {gone + left:,} transitions)" if gone else ""
    if cut and cut.get("kind") == "random":
        return f"As a control, windows at random places were cut out of the data{share}."
    if not cut or not held_out:
        return "Nothing was cut out of the data; asked for are the pairs that other studies hold out."
    if len(names) == 1:
        return f"One task in one context was cut out of the data{share}; the agents are asked for exactly this."
    many = f"{len(names)} combinations of a task and a context"
    return f"{many} were cut out of the data{share}; the agents are asked for exactly these."


def _drawn(dataset: str, held_out: HeldOut) -> dict[str, Any] | None:
    """The pair with the largest context: its first start and goal, in the numbers that the page draws."""
    pairs, layout = held_out.pairs, held_out.layout
    place = max(range(len(pairs)), key=lambda i: len(pairs[i].context))
    try:
        trial, pair = make_trials(held_out, episodes=1)[place], pairs[place]
    except CtaError:
        return None
    what, value = pair.event
    return {
        "pair": f"pair{held_out.first + place}",
        "words": f"{pair.name}, with {context_words(pair, layout)}",
        "event": pair.name,
        "context": [layout.index(name) for name in pair.context] if layout.patterns else [],
        "press": value if what == PRESS else None,
        "dataset": dataset,
        "schematic": _schematic(dataset, trial, layout),
    }


def _schematic(dataset: str, trial: Trial, layout: Layout) -> dict[str, Any]:
    names = layout.names
    state, goal = ([float(side[name]) for name in names] for side in (trial.start, trial.goal))
    if dataset in DESK_DATASETS:
        return {"kind": "desk", "meaning": [], "state": [None, None, 0, *state], "goal": [None, None, 0, *goal]}
    if layout.patterns:
        return {"kind": "puzzle", "meaning": [f"light {i}" for i in range(len(names))], "state": state, "goal": goal}
    meaning = [name.replace("_lock", " unlocked") for name in names[:4]] + [f"cube {axis}" for axis in "xyz"]
    start, end = trial.cube or ((), ())
    return {"kind": "scene", "meaning": meaning, "state": [*state[:4], *start], "goal": [*goal[:4], *end]}


def _cut_table(cut: dict[str, Any], held_out: HeldOut, names: dict[str, str]) -> dict[str, Any]:
    """The pairs, and how much of the training data went for each."""
    counts = (cut.get("report") or {}).get("pairs") or []
    rows = []
    for (number, pair), count in zip_longest(held_out.numbered(), counts[: len(held_out.pairs)], fillvalue={}):
        numbers = (pair.window, count.get("events"), count.get("removed"))
        context = {"text": context_words(pair, held_out.layout), "class": "wrap"}
        rows.append([names[f"pair{number}"], context, *("–" if n is None else f"{n:,}" for n in numbers)])
    return table(("Task", "Context", "K", "Events", "Transitions removed"), rows, words=2)


def _table(lines: Sequence[PairLine], dataset: str, names: dict[str, str]) -> dict[str, Any]:
    """Direct success (success) of each pair, ours above the paper's."""
    header, *rows = as_table(merge(lines, paper_lines(dataset)))
    titles = [names.get(title) or title.capitalize() for title in header]
    found = table(titles, [[row[0], KINDS.get(row[1], row[1]), *row[2:]] for row in rows], words=2)
    for column in found["columns"][4:]:
        column["keep"] = True
    for row in found["rows"]:
        row[-2]["class"] = "strong"
    return found
