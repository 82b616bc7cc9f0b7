"""One picture of a run: how success grew, where it stands on each task, and what a rollout looks like."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cta.data.files import write_whole
from cta.envs.names import DESK_DATASETS
from cta.errors import CtaError
from cta.evaluation.episodes import LAST_EVALUATIONS, TASKS, overall_success, plan_episodes, seed_scores
from cta.evaluation.rollout import Policy
from cta.evaluation.scenes import DeskScene, play_scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, LINE, BAR = "#2f3640", "#9aa3ad", "#4c78a8", "#8fb0d0"
STILLS = 7


def picture(
    path: str | Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    dataset_name: str,
    make_policy: Callable[[int], Policy] | None = None,
    run_seed: int = 0,
    title: str = "",
) -> Path:
    """Write a PNG of a run from its rows of `eval.csv` (seed, step, task, episodes, successes) and return its path.

    Left: overall success over training, one thin line a seed and their mean. Right: success on each task, mean of the
    last three evaluations, one dot a seed. Below, on the embedded worlds and with a policy: the longest successful
    rollout among the first evaluation episodes of the tasks, as a film strip that ends with the goal.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = list(rows)
    if not rows:
        raise CtaError("there is no evaluation to draw yet: the run has no rows in eval.csv")
    filmed = make_policy is not None and dataset_name in DESK_DATASETS
    figure = Figure(figsize=(11, 5.9 if filmed else 3.9), dpi=120, facecolor="white", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title or dataset_name, fontsize=12, color=INK)
    halves: Any = figure.subfigures(2, 1, height_ratios=[1.9, 1.1]) if filmed else (figure, None)
    top, bottom = halves
    curve, bars = top.subplots(1, 2, width_ratios=[1.15, 1])
    _draw_curves(curve, rows)
    _draw_tasks(bars, rows, _task_labels(dataset_name))
    if bottom is not None and make_policy is not None:
        _draw_film(bottom, dataset_name, make_policy, run_seed=run_seed)
    path = Path(path)
    content = BytesIO()
    canvas.print_png(content)
    write_whole(path, content.getvalue())
    return path


def _style(ax: "Axes", *, title: str) -> None:
    ax.set_title(title, fontsize=10, color=INK, loc="left")
    ax.set_ylim(-3, 103)
    ax.set_yticks(range(0, 101, 25))
    ax.grid(axis="y", color="#e8eaed", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK, labelsize=8, length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(QUIET)


def _draw_curves(ax: "Axes", rows: list[Mapping[str, Any]]) -> None:
    overall = overall_success(rows)
    curves: dict[int, list[tuple[int, float]]] = defaultdict(list)
    by_step: dict[int, list[float]] = defaultdict(list)
    for (seed, step), rate in overall.items():
        curves[seed].append((step, 100 * rate))
        by_step[step].append(100 * rate)
    several = len(curves) > 1
    for curve in curves.values():
        ax.plot(*zip(*curve, strict=True), color=QUIET if several else LINE, linewidth=1, marker="o", markersize=2.5)
    if several:
        steps = sorted(step for step, rates in by_step.items() if len(rates) == len(curves))
        ax.plot(steps, [np.mean(by_step[step]) for step in steps], color=LINE, linewidth=2.4, label="mean of seeds")
        ax.plot([], [], color=QUIET, linewidth=1, label="one seed")
        ax.legend(fontsize=8, frameon=False, loc="lower right", labelcolor=INK)
    score = 100 * np.mean(list(seed_scores(rows).values()))
    _style(ax, title=f"Success over training, %: score {score:.0f} (mean of the last {LAST_EVALUATIONS} evaluations)")
    ax.set_xlabel("training step", fontsize=8, color=INK)


def _draw_tasks(ax: "Axes", rows: list[Mapping[str, Any]], labels: Mapping[int, str]) -> None:
    tasks = sorted({int(row["task"]) for row in rows})
    for place, task in enumerate(tasks):
        rates = [100 * rate for rate in seed_scores(row for row in rows if int(row["task"]) == task).values()]
        mean = float(np.mean(rates))
        ax.bar(place, mean, color=BAR, width=0.62)
        ax.text(place, 2, f"{mean:.0f}", ha="center", va="bottom", fontsize=9, color=INK)
        if len(rates) > 1:
            spread = np.linspace(-0.15, 0.15, len(rates))
            ax.plot(
                place + spread, rates, "o", color=LINE, markersize=3.5, markeredgecolor="white", markeredgewidth=0.5
            )
    _style(ax, title="Success on each task, %")
    ax.set_xticks(range(len(tasks)), [labels.get(task, f"task {task}") for task in tasks])


def _task_labels(dataset_name: str) -> dict[int, str]:
    """Short names under the bars where they are known without starting a simulator."""
    if dataset_name not in DESK_DATASETS:
        return {}
    from cta.envs.desk import find_world

    world = find_world(dataset_name)
    assert world is not None
    words = {number: task.name.split("_", 1)[1].replace("_", " ") for number, task in enumerate(world.tasks, 1)}
    return {number: f"{number}\n" + text.replace(" ", "\n", 1) for number, text in words.items()}


def _draw_film(figure: Any, dataset_name: str, make_policy: Callable[[int], Policy], *, run_seed: int) -> None:
    from cta.envs.desk_draw import draw

    scene = DeskScene(dataset_name)
    policy = make_policy(1)
    films = []
    for planned in plan_episodes(run_seed=run_seed, tasks=TASKS, episodes=1):
        states = list(play_scene(scene, policy, planned))
        films.append((bool(states[-1][2]), len(states), planned.task, states))
    # The longest success; where nothing succeeded yet, the first task's attempt.
    success, length, task, states = max(films, key=lambda film: (film[0], film[1] if film[0] else -film[2]))
    stills = np.unique(np.linspace(0, length - 1, STILLS).round().astype(int)).tolist()
    outcome = f"reached after {length - 1} steps" if success else f"not reached in {length - 1} steps"
    name = scene.world.tasks[task - 1].name.split("_", 1)[1].replace("_", " ")
    figure.suptitle(f"A rollout of task {task}, {name}: goal {outcome}", fontsize=10, color=INK, x=0.01, ha="left")
    axes = figure.subplots(1, len(stills) + 1)
    for ax, still in zip(axes, stills, strict=False):
        draw(ax, scene.world, states[still][0], title="start" if still == 0 else f"step {still}", labels=False)
    draw(axes[-1], scene.world, states[0][1], title="goal", labels=False)
    for spine in axes[-1].spines.values():
        spine.set(color=LINE, linewidth=2)
