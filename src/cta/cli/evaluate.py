"""cta evaluate"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.progress import Progress
from tyro.conf import Positional, arg

from cta.cli.options import OwnAgent, Unverified, Workers
from cta.data.progress import LINE_SECONDS
from cta.errors import CtaError
from cta.io.files import check_writable
from cta.validation import Count, Natural

WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Command:
    """Score policies by OGBench's protocol: five tasks, 50 episodes each, temperature 0.

    Start, goal and settling steps of every episode are fixed by its seed, so scores are paired across checkpoints and
    methods.

    A run's scores are added to RUN/evaluate.csv (the columns of eval.csv, and env, temperature, noise, eval_seed, and
    mujoco: its version, empty where it plays no part); scoring the same again in the same way replaces its rows.

    With --results, and of files of weights, scores go into a results folder: rows of RESULTS/DATASET.AGENT.csv, with a
    record beside them. Policies trained on data with pairs cut out (`cta ooc cut`) are asked for these pairs instead.
    What is scored already is skipped, so an interrupted command is simply given again. Without --results, files of
    weights are scored into the folder whose weights/ they lie in. They stay where they are.

      cta evaluate RUN                                       the newest checkpoint of every seed
      cta evaluate RUN --step 800000,900000                  these checkpoints; also last, last3, all
      cta evaluate RUN --episodes 10 --videos 2              a quick look, and two videos per task
      cta evaluate RUN --env my_env:make                     in a Gymnasium environment of your own (docs/own-data.md)
      cta evaluate RUN --step 800000 --results results       a checkpoint of a run into a results folder
      cta evaluate RUN --ask presses --results results       success by the least number of presses (docs/beyond.md)
      cta evaluate mine/weights/*.safetensors                what `cta reproduce` kept, into mine
      cta evaluate mine/weights/*.safetensors --again        once more, in place of what is there
    """

    sources: Annotated[Positional[tuple[str, ...]], arg(metavar="RUN|WEIGHTS…")]
    """Run directories, or files of weights."""
    results: Path | None = None
    """Results folder (default: a run's own evaluate.csv; for weights the folder whose weights/ they lie in)."""
    step: str = ""
    """Checkpoints to score: `last`, `last3`, `all`, or steps separated by commas (default: last; all of a file)."""
    seeds: str = ""
    """Seeds separated by commas (default: all)."""
    episodes: Annotated[Count, arg(aliases=["--eval-episodes"])] = 50
    """Episodes per task or pair."""
    tasks: Annotated[Count | None, arg(aliases=["--eval-tasks"])] = None
    """Only the first N tasks, or numbers of presses."""
    temperature: Annotated[float, arg(aliases=["--eval-temperature"])] = 0.0
    """Policy temperature (0: the mean action)."""
    noise: Annotated[float, arg(aliases=["--eval-gaussian"])] = 0.0
    """Standard deviation of noise added to actions."""
    workers: Workers = None
    eval_seed: Natural = 0
    """Base seed of the episodes."""
    ask: Literal["tasks", "pairs", "presses"] | None = None
    """Into a results folder: what to ask for (default: pairs if some were cut out of the data). presses: goals on a
    board of lights by the least number of presses, as presses1, presses2, …"""
    pairs: Annotated[str | None, arg(metavar="FILE")] = None
    """Into a results folder: a TOML file of pairs to ask for (docs/ooc.md)."""
    again: bool = False
    """Score again what is in the results folder already, and replace it."""
    env: Annotated[str | None, arg(metavar="MODULE:FACTORY")] = None
    """A function that makes an environment of your own, with goals; for a run."""
    max_episode_steps: Count | None = None
    """Length of an episode in --env (default: what the environment says, else 1000)."""
    videos: Annotated[int, arg(aliases=["--video-episodes"])] = 0
    """Videos per task of the first seed that has not diverged; of a run."""
    video_frame_skip: int = 3
    """Record every N-th frame."""
    agent: OwnAgent = None
    unverified: Unverified = False

    def __call__(self) -> None:
        into_results = self.results is not None or any(source.endswith(WEIGHTS) for source in self.sources)
        self._check(into_results)
        if into_results:
            self._into_results()
        else:
            for source in self.sources:
                self._into_run(source)

    def _check(self, into_results: bool) -> None:
        """Complain about what makes no sense, before anything slow."""
        if not self.sources:
            raise CtaError("name at least one run directory or file of weights")
        for_run = {"--env": self.env, "--videos": self.videos, "--max-episode-steps": self.max_episode_steps}
        for_results = {"--ask": self.ask, "--pairs": self.pairs, "--again": self.again}
        where = "a run without --results" if into_results else "a results folder: give --results"
        for flag, value in (for_run if into_results else for_results).items():
            if value:
                raise CtaError(f"{flag} is for {where}")
        if self.env is not None and self.videos:
            raise CtaError("--videos: videos are of known environments only, not of --env")
        if self.max_episode_steps is not None and self.env is None:
            raise CtaError("--max-episode-steps is for an environment of --env")

    def _players(self, progress: Any, own: Any = None) -> Any:
        from cta.experiment.score_files import How, Players

        return Players(How(**{field.name: getattr(self, field.name) for field in fields(How)}), progress, own)

    def _into_results(self) -> None:
        # Policies are evaluated on the CPU; an accelerator's memory is left to whoever trains there.
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        # One thread for it: a few rows at a time gain nothing from more, and the cores belong to the simulators.
        os.environ.setdefault("PJRT_NPROC", "1")
        from cta.agents import find
        from cta.compilation import enable_cache
        from cta.experiment import Run
        from cta.experiment.candidates import candidates, numbers
        from cta.experiment.score_files import score_into
        from cta.scores.store import Scores

        enable_cache()
        if self.agent is not None:
            find(self.agent)  # code of one's own is loaded only if the command line names it
        # All of them are opened before the first is scored.
        seeds, options = numbers(self.seeds, "--seeds"), {"agent": self.agent, "unverified": self.unverified}
        opened = [Path(source) if source.endswith(WEIGHTS) else Run(source, **options) for source in self.sources]
        items = [candidates(source, self.step, seeds) for source in opened]
        if self.results is not None:
            check_writable(self.results)
        counts: dict[Path, list[bool]] = {}
        rounded = False
        with episode_bar() as progress, self._players(progress) as players:
            for item in itertools.chain.from_iterable(items):
                folder = self.results or item.home
                check_writable(folder)
                counts.setdefault(folder, []).append(score_into(Scores(folder), item, players, again=self.again))
                rounded |= item.precision != "float32"
        if not counts:
            raise CtaError("none of these holds such a step and seed")
        for folder, scored in counts.items():
            there = f", {scored.count(False)} were there already" if not all(scored) else ""
            print(f"{scored.count(True)} scored into {folder}{there}")
        if rounded:
            print("some weights were kept in 16 bits: the record says so")

    def _into_run(self, source: str) -> None:
        from cta.cli.summary import print_scores, record
        from cta.envs.names import KNOWN
        from cta.evaluation.evaluator import OwnEvaluator
        from cta.experiment import Run
        from cta.experiment.candidates import candidates, numbers
        from cta.experiment.score_files import EVALUATE, score_run

        run = Run(source, agent=self.agent, unverified=self.unverified)
        check_writable(run.path)
        seen = {"eval_episodes": self.episodes, "eval_tasks": self.tasks, "eval_temperature": self.temperature}
        seen |= {"eval_gaussian": self.noise, "eval_seed": self.eval_seed, "eval_workers": self.workers}
        run.config = replace(run.config, **seen, video_frame_skip=self.video_frame_skip)
        run.config.check()
        items, own = candidates(run, self.step, numbers(self.seeds, "--seeds")), None
        if self.env is not None:
            options: Any = {"workers": self.workers, "max_episode_steps": self.max_episode_steps}
            options |= {"shape": run.spec.observation_shape, "units": run.units, "data": lambda: run.open_data()[1]}
            own = OwnEvaluator(self.env, **options)
        elif run.config.dataset_name in KNOWN:
            run.tell_simulator()
        else:
            name = run.config.dataset_name
            raise CtaError(f"{name} belongs to no known environment: give yours with --env module:factory")
        with episode_bar() as progress, self._players(progress, own) as players:
            rows = score_run(run, items, players, self.env or "")
        if not rows:
            raise CtaError(f"{run.path}: every seed has diverged, so there is no policy to score")
        print_scores(rows, run)
        print(f"rows: {run.path / EVALUATE}")
        if self.videos:
            record(run, run.policy(step=rows[-1].step), episodes=self.videos)


@contextmanager
def episode_bar() -> Iterator[Callable[[Any, int, int], None]]:
    """A bar of episodes on a terminal, elsewhere a line now and then; gives what to call with (what is scored, episodes
    done, in all)."""
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
