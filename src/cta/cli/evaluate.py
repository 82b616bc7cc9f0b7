import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.progress import Progress
from tyro.conf import Positional, arg

from cta.cli.options import WEIGHTS, Opening, Workers
from cta.config import RunConfig
from cta.data.progress import LINE_SECONDS
from cta.errors import CtaError
from cta.io.files import check_writable
from cta.io.json_files import read_json
from cta.scores.schema import TASKS
from cta.validation import Bounds, Count, Natural, NotNegative

SOURCES = Bounds("name at least one run directory or file of weights", bool)
KEPT = {"scores!": [{"weights!": str, "episodes!": int, "asked": str, "successes!": {...: int}, "direct": {...: int}}]}
"""Of the record beside a policy that `cta results keep` wrote."""


@dataclass(frozen=True, kw_only=True)
class Command(Opening):
    """Score policies by OGBench's protocol: five tasks, 50 episodes each, temperature 0.

    Episodes are fixed by their seeds, so scores are paired across checkpoints and methods. A run's scores are added to
    RUN/evaluate.csv (the columns of eval.csv, and how they were scored; mujoco: its version, empty where it plays no
    part); scoring the same again in the same way replaces its rows.

    With --results, and of files of weights, scores go into a results folder: rows of RESULTS/DATASET.AGENT.csv, with a
    record beside them. Policies trained on data with pairs cut out (`cta ooc cut`) are asked for these pairs instead.
    What is scored already is skipped: an interrupted command is simply given again. Without --results, weights are
    scored into the folder whose weights/ they lie in, others into a folder of their name beside them.

      cta evaluate RUN                                       the newest checkpoint of every seed
      cta evaluate RUN --episodes 10 --videos 2              a quick look, and two videos per task
      cta evaluate RUN --env my_env:make                     in a Gymnasium environment of your own (docs/own-data.md)
      cta evaluate RUN --step 800000 --results results       a checkpoint of a run into a results folder
      cta evaluate RUN --ask presses --results results       success by the least number of presses (docs/beyond.md)
      cta evaluate mine/weights/*.safetensors                what `cta reproduce` kept, into mine
      cta evaluate NAME.safetensors --videos 1               a policy that somebody kept, and how it acts
    """

    sources: Annotated[Positional[tuple[str, ...]], SOURCES, arg(metavar="RUN|WEIGHTS…")]
    """Run directories, or files of weights."""
    results: Path | None = None
    """Results folder (default: a run's own evaluate.csv; for weights as said above)."""
    step: str = ""
    """Checkpoints to score: `last`, `last3`, `all`, or steps separated by commas (default: last; all of a file)."""
    seeds: str = ""
    """Seeds separated by commas (default: all)."""
    episodes: Annotated[Count, arg(aliases=["--eval-episodes"])] = 50
    """Episodes per task or pair."""
    tasks: Annotated[Count | None, arg(aliases=["--eval-tasks"])] = None
    """Only the first N tasks, or numbers of presses."""
    temperature: Annotated[NotNegative, arg(aliases=["--eval-temperature"])] = 0.0
    """Policy temperature (0: the mean action)."""
    noise: Annotated[NotNegative, arg(aliases=["--eval-gaussian"])] = 0.0
    """Standard deviation of noise added to actions."""
    workers: Workers = None
    eval_seed: Natural = 0
    """Base seed of the episodes."""
    ask: Literal["tasks", "pairs", "presses"] | None = None
    """What to ask for, into a results folder; presses: goals by fewest presses (default: pairs if some were cut)."""
    pairs: Annotated[str | None, arg(metavar="FILE")] = None
    """Into a results folder: a TOML file of pairs to ask for (docs/ooc.md)."""
    again: bool = False
    """Score again what is in the results folder already, and replace it."""
    env: Annotated[str | None, arg(metavar="MODULE:FACTORY")] = None
    """A function that makes an environment of your own, with goals; for a run."""
    max_episode_steps: Count | None = None
    """Length of an episode in --env (default: what the environment says, else 1000)."""
    videos: Annotated[Natural, arg(aliases=["--video-episodes"])] = 0
    """Videos per task: of the first seed of a run that has not diverged, or of each file of weights."""
    video_frame_skip: Count = 3
    """Record every N-th frame."""

    def __call__(self) -> None:
        weights = any(source.endswith(WEIGHTS) for source in self.sources)
        into_results = self.results is not None or weights
        if into_results:
            where, wrong = "a run without --results", ("env", "max_episode_steps", *([] if weights else ["videos"]))
        else:
            where, wrong = "a results folder: give --results", ("ask", "pairs", "again")
        for name in wrong:
            if getattr(self, name):
                raise CtaError(f"--{name.replace('_', '-')} is for {where}")
        if self.env is not None and self.videos:
            raise CtaError("--videos: videos are of known environments only, not of --env")
        if self.max_episode_steps is not None and self.env is None:
            raise CtaError("--max-episode-steps is for an environment of --env")
        if into_results:
            self._into_results()
        else:
            for source in self.sources:
                self._into_run(source)

    def _into_results(self) -> None:
        # Policies are evaluated on the CPU; an accelerator's memory is left to whoever trains there.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        # One thread for it: a few rows at a time gain nothing from more, and the cores belong to the simulators.
        os.environ.setdefault("PJRT_NPROC", "1")
        from cta.agents import find
        from cta.compilation import enable_cache
        from cta.experiment import candidate_policy
        from cta.experiment.candidates import candidates, numbers
        from cta.experiment.score_files import score_into
        from cta.scores.store import Scores

        enable_cache()
        if self.agent is not None:
            find(self.agent)  # code of one's own is loaded only if the command line names it
        # All of them are opened before the first is scored.
        seeds = numbers(self.seeds, "--seeds")
        opened = [Path(source) if source.endswith(WEIGHTS) else self.open_run(source) for source in self.sources]
        items = [(source, candidates(source, self.step, seeds)) for source in opened]
        if self.results is not None:
            check_writable(self.results)
        counts: dict[Path, list[bool]] = defaultdict(list)
        asked = []
        with self._players() as players:
            for source, item in ((source, item) for source, found in items for item in found):
                folder = self.results or item.home
                check_writable(folder)
                counts[folder].append(score_into(Scores(folder), item, players, again=self.again))
                asked.append((source, folder, item))
        if not asked:
            raise CtaError("none of these holds such a step and seed")
        for source, folder, item in asked:
            _tell(source, item, Scores(folder).cell(item.key).rows)
        for folder, scored in counts.items():
            there = f", {scored.count(False)} were there already" if not all(scored) else ""
            print(f"{scored.count(True)} scored into {folder}{there}")
        if any(item.precision != "float32" for _, _, item in asked):
            print("some weights were kept in 16 bits: the record says so")
        for _, folder, item in asked if self.videos else ():
            config = players.how.config(item, video_frame_skip=self.video_frame_skip)
            film(candidate_policy(item), config, folder / "videos", episodes=self.videos)

    def _into_run(self, source: str) -> None:
        from cta.cli.scores import print_scores
        from cta.evaluation.evaluator import OwnEvaluator
        from cta.experiment.candidates import candidates, numbers
        from cta.experiment.score_files import EVALUATE, score_run

        run = self.open_run(source)
        check_writable(run.path)
        items, own = candidates(run, self.step, numbers(self.seeds, "--seeds")), None
        if self.env is not None:
            options: Any = {"workers": self.workers, "max_episode_steps": self.max_episode_steps}
            options |= {"shape": run.spec.observation_shape, "units": run.units, "data": lambda: run.open_data()[1]}
            own = OwnEvaluator(self.env, **options)
        else:
            run.tell_simulator()
        with self._players(own) as players:
            rows = score_run(run, items, players, self.env or "")
        if not rows:
            raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to score")
        print_scores(rows, run)
        print(f"rows: {run.path / EVALUATE}")
        if self.videos:
            how = {"eval_tasks": self.tasks, "eval_temperature": self.temperature, "eval_gaussian": self.noise}
            how |= {"eval_seed": self.eval_seed, "video_frame_skip": self.video_frame_skip}
            policy = run.policy(step=rows[-1].step)
            film(policy, replace(run.config, **how), run.files.videos, episodes=self.videos)

    @contextmanager
    def _players(self, own: Any = None) -> Iterator[Any]:
        from cta.experiment.score_files import How, Players

        how = How(**{field.name: getattr(self, field.name) for field in fields(How)})
        with episode_bar() as progress, Players(how, progress, own) as players:
            yield players


def _tell(source: Any, item: Any, rows: Iterable[Any]) -> None:
    """How often a policy succeeded, and how often before it was kept in a file with a record."""
    mine = [row for row in rows if (row.seed, row.step) == (item.seed, item.step)]
    record = source.with_suffix(".json") if isinstance(source, Path) else None
    kept = read_json(record, KEPT)["scores"] if record is not None and record.is_file() else []
    for asked in dict.fromkeys(row.asked for row in mine):
        now = [row for row in mine if row.asked == asked]
        direct = {row.task: row.direct for row in now if row.direct is not None}
        print(f"{item.label}: {_rates({row.task: row.successes for row in now}, direct, now[0].episodes)}")
        for score in (score for score in kept if score.get("asked", TASKS) == asked):
            rates = _rates(score["successes"], score.get("direct", {}), score["episodes"])
            print(f"  {record}, weights in {score['weights']}: {rates}")


def _rates(successes: dict[str, int], direct: dict[str, int], episodes: int) -> str:
    parts = []
    for word, counts in (("success", successes), ("directly", direct)):
        rates = {task: 100 * count / max(1, episodes) for task, count in counts.items()}
        each = ", ".join(f"{task} {rate:.0f}" for task, rate in rates.items())
        parts += [f"{word} {fmean(rates.values()):.1f} % ({each})"] if rates else []
    return f"{', '.join(parts)}; episodes of each: {episodes}"


def film(policy: Any, config: RunConfig, folder: Path, *, episodes: int) -> None:
    """Videos of a policy, one file per episode, in FOLDER/step_N/seed_S."""
    from cta.evaluation import record_videos  # rendering libraries
    from cta.experiment.scoring import policy_maker

    make_policy = policy_maker(policy.agent, policy.networks, policy.units, config, policy.seed)
    how = {"episodes": episodes, "tasks": range(1, (config.eval_tasks or 5) + 1), "run_seed": policy.seed}
    how |= {"frame_skip": config.video_frame_skip, "eval_seed": config.eval_seed}
    folder = folder / f"step_{policy.step}" / f"seed_{policy.seed}"
    paths = record_videos(config.dataset_name, make_policy, folder=folder, **how)
    print(f"videos: {len(paths)} in {paths[0].parent}" if paths else "no videos")


@contextmanager
def episode_bar() -> Iterator[Callable[[Any, int, int], None]]:
    """A bar on a terminal, else lines now and then; gives what to call with (what is scored, episodes done, in all)."""
    spoke = time.monotonic()
    with Progress(console=(console := Console(stderr=True)), transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def show(item: Any, done: int, total: int) -> None:
            nonlocal spoke
            bar.update(task, description=item.label, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - spoke >= LINE_SECONDS:
                spoke = time.monotonic()
                print(f"{item.label}: {done:,} of {total:,} episodes", file=sys.stderr, flush=True)

        yield show
