"""What evaluation beside training costs training: its speed alone and with simulators at work, in turns."""

import statistics
import sys

from cta.agents.policy import Policy
from cta.bench.cases import Case
from cta.bench.clock import repeat
from cta.bench.paused import PausedEvaluation
from cta.bench.train import BLOCK, Entry, least_steps
from cta.data import TrajectoryDataset
from cta.errors import CtaError
from cta.evaluation import Evaluator
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
    agent, networks = case.build(), group.networks()[0]
    pairs = []
    try:
        with (
            Evaluator(case.data.dataset, beside_training=True) as evaluator,
            PausedEvaluation(evaluator, lambda slots: Policy(agent, networks)) as evaluation,
        ):
            for _ in range(ROUNDS):
                alone = _rate(case, group)
                with evaluation.turn():
                    pairs.append((alone, _rate(case, group)))
            workers = len(evaluator.worker_pids)
    finally:
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
