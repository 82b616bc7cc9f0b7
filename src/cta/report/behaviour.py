"""What the agents did: how often the held-out pairs, directly or at all; and episodes for the players to show."""

import base64
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from cta.envs.desk import TRAVEL, DeskWorld, decode, find_world
from cta.envs.desk_vector import DeskVectorWorld
from cta.envs.names import DESK_DATASETS
from cta.envs.protocol import Episode, Step
from cta.errors import CtaError
from cta.evaluation.rollout import plan_episodes, play
from cta.experiment import Run
from cta.experiment.scoring import policy_maker
from cta.experiment.weights import held_out_pairs
from cta.ooc import HeldOut, Layout, Pair
from cta.ooc.evaluation import MID_POINTS, EpisodeLog, Trial, desk_task, follow, judge, make_trials, write_log
from cta.ooc.pairs import PRESS
from cta.report.page import table
from cta.report.runs import RunRecord
from cta.scores.pair_table import PairLine, as_table, pair_lines, paper_lines

KINDS = {"held-out": "pairs cut", "random": "random windows cut", "uncut": "nothing cut", "paper": "paper"}
NOTE = (
    "Each cell: [[direct]] success (success), in %. Means of the last three scored checkpoints, or of as many as were "
    "scored; ± one standard deviation over seeds, over all pairs the mean of the pairs' ±."
)
CONTROL_RATE = 6.0  # states per second at which a player shows an embedded world
FAILED = "goal not reached"
Job = tuple[str, Episode, Trial | None]  # what the page calls the task, the episode, and of a held-out pair its trial
VIDEO_NAME = re.compile(r"task(\d+)_episode(\d+)_(success|failure)\.mp4")


def studies(runs: Sequence[RunRecord], series: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per dataset on which held-out pairs were cut or asked for."""
    found = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        lines: list[PairLine] = []
        for one in (one for one in series if one["dataset"] == dataset):
            lines += pair_lines((row for number in one["runs"] for row in runs[number].pair_rows), one["label"])
        cut = next((run.cut for run in runs if run.dataset == dataset and run.cut), None)
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
    kinds = {True: "task", False: "elsewhere", None: "aside"}
    return [[t + 1, _change_words(change, layout), kinds[held]] for t, change, held in follow(log, pair, layout)]


def _change_words(change: Mapping[str, Any], layout: Layout) -> str:
    for button, lights in enumerate(layout.patterns):
        if set(change) == {layout.names[light] for light in lights}:
            return f"press {button}"
    return ", ".join(f"{name.removesuffix('_lock')} {value}" for name, value in change.items())


def _sentence(cut: dict[str, Any] | None, held_out: HeldOut | None, names: dict[str, str]) -> str:
    report = (cut or {}).get("report") or {}
    gone, left = (int(report.get(name, 0)) for name in ("removed", "transitions_left"))
    share = f" ({gone:,} of {gone + left:,} transitions)" if gone else ""
    if cut and cut.get("kind") == "random":
        return f"As a control, windows at random places were cut out of the data{share}."
    if not cut or not held_out:
        return "Nothing was cut out of the data; asked for are the pairs that other studies hold out."
    one, many = "One task in one context was", f"{len(names)} combinations of a task and a context were"
    what, exactly = (one, "this") if len(names) == 1 else (many, "these")
    return f"{what} cut out of the data{share}; the agents are asked for exactly {exactly}."


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
    header, *rows = as_table(lines, paper_lines(dataset))
    titles = [names.get(title) or title.capitalize() for title in header]
    found = table(titles, [[row[0], KINDS.get(row[1], row[1]), *row[2:]] for row in rows], words=2)
    for column in found["columns"][4:]:
        column["keep"] = True
    for row in found["rows"]:
        row[-2]["class"] = "strong"
    return found


def geometry(world: DeskWorld) -> dict[str, Any]:
    """What the page needs to draw an embedded world."""
    parts = [{"name": p.name, "base": p.base, "direction": p.direction, "locks": p.locks} for p in world.parts]
    buttons = [{"place": [round(at, 4) for at in b.place], "toggles": b.toggles} for b in world.buttons]
    return {"travel": TRAVEL, "parts": parts, "buttons": buttons}


def flat_states(world: DeskWorld, observations: np.ndarray) -> list[list[float]]:
    """[x, y, grip, part positions…, bits…] of every observation (T, 3 + m + n), with three decimals."""
    flat = np.column_stack(decode(world, observations))
    return np.round(flat.astype(float), 3).tolist()


def record_rollouts(run: RunRecord, *, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """(the first evaluation episodes of the first seed not diverged, a line on their origin or why there are none)."""
    world = find_world(run.dataset)
    if world is None or world.pixels:
        return _videos(run)
    if not any((run.path / "checkpoints").glob("[0-9]*")):
        return [], "no rollouts, since there is no checkpoint."
    try:
        return _play(run, world, episodes)
    except CtaError as error:
        return [], f"no rollouts, since {error}."


def _play(run: RunRecord, world: DeskWorld, episodes: int) -> tuple[list[dict[str, Any]], str]:
    """The world's own tasks and, where pairs were held out, those, as `cta ooc evaluate` plays them: all at once."""
    opened = Run(run.path)
    policy, names = opened.policy(), {str(number): name for number, name in task_names(run.dataset).items()}
    how = {"tasks": [int(task) for task in names], "episodes": episodes, "eval_seed": opened.config.eval_seed}
    jobs: list[Job] = [(str(one.task), one, None) for one in plan_episodes(run_seed=policy.seed, **how)]
    held_out = held_out_pairs(run.dataset, run.cut) if run.cut or run.pair_rows else None
    if held_out:
        names |= pair_names(held_out)
        for trial in make_trials(held_out, episodes=episodes):
            task = desk_task(trial, held_out.layout)
            jobs.append((f"pair{trial.pair}", Episode(trial.pair, trial.seed, task, trial.episode), trial))
    seen, last = [[] for _ in jobs], {}

    def watch(playing: dict[int, Episode], at: Step) -> None:
        for place in playing:
            seen[place].append(np.array(at.observations[place]))
            last[place] = np.array(at.goals[place]), bool(at.success[place])

    # All side by side: slot after slot has the episode of its number.
    act = policy_maker(opened.agent, policy.networks, policy.units, opened.config, policy.seed)
    play([DeskVectorWorld(world, slots=len(jobs))], act, [episode for _, episode, _ in jobs], watch=watch)
    found = []
    for place, (task, episode, trial) in enumerate(jobs):
        observations, (goal, success) = np.stack(seen[place]), last[place]
        direct = happened = None
        if held_out and trial:
            layout, pair = held_out.layout, dict(held_out.numbered())[trial.pair]
            values = MID_POINTS.values(layout, layout.measure(observations, {}))
            log = write_log(trial, values, layout, success=success)
            direct, happened = judge(log, pair, layout).direct, events(log, pair, layout)
        how = "" if direct is None else " directly" if direct else " by a detour"
        found.append(
            {
                "seed": policy.seed,
                "step": policy.step,
                "rate": CONTROL_RATE,
                "key": f"{task}/{episode.episode}",
                "label": f"{names[task]}, episode {episode.episode + 1}" if episodes > 1 else names[task],
                "success": success,
                "outcome": f"goal reached{how}" if success else FAILED,
                "direct": direct,
                "events": happened,
                "states": flat_states(world, observations),
                "goal": flat_states(world, goal[None])[0],
            }
        )
    which = "the first evaluation episode" if episodes == 1 else f"the first {episodes} evaluation episodes"
    return found, f"seed {policy.seed} at step {policy.step:,}, {which} of each task, whatever the outcome."


def _videos(run: RunRecord) -> tuple[list[dict[str, Any]], str]:
    """The mp4 files `cta evaluate --videos` left, of the newest step."""
    steps = {folder: folder.name.removeprefix("step_") for folder in (run.path / "videos").glob("step_*")}
    numbered = {int(step): folder for folder, step in steps.items() if step.isdecimal()}
    if not numbered:
        return [], f"no videos; `cta evaluate {run.path} --videos 1` records one per task."
    step, rollouts = max(numbered), []
    # Videos from before folders of seeds lie in the step's own.
    folder = min(numbered[step].glob("seed_*"), default=numbered[step])
    seed = f" of seed {folder.name.removeprefix('seed_')}" if folder != numbered[step] else ""
    for file in sorted(folder.glob("*.mp4")):
        if named := VIDEO_NAME.fullmatch(file.name):
            task, episode, outcome = named.groups()
            success, video = outcome == "success", base64.b64encode(file.read_bytes()).decode()
            about = {"key": f"{task}/{episode}", "label": f"task {task}, episode {int(episode) + 1}", "step": step}
            outcome = "goal reached" if success else FAILED
            rollouts.append({**about, "success": success, "outcome": outcome, "video": video})
    return rollouts, f"videos{seed} at step {step:,}."


def task_names(dataset: str) -> dict[int, str]:
    """Readable names of a dataset's tasks where they are known without a simulator."""
    tasks = world.tasks if (world := find_world(dataset)) else ()
    return {number: task.name.split("_", 1)[1].replace("_", " ") for number, task in enumerate(tasks, 1)}
