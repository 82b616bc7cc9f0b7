"""The report of `cta theory`: what holds, where it stops, in tables and one figure."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cta.io.figure_files import save_figure
from cta.theory.assumptions import (
    check_abstraction,
    check_consistency,
    close_support,
    difference_decoder,
    global_decoder,
)
from cta.theory.distance import field, fields, surrogate_return, temporal_distance
from cta.theory.factorisation import (
    Anchor,
    Displacement,
    bilinear_complete,
    block_risks,
    numerical_rank,
    transduce,
    transduction_bound,
)
from cta.theory.lights import LightsOut
from cta.theory.mdp import desk_skeleton, locked_slider, sliders


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> Any:
    """A table for the terminal: words on the left, numbers on the right, a note below."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", caption=note or None)
    table.caption_justify = "left"
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def fields_table(gamma: float) -> Any:
    """One task, two contexts: does the field change?"""
    additive, both, lock, desk = sliders(7, 5), sliders(7, 5, simultaneous=True), locked_slider(7), desk_skeleton()
    cases = [
        (additive, "window 0, 4", [((1, w), (5, w)) for w in (0, 4)]),
        (both, "window 0, 4", [((1, w), (5, w)) for w in (0, 4)]),
        (lock, "lock open, shut", [((1, b), (5, b)) for b in (1, 0)]),
        (desk, "window shut, open", [((0, w, 0, 1, 0), (1, w, 0, 1, 0)) for w in (0, 1)]),
        (desk, "drawer lock open, shut", [((0, 0, 0, b, 0), (1, 0, 0, b, 0)) for b in (1, 0)]),
    ]
    rows = []
    for mdp, context, tasks in cases:
        D = temporal_distance(mdp, gamma)
        pairs = np.array([[mdp.index(*s), mdp.index(*g)] for s, g in tasks])
        gaps = [np.abs(np.diff(fields(table, pairs), axis=0)).max() for table in (D, surrogate_return(D, gamma))]
        rows.append((mdp.name, context, *(f"{gap:.2f}" for gap in gaps)))
    note = "0 means the context is ignored. Ṽ-fields change even where d*-fields do not (T8, T9, T10, T11)."
    title = "Fields of one task in two contexts (largest difference over probes)"
    return _table(title, ("world", "context", "d*-field", "Ṽ-field"), rows, note)


def ranks_table(gamma: float) -> Any:
    """Dimensions an exact factorisation needs."""
    rows = []
    for mdp in (sliders(4, 3), sliders(4, 3, simultaneous=True), sliders(7, 5), locked_slider(7), desk_skeleton()):
        D = temporal_distance(mdp, gamma)
        rows.append((mdp.name, len(D), numerical_rank(D), numerical_rank(surrogate_return(D, gamma))))
    note = "What is learned is Ṽ, which needs as many dimensions as there are states here (T12)."
    return _table("Rank of an exact factorisation", ("world", "states", "rank D", "rank Ṽ"), rows, note)


def assumptions_table() -> Any:
    """Counterexamples to the assumptions, for the readings one would like to use."""
    additive, lock = sliders(4, 3), locked_slider(4)
    cases = [
        (additive, "what differs", difference_decoder(additive.coordinates)),
        (additive, "everything", global_decoder(np.arange(additive.n_states))),
        (additive, "slider 1", global_decoder(additive.coordinates[:, 0])),
        (lock, "position", global_decoder(lock.coordinates[:, 0])),
    ]
    rows: list[tuple[Any, ...]] = [
        (f"{mdp.name}: {name}", len(check_abstraction(mdp, *decoder)), len(check_consistency(*decoder)))
        for mdp, name, decoder in cases
    ]
    one = np.zeros((6, 6), bool)
    one[0, 1] = True
    rows.append((f"closure of one pair of 36: {int(close_support(one).sum())} pairs", "", ""))
    note = "A non-empty support closes to all pairs under P1, and P3 then forces a global reading."
    title = "Do the assumptions hold? (number of counterexamples)"
    return _table(title, ("world and reading", "abstraction", "P3"), rows, note)


def completion_case(*, combined: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(H, mask, anchors, displacements) of additive sliders: H[x, (s,g)] = α(s,g)(x), one column per distinct field.

    Held out: anchors x with window 0 against fields that move the drawer alone. `combined=False` leaves out the fields
    that move both, so that the observed core has only window moves.
    """
    mdp = sliders(6, 4)
    D = temporal_distance(mdp)
    moves = mdp.coordinates[:, None] != mdp.coordinates[None, :]
    pairs = np.argwhere(moves.any(axis=-1) if combined else moves.sum(axis=-1) == 1)
    columns = fields(D, pairs)
    alone = (mdp.coordinates[pairs[:, 0], 1] == mdp.coordinates[pairs[:, 1], 1]).astype(float)
    distinct = np.unique(np.concatenate([alone[:, None], columns], axis=1), axis=0)
    anchors, displacements = mdp.coordinates[:, 1] != 0, distinct[:, 0] == 0
    order = np.argsort(~anchors, kind="stable")
    mask = anchors[:, None] | displacements[None, :]
    return distinct[:, 1:].T[order], mask[order], anchors[order], displacements


def bound_samples(count: int = 120) -> np.ndarray:
    """Rows (R_train, R_test, bound factor): perturbed rank-2 fits of 20×20 targets that meet the bound's condition."""
    rng = np.random.default_rng(0)
    seen = np.arange(20) < 10
    rows = []
    for _ in range(count):
        G, F = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
        noise = 10 ** rng.uniform(-5, -1.5)
        estimate = (G + noise * rng.normal(size=G.shape)) @ (F + noise * rng.normal(size=F.shape)).T
        train, test = block_risks(G @ F.T, estimate, seen, seen)
        bound = transduction_bound(G, F, seen, seen)
        if train <= bound.threshold:
            rows.append((train, test, bound.factor))
    return np.array(rows)


def completion_table() -> Any:
    """Held-out blocks: bilinear completion against a table, and the bound."""
    rows = []
    for combined, name in ((True, "combined moves seen"), (False, "moves never combined")):
        H, mask, anchors, displacements = completion_case(combined=combined)
        fit = bilinear_complete(H, mask, numerical_rank(H))
        core = f"core rank {fit.core_rank}/{numerical_rank(H)}"
        for label, estimate in ((f"bilinear, {name}, {core}", fit.H), (f"table, {name}", np.where(mask, H, 0.0))):
            risks = block_risks(H, estimate, anchors, displacements)
            rows.append((label, *(f"{np.sqrt(risk):.2g}" for risk in risks)))
    samples = bound_samples()
    worst = (samples[:, 1] / samples[:, 0]).max()
    note = f"Bound on R_test/R_train: median {np.median(samples[:, 2]):.1g}; worst observed {worst:.1f}."
    title = "Bilinear completion of a held-out block (T14, T15)"
    return _table(title, ("estimate", "train RMSE", "held-out RMSE"), rows, note)


def transduction_table(gamma: float) -> Any:
    """T16: right moves at held-out pairs."""
    models: list[tuple[str, Anchor, Displacement]] = [
        ("table Q(s,g)", "table", "table"),
        ("free anchor × analogy", "table", "analogy"),
        ("coordinates × analogy", "coordinates", "analogy"),
        ("coordinates × goal", "coordinates", "goal"),
        ("constant × analogy", "constant", "analogy"),
        ("constant × goal", "constant", "goal"),
    ]
    rows = []
    for name, anchor, displacement in models:
        options: Any = {"gamma": gamma, "anchor": anchor, "displacement": displacement}
        results = [transduce(sliders(4, 3), 1, one_step=one, **options) for one in (True, False)]
        rows.append((name, *(f"{value:.0%}" for r in results for value in (r.train, r.held_out))))
    note = "Analogies transfer through a bottleneck; a free row per anchor fits and does not transfer."
    title = "Right moves at held-out pairs (slider 1 moves while slider 2 = 1), 4×3 additive sliders (T16)"
    return _table(title, ("model", "one step: seen", "held out", "all pairs: seen", "held out"), rows, note)


def lights_table() -> Any:
    """Lights Out: ranks over F₂, orbits and stabilisers."""
    rows = []
    for size in ((2, 3), (3, 3), (4, 4), (4, 5), (4, 6)):
        board = LightsOut(*size)
        if board.rank > 16:  # too large to enumerate; of full rank, where d* is Hamming distance
            facts = (board.rank, board.rank + 1, f"2^{board.rank - 1}")
        else:
            spectrum = board.spectrum()
            rank = int((spectrum > 1e-9 * spectrum[0]).sum())
            facts = (board.weights.max(), f"{rank}/{len(spectrum)}", board.stabiliser_size(0))
        name, share = f"{size[0]}×{size[1]}", f"{board.reachable_probability:.3g}"
        rows.append((name, f"{board.rank}/{board.cells}", share, *facts))
    columns = ("board", "rank over F₂", "reachable goals", "diameter", "rank D", "contexts per field")
    note = "Contexts per field: the stabiliser of press 0. Full rank: half of all; 4×4: only the context itself."
    return _table("Lights Out", columns, rows, note)


def learned_rows(*, expectile: float, steps: int, seeds: int) -> list[Any]:
    """Train the dual learner on additive and locked sliders; `InvarianceRow`s of exact and learned quantities."""
    from cta.theory.bridge import BridgeConfig, invariance_rows, learn

    config = BridgeConfig()
    config = replace(config, dual=replace(config.dual, expectile=expectile))
    chosen = [sliders(6, 5), locked_slider(8)]
    rows = []
    for mdp, by_seed in zip(chosen, learn(chosen, config, steps=steps, seeds=seeds), strict=True):
        named = {"untrained": by_seed[0][0]}
        named |= {"learned" if seeds == 1 else f"learned {i}": after for i, (_, after) in enumerate(by_seed)}
        rows += invariance_rows(mdp, named, gamma=config.discount)
    return rows


def learned_table(rows: list[Any]) -> Any:
    """Context invariance of exact d*, exact Ṽ and the learned φᵀψ."""
    lines = []
    for row in rows:
        accuracy = row.accuracy
        ratios = f"{row.field.ratio:.2f}", f"{row.vector.ratio:.2f}", f"{row.vector.retrieval:.0%}"
        correlations = f"{accuracy.value_correlation:.2f}", f"{accuracy.rank_correlation:.2f}"
        lines.append((f"{row.world}: {row.quantity}", *ratios, *correlations, f"{accuracy.distance_error:.1f}"))
    note = (
        "field: x ↦ value(x,g) − value(x,s); α∨: the vector itself; 1-NN: the nearest α∨ of another context "
        "has the same task; r, ρ: Pearson with Ṽ, Spearman with d*; |Δd|: median error of implied distances."
    )
    title = "Context invariance: one task in two contexts ÷ two tasks (0 = invariant)"
    return _table(title, ("quantity", "field", "α∨", "1-NN", "r(Ṽ)", "ρ(d*)", "|Δd|"), lines, note)


def draw_fields(path: Path, gamma: float) -> Path:
    """The field of one task in two contexts, and the difference: d* in three worlds, and Ṽ in the first of them."""
    from matplotlib.figure import Figure

    additive, windows = sliders(7, 5), (("window 0", 0), ("window 4", 4))
    cases = [
        ("one slider moves per step: d* = |Δ₁| + |Δ₂|", "d*", additive, windows),
        ("the same world: Ṽ, which is what is learned", "Ṽ", additive, windows),
        ("both may move: d* = max(|Δ₁|, |Δ₂|)", "d*", sliders(7, 5, simultaneous=True), windows),
        ("a lock gates the slider", "d*", locked_slider(7), (("lock open", 1), ("lock shut", 0))),
    ]
    figure = Figure(figsize=(7.2, 7.2), dpi=150, layout="constrained")
    panels: Any = figure.subfigures(len(cases), 1, height_ratios=[5, 5, 5, 3.4])
    for panel, (title, quantity, mdp, contexts) in zip(panels, cases, strict=True):
        D = temporal_distance(mdp, gamma)
        table = D if quantity == "d*" else surrogate_return(D, gamma)
        pairs = [(mdp.index(1, context), mdp.index(5, context)) for _, context in contexts]
        shown = [field(table, *pair) for pair in pairs]
        gap = shown[0] - shown[1]
        names = [f"α(s,g), {name}" for name, _ in contexts]
        names.append(f"difference: up to {np.abs(gap).max():.1f}" if gap.any() else "difference: none")
        axes, limit, image = panel.subplots(1, 3), 1.1 * float(np.abs(shown).max()), None
        panel.suptitle(title, weight="bold", size=9, x=0.02, ha="left")
        for axis, name, values in zip(axes, names, (*shown, gap), strict=True):
            grid = np.zeros(mdp.coordinates.max(axis=0) + 1)
            grid[tuple(mdp.coordinates.T)] = values
            image = axis.imshow(grid.T, origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.set_title(name, size=8.5)
            axis.tick_params(length=0, labelsize=8)
        for axis, pair in zip(axes, pairs, strict=False):
            for state, letter in zip(pair, "sg", strict=True):
                style: Any = {"ha": "center", "va": "center", "weight": "bold", "style": "italic", "color": "white"}
                axis.text(*mdp.coordinates[state], letter, **style)
        panel.colorbar(image, ax=axes, shrink=0.9).ax.tick_params(labelsize=8)
    return save_figure(figure, path)


def run_report(
    figure: Path | None, *, gamma: float, expectile: float, steps: int, seeds: int, bridge: bool = True
) -> None:
    """Print the report, and draw the fields into `figure` if it is given."""
    from rich.console import Console

    started = time.perf_counter()
    console = Console(highlight=False)
    exact = [fields_table(gamma), ranks_table(gamma), assumptions_table(), completion_table()]
    for table in (*exact, transduction_table(gamma), lights_table()):
        console.print(table)
    if bridge:
        with Console(stderr=True).status(f"training the dual learner, {steps:,} steps"):
            rows = learned_rows(expectile=expectile, steps=steps, seeds=seeds)
        console.print(learned_table(rows))
    if figure is not None:
        console.print(f"wrote {draw_fields(figure, gamma)}", soft_wrap=True)
    console.print(f"theory report in {time.perf_counter() - started:.1f} s")
