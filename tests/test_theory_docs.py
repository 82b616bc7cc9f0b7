"""Every claim of docs/theory.md names a test that exists, and every figure is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\[(test_\w+)\]\((\S+?)\)", TEXT)


def missing(links: list[tuple[str, str]]) -> list[str]:
    """Names of linked tests that their file does not define."""
    sources = {path: (ROOT / "docs" / path).resolve() for _, path in links}
    texts = {path: file.read_text(encoding="utf-8") if file.exists() else "" for path, file in sources.items()}
    return [name for name, path in links if not re.search(rf"^def {name}\(", texts[path], re.MULTILINE)]


def test_docs_links_resolve_to_tests() -> None:
    assert len(LINKS) > 40
    assert missing(LINKS) == []


def test_docs_a_renamed_test_would_be_noticed() -> None:
    name, path = LINKS[0]
    assert missing([(f"{name}_renamed", path), (name, "../tests/no_such_file.py")]) == [f"{name}_renamed", name]


@pytest.mark.parametrize("number", range(1, 17))
def test_docs_name_every_property(number: int) -> None:
    assert any(name.startswith(f"test_T{number:02d}_") for name, _ in LINKS)


def test_docs_figures_exist() -> None:
    figures = re.findall(r"!\[[^\]]*\]\((\S+)\)", TEXT)
    assert figures and all((ROOT / "docs" / path).exists() for path in figures)
