"""The report of `cta theory`: what holds, where it stops, in tables and one figure."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from cta.io.files import save_figure
from cta.io.text_tables import print_table
from cta_theory import assumptions
from cta_theory.distance import field, fields, surrogate_return, temporal_distance
from cta_theory.factorisation import bilinear_complete, block_risks, numerical_rank, transduce, transduction_bound
from cta_theory.lights import LightsOut
from cta_theory.mdp import desk_skeleton, locked_slider, sliders


def _print(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], note: str) -> None:
    """A table on the terminal, with a note below."""
    print_table([columns, *([str(cell) for cell in row] for row in rows)], left=1, title=title, title_style="bold")
    print(f"{note}\n")


def fields_table(gamma: float) -> None:
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
    _print(title, ("world", "context", "d*-field", "Ṽ-field"), rows, note)


def ranks_table(gamma: float) -> None:
    """Dimensions an exact factorisation needs."""
    rows = []
    for mdp in (sliders(4, 3), sliders(4, 3, simultaneous=True), sliders(7, 5), locked_slider(7), desk_skeleton()):
        D = temporal_distance(mdp, gamma)
        rows.append((mdp.name, len(D), numerical_rank(D), numerical_rank(surrogate_return(D, gamma))))
    note = "What is learned is Ṽ, which needs as many dimensions as there are states here (T12)."
    _print("Rank of an exact factorisation", ("world", "states", "rank D", "rank Ṽ"), rows, note)


def assumptions_table() -> None:
    """Counterexamples to the assumptions, for the readings one would like to use."""
    additive, lock = sliders(4, 3), locked_slider(4)
    cases = [
        (additive, "what differs", assumptions.difference_decoder(additive.coordinates)),
        (additive, "everything", assumptions.global_decoder(np.arange(additive.n_states))),
        (additive, "slider 1", assumptions.global_decoder(additive.coordinates[:, 0])),
        (lock, "position", assumptions.global_decoder(lock.coordinates[:, 0])),
    ]
    rows: list[tuple[Any, ...]] = []
    for mdp, name, decoder in cases:
        failures = assumptions.check_abstraction(mdp, *decoder), assumptions.check_consistency(*decoder)
        rows.append((f"{mdp.name}: {name}", *map(len, failures)))
    closed = assumptions.close_support(np.arange(36).reshape(6, 6) == 1)
    rows.append((f"closure of one pair of 36: {closed.sum()} pairs", "", ""))
    note = "A non-empty support closes to all pairs under P1, and P3 then forces a global reading."
    title = "Do the assumptions hold? (number of counterexamples)"
    _print(title, ("world and reading", "abstraction", "P3"), rows, note)


def completion_case(*, combined: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(H, anchors, displacements) of additive sliders: H[x, (s,g)] = α(s,g)(x), one column per distinct field.

    Held out: anchors x with window 0 against fields that move the drawer alone. `combined=False` leaves out the fields
    that move both, so that the observed core has only window moves.
    """
    mdp = sliders(6, 4)
    moves = mdp.coordinates[:, None] != mdp.coordinates[None]
    pairs = np.argwhere(moves.any(axis=-1) if combined else moves.sum(axis=-1) == 1)
    moves_window = moves[*pairs.T, 1]
    distinct = np.unique(np.column_stack([moves_window, fields(temporal_distance(mdp), pairs)]), axis=0)
    return distinct[:, 1:].T, mdp.coordinates[:, 1] != 0, distinct[:, 0] == 1


def bound_samples() -> np.ndarray:
    """Rows (R_train, R_test, bound factor): perturbed rank-2 fits of 20×20 targets that meet the bound's condition."""
    rng = np.random.default_rng(0)
    seen = np.arange(20) < 10
    rows = []
    for _ in range(120):
        G, F = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
        noise = 10 ** rng.uniform(-5, -1.5)
        estimate = (G + noise * rng.normal(size=G.shape)) @ (F + noise * rng.normal(size=F.shape)).T
        train, test = block_risks(G @ F.T, estimate, seen, seen)
        bound = transduction_bound(G, F, seen, seen)
        if train <= bound.threshold:
            rows.append((train, test, bound.factor))
    return np.array(rows)


def completion_table() -> None:
    """Held-out blocks: bilinear completion against a table, and the bound."""
    rows = []
    for combined, name in ((True, "combined moves seen"), (False, "moves never combined")):
        H, anchors, displacements = completion_case(combined=combined)
        mask, rank = anchors[:, None] | displacements, numerical_rank(H)
        fit = bilinear_complete(H, mask, rank)
        bilinear = f"bilinear, {name}, core rank {fit.core_rank}/{rank}"
        for label, estimate in ((bilinear, fit.H), (f"table, {name}", np.where(mask, H, 0.0))):
            risks = block_risks(H, estimate, anchors, displacements)
            rows.append((label, *(f"{np.sqrt(risk):.2g}" for risk in risks)))
    train, test, factor = bound_samples().T
    note = f"Bound on R_test/R_train: median {np.median(factor):.1g}; worst observed {(test / train).max():.1f}."
    title = "Bilinear completion of a held-out block (T14, T15)"
    _print(title, ("estimate", "train RMSE", "held-out RMSE"), rows, note)


def transduction_table(gamma: float) -> None:
    """T16: right moves at held-out pairs."""
    models = [
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
        rows.append((name, *(f"{share:.0%}" for result in results for share in result)))
    note = "Analogies transfer through a bottleneck; a free row per anchor fits and does not transfer."
    title = "Right moves at held-out pairs (slider 1 moves while slider 2 = 1), 4×3 additive sliders (T16)"
    _print(title, ("model", "one step: seen", "held out", "all pairs: seen", "held out"), rows, note)


def lights_table() -> None:
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
        rows.append((name, f"{board.rank}/{board.lights}", share, *facts))
    columns = ("board", "rank over F₂", "reachable goals", "diameter", "rank D", "contexts per field")
    note = "Contexts per field: the stabiliser of press 0. Full rank: half of all; 4×4: only the context itself."
    _print("Lights Out", columns, rows, note)


def learned_rows(*, expectile: float, steps: int, seeds: int) -> list[Any]:
    """Train the dual learner on additive and locked sliders; `InvarianceRow`s of exact and learned quantities."""
    from cta_theory.bridge import BridgeConfig, invariance_rows, learn

    config = BridgeConfig()
    config = replace(config, dual=replace(config.dual, expectile=expectile))
    chosen = [sliders(6, 5), locked_slider(8)]
    rows = []
    for mdp, by_seed in zip(chosen, learn(chosen, config, steps=steps, seeds=seeds), strict=True):
        named = {"untrained": by_seed[0][0]}
        named |= {"learned" if seeds == 1 else f"learned {i}": after for i, (_, after) in enumerate(by_seed)}
        rows += invariance_rows(mdp, named, gamma=config.discount)
    return rows


def learned_table(rows: list[Any]) -> None:
    """Context invariance of exact d*, exact Ṽ and the learned φᵀψ."""
    lines = []
    for row in rows:
        of_vector, accuracy = row.vector, row.accuracy
        ratios = f"{row.field.ratio:.2f}", f"{of_vector.ratio:.2f}", f"{of_vector.retrieval:.0%}"
        correlations = f"{accuracy.value_correlation:.2f}", f"{accuracy.rank_correlation:.2f}"
        lines.append((f"{row.world}: {row.quantity}", *ratios, *correlations, f"{accuracy.distance_error:.1f}"))
    note = (
        "field: x ↦ value(x,g) − value(x,s); α∨: the vector itself; 1-NN: the nearest α∨ of another context "
        "has the same task; r, ρ: Pearson with Ṽ, Spearman with d*; |Δd|: median error of implied distances."
    )
    title = "Context invariance: one task in two contexts ÷ two tasks (0 = invariant)"
    _print(title, ("quantity", "field", "α∨", "1-NN", "r(Ṽ)", "ρ(d*)", "|Δd|"), lines, note)


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
    started = time.perf_counter()
    fields_table(gamma)
    ranks_table(gamma)
    assumptions_table()
    completion_table()
    transduction_table(gamma)
    lights_table()
    if bridge:
        with Console(stderr=True).status(f"training the dual learner, {steps:,} steps"):
            rows = learned_rows(expectile=expectile, steps=steps, seeds=seeds)
        learned_table(rows)
    if figure is not None:
        print(f"wrote {draw_fields(figure, gamma)}")
    print(f"theory report in {time.perf_counter() - started:.1f} s")
