"""Draw the packages of `cta` and their imports: docs/figures/architecture.svg, and the table in docs/architecture.md.

    python tools/draw_packages.py

It reads the source and imports none of it. A test compares names, order and imports with the source, not line counts.
"""

import ast
import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, PAGE, DRAWING = ROOT / "src/cta", ROOT / "docs/architecture.md", ROOT / "docs/figures/architecture.svg"
BEGIN, END = "<!-- packages -->", "<!-- /packages -->"
SMALL = 100
"""Parts with fewer lines stand in the table only."""
ROW, NODE, BARS, EDGE = 30, 250, 400, 760
"""Of the drawing, in pixels: height of a row, where arcs end, where bars begin, its width."""
LINES_PER_PIXEL = 11
ROOMS = {
    "io": "whole-file writes, locks, CSV, JSON, safe names, what produced a file; nothing of ours but errors",
    "config": "typed, frozen settings of runs; no JAX",
    "agent_configs": "typed, frozen settings of agents; no JAX",
    "presets": "the paper's values for each dataset, as data",
    "data": "trajectories as plain arrays with episode bounds, and readers and writers; no agents, no JAX",
    "envs": "OGBench's worlds and their lean step, the embedded worlds, generators; no agents",
    "goals": "the sampler of goals",
    "nn": "networks; no files",
    "losses": "losses with their equations; no files",
    "agents": "one short file for each algorithm; no files, no environments",
    "fast": "fused kernels for the GPU",
    "training": "the chunked loop, seeds, checkpoints, loggers; no environments",
    "evaluation": "rollout workers, tasks, scoring a checkpoint; no training",
    "experiment": "one run: train, score beside it, resume",
    "export": "a policy as a folder that needs neither the run nor this package",
    "ooc": "combinations held out of the data: cuts, pairs, verdicts",
    "analysis": "what an agent learned: analogy maps, neighbour purity",
    "grid": "many runs: plans, cells, one runner, engines; not the inside of a run",
    "reproduce": "plans of many runs and the driver that carries them out",
    "scores": "one schema for all scores, statistics, the paper's tables; runs nothing",
    "results": "score files, statistics, the paper's tables",
    "report": "one HTML page about runs; no training",
    "cta_theory": "exact worlds, on which the paper's claims are checked",
    "cta_bench": "measurements of speed and memory",
    "cli": "one file for each command",
}
"""What lives where, after the design; a part that is not here is described by the first line of its docstring."""


@dataclass
class Part:
    """A package, or a module that stands alone: its lines of Python and the parts it imports."""

    name: str
    about: str = ""
    lines: int = 0
    imports: set[str] = field(default_factory=set)
    column: int = 0


def read_parts(package: Path = PACKAGE) -> list[Part]:
    """All parts, in an order in which each imports only those before it."""
    parts: dict[str, Part] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name.startswith("__"):  # the package's own face
            continue
        part, text = parts.setdefault(name, Part(name, ROOMS.get(name, ""))), path.read_text()
        tree = ast.parse(text)
        part.lines += len(text.splitlines())
        part.imports |= _imported(tree)
        if path.name in ("__init__.py", f"{name}.py") and not part.about:
            part.about = (ast.get_docstring(tree) or "").split("\n")[0].rstrip(".")
    for part in parts.values():
        part.imports = {name for name in part.imports if name in parts and name != part.name}
    for part in parts.values():
        part.column = _column(part, parts)
    return sorted(parts.values(), key=lambda part: (part.column, part.name))


def _imported(tree: ast.AST) -> set[str]:
    """The parts that a file imports, at its top or inside a function."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"cta.{alias.name}" for alias in node.names] if node.module == "cta" else [node.module or ""]
    return {name.split(".")[1] for name in names if name.startswith("cta.")}


def _column(part: Part, parts: dict[str, Part], above: tuple[str, ...] = ()) -> int:
    """How many imports lie behind a part: the longest chain."""
    if part.name in above:
        raise SystemExit(f"a circle of imports: {' → '.join((*above, part.name))}")
    below = [_column(parts[name], parts, (*above, part.name)) for name in part.imports]
    return 1 + max(below, default=-1)


def table(parts: list[Part]) -> str:
    """The parts as a table in Markdown."""
    lines = ["| part | what lives there | lines | imports |", "|---|---|---|---|"]
    order = {part.name: i for i, part in enumerate(parts)}
    for part in parts:
        imports = ", ".join(sorted(part.imports, key=order.__getitem__))
        lines.append(f"| `{part.name}` | {part.about} | {part.lines:,} | {imports or '–'} |")
    return "\n".join([*lines, f"| all | | {sum(part.lines for part in parts):,} | |"])


def packages_apart(folder: Path = ROOT / "packages") -> str:
    """A line about the packages that are installed by themselves."""
    said = []
    for face in sorted(folder.glob("*/*/__init__.py")):
        lines = sum(len(path.read_text().splitlines()) for path in face.parent.rglob("*.py"))
        said.append(f"`{face.parent.name}` ({ROOMS[face.parent.name]}; {lines:,} lines)")
    return f"Apart, in `packages/`: {', '.join(said)}."


def drawing(parts: list[Part]) -> str:
    """An SVG: a row for each part, arcs up to what it imports, and bars of lines.

    An import that follows from others has no arc.
    """
    shown = {part.name: part for part in parts if part.lines >= SMALL}
    rows = {name: ROW * (i + 1) for i, name in enumerate(shown)}
    height = ROW * (len(shown) + 1)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {EDGE} {height}" font-family="sans-serif">',
        f'<rect width="{EDGE}" height="{height}" fill="white"/>',
        '<g fill="none" stroke="#2b5c8a" stroke-opacity="0.55" stroke-width="1.3">',
    ]
    for part in shown.values():
        for name in sorted(_direct(part, shown), key=list(shown).index):
            down, up = rows[part.name], rows[name]
            across = min(NODE - 20, 0.62 * (down - up) + 6)
            out.append(f'<path d="M{NODE} {down} A{across / 2:g} {(down - up) / 2:g} 0 0 1 {NODE} {up}"/>')
    out.append("</g>")
    for name, y in rows.items():
        about, lines = escape(shown[name].about), shown[name].lines
        bar = lines / LINES_PER_PIXEL
        out += [
            f'<g><title>{about}</title><circle cx="{NODE}" cy="{y}" r="4" fill="#2b5c8a"/>',
            f'<text x="{NODE + 12}" y="{y + 5}" font-size="14" font-weight="bold" fill="#2f3640">{escape(name)}</text>',
            f'<rect x="{BARS}" y="{y - 8}" width="{bar:.0f}" height="16" rx="2" fill="#c9d9e8"/>',
            f'<text x="{BARS + bar + 8:.0f}" y="{y + 4}" font-size="11" fill="#5b6570">{lines:,} lines</text></g>',
        ]
    return "\n".join([*out, "</svg>"]) + "\n"


def _direct(part: Part, shown: dict[str, Part]) -> set[str]:
    """The imports of a part that do not follow from its other imports."""
    near = part.imports & shown.keys()
    return {name for name in near if not any(name in _all(shown[other], shown) for other in near - {name})}


def _all(part: Part, shown: dict[str, Part]) -> set[str]:
    below = part.imports & shown.keys()
    return below.union(*(_all(shown[name], shown) for name in below))


def main() -> None:
    parts = read_parts()
    text = PAGE.read_text()
    mark = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
    PAGE.write_text(mark.sub(lambda _: f"{BEGIN}\n{table(parts)}\n\n{packages_apart()}\n{END}", text))
    DRAWING.write_text(drawing(parts))


if __name__ == "__main__":
    main()
