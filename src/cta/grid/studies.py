"""The out-of-combination study as a plan: data without the held-out pairs, with controls, asked for these pairs."""

import json
from collections.abc import Sequence
from dataclasses import replace

from cta.data.locations import resolve
from cta.errors import CtaError
from cta.grid.ablation import scored_cell
from cta.grid.cells import Cut
from cta.grid.plan import Plan
from cta.ooc.evaluation import check_can_ask
from cta.ooc.pairs import HeldOut
from cta.ooc.trials import make_trials
from cta.scores.schema import HELD_OUT, RANDOM, WHOLE

AGENTS = ("cta", "hiql-analogy", "hiql-dual", "gciql-dual", "hiql")
CONTROLS = {"uncut": WHOLE, "random": RANDOM}


def study_plan(
    dataset: str,
    held_out: HeldOut,
    *,
    agents: Sequence[str] = AGENTS,
    seeds: tuple[int, ...] = (0, 1, 2, 3),
    steps: int | None = None,
    controls: Sequence[str] = (),
    per_pair: bool = False,
    episodes: int = 50,
    flags: tuple[str, ...] = (),
) -> Plan:
    """Cells of the cut data and of the controls; an error in one line about what cannot be.

    `controls` are the data beside the cut ones: `uncut` (what the cut costs) and `random` (as many random windows cut:
    what cutting itself costs). `steps` None is the preset's. `flags` name pairs and thresholds other than the world's.
    """
    if unknown := [control for control in controls if control not in CONTROLS]:
        raise CtaError(f"--controls: there is no '{unknown[0]}'; there are {', '.join(CONTROLS)}")
    if not agents or len(set(agents)) != len(agents):
        raise CtaError("--agents: name each agent once")
    if per_pair and "random" in controls:
        raise CtaError("--per-pair: the control of random windows goes with all pairs cut at once")
    check_can_ask(resolve(dataset).name)
    make_trials(held_out, episodes=episodes)
    record = json.dumps(held_out.record(), sort_keys=True)
    numbers = tuple(number for number, _ in held_out.numbered())
    whole = Cut(flags, record, numbers) if flags else Cut()
    alone = [Cut((*flags, "--per-pair"), record, (number,), number) for number in numbers]
    asked = [(HELD_OUT, cut) for cut in (alone if per_pair else [whole])]
    asked += [(CONTROLS[control], whole) for control in controls]
    bases = [scored_cell(dataset, agent, seeds, steps, episodes=episodes) for agent in agents]
    bases = [replace(base, curve_points=(), ask="pairs") for base in bases]
    order = [condition for condition, _ in asked]
    cells = [replace(base, condition=condition, cut=cut) for base in bases for condition, cut in asked]
    cells.sort(key=lambda cell: order.index(cell.condition))
    return Plan("study", tuple(cells)).check()
