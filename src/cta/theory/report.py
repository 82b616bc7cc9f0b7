"""The report of `cta theory`: what holds, where it stops, in tables and figures."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from cta.theory import figures
from cta.theory.assumptions import (
    check_abstraction,
    check_consistency,
    close_support,
    difference_decoder,
    global_decoder,
)
from cta.theory.distance import field, fields, surrogate_return, temporal_distance
from cta.theory.factorisation import bilinear_complete, block_risks, numerical_rank
from cta.theory.invariance import context_invariance, context_pairs
from cta.theory.lights import LightsOut
from cta.theory.mdp import MDP
from cta.theory.transduction import Anchor, Displacement, transduce
from cta.theory.worlds import desk_skeleton, locked_slider, sliders


def _table(title: str, *columns: str, note: str = "") -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", caption=note or None)
    table.caption_justify = "left"
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    return table


def worlds() -> list[tuple[MDP, list[tuple[int, int]]]]:
    """The worlds of the report, with the pairs of one task in two contexts."""
    additive, both, lock, desk = sliders(7, 5), sliders(7, 5, simultaneous=True), locked_slider(7), desk_skeleton()
    return [
        (additive, [(additive.index(1, w), additive.index(5, w)) for w in (0, 4)]),
        (both, [(both.index(1, w), both.index(5, w)) for w in (0, 4)]),
        (lock, [(lock.index(1, b), lock.index(5, b)) for b in (1, 0)]),
        (desk, [(desk.index(0, w, 0, 1, 0), desk.index(1, w, 0, 1, 0)) for w in (0, 1)]),
        (desk, [(desk.index(0, 0, 0, b, 0), desk.index(1, 0, 0, b, 0)) for b in (1, 0)]),
    ]


def fields_table(gamma: float) -> Any:
    """One task, two contexts: does the field change?"""
    table = _table(
        "Fields of one task in two contexts (largest difference over probes)",
        "world",
        "context",
        "d*-field",
        "Ṽ-field",
        note="0 means the context is ignored. Ṽ-fields change even where d*-fields do not (T8, T9, T10, T11).",
    )
    contexts = ["window 0, 4", "window 0, 4", "lock open, shut", "window shut, open", "drawer lock open, shut"]
    for (mdp, (first, second)), context in zip(worlds(), contexts, strict=True):
        D = temporal_distance(mdp, gamma)
        gaps = [
            np.abs(field(values, *first) - field(values, *second)).max() for values in (D, surrogate_return(D, gamma))
        ]
        table.add_row(mdp.name, context, *(f"{gap:.2f}" for gap in gaps))
    return table


def ranks_table(gamma: float) -> Any:
    """Dimensions an exact factorisation needs."""
    table = _table(
        "Rank of an exact factorisation",
        "world",
        "states",
        "rank D",
        "rank Ṽ",
        note="What is learned is Ṽ, which needs as many dimensions as there are states here (T12).",
    )
    for mdp in (sliders(4, 3), sliders(4, 3, simultaneous=True), sliders(7, 5), locked_slider(7), desk_skeleton()):
        D = temporal_distance(mdp, gamma)
        table.add_row(mdp.name, str(len(D)), str(numerical_rank(D)), str(numerical_rank(surrogate_return(D, gamma))))
    return table


def assumptions_table() -> Any:
    """Witnesses against the assumptions, for the readings one would like to use."""
    table = _table(
        "Do the assumptions hold? (number of witnesses against them)",
        "world and reading",
        "abstraction",
        "P3",
        note="A non-empty support closes to all pairs under P1, and P3 then forces a global reading.",
    )
    additive, lock = sliders(4, 3), locked_slider(4)
    cases = [
        (additive, "what differs", difference_decoder(additive.coordinates)),
        (additive, "everything", global_decoder(np.arange(additive.n_states))),
        (additive, "slider 1", global_decoder(additive.coordinates[:, 0])),
        (lock, "position", global_decoder(lock.coordinates[:, 0])),
    ]
    for mdp, name, (en_S, en_G) in cases:
        table.add_row(
            f"{mdp.name}: {name}", str(len(check_abstraction(mdp, en_S, en_G))), str(len(check_consistency(en_S, en_G)))
        )
    one = np.zeros((6, 6), bool)
    one[0, 1] = True
    table.add_row(f"closure of one pair of 36: {int(close_support(one).sum())} pairs", "", "")
    return table


def completion_table() -> Any:
    """Held-out blocks: bilinear completion against a table, and the bound."""
    table = _table("Bilinear completion of a held-out block (T14, T15)", "estimate", "train RMSE", "held-out RMSE")
    for combined, name in ((True, "combined moves seen"), (False, "moves never combined")):
        H, mask, anchors, displacements = figures.completion_case(combined=combined)
        fit = bilinear_complete(H, mask, numerical_rank(H))
        core = f"core rank {fit.core_rank}/{numerical_rank(H)}"
        for label, estimate in ((f"bilinear, {name}, {core}", fit.H), (f"table, {name}", np.where(mask, H, 0.0))):
            train, test = block_risks(H, estimate, anchors, displacements)
            table.add_row(label, f"{np.sqrt(train):.2g}", f"{np.sqrt(test):.2g}")
    samples = figures.bound_samples()
    worst = (samples[:, 1] / samples[:, 0]).max()
    table.caption = f"Bound on R_test/R_train: median {np.median(samples[:, 2]):.1g}; worst observed {worst:.1f}."
    return table


def transduction_table(gamma: float) -> Any:
    """T16: right moves at held-out pairs."""
    table = _table(
        "Right moves at held-out pairs (slider 1 moves while slider 2 = 1), 4×3 additive sliders (T16)",
        "model",
        "one step: seen",
        "held out",
        "all pairs: seen",
        "held out",
        note="Analogies transfer through a bottleneck; a free row per anchor fits and does not transfer.",
    )
    models: list[tuple[str, Anchor, Displacement]] = [
        ("table Q(s,g)", "table", "table"),
        ("free anchor × analogy", "table", "analogy"),
        ("coordinates × analogy", "coordinates", "analogy"),
        ("coordinates × goal", "coordinates", "goal"),
        ("constant × analogy", "constant", "analogy"),
        ("constant × goal", "constant", "goal"),
    ]
    for name, anchor, displacement in models:
        results = [
            transduce(sliders(4, 3), 1, gamma=gamma, one_step=one, anchor=anchor, displacement=displacement)
            for one in (True, False)
        ]
        table.add_row(name, *(f"{value:.0%}" for r in results for value in (r.train, r.held_out)))
    return table


def lights_table() -> Any:
    """Lights Out: ranks over F₂, orbits and stabilisers."""
    table = _table(
        "Lights Out",
        "board",
        "rank over F₂",
        "reachable goals",
        "diameter",
        "rank D",
        "contexts per field",
        note="Contexts per field: the stabiliser of press 0. Full rank: half of all; 4×4: only the context itself.",
    )
    for size in ((2, 3), (3, 3), (4, 4), (4, 5), (4, 6)):
        board = LightsOut(*size)
        name = f"{size[0]}×{size[1]}"
        head = [name, f"{board.rank}/{board.cells}", f"{board.reachable_probability:.3g}"]
        if board.rank > 16:
            table.add_row(
                *head,
                *(
                    [str(board.rank), str(board.rank + 1), f"2^{board.rank - 1}"]
                    if board.rank == board.cells
                    else ["–"] * 3
                ),
            )
            continue
        spectrum = board.spectrum()
        rank = int((spectrum > 1e-9 * spectrum[0]).sum())
        table.add_row(*head, str(board.weights.max()), f"{rank}/{len(spectrum)}", str(board.stabiliser_size(0)))
    return table


def learned_rows(*, expectile: float, steps: int, seeds: int) -> list[Any]:
    """Train the dual learner on additive and locked sliders; `InvarianceRow`s of exact and learned quantities."""
    from dataclasses import replace

    from cta.theory.bridge import BridgeConfig, invariance_rows, learn

    config = BridgeConfig()
    config = replace(config, dual=replace(config.dual, expectile=expectile))
    chosen = [sliders(6, 5), locked_slider(8)]
    results = learn(chosen, config=config, checkpoints=(0, steps), seeds=range(seeds))
    rows = []
    for mdp, by_seed in zip(chosen, results, strict=True):
        named = {"untrained": by_seed[0][0]}
        named |= {"learned" if seeds == 1 else f"learned {i}": run[steps] for i, run in enumerate(by_seed)}
        rows += invariance_rows(mdp, named, gamma=config.discount)
    return rows


def learned_table(rows: list[Any]) -> Any:
    """Context invariance of exact d*, exact Ṽ and the learned φᵀψ."""
    table = _table(
        "Context invariance: one task in two contexts ÷ two tasks (0 = invariant)",
        "quantity",
        "field",
        "α∨",
        "1-NN",
        "r(Ṽ)",
        "ρ(d*)",
        "|Δd|",
        note="field: x ↦ value(x,g) − value(x,s); α∨: the vector itself; 1-NN: the nearest α∨ of another context "
        "has the same task; r, ρ: Pearson with Ṽ, Spearman with d*; |Δd|: median error of implied distances.",
    )
    for row in rows:
        table.add_row(
            f"{row.world}: {row.quantity}",
            f"{row.field.ratio:.2f}",
            f"{row.vector.ratio:.2f}",
            f"{row.vector.retrieval:.0%}",
            f"{row.accuracy.value_correlation:.2f}",
            f"{row.accuracy.rank_correlation:.2f}",
            f"{row.accuracy.distance_error:.1f}",
        )
    return table


def desk_table(dual: Any, networks: Any, *, label: str, gamma: float) -> Any:
    """Context invariance of an agent's analogies on the desk, beside the exact skeleton."""
    from cta.theory.bridge import measure_desk_agent

    table = _table(
        f"Context invariance on the desk: {label}",
        "part",
        "d* field",
        "Ṽ field",
        "learned field",
        "learned α∨",
        "1-NN",
        note="d* and Ṽ are those of the 32-state skeleton, whose steps are subtasks. The tray has no lock.",
    )
    skeleton = desk_skeleton()
    D = temporal_distance(skeleton, gamma)
    for part, name in enumerate(("drawer", "window", "tray")):
        pairs, tasks, contexts = context_pairs(skeleton, (part,))
        exact = [context_invariance(fields(t, pairs), tasks, contexts).ratio for t in (D, surrogate_return(D, gamma))]
        learned = measure_desk_agent(dual, networks, part=part)
        ratios = [*exact, learned["field"].ratio, learned["vector"].ratio]
        table.add_row(name, *(f"{ratio:.2f}" for ratio in ratios), f"{learned['vector'].retrieval:.0%}")
    return table


def run_report(
    out: Path | None,
    *,
    gamma: float = 0.9,
    expectile: float = 0.7,
    steps: int = 2000,
    seeds: int = 1,
    bridge: bool = True,
) -> list[Path]:
    """Print the report; with `out`, write the figures there. Returns their paths."""
    from rich.console import Console

    started = time.perf_counter()
    console = Console()
    for table in (
        fields_table(gamma),
        ranks_table(gamma),
        assumptions_table(),
        completion_table(),
        transduction_table(gamma),
        lights_table(),
    ):
        console.print(table)
    rows = learned_rows(expectile=expectile, steps=steps, seeds=seeds) if bridge else []
    if rows:
        console.print(learned_table(rows))
    paths = draw_all(out, gamma, rows) if out is not None else []
    for path in paths:
        console.print(f"wrote {path}", highlight=False)
    console.print(f"theory report in {time.perf_counter() - started:.1f} s", highlight=False)
    return paths


def draw_all(out: Path, gamma: float, rows: list[Any]) -> list[Path]:
    """Every figure, into the folder `out` (made if missing)."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [
        figures.draw_fields(out),
        figures.draw_surrogate_fields(out, gamma),
        figures.draw_spectra(out, gamma),
        figures.draw_completion(out),
        figures.draw_lights(out),
    ]
    if rows:
        bars = [(row.world, row.quantity, row.field.ratio, row.vector.ratio) for row in rows]
        paths.append(figures.draw_invariance(out, bars))
    return paths
