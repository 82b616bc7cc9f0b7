"""Which seeds of a run still train, and why the others do not."""

from collections.abc import Mapping, Sequence

from cta.errors import CtaError
from cta.experiment.run_dir import RunDir

Reason = dict[str, int | str]
"""{"step": when, "loss": which}"""


class Health:
    """The seeds that diverged (NaN or inf), kept in `provenance.json` under `stopped`.

    The truth is in the checkpoint (`TrainState.bad`); this is a copy for people and for commands that read runs.
    """

    def __init__(self, run: RunDir, seeds: Sequence[int]):
        self._run, self._seeds = run, tuple(seeds)
        self.stopped: dict[int, Reason] = {}

    @property
    def live(self) -> list[int]:
        return [seed for seed in self._seeds if seed not in self.stopped]

    def update(self, bad: Sequence[Mapping[str, int]]) -> list[int]:
        """Take in the first bad step of each loss of each seed; returns the seeds that are new."""
        found: dict[int, Reason] = {}
        for seed, losses in zip(self._seeds, bad, strict=True):
            if losses and self.stopped.get(seed, {}).get("loss") in (None, "actions"):
                step = min(losses.values())
                # A loss of its own says more than the sum of all.
                names = [name for name, at in losses.items() if at == step]
                found[seed] = {"step": step, "loss": next((n for n in names if n != "total_loss"), names[0])}
        self._note(found)
        return sorted(found)

    def refuse(self, seed: int, step: int) -> None:
        """A policy gave actions that are not numbers: the weights went bad in the very last step."""
        if seed not in self.stopped:
            self._note({seed: {"step": step + 1, "loss": "actions"}})

    def _note(self, found: Mapping[int, Reason]) -> None:
        self.stopped |= found
        record = {str(seed): self.stopped[seed] for seed in sorted(self.stopped)}
        if record != self._run.provenance().get("stopped", {}):
            self._run.record({"stopped": record})

    def good_after(self, step: int) -> list[int]:
        """Seeds that were not known to be bad when `step` steps were done."""
        return [seed for seed in self._seeds if seed in self.live or int(self.stopped[seed]["step"]) > step]


def stopped_seeds(run: RunDir) -> dict[int, Reason]:
    """The seeds of a run that diverged (NaN or inf), as its record has them."""
    record = run.provenance().get("stopped", {})
    try:
        return {int(seed): {"step": int(why["step"]), "loss": str(why["loss"])} for seed, why in record.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CtaError(f"{run.path}/provenance.json: 'stopped' is not a list of seeds with step and loss") from error


def describe(seed: int, reason: Reason) -> str:
    return f"seed {seed} stopped at step {reason['step']:,}: {reason['loss']} diverged (NaN, inf, or exploded)"
