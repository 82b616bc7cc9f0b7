"""The out-of-combination study as a plan: data without the held-out pairs, with controls, asked for these pairs."""

import json
from dataclasses import dataclass, replace

from cta.data.locations import resolve
from cta.errors import CtaError
from cta.grid.ablation import scored_cell
from cta.grid.cells import Cell, Cut
from cta.grid.plan import Plan
from cta.ooc.pairs import HeldOut
from cta.scores.schema import HELD_OUT, RANDOM, WHOLE

AGENTS = ("cta", "hiql-analogy", "hiql-dual", "gciql-dual", "hiql")
CONTROLS = {"uncut": WHOLE, "random": RANDOM}


@dataclass(frozen=True)
class Study:
    """What is trained and asked.

    `controls` are the data beside the cut ones: `uncut` (what the cut costs) and `random` (as many random windows cut:
    what cutting itself costs). `steps` None is the preset's. `flags` name pairs and thresholds other than the world's.
    """

    dataset: str
    held_out: HeldOut
    agents: tuple[str, ...] = AGENTS
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    steps: int | None = None
    controls: tuple[str, ...] = ()
    per_pair: bool = False
    episodes: int = 50
    flags: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """Cells of the cut data and of the controls; an error in one line about what cannot be."""
        from cta.ooc.evaluation import check_can_ask
        from cta.ooc.trials import make_trials

        unknown = [control for control in self.controls if control not in CONTROLS]
        if unknown:
            raise CtaError(f"--controls: there is no '{unknown[0]}'; there are {', '.join(CONTROLS)}")
        if not self.agents or len(set(self.agents)) != len(self.agents):
            raise CtaError("--agents: name each agent once")
        if self.per_pair and "random" in self.controls:
            raise CtaError("--per-pair: the control of random windows goes with all pairs cut at once")
        check_can_ask(resolve(self.dataset).name)
        make_trials(self.held_out, episodes=self.episodes)
        cells = [cell for agent in self.agents for cell in self._cells(agent)]
        order = [HELD_OUT, *(CONTROLS[control] for control in self.controls)]
        return Plan("study", tuple(sorted(cells, key=lambda cell: order.index(cell.condition)))).check()

    def _cells(self, agent: str) -> list[Cell]:
        base = scored_cell(self.dataset, agent, self.seeds, self.steps, episodes=self.episodes)
        base = replace(base, curve_points=(), ask="pairs")
        record = json.dumps(self.held_out.record(), sort_keys=True)
        numbers = tuple(number for number, _ in self.held_out.numbered())
        whole = Cut(self.flags, record, numbers) if self.flags else Cut()
        cuts = [whole]
        if self.per_pair:
            cuts = [Cut((*self.flags, "--per-pair"), record, (number,), number) for number in numbers]
        controls = [replace(base, condition=CONTROLS[control], cut=whole) for control in self.controls]
        return [*(replace(base, condition=HELD_OUT, cut=cut) for cut in cuts), *controls]
