"""What evaluation beside training costs training: its speed alone and with simulators at work, in turns."""

import statistics
import sys
import threading
from collections.abc import Callable

import numpy as np

from cta.agents.policy import Policy
from cta.bench.cases import Case
from cta.bench.clock import repeat
from cta.bench.train import BLOCK, Entry, least_steps
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.evaluation import Evaluator
from cta.evaluation.rollout import Policy as Act
from cta.experiment.beside import SWITCH_SECONDS
from cta.training.seeds import SeedGroup
from cta.training.source import open_source

ROUNDS = 3


def measure_beside(case: Case, dataset: TrajectoryDataset) -> list[Entry]:
    """An entry `beside`: steps a second alone and beside an evaluation as `cta train` runs it, and their ratio.

    The evaluation goes on and on with an untrained policy, whose episodes run to their limit. Between its turns it
    stands still: no action, no step.
    """
    if case.data.dataset is None:
        raise CtaError("evaluation beside training needs a world: name one with --dataset puzzle-4x4-play-v0")
    group = SeedGroup(case.learner(dataset, block=BLOCK), range(case.seeds), open_source(dataset))
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    with Evaluator(case.data.dataset, beside_training=True) as evaluator:
        evaluation = _Evaluation(case, evaluator, group)
        try:
            pairs = [(_rate(case, group), evaluation.meanwhile(lambda: _rate(case, group))) for _ in range(ROUNDS)]
            workers = len(evaluator.worker_pids)
        finally:
            evaluation.end()
            sys.setswitchinterval(before)
    alone, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
    entry = {
        "what": "beside",
        **case.facts(),
        "workers": workers,
        "rounds": ROUNDS,
        "seconds": case.seconds,
        "steps_per_s_alone": round(alone, 2),
        "steps_per_s": round(beside, 2),
        "policy_calls": evaluation.calls,
        "ratio": round(statistics.median(b / a for a, b in pairs), 4),
    }
    return [entry]


def _rate(case: Case, group: SeedGroup) -> float:
    def run(count: int) -> None:
        group.run(count)
        group.read_metrics(count)

    return repeat(run, seconds=case.seconds / ROUNDS, largest=BLOCK, least=least_steps()).steps_per_s


class _Evaluation:
    """A thread that plays episodes while it may."""

    def __init__(self, case: Case, evaluator: Evaluator, group: SeedGroup):
        self._evaluator = evaluator
        self._agent, self._networks = case.build(), group.networks()[0]
        self._may, self._over, self._acting = threading.Event(), threading.Event(), threading.Event()
        self.calls = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def meanwhile(self, measure: Callable[[], float]) -> float:
        """What `measure` finds while episodes are being played."""
        self._acting.clear()
        self._may.set()
        while not self._acting.wait(0.1):
            self._check()
        found = measure()
        self._may.clear()
        self._check()
        return found

    def end(self) -> None:
        """Play no further."""
        self._over.set()
        self._may.set()
        self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _policy(self, slots: int) -> Act:
        policy = Policy(self._agent, self._networks)

        def act(observations: np.ndarray, goals: np.ndarray, first: np.ndarray) -> np.ndarray:
            self._may.wait()
            if self._over.is_set():
                raise _Over
            actions = policy(observations, goals, first)
            self.calls += 1
            self._acting.set()
            return actions

        return act

    def _play(self) -> None:
        try:
            while True:
                self._evaluator.run(self._policy, run_seed=self.calls)
        except _Over:
            pass
        except BaseException as error:
            self._failure = error


class _Over(Exception):
    """Nobody measures any more."""
