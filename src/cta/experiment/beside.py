"""Scoring a run's snapshots while it trains, and what becomes of an evaluation that goes wrong."""

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cta.agents import Networks
from cta.evaluation import Evaluator
from cta.experiment.background import BackgroundEvaluation, Cancelled
from cta.experiment.scoring import score_rows

if TYPE_CHECKING:
    from cta.experiment.trainer import Trainer

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another one waits for it."""


def open_evaluation(trainer: "Trainer", stack: contextlib.ExitStack) -> BackgroundEvaluation:
    """A thread that scores what it is handed; the workers of the simulator end with `stack`."""
    # At the default of 5 ms this thread would hold up the one that feeds the device several times a block.
    stack.callback(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_SECONDS)
    evaluator = Evaluator(trainer.config.dataset_name, workers=trainer.config.eval_workers, beside_training=True)
    beside = _Beside(trainer, evaluator)
    # On the way out in the other order: nobody waits any more, which ends the workers, which ends the thread.
    stack.callback(beside.thread.join)
    stack.enter_context(evaluator)
    stack.callback(beside.thread.cancel)
    return beside.thread


class _Beside:
    def __init__(self, trainer: "Trainer", evaluator: Evaluator):
        self._trainer = trainer
        self._evaluator = evaluator
        self.thread = BackgroundEvaluation(self.score)

    def score(self, step: int, networks: list[Networks]) -> None:
        """One evaluation. If it fails it is noted, and done again when the run is resumed; training goes on."""
        trainer, before = self._trainer, self._evaluator.retries

        def progress(seed: int, done: int, total: int) -> None:
            self.thread.go_on()
            trainer.console.episodes(step, seed, done, total)

        try:
            rows = score_rows(
                self._evaluator,
                trainer.agent,
                networks,
                trainer.config,
                step,
                progress,
                seeds=trainer.health.good_after(step),
                diverged=lambda seed: self._diverged(seed, step),
            )
        except Cancelled:
            raise
        except Exception as error:
            self.thread.go_on()
            self._failed(step, error)
            return
        finally:
            self._count_retries(step, self._evaluator.retries - before)
        self.thread.go_on()
        trainer.book.add(rows)
        trainer.failed_evaluations.pop(step, None)
        self._show(step, rows)

    def _failed(self, step: int, error: Exception) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        self._trainer.failed_evaluations[step] = text
        self._trainer.console.loud(f"the evaluation at step {step:,} failed: {text}")
        self._trainer.run.note("evaluation-failed", text, step=step)

    def _diverged(self, seed: int, step: int) -> None:
        text = f"seed {seed} is not scored at step {step:,}: its policy gives actions that are not numbers"
        self._trainer.health.refuse(seed, step)
        self._trainer.console.loud(text)
        self._trainer.run.note("seed-stopped", text, step=step, seed=seed)

    def _count_retries(self, step: int, count: int) -> None:
        if not count:
            return
        run, cause = self._trainer.run, self._evaluator.last_failure
        text = f"{count} worker{'s' if count > 1 else ''} of the simulator replaced, episodes repeated ({cause})"
        self._trainer.console.say(f"step {step:>9,}  {text}")
        run.note("worker-replaced", text, step=step)
        run.record({"evaluation_retries": run.provenance().get("evaluation_retries", 0) + count})

    def _show(self, step: int, rows: Sequence[dict[str, Any]]) -> None:
        for seed in self._trainer.config.seeds:
            mine = [row for row in rows if row["seed"] == seed]
            if not mine:
                continue
            rates = {f"evaluation/task{row['task']}_success": row["successes"] / row["episodes"] for row in mine}
            overall = {"evaluation/overall_success": sum(rates.values()) / len(rates)}
            for log in self._trainer.logs:
                log.scalars(seed, step, rates | overall)
        if rows:
            self._trainer.console.scores(step, rows)
