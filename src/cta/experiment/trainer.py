"""One run from data to scores: train, log, checkpoint, evaluate beside it, stop cleanly, resume."""

import contextlib
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from cta import provenance
from cta.agents import Networks, find
from cta.config import RunConfig
from cta.data import TrajectoryDataset, environment_name
from cta.envs.datasets import check_fits, open_dataset
from cta.envs.generate_record import simulator_notice
from cta.envs.names import KNOWN
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.evaluation.episodes import TASKS
from cta.experiment.background import BackgroundEvaluation
from cta.experiment.console import RunConsole
from cta.experiment.run_dir import RunDir
from cta.experiment.scoring import score_rows
from cta.training.checkpoints import Checkpoints
from cta.training.learner import Learner, spec_of
from cta.training.logs import MetricLog, TensorBoardLog, WandbLog
from cta.training.seeds import SeedGroup
from cta.training.source import open_source

BLOCK = 500
"""Largest number of steps between two looks at the clock and at signals."""


class Interrupted(Exception):
    """The run was asked to stop; it is checkpointed and can be resumed."""


class Trainer:
    """A run in progress. `train` goes on from wherever the run directory stands."""

    def __init__(self, run: RunDir, config: RunConfig, console: RunConsole):
        self.run = run
        self.config = config
        self.console = console
        self.agent = find(config.agent_name).build(config.agent)
        self._logs: list[MetricLog] = []
        self._stop = threading.Event()
        self._rate = 0.0
        self._compiled = False

    def train(self) -> None:
        console, config = self.console, self.config
        with contextlib.ExitStack() as stack:
            # First of all: reading and compiling take long enough to be interrupted, too.
            stack.enter_context(self._signals())
            console.waiting(f"reading {config.dataset}")
            train, validation = self._open_data()
            checkpoints = Checkpoints(self.run.checkpoints, create=True)
            stack.callback(checkpoints.close)
            console.waiting("compiling")
            group = self._seed_group(train, validation)
            self._restore(group, checkpoints)
            self._logs = self._open_logs(stack)
            evaluation = self._open_evaluation(stack)
            if evaluation is not None:
                for step in self._unscored(group.step):
                    evaluation.submit(step, self._stored_networks(checkpoints, step, group))
            self._loop(group, checkpoints, evaluation)
            checkpoints.wait()
            if evaluation is not None:
                console.waiting_for_scores(evaluation.pending)
                evaluation.finish()
        self.run.record({"finished": time.strftime("%Y-%m-%dT%H:%M:%S%z")})

    def _open_data(self) -> tuple[TrajectoryDataset, TrajectoryDataset | None]:
        config = self.config
        name, train, validation = open_dataset(config.dataset, dataset_dir=config.dataset_dir)
        if name in KNOWN:
            check_fits(train, environment_name(name))
        fingerprint = train.fingerprint()
        known = self.run.provenance().get("dataset", {}).get("fingerprint")
        if known is not None and known != fingerprint:
            raise CtaError(f"{config.dataset} has changed since this run began: its fingerprint is not that of the run")
        facts = {
            "name": name,
            "fingerprint": fingerprint,
            "transitions": train.num_transitions,
            "observation_shape": list(train.observation_shape),
            "action_dim": train.action_dim,
        }
        self.run.record(
            {
                "dataset": {**facts, "provenance": train.provenance},
                "commit": provenance.commit(),
                "hardware": provenance.hardware(),
                "seeding": "stacked" if jax.default_backend() != "cpu" else "separate",
            }
        )
        notice = simulator_notice(train.provenance)
        if notice and self.evaluates:
            self.console.say(notice)
        return train, validation

    def _seed_group(self, train: TrajectoryDataset, validation: TrajectoryDataset | None) -> SeedGroup:
        learner = Learner(self.agent, spec_of(train), block=BLOCK)
        held_out = None if validation is None else open_source(validation)
        return SeedGroup(learner, self.config.seeds, open_source(train), held_out)

    def _restore(self, group: SeedGroup, checkpoints: Checkpoints) -> None:
        """Continue from the newest checkpoint, if any, and drop what was logged after it."""
        steps = checkpoints.steps()
        if steps:
            group.restore(checkpoints.load(steps[-1], group.structure))
            self.console.say(f"resuming at step {group.step:,}")
        self.run.train_log().keep(lambda row: int(row["step"]) <= group.step)
        missing = self._unscored(group.step)
        last = min(missing) - 1 if missing else group.step
        self.run.eval_log().keep(lambda row: int(row["step"]) <= last)

    def _open_logs(self, stack: contextlib.ExitStack) -> list[MetricLog]:
        logs: list[MetricLog] = [TensorBoardLog(self.run.tensorboard)]
        if self.config.wandb:
            facts = self.run.provenance()
            logs.append(WandbLog(self.run.path, facts, self.config.seeds, self.config.group))
        for log in logs:
            stack.callback(log.close)
        return logs

    @property
    def evaluates(self) -> bool:
        """Whether there is a world to roll out in."""
        return self.config.eval_interval > 0 and self.config.dataset_name in KNOWN

    def _open_evaluation(self, stack: contextlib.ExitStack) -> BackgroundEvaluation | None:
        config = self.config
        if not self.evaluates:
            if config.eval_interval:
                self.console.say(f"{config.dataset_name} belongs to no known environment: training without rollouts")
            return None
        evaluator = stack.enter_context(Evaluator(config.dataset_name, workers=config.eval_workers))
        log = self.run.eval_log()

        def score(step: int, networks: list[Networks]) -> None:
            def progress(seed: int, done: int, total: int) -> None:
                self.console.episodes(step, seed, done, total)

            rows = score_rows(evaluator, self.agent, networks, config, step, progress)
            log.append(rows)
            self._log_scores(rows)
            self.console.scores(step, rows)

        return BackgroundEvaluation(score)

    def _log_scores(self, rows: list[dict[str, Any]]) -> None:
        for seed in self.config.seeds:
            mine = [row for row in rows if row["seed"] == seed]
            rates = {f"evaluation/task{row['task']}_success": row["successes"] / row["episodes"] for row in mine}
            overall = {"evaluation/overall_success": sum(rates.values()) / len(rates)}
            for log in self._logs:
                log.scalars(seed, mine[0]["step"], rates | overall)

    def _unscored(self, upto: int) -> list[int]:
        """Evaluation steps up to here that eval.csv does not hold in full."""
        if not self.evaluates:
            return []
        config = self.config
        stored = Counter(int(row["step"]) for row in self.run.eval_log().read())
        whole = len(config.seeds) * min(config.eval_tasks or len(TASKS), len(TASKS))
        due = {*range(config.eval_interval, upto + 1, config.eval_interval), *([upto] if upto == config.steps else [])}
        return [step for step in sorted(due) if stored[step] < whole]

    def _stored_networks(self, checkpoints: Checkpoints, step: int, group: SeedGroup) -> list[Networks]:
        stacked = checkpoints.load_networks(step, group.structure.networks)
        return [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(len(self.config.seeds))]

    def _due(self, step: int, interval: int) -> bool:
        return step == self.config.steps or (interval > 0 and step % interval == 0)

    def _loop(self, group: SeedGroup, checkpoints: Checkpoints, evaluation: BackgroundEvaluation | None) -> None:
        config = self.config
        intervals = [i for i in (config.log_interval, config.eval_interval, config.checkpoint_interval) if i]
        count, since = 10, group.step // config.log_interval * config.log_interval
        while group.step < config.steps:
            ahead = min(min(i - group.step % i for i in intervals), config.steps - group.step)
            count = self._advance(group, min(count, ahead, BLOCK))
            step = group.step
            if self._due(step, config.log_interval):
                self._log(group, step - since)
                since = step
            scored = evaluation is not None and self._due(step, config.eval_interval)
            if scored or self._due(step, config.checkpoint_interval) or self._stop.is_set():
                checkpoints.save(group.snapshot())
            if evaluation is not None:
                evaluation.check()
                if scored:
                    evaluation.submit(step, group.networks())
            if self._stop.is_set() and step < config.steps:
                checkpoints.wait()
                raise Interrupted(f"stopped at step {step:,}; `cta resume {self.run.path}` continues")

    def _advance(self, group: SeedGroup, count: int) -> int:
        """Run a block; returns how many steps make about a second."""
        begin = time.perf_counter()
        group.run(count)
        if self._compiled:
            self._rate = count / (time.perf_counter() - begin)
        self._compiled = True
        self.console.steps(group.step, self.config.steps, self._rate)
        return max(10, int(self._rate))

    def _log(self, group: SeedGroup, count: int) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        stats = jax.local_devices()[0].memory_stats() or {}
        clocks = {
            "steps_per_s": round(self._rate, 2),
            "time_cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
            "memory_host_peak_mb": usage.ru_maxrss // 1024,
            "memory_device_peak_mb": stats.get("peak_bytes_in_use", 0) // 2**20,
        }
        rows = []
        seen = zip(self.config.seeds, group.read_metrics(count), group.validate(), strict=True)
        for seed, training, validation in seen:
            metrics = {f"training/{name}": value for name, value in training.items()}
            metrics |= {f"validation/{name}": value for name, value in validation.items()}
            rows.append({"seed": seed, "step": group.step, **metrics, **clocks})
            for log in self._logs:
                log.scalars(seed, group.step, metrics | {"training/steps_per_s": self._rate})
        self.run.train_log().append(rows)
        self.console.metrics(group.step, self.config.steps, rows, self._rate)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """First SIGINT or SIGTERM: finish the block, checkpoint, stop. Second: stop at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: Any) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            self.console.say("stopping after this block (once more to stop at once)")

        old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
