"""Imports go one way, those inside functions too: along the line that README.md draws."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "cta"
LINE = (
    *("errors", "io", "exit_codes", "cpu_count", "plugins", "compilation", "augment", "units"),
    *("validation", "agent_configs", "config", "data", "envs", "presets", "goals", "nn", "losses", "agents", "scores"),
    *("fast", "training", "evaluation", "ooc", "experiment", "export", "analysis", "grid", "report"),
    *("theory", "bench", "cli", "__main__"),
)
"""Each may import those before it."""


def imported(path):
    """(line, part of the package) of everything in a file that is imported from the package."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"cta.{name}" for name in names] if node.module == "cta" else [node.module or ""]
        yield from ((node.lineno, name.split(".")[1]) for name in names if name.startswith("cta."))


def test_imports_go_one_way():
    wrong, seen = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if here == "__init__":  # the package's own face
            continue
        seen.add(here)
        for line, part in imported(path):
            if part in LINE and LINE.index(part) > LINE.index(here):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports cta.{part}")
    assert not wrong, "\n".join(wrong)
    assert seen == set(LINE)


def test_the_readme_draws_this_line():
    (line,) = [x for x in (PACKAGE.parents[1] / "README.md").read_text().splitlines() if "─►" in x]
    drawn = [name for names in line.split("─►") for name in names.strip().split(", ")]
    assert drawn == sorted(drawn, key=LINE.index) and set(drawn) <= set(LINE)
