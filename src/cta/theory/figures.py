"""Figures of the theory report. Matplotlib is imported when the first one is drawn."""

from collections.abc import Callable
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from cta.data.files import write_whole
from cta.theory.distance import field, surrogate_return, temporal_distance
from cta.theory.factorisation import bilinear_complete, block_risks, numerical_rank, transduction_bound
from cta.theory.lights import LightsOut
from cta.theory.mdp import MDP
from cta.theory.worlds import locked_slider, sliders

Draw = TypeVar("Draw", bound=Callable[..., Path])
BLUE, ORANGE, GREY, GREEN = "#2b5c8a", "#d1702a", "#8a8a8a", "#3f8f5f"
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
}


def _in_style(draw: Draw) -> Draw:
    """Draw in the style of these figures, and leave Matplotlib as it was."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Path:
        import matplotlib

        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return cast(Draw, drawn)


def _pyplot() -> Any:
    import matplotlib.pyplot as plt

    return plt


def _save(plt: Any, figure: Any, out: Path, name: str) -> Path:
    path = out / f"{name}.png"
    content = BytesIO()
    figure.savefig(content, format="png")
    plt.close(figure)
    write_whole(path, content.getvalue())
    return path


def _heat(axis: Any, mdp: MDP, values: np.ndarray, limit: float, *, marks: tuple[int, int] | None = None) -> Any:
    """A function of two coordinates as a grid, first coordinate to the right, second upwards."""
    columns, rows = (int(n) + 1 for n in mdp.coordinates.max(axis=0))
    grid = np.zeros((rows, columns))
    grid[mdp.coordinates[:, 1], mdp.coordinates[:, 0]] = values
    image = axis.imshow(grid, origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="equal")
    axis.set_xticks(range(columns))
    axis.set_yticks(range(rows))
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    if marks is not None:
        for state, letter in zip(marks, "sg", strict=True):
            x, y = mdp.coordinates[state]
            axis.text(x, y, letter, ha="center", va="center", weight="bold", style="italic", size=9, color="white")
    return image


@_in_style
def draw_fields(out: Path) -> Path:
    """d*-fields of one task in two contexts, and their difference, in three worlds."""
    plt = _pyplot()
    cases = [
        (sliders(7, 5), (0, 4), "window", ("window 0", "window 4")),
        (sliders(7, 5, simultaneous=True), (0, 4), "window", ("window 0", "window 4")),
        (locked_slider(7), (1, 0), "lock", ("lock open", "lock shut")),
    ]
    titles = [
        "one slider moves per step: d* = |Δ₁| + |Δ₂|",
        "both may move: d* = max(|Δ₁|, |Δ₂|)",
        "a lock gates the slider",
    ]
    figure = plt.figure(figsize=(7.2, 5.6))
    panels = figure.subfigures(3, 1, height_ratios=[5, 5, 3.4])
    for panel, title, (mdp, contexts, label, names) in zip(panels, titles, cases, strict=True):
        axes = panel.subplots(1, 3)
        panel.suptitle(title, weight="bold", size=9, x=0.02, ha="left")
        D = temporal_distance(mdp)
        pairs = [(mdp.index(1, w), mdp.index(5, w)) for w in contexts]
        both = [field(D, *pair) for pair in pairs]
        limit = 1.1 * float(np.abs(both).max())
        for axis, pair, values, name in zip(axes, pairs, both, names, strict=False):
            _heat(axis, mdp, values, limit, marks=pair)
            axis.set_title(f"α(s,g), {name}")
        gap = both[0] - both[1]
        image = _heat(axes[2], mdp, gap, limit)
        axes[2].set_title("difference: " + (f"up to {np.abs(gap).max():.0f}" if gap.any() else "none"))
        axes[0].set_ylabel(f"probe's {label}")
        axes[1].set_xlabel("probe's slider")
        panel.colorbar(image, ax=axes, shrink=0.9, ticks=[-4, 0, 4])
    return _save(plt, figure, out, "fields")


@_in_style
def draw_surrogate_fields(out: Path, gamma: float) -> Path:
    """T11: on additive sliders the d*-fields agree and the Ṽ-fields differ by a factor per probe."""
    plt = _pyplot()
    mdp = sliders(7, 5)
    D = temporal_distance(mdp, gamma)
    V = surrogate_return(D, gamma)
    pairs = [(mdp.index(1, w), mdp.index(5, w)) for w in (0, 4)]
    figure, axes = plt.subplots(2, 3, figsize=(7.6, 3.8))
    for row, (table, name) in enumerate([(D, "d*"), (V, "Ṽ")]):
        limit = 1.12 * float(max(np.abs(field(table, *pair)).max() for pair in pairs))
        images = [_heat(axes[row, i], mdp, field(table, *pair), limit, marks=pair) for i, pair in enumerate(pairs)]
        for column, w in enumerate((0, 4)):
            axes[row, column].set_title(f"{name}-field, window {w}")
        figure.colorbar(images[0], ax=list(axes[row, :2]), shrink=0.8)
    x2 = mdp.coordinates[:, 1]
    factor = axes[0, 2]
    for w, colour in ((0, BLUE), (4, ORANGE)):
        factor.plot(range(5), gamma ** np.abs(np.arange(5) - w), "o-", color=colour, ms=3.5, label=f"window {w}")
    factor.set(xlabel="probe's window x₂", title="the factor γ^|x₂ − w|", xticks=range(5), ylim=(0, 1.08))
    factor.legend(loc="lower center")
    first, second = (field(V, *pair) for pair in pairs)
    moving = np.abs(first) > 1e-9
    scatter = axes[1, 2]
    scatter.scatter(
        gamma ** (np.abs(x2 - 0) - np.abs(x2 - 4)).astype(float)[moving],
        (first[moving] / second[moving]),
        s=14,
        color=BLUE,
    )
    ends = np.array([gamma**4, gamma**-4])
    scatter.plot(ends, ends, color=GREY, lw=0.8, zorder=0)
    scatter.set(xlabel="γ^(|x₂ − 0| − |x₂ − 4|)", ylabel="ratio of Ṽ-fields", title="measured against predicted")
    axes[1, 1].set_xlabel("probe's slider x₁")
    axes[0, 0].set_ylabel("x₂")
    axes[1, 0].set_ylabel("x₂")
    return _save(plt, figure, out, "surrogate_fields")


@_in_style
def draw_spectra(out: Path, gamma: float) -> Path:
    """Singular values of D and of Ṽ, for sliders and for an orbit of Lights Out."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.1))
    worlds = [(sliders(7, 5), BLUE, "additive"), (sliders(7, 5, simultaneous=True), ORANGE, "simultaneous")]
    for mdp, colour, name in [*worlds, (locked_slider(17), GREEN, "locked (17)")]:
        D = temporal_distance(mdp, gamma)
        for table, style, what in ((D, "-", "D"), (surrogate_return(D, gamma), ":", "Ṽ")):
            values = np.linalg.svd(table, compute_uv=False)
            kept = values[values > 1e-12 * values[0]]
            label = f"{name}: rank {what} = {numerical_rank(table)}/{len(D)}"
            axes[0].semilogy(
                np.arange(1, len(kept) + 1), kept / values[0], style, marker=".", ms=3, lw=1, color=colour, label=label
            )
    for size, colour in (((3, 3), BLUE), ((4, 4), ORANGE)):
        board = LightsOut(*size)
        for values, style, what in ((board.spectrum(), "-", "D"), (board.spectrum(gamma), ":", "Ṽ")):
            kept = values[values > 1e-12 * values[0]]
            share = np.arange(1, len(kept) + 1) / len(values)
            label = f"{size[0]}×{size[1]} {what}: {len(kept)} of {len(values)}"
            axes[1].loglog(
                share,
                kept / values[0],
                style,
                marker="." if len(kept) < 20 else "",
                ms=4,
                lw=1.2,
                color=colour,
                label=label,
            )
    axes[0].set(title="sliders", xlabel="index", ylabel="singular value / largest", ylim=(1e-6, 2))
    axes[1].set(
        title="Lights Out, one orbit (from the Walsh transform)", xlabel="share of the dimensions", ylim=(1e-12, 4)
    )
    for axis in axes:
        axis.legend(fontsize=6.5, loc="lower left")
    return _save(plt, figure, out, "spectra")


def completion_case(*, combined: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(H, mask, anchors, displacements) of additive sliders: H[x, (s,g)] = α(s,g)(x), one column per distinct field.

    Held out: anchors x with window 0 against fields that move the drawer alone. `combined=False` leaves out the fields
    that move both, so that the observed core has only window moves.
    """
    mdp = sliders(6, 4)
    D = temporal_distance(mdp)
    moves = mdp.coordinates[:, None] != mdp.coordinates[None, :]
    pairs = np.argwhere(moves.any(axis=-1) if combined else moves.sum(axis=-1) == 1)
    columns = np.stack([field(D, int(s), int(g)) for s, g in pairs])
    alone = (mdp.coordinates[pairs[:, 0], 1] == mdp.coordinates[pairs[:, 1], 1]).astype(float)
    distinct = np.unique(np.concatenate([alone[:, None], columns], axis=1), axis=0)
    anchors, displacements = mdp.coordinates[:, 1] != 0, distinct[:, 0] == 0
    order = np.argsort(~anchors, kind="stable")
    mask = anchors[:, None] | displacements[None, :]
    return distinct[:, 1:].T[order], mask[order], anchors[order], displacements


@_in_style
def draw_completion(out: Path) -> Path:
    """A held-out block filled in by a bilinear model and by a table; risks of perturbed fits under the bound."""
    plt = _pyplot()
    H, mask, anchors, displacements = completion_case()
    shown = np.r_[np.flatnonzero(displacements)[::12][:40], np.flatnonzero(~displacements)]
    filled = bilinear_complete(H, mask, numerical_rank(H)).H
    table = np.where(mask, H, 0.0)
    figure, axes = plt.subplots(1, 4, figsize=(8.2, 2.7), gridspec_kw={"width_ratios": [1, 1, 1, 1.35]})
    limit = np.abs(H).max()
    parts = [(np.where(mask, H, np.nan), "observed")]
    for estimate, name in ((filled, "bilinear"), (table, "table (zeros)")):
        error = np.sqrt(block_risks(H, estimate, anchors, displacements)[1])
        parts.append(
            (estimate, f"{name}\nheld-out RMSE {error:.1g}" if error > 1e-9 else f"{name}\nheld-out RMSE < 1e-9")
        )
    for axis, (values, title) in zip(axes, parts, strict=False):
        axis.imshow(values[:, shown], cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axis.set(title=title, xticks=[], yticks=[], xlabel="displacements")
        axis.set_facecolor("#dddddd")
    axes[0].set_ylabel("anchors")
    risk = axes[3]
    ratios = bound_samples()
    risk.loglog(ratios[:, 0], ratios[:, 1], ".", ms=3, color=BLUE, label="perturbed rank-2 fits")
    span = np.array([ratios[:, 0].min(), ratios[:, 0].max()])
    risk.loglog(span, span * np.median(ratios[:, 2]), color=ORANGE, lw=1, label="bound (median case)")
    risk.loglog(span, span, color=GREY, lw=0.8, label="R_test = R_train")
    risk.set(xlabel="R_train", ylabel="R_test", title="20×20 targets of rank 2")
    risk.set_ylim(top=ratios[:, 1].max() * 1e12)
    risk.legend(fontsize=6.5, loc="upper left")
    return _save(plt, figure, out, "completion")


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


@_in_style
def draw_lights(out: Path) -> Path:
    """Lights Out: distances on an orbit, and how much of the context a press's field ignores."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(7.4, 2.7))
    for size, colour, shift in (((3, 3), BLUE, -0.2), ((4, 4), ORANGE, 0.2)):
        counts = np.bincount(LightsOut(*size).weights)
        label = f"{size[0]}×{size[1]}: {counts.sum()} states"
        axes[0].bar(np.arange(len(counts)) + shift, counts / counts.sum(), 0.4, color=colour, label=label)
    axes[0].set(
        xlabel="fewest presses", ylabel="share of the orbit", title="distances within one orbit", ylim=(0, 0.46)
    )
    axes[0].legend(loc="upper right")
    sizes = [(2, 3), (3, 3), (4, 4), (4, 5)]
    boards = [LightsOut(*size) for size in sizes]
    place = np.arange(len(boards))
    axes[1].bar(place - 0.27, [b.cells for b in boards], 0.27, color=GREY, label="lights")
    axes[1].bar(place, [b.rank for b in boards], 0.27, color=BLUE, label="rank over F₂ (log₂ orbit)")
    ignored = [int(np.log2(b.stabiliser_size(0))) for b in boards]
    axes[1].bar(place + 0.27, ignored, 0.27, color=GREEN, label="log₂ stabiliser of a press's field")
    for x, value in zip(place + 0.27, ignored, strict=True):
        axes[1].text(x, value + 0.4, str(value), ha="center", size=7)
    axes[1].set(xticks=place, title="bits of context a field ignores", ylim=(0, 27))
    axes[1].set_xticklabels([f"{r}×{c}" for r, c in sizes])
    axes[1].legend(fontsize=6.5, loc="upper left")
    return _save(plt, figure, out, "lights")


@_in_style
def draw_invariance(out: Path, rows: list[tuple[str, str, float, float]]) -> Path:
    """Context sensitivity (within/between) per world and quantity: rows (world, quantity, of fields, of vectors)."""
    plt = _pyplot()
    worlds = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = plt.subplots(1, len(worlds), figsize=(7.4, 2.7), sharey=True, squeeze=False)
    for axis, world in zip(axes[0], worlds, strict=True):
        mine = [row for row in rows if row[0] == world]
        place = np.arange(len(mine))
        for column, shift, colour, label in ((2, -0.19, BLUE, "field"), (3, 0.19, ORANGE, "vector α∨")):
            values = [float(row[column]) for row in mine]
            axis.bar(place + shift, values, 0.38, color=colour, label=label)
            for x, value in zip(place + shift, values, strict=True):
                axis.text(x, value + 0.015, f"{value:.2f}", ha="center", size=7)
        axis.set(title=world, xticks=place)
        axis.set_xticklabels([row[1] for row in mine])
    axes[0, 0].set(ylabel="same task, other context\n÷ other task (RMS distance)", ylim=(0, 1))
    axes[0, 0].legend(loc="upper left")
    return _save(plt, figure, out, "invariance")
