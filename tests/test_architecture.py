"""The drawing of the packages is of the packages there are: same parts, same order, same imports."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
AGAIN = "run `python tools/draw_packages.py`"


def load_script():
    spec = importlib.util.spec_from_file_location("draw_packages", ROOT / "tools" / "draw_packages.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def rows(text):
    """(part, its description, what it imports) of each row of a table. Lines change with every commit."""
    return re.findall(r"^\| `(\w+)` \| (.*) \| [\d,]+ \| (.*) \|$", text, re.MULTILINE)


def test_the_page_and_the_drawing_are_of_the_source():
    script = load_script()
    parts = script.read_parts()
    assert rows(script.PAGE.read_text()) == rows(script.table(parts)) != [], AGAIN
    apart = [
        re.findall(r"`(cta_\w+)` \(([^;]+); [\d,]+ lines\)", said)
        for said in (script.PAGE.read_text(), script.packages_apart())
    ]
    assert apart[0] == apart[1] != [], AGAIN
    drawn = re.findall(r'font-weight="bold" fill="#2f3640">(\w+)<', script.DRAWING.read_text())
    assert set(drawn) <= {part.name for part in parts}, AGAIN
    assert {part.name for part in parts if part.lines >= 2 * script.SMALL} <= set(drawn), AGAIN


def test_imports_are_read_from_the_source_and_point_backwards(tmp_path):
    script = load_script()
    for name, text in {
        "low.py": '"""The ground."""\n',
        "mid/__init__.py": "from cta.low import x\n",
        "mid/deep.py": "def f():\n    from cta import low\n",
        "top.py": "import cta.mid.deep\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = script.read_parts(tmp_path)
    assert [(part.name, sorted(part.imports)) for part in found] == [("low", []), ("mid", ["low"]), ("top", ["mid"])]
    assert found[0].about == "The ground"
    order = [part.name for part in script.read_parts()]
    for part in script.read_parts():
        assert all(order.index(name) < order.index(part.name) for name in part.imports)
        assert part.about, f"{part.name} has no docstring"
