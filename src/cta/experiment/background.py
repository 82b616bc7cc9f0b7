"""Evaluation beside training: a thread that scores snapshots in order, and what becomes of one that goes wrong."""

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cta.agents import Networks
from cta.evaluation import Evaluator
from cta.experiment.scoring import score_rows

if TYPE_CHECKING:
    from cta.experiment.trainer import Trainer


class Cancelled(Exception):
    """Nobody waits for this evaluation any more."""


class BackgroundEvaluation:
    """Runs `score(step, networks)` in another thread, one job at a time; at most `depth` wait, to spare memory."""

    def __init__(self, score: Callable[[int, list[Networks]], Any], *, depth: int = 2):
        self._score = score
        self._jobs: queue.Queue[tuple[int, list[Networks]]] = queue.Queue(maxsize=depth)
        self._failure: BaseException | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
        self._thread.start()

    def submit(self, step: int, networks: Sequence[Networks], *, give_up: Callable[[], bool] = lambda: False) -> None:
        """Queue a snapshot; waits only while `depth` others are queued already, and not if `give_up()`."""
        while True:
            self.check()
            with contextlib.suppress(queue.Full):
                return self._jobs.put((step, list(networks)), timeout=0.1)
            if give_up():
                return None

    @property
    def pending(self) -> int:
        return self._jobs.unfinished_tasks

    def finish(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until everything submitted is scored; returns False if `give_up()` became true before that."""
        while self.pending:
            self.check()
            if give_up():
                return False
            self._thread.join(timeout=0.1)
        self.check()
        return True

    def check(self) -> None:
        """Raise here what went wrong there."""
        if self._failure is not None:
            raise self._failure

    def go_on(self) -> None:
        """For `score` to call now and then: raises Cancelled once nobody waits any more."""
        if self._cancelled.is_set():
            raise Cancelled

    def cancel(self) -> None:
        """Drop what is not scored yet. What is being scored ends at its next `go_on`."""
        self._cancelled.set()

    def join(self) -> None:
        self._thread.join(10)

    def _work(self) -> None:
        while not self._cancelled.is_set():
            try:
                step, networks = self._jobs.get(timeout=0.5)
            except queue.Empty:
                continue
            try:
                self._score(step, networks)
            except Cancelled:
                return
            except BaseException as error:
                self._failure = error
                return
            self._jobs.task_done()


def open_evaluation(trainer: "Trainer", stack: contextlib.ExitStack) -> BackgroundEvaluation:
    """A thread that scores what it is handed; the workers of the simulator end with `stack`."""
    # At the default of 5 ms this thread would hold up the one that feeds the device several times a block.
    stack.callback(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(0.0005)
    evaluator = Evaluator(trainer.config.dataset_name, workers=trainer.config.eval_workers, beside_training=True)
    beside = BackgroundEvaluation(lambda step, networks: _score(trainer, evaluator, beside.go_on, step, networks))
    # On the way out in the other order: nobody waits any more, which ends the workers, which ends the thread.
    stack.callback(beside.join)
    stack.enter_context(evaluator)
    stack.callback(beside.cancel)
    return beside


def _score(
    trainer: "Trainer", evaluator: Evaluator, go_on: Callable[[], None], step: int, networks: list[Networks]
) -> None:
    """One evaluation. If it fails it is noted, and done again when the run is resumed; training goes on."""
    before = evaluator.retries

    def progress(seed: int, done: int, total: int) -> None:
        go_on()
        trainer.console.episodes(step, seed, done, total)

    def diverged(seed: int, step: int) -> None:
        text = f"seed {seed} is not scored at step {step:,}: its policy gives actions that are not numbers"
        trainer.health.refuse(seed, step)
        trainer.tell("seed-stopped", text, step=step, seed=seed)

    weights = dict(zip(trainer.config.seeds, networks, strict=True))
    good = {seed: weights[seed] for seed in trainer.health.good_after(step)}
    try:
        how = trainer.agent, good, trainer.units, trainer.config, step, trainer.run.cell(trainer.config)
        rows = score_rows(evaluator, *how, progress, diverged)
    except Cancelled:
        raise
    except Exception as error:
        go_on()
        text = " ".join(str(error).split()) or type(error).__name__
        trainer.failed_evaluations[step] = text
        trainer.console.loud(f"the evaluation at step {step:,} failed: {text}")
        trainer.run.note("evaluation-failed", text, step=step)
        return
    finally:
        if count := evaluator.retries - before:
            cause = evaluator.last_failure
            text = f"{count} worker{'s' * (count > 1)} of the simulator replaced, episodes repeated ({cause})"
            trainer.console.say(f"step {step:>9,}  {text}")
            trainer.run.note("worker-replaced", text, step=step)
            known = trainer.run.provenance().get("evaluation_retries", 0)
            trainer.run.record({"evaluation_retries": known + count})
    go_on()
    trainer.book.add(rows)
    trainer.failed_evaluations.pop(step, None)
    for seed in dict.fromkeys(row.seed for row in rows):
        rates = {f"evaluation/task{row.task}_success": row.successes / row.episodes for row in rows if row.seed == seed}
        trainer.curves(seed, step, rates | {"evaluation/overall_success": fmean(rates.values())})
    if rows:
        trainer.console.scores(step, rows)
