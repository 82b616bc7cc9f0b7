"""How often the held-out pairs occur in data, beside other counts of the same events."""

from dataclasses import asdict, dataclass
from itertools import product
from math import hypot, sqrt
from pathlib import Path
from typing import Any

from cta.data import TrajectoryDataset
from cta.envs.datasets import open_dataset
from cta.ooc.components import Layout, Rule
from cta.ooc.events import NO_PRESS, UNEXPLAINED, find_events, presses, read_rows
from cta.ooc.pairs import PRESS, Pair
from cta.ooc.pairs_file import HeldOut

MILLION = 1_000_000
EARLIER = {
    "scene": ((318.0, 34.0), (536.0, 44.0), (102.0, 19.0)),
    "puzzle-4x4": ((27.0, 19.0), (93.0, 35.0), (293.0, 63.0), (40.0, 23.0), (307.0, 64.0)),
}
"""Events per million transitions and their error, measured with the mid-point rule on play data simulated with MuJoCo
4.0: 274 episodes of scene, 75 of puzzle-4x4."""
PAPER = {"scene": (338, 464, 74), "puzzle-4x4": (54, 137, 234, 54, 216)}
"""Events in the million transitions of the published files: removed transitions / K, as the paper reports them."""
PRESSES = 30_000.0
"""Presses per million transitions assumed by the independence rates."""


@dataclass(frozen=True)
class Compared:
    """Another rate with its error, and how many combined errors lie between it and ours."""

    rate: float
    error: float
    sigmas: float


@dataclass(frozen=True)
class PairRate:
    """Events of a pair in `transitions` transitions, per million, with the error √events of a count.

    `earlier`, `paper` and `independent` are other rates of the same pair, where there are any. `independent` assumes
    that each button is pressed equally often and that every light of the context is a fair coin.
    """

    number: int
    name: str
    events: int
    transitions: int
    rate: float
    error: float
    earlier: Compared | None
    paper: Compared | None
    independent: Compared | None


@dataclass(frozen=True)
class Rates:
    """All pairs of a file; `presses` per million transitions in worlds of lights."""

    dataset: str
    episodes: int
    transitions: int
    fingerprint: str
    provenance: dict[str, Any] | None
    presses: float | None
    unexplained: int
    pairs: tuple[PairRate, ...]

    def record(self) -> dict[str, Any]:
        return asdict(self)


def measure_rates(source: str | Path, held_out: HeldOut, *, dataset_dir: str | Path | None = None) -> Rates:
    """Count the events of every pair in the training data of a NAME or FILE."""
    name, data, _ = open_dataset(source, dataset_dir=dataset_dir, info=True)
    layout, rule = held_out.layout, held_out.rule
    rows = read_rows(data, layout, rule)
    counts = {number: len(find_events(rows, pair, layout, rule)) for number, pair in held_out.numbered()}
    pairs = tuple(_rate(number, pair, counts[number], data, layout) for number, pair in held_out.numbered())
    pressed, odd = None, 0
    if layout.patterns:
        found = presses(layout, rows.values)[~data.terminals[:-1]]
        pressed, odd = MILLION * float((found != NO_PRESS).mean()), int((found == UNEXPLAINED).sum())
    return Rates(
        name, data.num_episodes, data.num_transitions, data.fingerprint(), data.provenance, pressed, odd, pairs
    )


def _rate(number: int, pair: Pair, events: int, data: TrajectoryDataset, layout: Layout) -> PairRate:
    scale = MILLION / data.num_transitions
    rate, error = events * scale, sqrt(max(events, 1)) * scale

    def compared(other: float, its_error: float) -> Compared:
        return Compared(other, its_error, (rate - other) / hypot(error, its_error))

    def of(table: dict[str, Any]) -> Any:
        known = table.get(layout.name, ())
        return known[number - 1] if number <= len(known) else None

    earlier, paper = of(EARLIER), of(PAPER)
    independent = None
    if pair.event[0] == PRESS:
        independent = compared(PRESSES / len(layout.patterns) / 2 ** len(pair.context), 0.0)
    return PairRate(
        number,
        pair.name,
        events,
        data.num_transitions,
        rate,
        error,
        compared(*earlier) if earlier else None,
        compared(paper, sqrt(paper)) if paper else None,
        independent,
    )


HEADER = ("dataset", "pair", "events", "per million", "earlier", "paper", "independent")


def rate_lines(rates: Rates) -> list[list[str]]:
    """Rows of text below `HEADER`: ours, then the others with the difference in combined errors."""

    def other(found: Compared | None) -> str:
        if found is None:
            return "–"
        error = f" ± {found.error:.0f}" if found.error else ""
        return f"{found.rate:.0f}{error} ({found.sigmas:+.1f}σ)"

    return [
        [
            rates.dataset.removesuffix("-play-v0"),
            f"{pair.number} {pair.name}",
            str(pair.events),
            f"{pair.rate:.0f} ± {pair.error:.0f}",
            *(other(found) for found in (pair.earlier, pair.paper, pair.independent)),
        ]
        for pair in rates.pairs
    ]


TOLERANCES = (0.04, 0.02)
"""Beside the mid-point: OGBench's tolerance of success, and half of it, in metres."""
SEARCH_HEADER = ("dataset", "pair", "rule", "events", "paper's, scaled", "σ")


def search_lines(source: str | Path, held_out: HeldOut, *, dataset_dir: str | Path | None = None) -> list[list[str]]:
    """Rows of text below `SEARCH_HEADER`: the events of every pair that has sliding parts, by every rule of a grid.

    Contexts at the mid-point or within a tolerance of the end; events at the mid-point, on leaving the old end or on
    reaching the new one. On the published files the right rule gives the paper's count exactly.
    """
    name, data, _ = open_dataset(source, dataset_dir=dataset_dir, info=True)
    layout = held_out.layout
    travels = {part.name: part.travel for part in layout.components if part.travel is not None}
    lines = []
    for number, pair in held_out.numbered():
        expected = PAPER.get(layout.name, ())[number - 1 : number]
        share = data.num_transitions / MILLION
        scaled, error = (expected[0] * share, sqrt(expected[0]) * share) if expected else (0.0, 0.0)
        what = pair.event[0]
        around = [part for part in travels if part in pair.context and part != what]
        choices = [[(part, level) for level in (travels[part] / 2, *TOLERANCES)] for part in around]
        ends = [level for near in TOLERANCES for level in (near, travels[what] - near)] if what in travels else []
        crossings = [travels[what] / 2, *ends] if what in travels else [0.0]
        counted = []
        for context, crossing in product(product(*choices), crossings):
            rule = Rule(dict(context), {what: crossing} if what in travels else {})
            events = len(find_events(read_rows(data, layout, rule), pair, layout, rule))
            off = (events - scaled) / hypot(sqrt(max(events, 1)), error)
            counted.append((abs(off), _spoken(rule), events, off))
        for _, spoken, events, off in sorted(counted, key=lambda line: line[0]):
            known = [f"{scaled:.1f}", f"{off:+.1f}"] if expected else ["–", "–"]
            lines.append([name.removesuffix("-play-v0"), f"{number} {pair.name}", spoken, str(events), *known])
    return lines


def _spoken(rule: Rule) -> str:
    context = [f"{part} within {level:g}" for part, level in rule.context.items()]
    return ", ".join([*context, *(f"{part} event at {level:g}" for part, level in rule.event.items())])
