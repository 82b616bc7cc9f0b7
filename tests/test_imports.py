"""Imports go one way, those inside functions too: along the line that README.md draws, and into it from `packages`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cta"
APART = {path.parent.name: path.parent for path in (ROOT / "packages").glob("*/*/__init__.py")}
"""The packages that stand apart, by name."""
LINE = (
    *("errors", "io", "exit_codes", "cpu_count", "plugins", "compilation", "units"),
    *("validation", "agent_configs", "config", "data", "envs", "presets", "goals", "nn", "losses", "agents", "scores"),
    *("fast", "training", "evaluation", "ooc", "experiment", "export", "analysis", "grid", "report"),
    *("cli", "__main__"),
)
"""Each may import those before it."""


def named(path):
    """(line, name of a module) of everything in a file that is imported."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"cta.{name}" for name in names] if node.module == "cta" else [node.module or ""]
        yield from ((node.lineno, name) for name in names)


def imported(path):
    """(line, part of the package) of everything in a file that is imported from the package."""
    return [(line, name.split(".")[1]) for line, name in named(path) if name.startswith("cta.")]


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


def test_packages_that_stand_apart_know_the_package_and_nothing_knows_them():
    assert set(APART) == {"cta_theory", "cta_bench"}
    for own, folder in {"cta": PACKAGE, **APART}.items():
        for path in sorted(folder.rglob("*.py")):
            others = [(line, name) for line, name in named(path) if name.split(".")[0] in set(APART) - {own}]
            assert not others, f"{path.relative_to(ROOT)} imports {others}"


def test_the_page_draws_this_line():
    (line,) = [x for x in (ROOT / "docs" / "architecture.md").read_text().splitlines() if "─►" in x]
    drawn = [name for names in line.split("─►") for name in names.strip().split(", ")]
    assert drawn == sorted(drawn, key=LINE.index) and set(drawn) <= set(LINE)
