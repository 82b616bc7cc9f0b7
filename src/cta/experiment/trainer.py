"""One run from data to scores: train, log, checkpoint, evaluate beside it, stop cleanly, resume."""

import contextlib
import time
from functools import partial
from typing import Any

import jax

from cta.agents import Networks, find
from cta.config import RunConfig
from cta.data import TrajectoryDataset
from cta.envs.names import KNOWN
from cta.errors import CtaError, RunStopped
from cta.exit_codes import Stop
from cta.experiment.background import BackgroundEvaluation, open_evaluation
from cta.experiment.console import RunConsole, TensorBoardLog, WandbLog, peak_device_bytes, peak_host_bytes
from cta.experiment.inputs import in_units, open_data, run_units
from cta.experiment.run_dir import RunDir, now
from cta.experiment.scoring import Health, OfflineBook, ScoreBook, describe, steps_to_keep
from cta.io.csv_log import CsvLog, whole_number
from cta.io.text_tables import clock
from cta.training.checkpoints import Checkpoints, Damaged, healthy_seeds
from cta.training.fast import FastLearner, ImageLearner, make_learner, product_precision, unfused
from cta.training.learner import TrainState, spec_of
from cta.training.seeds import SeedGroup, open_source, split_seeds
from cta.units import UNKNOWN

BLOCK = 500  # largest number of steps between two looks at the clock and at signals
GRAINS = 20  # the same in programs of many steps each, where there are such: an accelerator waits while the host looks
LONG_S = 3600.0  # a training on a CPU for which small networks are suggested


class Interrupted(Exception):
    """The run was asked to stop; it is checkpointed and can be resumed."""


class Trainer:
    """A run in progress. `train` continues from where the run directory, which this process has locked, stands."""

    def __init__(self, run: RunDir, config: RunConfig, console: RunConsole):
        self.run, self.config, self.console = run, config, console
        self.agent = find(config.agent_name).build(config.agent)
        self.health = Health(run, config.seeds)
        self.book = ScoreBook(run, config, self.health)
        self.units = UNKNOWN
        self.offline: OfflineBook | None = None
        self.logs: list[TensorBoardLog | WandbLog] = []
        self.failed_evaluations: dict[int, str] = {}
        self._stop = Stop()
        self._resume = f"{run.resume_command} continues"
        self.step = self._log_size = 0
        self._rate, self._compiled, self._estimated = 0.0, False, False
        self._timed = 0, 0.0  # steps and seconds of the blocks since the last row

    def train(self) -> None:
        """Until the last step is trained and scored, somebody asks to stop (Interrupted), or something breaks."""
        console, config = self.console, self.config
        with contextlib.ExitStack() as stack:
            # First of all: reading and compiling take long enough to be interrupted, too.
            stack.enter_context(self._stop.on_signals(say=console.say, how_to_resume=self._resume))
            console.waiting(f"reading {config.dataset}")
            train, validation = open_data(self.run, config, say=console.say, evaluates=self.evaluates)
            self.units = run_units(self.run, config)
            train = in_units(train, self.units)
            validation = None if validation is None else in_units(validation, self.units)
            options: Any = {"keep": self._to_keep, "notice": partial(self.tell, "changed"), "config": config}
            checkpoints = Checkpoints(self.run.checkpoints, create=True, unverified=self.run.unverified, **options)
            checkpoints.clear_remains()
            stack.callback(checkpoints.close)
            if validation is not None and config.eval_interval and not self.evaluates:
                self.offline = OfflineBook(self.run, config, self.agent, validation)
            if max(checkpoints.steps(), default=0) < config.steps:
                console.waiting("compiling")
            group = self._seed_group(train, validation)
            unscored = self._restore(group, checkpoints)
            self.logs = [TensorBoardLog(self.run.tensorboard, step=group.step)]
            if config.wandb:
                self.logs.append(WandbLog(self.run.path, self.run.provenance(), config.seeds, config.group))
            for log in self.logs:
                stack.callback(log.close)
            evaluation = open_evaluation(self, stack) if self.evaluates else None
            if evaluation is not None:
                for step, networks in unscored.items():
                    evaluation.submit(step, networks, give_up=self._stop.is_set)
            elif config.eval_interval:
                instead = "; the order of held-out trajectories is measured instead" if self.offline else ""
                console.say(f"{config.dataset_name} belongs to no known environment: no rollouts{instead}")
            self._loop(group, checkpoints, evaluation)
            checkpoints.wait()
            if evaluation is not None:
                if count := evaluation.pending:
                    console.say(f"training is done; waiting for {count} evaluation{'s' * (count > 1)}")
                if not evaluation.finish(give_up=self._stop.is_set) or (self._stop and self.book.unscored(group.step)):
                    raise self._interrupted(group.step, " before it was scored")
            checkpoints.prune()  # some were kept only to be scored
        console.peaks()
        if failed := self.failed_evaluations:
            steps = ", ".join(f"{step:,}" for step in sorted(failed))
            why = f"trained, but not scored at step {steps} ({failed[max(failed)]})"
            raise RunStopped(f"{self.run.path}: {why}; {self.run.resume_command} tries again")
        self.run.record({"finished": now()})

    @property
    def evaluates(self) -> bool:
        """Whether there is a world to roll out in."""
        return self.config.eval_interval > 0 and self.config.dataset_name in KNOWN

    def _interrupted(self, step: int, when: str = "") -> Interrupted:
        text = f"stopped at step {step:,}{when}"
        self.run.note("interrupted", text, step=step)
        return Interrupted(f"{text}; {self._resume}")

    def _seed_group(self, train: TrajectoryDataset, validation: TrajectoryDataset | None) -> SeedGroup:
        spec = spec_of(train)
        learner = make_learner(self.agent, spec, block=BLOCK, kernels=self.config.kernels)
        kernels = "fused" if isinstance(learner, FastLearner | ImageLearner) else "plain"
        why = None if kernels == "fused" or self.config.kernels == "plain" else unfused(self.agent, spec)
        if why and jax.default_backend() == "gpu":
            self.console.loud(f"training runs without fused kernels, several times slower on a large GPU: {why}")
        self.run.record({"kernels": kernels, "without_fused": why, "products": product_precision(learner)})
        held_out = None if validation is None else open_source(validation)
        return SeedGroup(learner, self.config.seeds, open_source(train), held_out)

    def _restore(self, group: SeedGroup, checkpoints: Checkpoints) -> dict[int, list[Networks]]:
        """Continue from the newest whole checkpoint, if any; returns the weights of evaluations not in eval.csv."""
        state = self._newest(group, checkpoints)
        if state is not None:
            group.restore(state)
            self.console.say(f"resuming at step {group.step:,}")
            self.run.note("resumed", "", step=group.step)
        self.step = group.step
        self._check_numbers(group)
        log = CsvLog(self.run.path / "train.csv")
        log.keep(lambda row: whole_number(row, "step", log.path) <= group.step)
        logged = str(group.step // self.config.log_interval * self.config.log_interval)
        if logged != "0" and not any(row["step"] == logged for row in log.read()):
            self.tell("changed", f"{log.path} has no row of step {logged}: rows were lost, which nothing brings back")
        self._log_size = log.size()
        if self.offline is not None:
            self.offline.trim(group.step)
        if not self.evaluates:
            return {}
        self.book.trim(group.step)
        unscored = {}
        for step in self.book.unscored(group.step):
            try:
                unscored[step] = split_seeds(checkpoints.load_networks(step, group.structure.networks))
            except CtaError as error:
                self.tell("evaluation-lost", f"the evaluation at step {step:,} is lost: {error}", step=step)
        return unscored

    def _newest(self, group: SeedGroup, checkpoints: Checkpoints) -> TrainState | None:
        for step in reversed(checkpoints.steps()):
            try:
                return checkpoints.load(step, group.structure)
            except Damaged as error:
                aside = checkpoints.set_aside(step)
                older = max((s for s in checkpoints.steps() if s < step), default=None)
                back = "from the beginning" if older is None else f"from step {older:,}"
                self.tell(
                    "checkpoint-damaged", str(error), step=step, more=f"; kept as {aside.name}, continuing {back}"
                )
        return None

    def tell(self, kind: str, text: str, *, step: int | None = None, seed: int | None = None, more: str = "") -> None:
        """What should not be missed, on the terminal (there with `more`) and in events.csv."""
        self.console.loud(f"{text}{more}")
        self.run.note(kind, text, step=self.step if step is None else step, seed=seed)

    def curves(self, seed: int, step: int, values: dict[str, float]) -> None:
        for log in self.logs:
            log.scalars(seed, step, values)

    def _to_keep(self, steps: list[int]) -> set[int]:
        """Asked by the thread that writes checkpoints, after each of them."""
        newest = max(steps, default=0)
        return steps_to_keep(
            steps,
            last=self.config.keep,
            planned=[step for step in steps if self.config.planned(step)],
            evaluated=self.book.due(newest) if self.evaluates else [],
            unscored=self.book.unscored(newest) if self.evaluates else [],
            healthy={step: healthy_seeds(self.run.checkpoints / str(step)) for step in steps},
        )

    def _due(self, step: int, interval: int) -> bool:
        return step == self.config.steps or (interval > 0 and step % interval == 0)

    def _loop(self, group: SeedGroup, checkpoints: Checkpoints, evaluation: BackgroundEvaluation | None) -> None:
        config = self.config
        intervals = [i for i in (config.log_interval, config.eval_interval, config.checkpoint_interval) if i]
        count, since = max(10, group.grain), group.step // config.log_interval * config.log_interval
        while group.step < config.steps and self.health.live:
            ahead = min(min(i - group.step % i for i in intervals), config.steps - group.step)
            count = self._advance(group, min(count, ahead, BLOCK if group.grain == 1 else GRAINS * group.grain))
            step = group.step
            logged, scored = self._due(step, config.log_interval), self._due(step, config.eval_interval)
            stop = bool(self._stop)
            scorable = evaluation is not None or self.offline is not None
            saved = (scored and scorable) or stop or self._due(step, config.checkpoint_interval)
            if logged or saved:
                self._check_numbers(group)
                checkpoints.check()
            if evaluation is not None:
                evaluation.check()
            if not self.health.live:
                break
            # Before metrics are read: a longer run continues the mean that the end of this one cuts short.
            snapshot = group.snapshot() if saved and step % config.log_interval else None
            if logged:
                self._log(group, step - since)
                since = step
            if scored and self.offline is not None:
                self._measure(group, self.offline)
            if saved:
                snapshot = snapshot or group.snapshot()
                checkpoints.save(snapshot)
                if scored and evaluation is not None:
                    evaluation.submit(step, split_seeds(snapshot.networks), give_up=self._stop.is_set)
            if stop and step < config.steps:
                checkpoints.wait()
                raise self._interrupted(step)

    def _measure(self, group: SeedGroup, book: OfflineBook) -> None:
        rows = book.measure(group.step, group.networks(), self.health.live)
        for row in rows:
            orders = {f"offline/{name}": value for name, value in row.items() if name.endswith("_order")}
            self.curves(row["seed"], group.step, orders)
        self.console.orders(group.step, rows)

    def _advance(self, group: SeedGroup, count: int) -> int:
        """Run a block; returns how many steps make about a second, in whole grains."""
        begin = time.perf_counter()
        group.run(count)
        self.step = group.step
        seconds = time.perf_counter() - begin
        if self._compiled:
            self._rate = count / seconds
            self._timed = self._timed[0] + count, self._timed[1] + seconds
            if seconds > 0.3 and not self._estimated:  # long enough to tell the speed of a run
                self._estimate((self.config.steps - group.step) / self._rate)
        self._compiled = True
        self.console.steps(group.step, self.config.steps, self._rate)
        return max(10, group.grain, int(self._rate) // group.grain * group.grain)

    def _estimate(self, left: float) -> None:
        self._estimated = True
        large = self.config.size == "paper" and jax.default_backend() == "cpu" and left > LONG_S
        advice = "; on a CPU `--size small` takes small networks, or give fewer --steps" if large else ""
        self.console.say(f"about {clock(left)} of training at {self._rate:,.0f} steps/s{advice}")

    def _check_numbers(self, group: SeedGroup) -> None:
        """Stop the seeds that diverged since the last look; the others continue."""
        for seed in self.health.update(group.bad()):
            group.stop(self.config.seeds.index(seed))
            more = f"; {len(self.health.live)} of {len(self.config.seeds)} seeds continue"
            self.tell("seed-stopped", describe(seed, self.health.stopped[seed]), step=group.step, seed=seed, more=more)

    def _log(self, group: SeedGroup, count: int) -> None:
        (steps, seconds), self._timed = self._timed, (0, 0.0)
        rate = steps / seconds if steps else self._rate  # of all blocks: the last may be a few steps long
        clocks = {"steps_per_s": round(rate, 2), "time_cpu_s": round(time.process_time(), 1)}
        clocks["memory_host_peak_mb"] = peak_host_bytes() // 2**20
        clocks["memory_device_peak_mb"] = (peak_device_bytes() or 0) // 2**20
        seen, rows = zip(self.config.seeds, group.read_metrics(count), group.validate(), strict=True), []
        for seed, training, validation in seen:
            if seed in self.health.stopped:
                continue
            metrics = {f"training/{name}": value for name, value in training.items()}
            metrics |= {f"validation/{name}": value for name, value in validation.items()}
            rows.append({"seed": seed, "step": group.step, **metrics, **clocks})
            self.curves(seed, group.step, metrics | {"training/steps_per_s": rate})
        log = CsvLog(self.run.path / "train.csv")
        if log.size() < self._log_size:
            self.tell("changed", f"{log.path} was emptied or removed while the run wrote to it: earlier rows are lost")
        log.append(rows)
        self._log_size = log.size()
        self.console.metrics(group.step, self.config.steps, rows, self._rate)
